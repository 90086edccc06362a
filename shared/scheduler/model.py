"""Wire models of events (api.md, "Scheduler")."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, StringConstraints, ValidationInfo, field_validator, model_validator

from ..core.clock import Millis
from ..core.durations import MAX_TIME, Duration, Time
from ..delivery.flow.rules import Reason
from ..tenants.model import Durability
from ..web.fields.error_texts import TEXT, Shaped
from ..web.fields.params import Moment, Paging, Query
from ..web.fields.types import Maybe, Name, Stamp, Strict
from .ingest.queued_ids import SHAPE

MAX_PAYLOAD = 256 * 1024
"""Bytes of a payload's JSON."""
MAX_SMALL_PAYLOAD = 40 * 1024
"""The same for queue channels: the CloudEvent around it must fit a queue message."""
MAX_BATCH_EVENTS = 10_000
MOST_HELD_SHARDS = 50
"""Shards whose events `GET /stats` reads to count those that are held."""
MAX_BATCH_BYTES = 16 * 1024 * 1024


def _not_ours(event_id: str) -> str:
    # Only a look: whether a check is right is nobody's business here.
    if SHAPE.fullmatch(event_id):
        raise ValueError("ids of this shape are given by the service")
    return event_id


_OWN = "1 to 200 of A-Z a-z 0-9 _ - : @ ~"
ClientId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_:@~-]{1,200}$"), Shaped(_OWN), AfterValidator(_not_ours)]
EventId = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_:@~-]{1,200}$|^[0-9a-v]{16}\.[0-9]{3}$"), Shaped(_OWN + ", or an id that the service gave")
]
LabelKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$"), Shaped("a label's name of 1 to 64 of A-Z a-z 0-9 _ . -")]
LabelText = Annotated[str, StringConstraints(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$"), Shaped(TEXT.format(256))]

type EventState = Literal["queued", "scheduled", "firing", "retrying", "delivered", "dead", "cancelled", "lapsed"]
MAX_FLEX: Millis = 30 * 86_400_000
"""Longest flexible window: what is spread further is better told its day."""
Flex = Annotated[Duration, Field(le=MAX_FLEX)]
OUTLIVED = "the flexible window must not last longer than expires, or the event could lapse before its place in it"


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
    expires: Duration | None = Field(None, description="Not delivered later than this after `due`: it lapses.")
    flex: Flex | None = Field(
        None,
        description="Deliver anywhere in [due, due + flex), at a place that follows from the id. At most P30D, and no more than expires.",
    )
    durability: Durability | None = Field(None, description="How safe before it is acknowledged; never less than the tenant's own.")
    retry: RetryIn | None = None
    labels: dict[LabelKey, LabelText] | None = Field(None, max_length=32)

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if (self.due is None) == (self.delay is None):
            raise ValueError("give exactly one of due and delay")
        return self

    @field_validator("flex")
    @classmethod
    def _window(cls, flex: Millis | None, info: ValidationInfo) -> Millis | None:
        due, expires = info.data.get("due"), info.data.get("expires")
        if flex is not None and expires is not None and flex > expires:
            raise ValueError(OUTLIVED)
        if flex is not None and due is not None and due + flex > MAX_TIME:
            raise ValueError("the window ends after the year 9999")
        return flex


BatchIn = Annotated[list[EventIn], Field(min_length=1, max_length=MAX_BATCH_EVENTS)]
"""A batch as JSON; each of its events is judged by itself."""


class EventPatch(Strict):
    """What may be changed of an event that has not been claimed."""

    due: Time | None = None
    delay: Duration | None = None
    payload: Any = None
    channel: Name | None = None
    expires: Duration | None = None

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


class HeldOut(Strict):
    """Why an event whose time has come is not delivered: its channel is paused, or its channel's circuit breaker is not closed."""

    reason: Reason
    until: Maybe[Stamp] = Field(None, description="When a delivery may probe the receiver; of a pause nobody knows.")


class EventOut(Strict):
    """An event as it stands."""

    id: str
    tenant: str
    state: EventState
    due: Stamp
    created: Stamp
    channel: Maybe[str] = Field(
        None, description="This, payload and attempts are missing while queued; the first two also if it was cancelled then."
    )
    payload: Any = None
    durability: Maybe[Durability] = Field(None, description="If other than standard.")
    expires: Maybe[Duration] = None
    flex: Maybe[Duration] = None
    planned: Maybe[Stamp] = Field(None, description="With flex: its place in the window. Lateness counts from here.")
    retry: Maybe[RetryIn] = None
    labels: Maybe[dict[str, str]] = None
    attempts: Maybe[list[AttemptOut]] = None
    next_attempt: Maybe[Stamp] = Field(None, description="While retrying, and not held.")
    held: Maybe[HeldOut] = Field(None, description="While its time has come and its channel lets nothing through. No part of the ETag.")
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
    """One channel: whether it lets deliveries through, and its share of finished shards."""

    state: Literal["ok", "removed"] | Reason
    held: int = Field(description="Events whose time has come and that wait for the channel; see `held_partial`.")
    delivered: int
    dead: int
    late_ms: LateOut


class StatsOut(Strict):
    """How the tenant's events stand: open ones now, finished ones of the last day."""

    open: int
    overdue: int
    stuck: int
    delivered: int
    dead: int
    lapsed: int
    cancelled: int
    retrying: int
    held: int = Field(description="Open events whose time has come and whose channel is paused, or behind a breaker that is not closed.")
    held_partial: bool = Field(
        description=f"Whether `held` counts only the oldest {MOST_HELD_SHARDS} unfinished shards: there may be more, in others."
    )
    mirror_lag_ms: int | None = Field(None, description="By how much the copies of unfinished mirrored shards are behind, at most.")
    late_ms: LateOut
    channels: dict[str, ChannelStats]


class LoadQuery(Query):
    """Which minutes: from the one that holds `from`, now unless given, to the one before `to`, an hour later unless given."""

    from_: Moment | None = Field(None, alias="from")
    to: Moment | None = None


class LoadMinute(Strict):
    """One minute, and how many open events are filed for it."""

    minute: Stamp
    scheduled: int


class LoadOut(Strict):
    """Every minute of the range, in order, those without events included."""

    items: list[LoadMinute]


class HistoryQuery(Query):
    """Which minutes: from the one that holds `from`, an hour before `to` unless given, to the one before `to`, now unless given."""

    from_: Moment | None = Field(None, alias="from")
    to: Moment | None = None


class HistoryMinute(Strict):
    """What became of the events that were planned for one minute."""

    minute: Stamp
    accepted: int
    open: int = Field(description="Without a final state.")
    delivered: int
    dead: int
    lapsed: int
    cancelled: int
    moved: int = Field(description="Planned anew for another time, or brought back: they count there.")
    gap: int = Field(description="Accepted by finished shards, and came to no end: 0, or a mistake of the service.")
    late_ms: LateOut = Field(description="Of finished shards.")


class HistoryOut(Strict):
    """The minutes of the range for which there were events, in order."""

    items: list[HistoryMinute]
