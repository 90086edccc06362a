"""Wire models of a changing partition count."""

from __future__ import annotations

from pydantic import Field

from ....web.fields.types import Strict
from ...generations import Progress
from ...rows import MAX_PARTITIONS


class ResizeIn(Strict):
    """How many partitions the fleet is to have."""

    partitions: int = Field(ge=1, le=MAX_PARTITIONS)


class ResizeOut(Strict):
    """The generation under which the fleet has that many."""

    generation: int


class ResizingOut(Strict):
    """How far a change of the partition count is. It is over when as many are opened as the fleet has partitions."""

    former: int = Field(alias="from", description="Partitions of the generation before.")
    closed: int = Field(description="Of those, how many nobody serves any more under that generation.")
    opened: int = Field(description="Of the fleet's partitions, how many can be claimed.")


def resizing_out(progress: Progress | None) -> ResizingOut | None:
    """The wire form; None when no change is under way."""
    if progress is None:
        return None
    return ResizingOut.model_validate({"from": progress.former, "closed": progress.closed, "opened": progress.opened})
