"""Options and answers of the client, in Python's own types: datetimes with a time zone, and timedeltas.

A newer service may add fields and states: unknown fields of an answer are ignored, and states are plain strings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from ..core.clock import to_millis, to_text
from ..core.durations import format_duration
from .reading import answer

FINAL = frozenset({"delivered", "dead", "cancelled", "lapsed"})
"""States that an event does not leave, except by the redrive of a dead one."""


class RetryOptions(TypedDict, total=False):
    """The parts of its tenant's retry policy that an event overrides."""

    attempts: int
    """Largest number of attempts."""
    first: timedelta
    """Longest pause before the second attempt. It doubles with each attempt."""
    max: timedelta
    """Longest pause between attempts."""
    within: timedelta
    """Time after `due` at which attempts end."""
    schedule: Sequence[timedelta]
    """Pauses between attempts, instead of `attempts`, `first` and `max`. Each lasts up to 20 % longer, never shorter."""


class TargetOptions(TypedDict, total=False):
    """The parts of a request that an event sets. They add to those of its http channel, and replace none but the method."""

    path: str
    """Appended to the path of the channel's URL, such as `/orders/17`. At most 512 characters."""
    query: Mapping[str, str]
    """At most 16 parameters."""
    method: Literal["POST", "PUT", "PATCH", "GET", "DELETE"]
    """Default: POST. A GET request has no body: the event's payload is None. With DELETE, a payload of None means no body."""
    headers: Mapping[str, str]
    """At most 16. Put no secrets here: everyone who reads the event sees them."""


class EventOptions(TypedDict, total=False):
    """The schedule of an event: exactly one of `due` and `delay`, the rest optional."""

    due: datetime
    """Time of delivery, with a time zone. An event with a past time is delivered at once."""
    delay: timedelta
    """Time from the service's acceptance to the delivery."""
    id: str
    """Your id for the event: 1 to 200 characters of `A-Z a-z 0-9 _ - : @ ~`. The same id and content again is the same event."""
    channel: str
    """Channel to deliver to. Default: `default`."""
    expires: timedelta | None
    """Time after `due` at which the event lapses if it was not delivered. Default: the setting of the tenant. None: never."""
    flex: timedelta
    """Window after `due` within which the event may be delivered, to spread many events."""
    durability: Literal["fast", "standard", "mirrored"]
    """The durability: the way in which the event is stored before the service acknowledges it."""
    retry: RetryOptions
    timeout: timedelta
    """Longest time of an attempt, instead of the channel's own: 0.1 s to 60 s. Http and fleet channels only."""
    content_type: str
    """Sends the payload, which is then bytes or the text of their base64, with this type instead of as JSON."""
    labels: Mapping[str, str]
    ordering_key: str
    """Events with the same key share the channel's limits per key, such as the order of their due times. 1 to 128 characters."""
    collapse: timedelta
    """Replace an event of this id that waits. It is delivered at most this long after the first of those events."""
    on_conflict: Literal["keep", "error", "redrive"]
    """The treatment of an event of this id that has ended without a delivery. keep, the default: it is returned, with a warning in the log.
    error: `Conflict` is raised. redrive: a dead one is delivered again. Not in batches."""
    target: TargetOptions
    """A path, query, method and headers of this event, under the URL of its http channel."""
    on_delivered: str
    """Channel that gets a callback, an event with the outcome, after a delivery."""
    on_dead: str
    """Channel that gets a callback if the event ends without a delivery: dead or lapsed."""


class NewEvent(EventOptions, total=False):
    """An event of a batch."""

    payload: Any
    """Required, except with the methods GET and DELETE."""
    channels: Sequence[str]
    """Instead of `channel`: 2 to 10 channels, each of which gets an event. Its `BatchLine` names the fan-out."""


@answer
class ReceiverAnswer:
    """The head of a receiver's answer, with the channel's secrets masked."""

    content_type: str | None = None
    body: str | None = None
    """The beginning, at most 4 KiB. None for a compressed body."""
    truncated: bool = False
    """True if the body goes on."""
    headers: Mapping[str, str] | None = None
    """None unless the channel keeps them."""


@answer
class Attempt:
    """One attempt to deliver an event."""

    at: datetime
    outcome: str
    """delivered, retry, final, working or unknown."""
    status: int | None = None
    error: str | None = None
    took_ms: int = 0
    answer: ReceiverAnswer | None = None
    """Only for an event that was read by its id, and only if the channel keeps answers: by default, those of failed attempts."""


@answer
class LateReason:
    """A part of an event's lateness."""

    reason: str
    """accepted-late, paused, breaker, owner-lost, rate, concurrency, storage, ordering-key, partition-owner, not-taken, retry or other."""
    ms: int
    text: str


@answer
class EventRetry:
    """The parts of its tenant's retry policy that an event overrides; None for the others."""

    attempts: int | None = None
    first: timedelta | None = None
    max: timedelta | None = None
    within: timedelta | None = None
    schedule: tuple[timedelta, ...] | None = None


@answer
class ChannelHold:
    """The reason why an event that is due is not delivered."""

    reason: str
    """The channel is paused, its circuit breaker is open or half-open, or the event waits for its key (`ordering-key`), or for a server
    that owns the key's partition (`partition-owner`)."""
    until: datetime | None = None
    """Time at which a delivery may probe the receiver, or the key's rate allows the next one."""
    since: datetime | None = None
    """The time since which it waits for its key."""
    behind: str | None = None
    """The id of the event of its key that it waits for."""
    detail: str | None = None
    """With `partition-owner`: the reason why the partition cannot be delivered to."""


@answer
class ReceiverWork:
    """The work of a receiver that completes the event later."""

    attempt: int
    since: datetime
    deadline: datetime
    """Silence until then is a failed attempt."""
    latest: datetime
    """Heartbeats extend the deadline up to this time."""
    within: timedelta
    heartbeats: int = 0
    last_heartbeat: datetime | None = None


@answer
class EventTarget:
    """The parts of a request that an event sets, beside those of its http channel."""

    path: str | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)


@answer
class Event:
    """The present state of an event."""

    id: str
    tenant: str
    state: str
    """queued, scheduled, firing, working, retrying, delivered, dead, cancelled or lapsed."""
    due: datetime
    created: datetime
    channel: str | None = None
    payload: Any = None
    """None while the event is queued, like `channel` and `attempts`, and for an event whose request has no body.

    With a `content_type`, the text of the bytes' base64.
    """
    content_type: str | None = None
    expires: timedelta | None = None
    flex: timedelta | None = None
    durability: str = "standard"
    retry: EventRetry | None = None
    timeout: timedelta | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str | None = None
    fanout: str | None = None
    """The id of the fan-out that the event is one of."""
    collapse: timedelta | None = None
    target: EventTarget | None = None
    on_delivered: str | None = None
    on_dead: str | None = None
    callback: str | None = None
    """The id of the callback that reports this event's end, once it is stored."""
    callback_of: str | None = None
    """Only for a callback: the id of the event whose end it reports."""
    notice: str | None = None
    """Only for a notice: its kind, such as `breaker.opened`."""
    attempts: tuple[Attempt, ...] = ()
    planned: datetime | None = None
    """Time chosen within the window of `flex`. Lateness is measured from it."""
    next_attempt: datetime | None = None
    work: ReceiverWork | None = None
    """Set while a receiver works on the event, which it has accepted."""
    held: ChannelHold | None = None
    """Set while the channel holds the event although it is due."""
    delivered_at: datetime | None = None
    late_ms: int | None = None
    late_because: tuple[LateReason, ...] = ()
    """The parts of its lateness from 100 ms on, the longest first."""
    error: str | None = None
    """The reason why the event is dead."""
    etag: str | None = None
    """The version, for `if_match` of `change` and `cancel`. Only answers about a single event have it."""

    @property
    def final(self) -> bool:
        """True if the event has ended: it is delivered, dead, cancelled or lapsed."""
        return self.state in FINAL


@answer
class Fanout:
    """A fan-out: the events that one request made, one for each of its channels."""

    id: str
    tenant: str
    channels: tuple[str, ...]
    events: tuple[Event, ...]
    """In the order of the channels. An event that is no longer kept is missing."""

    @property
    def final(self) -> bool:
        """True if all events have ended."""
        return all(event.final for event in self.events)


@answer
class FanoutLine:
    """The result of a change for one event of a fan-out."""

    id: str
    channel: str
    status: int
    """As the same call by the event's own id answers."""
    state: str | None = None
    """The event's state after the call; None if it is not stored."""
    problem: Mapping[str, Any] | None = None


@answer
class FanoutReport:
    """The results of a change, one for each event of a fan-out."""

    id: str
    changed: int
    results: tuple[FanoutLine, ...]

    @property
    def unchanged(self) -> tuple[FanoutLine, ...]:
        """The events that the call could not change, each with its `problem`."""
        return tuple(line for line in self.results if line.problem is not None)


@answer
class BatchLine:
    """The result of one event of a batch."""

    index: int
    """Position of the event in the batch, from 0."""
    status: int
    """201 new, 202 queued, 200 already known, else the status of `problem`."""
    id: str | None = None
    ended: str | None = None
    """State of the event that has this id already and has ended without a delivery, such as `dead`: nothing is scheduled."""
    problem: Mapping[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """True if the service has accepted the event."""
        return self.status < 300


@answer
class Batch:
    """The results of a batch, one line per event, in their order."""

    results: tuple[BatchLine, ...] = ()

    @property
    def accepted(self) -> int:
        """The number of events that the service has accepted."""
        return sum(line.ok for line in self.results)

    @property
    def rejected(self) -> tuple[BatchLine, ...]:
        """The lines of the refused events."""
        return tuple(line for line in self.results if not line.ok)


@answer
class Lateness:
    """Lateness of deliveries in milliseconds; None if there were no deliveries."""

    p50: int | None = None
    p99: int | None = None
    max: int | None = None


@answer
class ChannelStats:
    """The figures of one channel."""

    state: str = ""
    """ok, removed, or the reason why the channel holds its events."""
    delivered: int = 0
    dead: int = 0
    held: int = 0
    """Events that are due and wait for the channel."""
    late_ms: Lateness = Lateness()


@answer
class Stats:
    """Numbers of a tenant's events: open ones now, ended ones of the last day."""

    open: int
    overdue: int
    """Events that are due but that no process serves."""
    delivered: int
    dead: int
    stuck: int = 0
    """Overdue events that stay unserved although they were dispatched repeatedly."""
    retrying: int = 0
    """Events whose last attempt failed and that will be tried again, and those that receivers work on."""
    working: int = 0
    """Those of `retrying` that receivers work on."""
    held: int = 0
    """Events that are due and whose channel is paused, or has a circuit breaker that is not closed."""
    held_partial: bool = False
    """True if more events may be held than `held` counts."""
    incomplete: bool = False
    """True if not all unfinished shards were counted in time: more events are open."""
    lapsed: int = 0
    cancelled: int = 0
    mirror_lag_ms: int | None = None
    """Delay of the copies in the second account, in milliseconds; None if nothing is mirrored."""
    late_ms: Lateness = Lateness()
    channels: Mapping[str, ChannelStats] = field(default_factory=dict)


@answer
class Sizes:
    """The sizes that the app accepts, in bytes unless the name says otherwise."""

    batch_bytes: int
    batch_events: int
    event_bytes: int
    payload_bytes: int
    expires: timedelta | None = None
    """`expires` of events that leave it out; None: they never lapse."""


@answer
class MinuteLoad:
    """The number of events that are due in one minute."""

    minute: datetime
    scheduled: int


@answer
class CatchUp:
    """The occurrences that fire late if the app missed them in an outage: none, last or all, up to `within` ago."""

    policy: str
    within: timedelta | None = None


@answer
class SkippedOccurrences:
    """The occurrences of a schedule that were skipped, because the one before had not ended. last: due time of the last of them."""

    count: int
    last: datetime


@answer
class Schedule:
    """The present state of a recurring schedule."""

    id: str
    tenant: str = ""
    cron: str | None = None
    reads_as: str | None = None
    """With `cron`: the expression in words, as the service reads it."""
    every: timedelta | None = None
    timezone: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    jitter: timedelta | None = None
    catch_up: CatchUp | None = None
    exclude: Mapping[str, Any] | None = None
    at_most_once_per: str | None = None
    overlap: str | None = None
    """`skip` or `queue`; None if occurrences may overlap."""
    ordering_key: str | None = None
    skipped: SkippedOccurrences | None = None
    """The occurrences that were skipped so far; in `get` only."""
    channel: str | None = None
    channels: tuple[str, ...] = ()
    """The channels to which each occurrence fans out, instead of `channel`."""
    on_delivered: str | None = None
    on_dead: str | None = None
    retry: EventRetry | None = None
    timeout: timedelta | None = None
    content_type: str | None = None
    payload: Any = None
    paused: bool = False
    next: datetime | None = None
    """The next occurrence, or None if none is left."""
    last: datetime | None = None
    """The latest occurrence that became an event."""
    missed: datetime | None = None
    """The earliest occurrence that is over a minute late, because no sweep has run since."""
    created: datetime | None = None
    revision: int = 0
    etag: str | None = None


class ScheduleOptions(TypedDict, total=False):
    """The recurrence of a schedule: exactly one of `cron` and `every`, the rest optional."""

    cron: str
    """Minute, hour, day of month, month, day of week, such as `30 10 LW * *`; six fields with the second first; or `@daily`."""
    every: timedelta
    timezone: str
    """An IANA name such as `Europe/Berlin`."""
    start: datetime
    end: datetime
    jitter: timedelta
    catch_up: Mapping[str, Any]
    """`{"policy": "none" | "last" | "all", "within": timedelta}`."""
    exclude: Mapping[str, Sequence[str]]
    """`{"dates": ["2026-12-24"], "calendars": ["holidays"]}`: days without occurrences."""
    at_most_once_per: Literal["hour", "day", "week", "month"]
    """Only the first occurrence in each of these periods counts."""
    overlap: Literal["allow", "skip", "queue"]
    """An occurrence that is due before the last one has ended is delivered (`allow`, the default), skipped, or waits (`queue`)."""
    ordering_key: str
    """Its events share the channel's limits per key. Not with `overlap` of `skip` or `queue`."""
    channel: str
    channels: Sequence[str]
    """Instead of `channel`: each occurrence is a fan-out to these 2 to 10 channels."""
    retry: RetryOptions
    timeout: timedelta
    content_type: str
    """As of an event."""
    on_delivered: str
    """Channel that gets a callback of each occurrence that was delivered."""
    on_dead: str
    """Channel that gets a callback of each occurrence that is dead or lapsed."""


@answer
class Heartbeat:
    """A heartbeat monitor. state: `alive`, or `silent` if no call came in time. due: when the next call must have come."""

    name: str
    state: str
    due: datetime
    channel: str = "default"
    event: str | None = None


@answer
class Backfill:
    """The events of a backfill. existing: those that an earlier call with this id made."""

    id: str
    created: int
    existing: int


@answer
class Occurrence:
    """A coming occurrence of a schedule."""

    at: datetime
    local: datetime | None = None
    """The instant `at` in the schedule's time zone."""
    reason: str | None = None
    """`gap` or `fold` if a clock change moved the occurrence from the time that the expression gives."""


@answer
class BulkJob:
    """A bulk job, with its count, its progress and its report."""

    id: str
    action: str
    """cancel, move, redrive or fire."""
    state: str
    """counting, counted, running, done, cancelled or expired."""
    count: int
    """Number of events that match; while the job counts, of those found so far."""
    sample: tuple[Mapping[str, Any], ...] = ()
    confirmation: str | None = None
    """The argument for `jobs.confirm`, while the state is `counted`."""
    done: int = 0
    skipped: int = 0
    """Events that no longer matched when the job came to them."""
    failed: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[Mapping[str, Any], ...] = ()
    """The first failed events, each with `id` and `reason`."""
    created: datetime
    started: datetime | None = None
    ended: datetime | None = None


@answer
class AnswerPage[T]:
    """A page of a list."""

    items: tuple[T, ...]
    next: str | None = None


_TIMES = frozenset({"due", "start", "end", "from", "to"})
_DURATIONS = frozenset(
    {
        *("later", "earlier"),
        *("delay", "expires", "flex", "collapse", "every", "jitter", "timeout"),
        *("retry.first", "retry.max", "retry.within", "retry.schedule", "catch_up.within"),
    }
)


def to_json_value(name: str, value: Any) -> Any:
    """Return the value for JSON: times and durations become text, also inside mappings. A text stays as it is.

    Raises ValueError for a datetime without a time zone and for a negative duration, TypeError for a value of another type.
    """
    if isinstance(value, datetime) and name not in _DURATIONS:
        if value.utcoffset() is None:
            raise ValueError(f"{name}: {value!r} has no time zone; use datetime.now(UTC) or .astimezone()")
        return to_text(to_millis(value))
    if isinstance(value, timedelta) and name not in _TIMES:
        millis = -(-value // timedelta(milliseconds=1))
        if millis < 0:
            raise ValueError(f"{name}: {value!r} is negative")
        return format_duration(millis)
    if value is None or isinstance(value, str):
        return value
    if name == "retry.schedule" and isinstance(value, list | tuple):
        return [to_json_value(name, each) for each in value]
    if name in _DURATIONS:
        seconds = isinstance(value, int | float) and not isinstance(value, bool)
        raise TypeError(f"{name}: {value!r} is not a timedelta{f'; write timedelta(seconds={value!r})' if seconds else ''}")
    if name in _TIMES:
        raise TypeError(f"{name}: {value!r} is not a datetime with a time zone")
    if isinstance(value, Mapping):
        return {key: to_json_value(f"{name}.{key}", each) for key, each in value.items()}
    return value


def to_json_fields(**given: Any) -> dict[str, Any]:
    """Return the arguments that are not None, each as a value for JSON."""
    return {name: to_json_value(name, value) for name, value in given.items() if value is not None}
