"""Wire models of fan-outs."""

from __future__ import annotations

from pydantic import Field

from ...web.fields.types import Maybe, Strict
from ..model import EventOut, EventState, ProblemLine


class FanoutOut(Strict):
    """A fan-out: an event for each of its channels."""

    id: str
    tenant: str
    channels: list[str]
    events: list[EventOut] = Field(description="In the order of the channels. An event is missing after its retention.")


class FanoutLine(Strict):
    """What a change did to one event of a fan-out."""

    id: str
    channel: str
    status: int = Field(description="As the same call by the event's own id answers.")
    state: Maybe[EventState] = Field(None, description="The event's state after the call. Missing if the event is not stored.")
    problem: Maybe[ProblemLine] = None


class FanoutReport(Strict):
    """What a change did to each event of a fan-out."""

    id: str
    changed: int
    results: list[FanoutLine]
