"""Wire models of events."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ..core.clock import Millis
from ..core.durations import MAX_TIME
from ..core.label_text import parse_labels
from ..delivery.channels.content import ContentType
from ..delivery.channels.event_target import NO_PAYLOAD, EventTarget
from ..delivery.channels.model import LEAST_TIMEOUT, LONGEST_TIMEOUT
from ..delivery.flow.rules import HoldReason
from ..delivery.notices import NoticeKind
from ..tenants.model import Durability, LabelName, Pauses, refuse_two_kinds
from ..web.fields.error_texts import TEXT, Shaped
from ..web.fields.params import Flag, Moment, NotBeforeFrom, Paging, Query
from ..web.fields.types import Duration, Maybe, Name, Stamp, Strict, Time, removable
from .properties.late_reasons import LateReason
from .shard.queued_ids import SHAPE

MAX_EVENT_BYTES = 512 * 1024
"""Largest request with one event, and largest element of a batch, in bytes."""
MAX_BATCH_EVENTS = 10_000
MAX_BATCH_BYTES = 16 * 1024 * 1024


def _not_ours(event_id: str) -> str:
    # Only the shape is checked. The check digits of an id must not be verifiable from here.
    if SHAPE.fullmatch(event_id):
        raise ValueError("ids of this shape are given by the service; choose another id")
    return event_id


_OWN = "1 to 200 of A-Z a-z 0-9 _ - : @ ~"
ClientId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_:@~-]{1,200}$"), Shaped(_OWN), AfterValidator(_not_ours)]
EventId = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_:@~-]{1,200}$|^[0-9a-v]{16}\.[0-9]{3}$"), Shaped(_OWN + ", or an id that the service gave")
]
MOST_LABEL_FILTERS = 4
"""Labels that one filter may name."""
_LABEL_SHAPE = f"1 to {MOST_LABEL_FILTERS} labels as NAME=VALUE with commas between them, such as order=17,team=blue"


def _labels(text: str) -> str:
    try:
        most = len(parse_labels(text))
    except ValueError:
        most = 0
    if not 0 < most <= MOST_LABEL_FILTERS:
        raise ValueError(f"must be {_LABEL_SHAPE}; a comma or backslash in a value stands behind a backslash")
    return text


LabelText = Annotated[str, StringConstraints(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$"), Shaped(TEXT.format(256))]
IdPrefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_:@~.-]{1,200}$"), Shaped("the beginning of an id")]
ErrorPart = Annotated[str, StringConstraints(min_length=1, max_length=200)]

MOST_CHANNELS = 10
"""Channels of one fan-out."""
MOST_FANOUT_ID = 159
"""Characters of a fan-out's id: with `@` and a channel's name of 40 it is an event's id."""

OrderingKey = Annotated[
    str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,128}$"), Shaped("1 to 128 characters without control characters")
]

type EventState = Literal["queued", "scheduled", "firing", "working", "retrying", "delivered", "dead", "cancelled", "lapsed"]
MAX_FLEX: Millis = 30 * 86_400_000
"""Longest flexible window, in milliseconds."""
LEAST_COLLAPSED: Millis = 5_001
"""Shortest delay of an event with `collapse`: until it is claimed, another post can replace it."""
Flex = Annotated[Duration, Field(le=MAX_FLEX)]
OUTLIVED = "the flexible window must not be longer than expires, or the event could lapse before its planned time"


type OnConflict = Literal["keep", "error", "redrive"]


class RetryIn(Strict):
    """The parts of its tenant's retry policy that an event changes. Excludes each other: schedule; and attempts, first, max."""

    attempts: Maybe[Annotated[int, Field(ge=1, le=100)]] = None
    first: Maybe[Annotated[Duration, Field(ge=1, le=86_400_000)]] = None
    max: Maybe[Annotated[Duration, Field(ge=1, le=7 * 86_400_000)]] = None
    within: Maybe[Annotated[Duration, Field(ge=1, le=7 * 86_400_000)]] = None
    schedule: Maybe[Pauses] = Field(
        None, description="The pauses between attempts, each up to 20 % longer and never shorter: n pauses are n + 1 attempts."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        refuse_two_kinds(self)
        return self


AttemptTime = Annotated[Duration, Field(ge=LEAST_TIMEOUT, le=LONGEST_TIMEOUT)]
"""The longest time that an attempt may take, with the bounds of a channel's own."""


def _distinct(channels: list[str]) -> list[str]:
    if len(set(channels)) < len(channels):
        raise ValueError("must be different channels")
    return channels


Channels = Annotated[list[Name], Field(min_length=2, max_length=MOST_CHANNELS), AfterValidator(_distinct)]
"""The channels of a fan-out, as sent: their order means nothing."""


_ABSENT = object()
"""Stands for a payload that was not given: null is one."""


class EventIn(Strict):
    """An event to be scheduled, with exactly one of `due` and `delay`."""

    id: ClientId | None = Field(None, description="Chosen by the client. The same id with the same content answers 200.")
    due: Time | None = Field(None, description="The time of the delivery. An event with a past time is delivered at once.")
    delay: Duration | None = Field(None, description="Deliver this long after the request is accepted.")
    channel: Name = "default"
    channels: Channels | None = Field(
        None, description="Instead of `channel`: one event for each of these channels, all stored or none acknowledged."
    )
    expires: Duration | None = Field(
        None,
        description="The event lapses if it is not delivered within this time after `due`. Left out: as its tenant says; null: never.",
    )
    flex: Flex | None = Field(
        None,
        description="Deliver anywhere in [due, due + flex), at a time that follows from the id. At most P30D, and no more than expires.",
    )
    durability: Durability | None = Field(None, description="The event's durability when it is acknowledged; at least the tenant's own.")
    retry: RetryIn | None = None
    timeout: AttemptTime | None = Field(
        None, description="Http and fleet channels only: the longest time that an attempt may take, instead of the channel's own."
    )
    labels: dict[LabelName, LabelText] | None = Field(None, max_length=32)
    ordering_key: OrderingKey | None = Field(None, description="Events with the same key share the channel's limits per key (`per_key`).")
    collapse: Duration | None = Field(
        None, description="Replace an event of this id that has not been claimed. It is due at most this long after the first of them."
    )
    on_conflict: OnConflict = Field(
        "keep",
        description="The treatment of an event of this id that has ended without a delivery. keep: 200 with that event, and its state in "
        "the header tocsin-conflict; nothing is scheduled. error: 409. redrive: deliver it again if it is dead. Not in batches.",
    )
    target: EventTarget | None = Field(None, description="Http channels only: a path, query, method and headers of this event.")
    payload: Any = Field(
        default_factory=lambda: _ABSENT,
        validate_default=True,
        description="Any JSON. It is delivered byte for byte as sent. Needed, but for the methods GET, which has none, and DELETE.",
    )
    on_delivered: Name | None = Field(None, description="Channel that gets a callback, an event with the outcome, after a delivery.")
    on_dead: Name | None = Field(None, description="Channel that gets a callback if this event ends without a delivery: dead or lapsed.")

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if (self.due is None) == (self.delay is None):
            raise ValueError("give exactly one of due and delay")
        if self.content_type is not None and "payload" not in self.model_fields_set:
            raise ValueError("content_type is for events with a payload; leave it out, or give a payload")
        if self.collapse is not None and (self.id is None or self.flex is not None):
            raise ValueError("collapse needs an id, and excludes flex")
        if self.on_conflict != "keep" and (self.id is None or self.collapse is not None):
            raise ValueError("on_conflict needs an id, and excludes collapse")
        if self.channels is not None:
            if "channel" in self.model_fields_set:
                raise ValueError("give at most one of channel and channels")
            if self.id is not None and len(self.id) > MOST_FANOUT_ID:
                raise ValueError(f"with channels, the id has at most {MOST_FANOUT_ID} characters")
        return self

    content_type: ContentType | None = Field(
        None, description="Sends the bytes of which `payload` is the base64, with this type, instead of the payload as JSON."
    )

    @field_validator("content_type")
    @classmethod
    def _described(cls, content_type: str | None, info: ValidationInfo) -> str | None:
        target = info.data.get("target")
        if content_type is not None and target is not None and target.payload == "refused":
            raise ValueError("is for events with a payload; leave it out")
        return content_type

    @field_validator("payload")
    @classmethod
    def _carried(cls, payload: Any, info: ValidationInfo) -> Any:
        target = info.data.get("target")
        part = "needed" if target is None else target.payload
        if payload is _ABSENT:
            if part == "needed" and "target" in info.data:
                raise PydanticCustomError("missing", "Field required")
            return None
        if part == "refused":
            raise ValueError(NO_PAYLOAD)
        return payload

    @field_validator("collapse")
    @classmethod
    def _longest(cls, collapse: Millis | None, info: ValidationInfo) -> Millis | None:
        delay = info.data.get("delay")
        if collapse is not None and delay is not None:
            if delay < LEAST_COLLAPSED:
                raise ValueError("needs a delay of more than 5 s, because an event is claimed 3 s before it is due; make the delay longer")
            if collapse < delay:
                raise ValueError("must be at least as long as delay")
        return collapse

    @field_validator("flex")
    @classmethod
    def _window(cls, flex: Millis | None, info: ValidationInfo) -> Millis | None:
        due, expires = info.data.get("due"), info.data.get("expires")
        if flex is not None and expires is not None and flex > expires:
            raise ValueError(OUTLIVED)
        if flex is not None and due is not None and due + flex > MAX_TIME:
            raise ValueError("the flexible window ends after the year 9999")
        return flex


BatchIn = Annotated[list[EventIn], Field(min_length=1, max_length=MAX_BATCH_EVENTS)]
"""A batch as JSON. Each of its events is checked by itself."""


class EventPatch(Strict):
    """The fields of an unclaimed event that may be changed."""

    due: Time | None = None
    delay: Duration | None = None
    payload: Any = None
    content_type: ContentType | None = Field(None, description="Null: the payload is sent as JSON.", json_schema_extra=removable)
    channel: Name | None = None
    expires: Duration | None = Field(None, description="Null: it never lapses.", json_schema_extra=removable)
    retry: RetryIn | None = Field(None, description="Replaces all of it. Null: its tenant's policy.", json_schema_extra=removable)
    timeout: AttemptTime | None = Field(None, description="Null: the channel's own.", json_schema_extra=removable)
    target: EventTarget | None = Field(None, description="Null: the channel's own URL and POST again.", json_schema_extra=removable)
    on_delivered: Name | None = Field(None, description="Null: no callback after a delivery.", json_schema_extra=removable)
    on_dead: Name | None = Field(None, description="Null: no callback if the event is dead or lapsed.", json_schema_extra=removable)

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


class AnswerOut(Strict):
    """The head of a receiver's answer. The secrets of the channel are masked in it."""

    content_type: Maybe[str] = None
    body: Maybe[str] = Field(None, description="The beginning, at most 4 KiB. Missing for a compressed body.")
    truncated: Maybe[bool] = Field(None, description="True if the body goes on.")
    headers: Maybe[dict[str, str]] = Field(None, description="Only if the channel asks for them (`answer_headers`).")


class AttemptOut(Strict):
    """One delivery attempt."""

    at: Stamp
    outcome: Literal["delivered", "retry", "final", "unknown", "working", "stale"]
    status: Maybe[int] = None
    error: Maybe[str] = None
    took_ms: int
    answer: Maybe[AnswerOut] = Field(None, description="In `GET /events/{id}` only, for attempts whose channel keeps it (`answers`).")


class HeldOut(Strict):
    """The reason why a due event is not delivered: its channel is paused or has a breaker that is not closed, or it waits for other
    events of its key or schedule, or for a server that owns its key's partition."""

    reason: HoldReason | Literal["ordering-key", "overlap", "partition-owner"]
    until: Maybe[Stamp] = Field(None, description="Time at which a delivery may probe the receiver, or the key's rate allows the next one.")
    since: Maybe[Stamp] = Field(
        None, description="With reasons `ordering-key` and `overlap`, in `GET /events/{id}` only: time since which it waits."
    )
    behind: Maybe[str] = Field(None, description="The id of the event that it waits for.")
    detail: Maybe[str] = Field(
        None, description="With reason `partition-owner`, in `GET /events/{id}` only: why the partition cannot be delivered to."
    )


class LateReasonOut(Strict):
    """A part of an event's lateness."""

    reason: LateReason
    ms: int
    text: str


class WorkOut(Strict):
    """The work of a receiver that has accepted the event, to complete it later."""

    attempt: int
    since: Stamp = Field(description="Start of the attempt.")
    deadline: Stamp = Field(description="Silence until then is a failed attempt.")
    latest: Stamp = Field(description="Heartbeats extend the deadline up to this time.")
    within: Duration = Field(description="Time from a heartbeat to the new deadline.")
    heartbeats: int
    last_heartbeat: Maybe[Stamp] = None


class EventOut(Strict):
    """An event with its current state."""

    id: str
    tenant: str
    state: EventState
    due: Stamp
    created: Stamp
    channel: Maybe[str] = Field(
        None, description="Missing while queued, like payload and attempts. Channel and payload stay missing if it was cancelled then."
    )
    payload: Any = None
    content_type: Maybe[str] = Field(None, description="The type of the bytes of which the payload is the base64. Missing for JSON.")
    durability: Maybe[Durability] = Field(None, description="Missing if standard.")
    expires: Maybe[Duration] = None
    flex: Maybe[Duration] = None
    planned: Maybe[Stamp] = Field(None, description="With flex: the planned time in the window. Lateness counts from here.")
    retry: Maybe[RetryIn] = None
    timeout: Maybe[Duration] = None
    labels: Maybe[dict[str, str]] = None
    ordering_key: Maybe[str] = None
    fanout: Maybe[str] = Field(None, description="The id of the fan-out that the event is one of.")
    collapse: Maybe[Duration] = None
    target: Maybe[EventTarget] = None
    on_delivered: Maybe[str] = None
    on_dead: Maybe[str] = None
    callback: Maybe[str] = Field(None, description="The id of the callback that reports this event's end, once it is stored.")
    callback_of: Maybe[str] = Field(None, description="The id of the event that a callback reports on.")
    notice: Maybe[NoticeKind] = Field(None, description="The kind of a notice.")
    attempts: Maybe[list[AttemptOut]] = Field(
        None, description="The last 20. One with outcome unknown may have delivered the event, even if the state is dead or lapsed."
    )
    next_attempt: Maybe[Stamp] = Field(None, description="While the event is retrying and not held.")
    held: Maybe[HeldOut] = Field(None, description="While the event is due and its channel lets nothing through. Not part of the ETag.")
    work: Maybe[WorkOut] = Field(None, description="While a receiver works on the event.")
    delivered_at: Maybe[Stamp] = None
    late_ms: Maybe[int] = None
    late_because: Maybe[list[LateReasonOut]] = Field(
        None, description="The parts of its lateness, the longest first. Of a delivered event they add up to `late_ms`, up to 100 ms."
    )
    error: Maybe[str] = None


class ProblemLine(Strict):
    """A problem inside a batch's results."""

    type: str
    title: str
    status: int
    detail: str
    errors: Maybe[list[dict[str, str]]] = None
    outcome: Maybe[Literal["unknown", "unchanged"]] = Field(
        None, description="With storage-unavailable: `unchanged` if nothing was stored, `unknown` if the event may have been stored."
    )


class EventList(Strict):
    """A page of events. Their order is undefined across shards."""

    items: list[EventOut]
    next: str | None
    incomplete: Maybe[bool] = Field(
        None, description="True if the page ended at a bound on what one request reads: more events may match. Go on with `next`."
    )


class BatchLine(Strict):
    """The result of one event of a batch."""

    index: int
    status: int
    id: Maybe[str] = None
    ended: Maybe[Literal["dead", "cancelled", "lapsed"]] = Field(
        None, description="The state of the event that has this id already and ended without a delivery: nothing is scheduled."
    )
    problem: Maybe[ProblemLine] = None


class SizesOut(Strict):
    """The sizes that the service accepts. They depend on the size of its instances, and on the tenant's settings."""

    batch_bytes: int = Field(description="Largest body of a batch. An event for several channels counts once for each of them.")
    batch_events: int = Field(description="Most events in a batch, counted likewise.")
    event_bytes: int = Field(description="Largest event, as JSON.")
    payload_bytes: int = Field(description="Largest payload of an event to an http channel; some kinds of channels take less.")
    expires: Maybe[Duration] = Field(None, description="`expires` of events that leave it out; missing: they never lapse.")


class BatchOut(Strict):
    """The results of a batch: one line per event, in the order sent."""

    accepted: int
    rejected: int
    results: list[BatchLine]


class EventQuery(Paging):
    """Filters of the event list, by due time (`from` inclusive, `to` exclusive), state and channel."""

    from_: Moment | None = Field(None, alias="from")
    to: Annotated[Moment, NotBeforeFrom] | None = None
    state: EventState | None = None
    channel: Name | None = None
    label: Annotated[str, Field(max_length=2400), AfterValidator(_labels)] | None = Field(
        None, description=f"Only events with these labels: {_LABEL_SHAPE}. Costs a look at every event that the other filters leave."
    )
    id_prefix: IdPrefix | None = Field(None, description="Only events whose id begins so. Costs as `label` does.")
    error: ErrorPart | None = Field(None, description="Only events whose last error contains this, in any case. Costs as `label` does.")
    held: Flag = Field(False, description="`true`: only due events that a paused channel or a circuit breaker holds.")


class DeadQuery(Paging):
    """Filters of the dead-letter list."""

    from_: Moment | None = Field(None, alias="from")
    to: Annotated[Moment, NotBeforeFrom] | None = None
    channel: Name | None = None


class RedriveIn(Strict):
    """The dead letters to redrive: all that match."""

    from_: Time | None = Field(None, alias="from")
    to: Annotated[Time, NotBeforeFrom] | None = None
    channel: Name | None = None


class RedriveOut(Strict):
    """The number of redriven events."""

    redriven: int


class LateOut(Strict):
    """Lateness in milliseconds, from a histogram: upper bounds of the buckets."""

    p50: int | None
    p99: int | None
    max: int | None


class ChannelStats(Strict):
    """One channel: its state, and its events of finished shards."""

    state: Literal["ok", "removed"] | HoldReason
    held: int = Field(description="Due events that wait for the channel; see `held_partial`.")
    delivered: int
    dead: int
    late_ms: LateOut


class StatsOut(Strict):
    """Counts of the tenant's events: open ones now, finished ones of the last day."""

    open: int
    overdue: int
    stuck: int
    incomplete: bool = Field(False, description="True if not all shards were counted in time: more events are open. Otherwise left out.")
    delivered: int
    dead: int
    lapsed: int
    cancelled: int
    retrying: int
    working: int = Field(description="Those of `retrying` that receivers work on.")
    held: int = Field(description="Due events whose channel is paused or has a circuit breaker that is not closed.")
    held_partial: bool = Field(description="True if more shards hold events than one request reads: others may hold more events.")
    mirror_lag_ms: int | None = Field(None, description="Largest delay of the copies of unfinished mirrored shards.")
    late_ms: LateOut
    channels: dict[str, ChannelStats]


class LoadQuery(Query):
    """The minutes to list: from the one that contains `from` (default: now) to the one before `to` (default: an hour later)."""

    from_: Moment | None = Field(None, alias="from")
    to: Moment | None = None


class LoadMinute(Strict):
    """One minute, and the number of open events filed for it."""

    minute: Stamp
    scheduled: int


class LoadOut(Strict):
    """Every minute of the range in order, including minutes without events."""

    items: list[LoadMinute]
    incomplete: bool = Field(False, description="True if not all shards were counted in time: some minutes have more. Otherwise left out.")


class HistoryQuery(Query):
    """The minutes to list: from the one that contains `from` (default: an hour before `to`) to the one before `to` (default: now)."""

    from_: Moment | None = Field(None, alias="from")
    to: Moment | None = None


class HistoryMinute(Strict):
    """The results of the events that were planned for one minute."""

    minute: Stamp
    accepted: int
    open: int = Field(description="Events without a final state.")
    delivered: int
    dead: int
    lapsed: int
    cancelled: int
    moved: int = Field(description="Rescheduled for another minute or redriven; they count there.")
    gap: int = Field(description="Events of finished shards without a final state. Anything but 0 is a bug of the service.")
    late_ms: LateOut = Field(description="Lateness in finished shards.")


class HistoryOut(Strict):
    """The minutes of the range that have events, in order."""

    items: list[HistoryMinute]
