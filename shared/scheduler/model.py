"""Wire models of events (api.md, "Scheduler")."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, StringConstraints, model_validator

from ..durations import Duration, Time
from ..tenants.model import Maybe, Name, Stamp, Strict
from ..web.params import Moment, Paging

MAX_PAYLOAD = 256 * 1024
"""Bytes of a payload's JSON."""
MAX_SMALL_PAYLOAD = 40 * 1024
"""The same for queue channels: the CloudEvent around it must fit a queue message."""
MAX_BATCH_EVENTS = 10_000
MAX_BATCH_BYTES = 16 * 1024 * 1024

ClientId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_:@~-]{1,200}$")]
EventId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_:@~-]{1,200}$|^[0-9a-v]{16}\.[0-9]{3}$")]
LabelKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
LabelText = Annotated[str, StringConstraints(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]

type EventState = Literal["queued", "scheduled", "firing", "retrying", "delivered", "dead", "cancelled", "lapsed"]
Expires = Annotated[Duration, Field(ge=0)]


class RetryIn(Strict):
    """What an event changes of its tenant's retry policy."""

    attempts: Annotated[int, Field(ge=1, le=100)] | None = None
    first: Annotated[Duration, Field(ge=1, le=86_400_000)] | None = None
    max: Annotated[Duration, Field(ge=1, le=7 * 86_400_000)] | None = None
    within: Annotated[Duration, Field(ge=1, le=7 * 86_400_000)] | None = None


def _given(name: str) -> dict[str, JsonValue]:
    return {"required": [name], "properties": {name: {"type": "string"}}}


class EventIn(Strict):
    """An event to be scheduled: exactly one of `due` and `delay`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [_given("due"), _given("delay")]})

    id: ClientId | None = Field(None, description="Chosen by the client; the same id and content again answers 200.")
    due: Time | None = Field(None, description="When to deliver. A past time fires at once.")
    delay: Duration | None = Field(None, description="Deliver this long after the request is taken.")
    payload: Any = Field(description="Any JSON, delivered byte for byte as sent.")
    channel: Name = "default"
    expires: Expires | None = Field(None, description="Not delivered later than this after `due`: it lapses.")
    durability: Literal["standard"] | None = None
    retry: RetryIn | None = None
    labels: dict[LabelKey, LabelText] | None = Field(None, max_length=32)

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if (self.due is None) == (self.delay is None):
            raise ValueError("give exactly one of due and delay")
        return self


BatchIn = Annotated[list[EventIn], Field(min_length=1, max_length=MAX_BATCH_EVENTS)]
"""A batch as JSON; each of its events is judged by itself."""


class EventPatch(Strict):
    """What may be changed of an event that has not been claimed."""

    due: Time | None = None
    delay: Duration | None = None
    payload: Any = None
    channel: Name | None = None
    expires: Expires | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("name at least one field to change")
        if "due" in self.model_fields_set and "delay" in self.model_fields_set:
            raise ValueError("give at most one of due and delay")
        for name in ("due", "delay", "channel"):
            if name in self.model_fields_set and getattr(self, name) is None:
                raise ValueError(f"{name} cannot be null")
        return self


class AttemptOut(Strict):
    """One delivery attempt."""

    at: Stamp
    outcome: Literal["delivered", "retry", "final", "unknown"]
    status: Maybe[int] = None
    error: Maybe[str] = None
    took_ms: int


class EventOut(Strict):
    """An event as it stands."""

    id: str
    tenant: str
    state: EventState
    due: Stamp
    created: Stamp
    channel: str
    payload: Any
    expires: Maybe[Duration] = None
    retry: Maybe[RetryIn] = None
    labels: Maybe[dict[str, str]] = None
    attempts: list[AttemptOut]
    next_attempt: Maybe[Stamp] = None
    delivered_at: Maybe[Stamp] = None
    late_ms: Maybe[int] = None
    error: Maybe[str] = None


class EventList(Strict):
    """A page of events, in no order across shards."""

    items: list[EventOut]
    next: str | None


class ProblemLine(Strict):
    """A problem inside a batch's results."""

    type: str
    title: str
    status: int
    detail: str
    errors: Maybe[list[dict[str, str]]] = None


class BatchLine(Strict):
    """What became of one event of a batch."""

    index: int
    status: int
    id: Maybe[str] = None
    problem: Maybe[ProblemLine] = None


class BatchOut(Strict):
    """What became of a batch: one line per event, in the order sent."""

    accepted: int
    rejected: int
    results: list[BatchLine]


class EventQuery(Paging):
    """Filters of the event list, by due time (`from` inclusive, `to` exclusive), state and channel."""

    from_: Moment | None = Field(None, alias="from")
    to: Moment | None = None
    state: EventState | None = None
    channel: Name | None = None


class DeadQuery(Paging):
    """Filters of the dead-letter list."""

    from_: Moment | None = Field(None, alias="from")
    to: Moment | None = None
    channel: Name | None = None


class RedriveIn(Strict):
    """Which dead letters to bring back: all that match."""

    from_: Time | None = Field(None, alias="from")
    to: Time | None = None
    channel: Name | None = None


class RedriveOut(Strict):
    """How many were brought back."""

    redriven: int


class LateOut(Strict):
    """Lateness in milliseconds, from a histogram: upper bounds of the buckets."""

    p50: int | None
    p99: int | None
    max: int | None


class ChannelStats(Strict):
    """One channel's share."""

    delivered: int
    late_ms: LateOut


class StatsOut(Strict):
    """How the tenant's events stand: open ones now, finished ones of the last day."""

    open: int
    overdue: int
    delivered: int
    dead: int
    lapsed: int
    cancelled: int
    late_ms: LateOut
    channels: dict[str, ChannelStats]
