"""Wire models of the calls of receivers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ...web.fields.durations import Duration
from ...web.fields.error_texts import TEXT, Shaped
from ...web.fields.types import Maybe, Stamp, Strict

MAX_CALL_BYTES = 4 * 1024
"""Largest body of a call, in bytes."""
MAX_WORK_ERROR = 400
"""Characters of the error that a receiver reports."""
WorkPlace = Annotated[str, StringConstraints(pattern=r"^[0-9a-v]{16}\.[0-9]{3}$"), Shaped("a place from a completion URL")]
WorkError = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_WORK_ERROR, pattern=r"^[^\x00-\x1f\x7f]*$"),
    Shaped(TEXT.format(MAX_WORK_ERROR)),
]
AttemptNumber = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,5}$"), Shaped("the number of an attempt")]


class FailIn(Strict):
    """The end of work that has failed."""

    error: WorkError = Field("the receiver reported that its work failed", description="Shown with the attempt.")
    retry: bool = Field(True, description="False: the event is dead at once.")
    retry_after: Annotated[Duration, Field(ge=0, le=7 * 86_400_000)] | None = Field(
        None, description="Shortest time until the next attempt, within the retry policy."
    )


class WorkStateOut(Strict):
    """The state of an attempt's work after the call."""

    state: Literal["working", "completed", "failed"]
    event: Literal["working", "delivered", "retrying", "dead", "lapsed", "ended"] = Field(
        description="State of the event; `ended` if the event went on since a former call ended the work."
    )
    deadline: Maybe[Stamp] = Field(None, description="While working: silence until then is a failed attempt.")
    latest: Maybe[Stamp] = Field(None, description="While working: heartbeats extend the deadline up to this time.")
    next_attempt: Maybe[Stamp] = None
