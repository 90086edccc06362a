"""Wire models of resizes."""

from __future__ import annotations

from pydantic import Field

from ....web.fields.types import Strict
from ...generations import ResizeProgress
from ...rows import MAX_PARTITIONS


class ResizeIn(Strict):
    """The new partition count of a fleet."""

    partitions: int = Field(ge=1, le=MAX_PARTITIONS)


class ResizeOut(Strict):
    """The generation of the new partition count."""

    generation: int


class ResizingOut(Strict):
    """The progress of a resize. It is complete when `opened` is the fleet's partition count."""

    former: int = Field(alias="from", description="Partitions of the generation before.")
    closed: int = Field(description="Partitions of the generation before that no server owns any more.")
    opened: int = Field(description="Partitions of the new generation that can be claimed.")


def resizing_out(progress: ResizeProgress | None) -> ResizingOut | None:
    """Return the progress as the API shows it; None if no resize is under way."""
    if progress is None:
        return None
    return ResizingOut.model_validate({"from": progress.former, "closed": progress.closed, "opened": progress.opened})
