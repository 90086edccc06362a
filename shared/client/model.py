"""What goes in and what comes back, in Python's own types: aware datetimes, timedeltas.

Answers are read with tolerance: fields that a newer service adds are passed over, and states are plain strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, Required, TypedDict

from pydantic import BaseModel, ConfigDict, Field

from ..core.clock import to_millis, to_text
from ..core.durations import format_duration

FINAL = frozenset({"delivered", "dead", "cancelled", "lapsed"})
"""States that an event does not leave (but for a redrive of a dead one)."""


class RetryPolicy(TypedDict, total=False):
    """What an event changes of its tenant's retry policy."""

    attempts: int
    """Deliveries tried in all."""
    first: timedelta
    """Longest pause before attempt 2; doubles from there."""
    max: timedelta
    """Longest pause between attempts."""
    within: timedelta
    """No attempt later than this after it was due."""


class Options(TypedDict, total=False):
    """How an event is scheduled: one of `due` and `delay`, the rest as needed."""

    due: datetime
    """When to deliver, with a time zone. A past time fires at once."""
    delay: timedelta
    """Deliver this long after the request is taken."""
    id: str
    """Your own name for the event: 1-200 of `A-Z a-z 0-9 _ - : @ ~`. The same id and content again is the same event."""
    channel: str
    """Where it goes; `default` unless told."""
    expires: timedelta
    """Not delivered later than this after `due`: it lapses."""
    flex: timedelta
    """Deliver anywhere within this after `due`: for many events that need not all come at one instant."""
    durability: Literal["fast", "standard", "mirrored"]
    """How safe before it is acknowledged."""
    retry: RetryPolicy
    labels: Mapping[str, str]


class NewEvent(Options, total=False):
    """An event of a batch."""

    payload: Required[Any]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Attempt(_Answer):
    """One attempt to deliver."""

    at: datetime
    outcome: str
    """delivered, retry, final or unknown."""
    status: int | None = None
    error: str | None = None
    took_ms: int = 0


class Retry(_Answer):
    """An event's own retry policy, where it differs from its tenant's."""

    attempts: int | None = None
    first: timedelta | None = None
    max: timedelta | None = None
    within: timedelta | None = None


class Held(_Answer):
    """Why an event whose time has come is not delivered."""

    reason: str
    """The channel's doing: it is paused, or its breaker is open or half-open."""
    until: datetime | None = None
    """When a delivery may probe the receiver, if it is the breaker."""


class Event(_Answer):
    """An event as it stands."""

    id: str
    tenant: str
    state: str
    """queued, scheduled, firing, retrying, delivered, dead, cancelled or lapsed."""
    due: datetime
    created: datetime
    channel: str | None = None
    payload: Any = None
    """Like the channel and the attempts not there while the event is queued."""
    expires: timedelta | None = None
    flex: timedelta | None = None
    durability: str = "standard"
    retry: Retry | None = None
    labels: Mapping[str, str] = Field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    planned: datetime | None = None
    """Its place in the window of `flex`, from which lateness counts."""
    next_attempt: datetime | None = None
    held: Held | None = None
    """Why it waits although its time has come."""
    delivered_at: datetime | None = None
    late_ms: int | None = None
    error: str | None = None
    """Why it is dead."""
    etag: str | None = None
    """The version: `if_match` of `change` and `cancel`. Only answers about a single event have it."""

    @property
    def final(self) -> bool:
        """Whether it has come to an end."""
        return self.state in FINAL


class BatchLine(_Answer):
    """What became of one event of a batch."""

    index: int
    """Its position among the events given."""
    status: int
    """201 new, 202 queued, 200 there already, else a problem's."""
    id: str | None = None
    problem: Mapping[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether the service has it."""
        return self.status < 300


class Batch(_Answer):
    """What became of a batch, one line per event, in their order."""

    results: tuple[BatchLine, ...] = ()

    @property
    def accepted(self) -> int:
        """How many events the service has."""
        return sum(line.ok for line in self.results)

    @property
    def rejected(self) -> tuple[BatchLine, ...]:
        """The lines of those it does not have."""
        return tuple(line for line in self.results if not line.ok)


class Late(_Answer):
    """Lateness of deliveries in milliseconds; None while there are none."""

    p50: int | None = None
    p99: int | None = None
    max: int | None = None


class ChannelStats(_Answer):
    """One channel's share."""

    state: str = ""
    """ok, removed, or why it lets nothing through."""
    delivered: int = 0
    dead: int = 0
    held: int = 0
    """Events whose time has come and that wait for the channel."""
    late_ms: Late = Late()


class Stats(_Answer):
    """How the tenant's events stand: open ones now, finished ones of the last day."""

    open: int
    overdue: int
    """Past their time, and served by nobody."""
    delivered: int
    dead: int
    stuck: int = 0
    """Those that nobody manages to serve, however often they are asked for."""
    retrying: int = 0
    """Those that have failed and are to be tried again."""
    held: int = 0
    """Those whose time has come and whose channel lets nothing through: it is paused, or its breaker is not closed."""
    held_partial: bool = False
    """Whether there may be more of them."""
    lapsed: int = 0
    cancelled: int = 0
    mirror_lag_ms: int | None = None
    """How far the copies in the second account are behind, in milliseconds; None where nothing is mirrored."""
    late_ms: Late = Late()
    channels: Mapping[str, ChannelStats] = Field(default_factory=dict)


class Load(_Answer):
    """How many events are planned for one minute."""

    minute: datetime
    scheduled: int


class CatchUp(_Answer):
    """What becomes of occurrences that nobody was there to fire: none, last or all of those within."""

    policy: str
    within: timedelta | None = None


class Schedule(_Answer):
    """A recurring schedule as it stands."""

    id: str
    tenant: str = ""
    cron: str | None = None
    every: timedelta | None = None
    timezone: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    jitter: timedelta | None = None
    catch_up: CatchUp | None = None
    channel: str | None = None
    payload: Any = None
    paused: bool = False
    next: datetime | None = None
    """The next occurrence, if one is to come."""
    last: datetime | None = None
    """The latest occurrence that became an event."""
    created: datetime | None = None
    revision: int = 0
    etag: str | None = None


class ScheduleOptions(TypedDict, total=False):
    """How a schedule recurs: one of `cron` and `every`, the rest as needed."""

    cron: str
    """Five fields: minute, hour, day of month, month, day of week; or `@daily` and the like."""
    every: timedelta
    timezone: str
    """An IANA name, `Europe/Berlin`."""
    start: datetime
    end: datetime
    jitter: timedelta
    catch_up: Mapping[str, Any]
    """`{"policy": "none" | "last" | "all", "within": timedelta}`."""
    channel: str


class Occurrence(_Answer):
    """A coming occurrence of a schedule."""

    at: datetime
    local: datetime | None = None
    """The same instant in the schedule's zone."""
    reason: str | None = None
    """Why it is not at the time the expression says: gap or fold of the clock."""


class Page[T](_Answer):
    """A page of a list."""

    items: tuple[T, ...]
    next: str | None = None


_TIMES = frozenset({"due", "start", "end", "from", "to"})
_DURATIONS = frozenset(
    {*("delay", "expires", "flex", "every", "jitter"), *("retry.first", "retry.max", "retry.within", "catch_up.within")}
)


def plain(name: str, value: Any) -> Any:
    """`value` as JSON has it: times and durations as text, also inside mappings. A text goes as it is.

    ValueError for a datetime without a time zone and a negative duration; TypeError for what is none where one is meant.
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
    if name in _DURATIONS:
        seconds = isinstance(value, int | float) and not isinstance(value, bool)
        raise TypeError(f"{name}: {value!r} is not a timedelta{f'; write timedelta(seconds={value!r})' if seconds else ''}")
    if name in _TIMES:
        raise TypeError(f"{name}: {value!r} is not a datetime with a time zone")
    if isinstance(value, Mapping):
        return {key: plain(f"{name}.{key}", each) for key, each in value.items()}
    return value


def fields(**given: Any) -> dict[str, Any]:
    """Those that are given, each as JSON has it."""
    return {name: plain(name, value) for name, value in given.items() if value is not None}
