"""Wire models of recurring schedules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, ValidationInfo, field_validator, model_validator

from ...core.clock import Millis
from ...delivery.channels.content import ContentType
from ...web.fields.error_texts import Shaped
from ...web.fields.params import Query, Whole
from ...web.fields.types import Duration, Maybe, Name, Stamp, Strict, Time
from ..model import AttemptTime, Channels, OrderingKey, RetryIn
from ..properties.overlap import OverlapPolicy
from ..timings import DEFAULT_GRACE
from . import cron, timing
from .timing import Exclusions, Period, Timing, occurrences

MAX_ID = 160
"""Longest schedule id: an occurrence's event id adds time and revision and must stay within 200 characters."""
MAX_FANOUT_ID = MAX_ID - 41
"""The same with `channels`: the event's id ends with `@` and a channel's name."""
ScheduleId = Annotated[
    str, StringConstraints(pattern=rf"^[A-Za-z0-9_:@~-]{{1,{MAX_ID}}}$"), Shaped(f"1 to {MAX_ID} of A-Z a-z 0-9 _ - : @ ~")
]


DAY: Millis = 86_400_000
MAX_JITTER = DAY

type Policy = Literal["none", "last", "all"]


class CatchUp(Strict):
    """Treatment of missed occurrences: more than a minute late, without jitter, because no sweep ran. A paused schedule misses nothing."""

    policy: Policy = Field("last", description="none: drop them. last: fire only the latest. all: fire each of them, in order.")
    within: Annotated[Duration, Field(ge=DEFAULT_GRACE, le=7 * DAY, description="Drop occurrences missed longer ago than this.")] = DAY


class Recurrence(Strict):
    """The rule of a schedule, and its channel."""

    cron: str | None = Field(
        None,
        description="Minute, hour, day of month, month, day of week: a day matches either day field, or both if one starts with `*`. With "
        "six fields, the second is first and a day matches both (NCRONTAB). L, LW, 15W, FRI#2 and FRIL (5L) are the last day, the last "
        "weekday, the weekday nearest to the 15th, the second and the last Friday. Or @hourly, @daily, @weekly, @monthly, @yearly.",
        examples=["30 2 * * MON-FRI", "0 30 10 LW * *"],
    )
    every: Duration | None = Field(None, description="Elapsed time from `start`, or from the schedule's creation, in whole seconds.")
    timezone: str | None = Field(None, description="IANA name, for `cron`; default UTC.", examples=["Europe/Berlin"])
    start: Time | None = Field(None, description="No occurrence before this time. With `every`, the first occurrence.")
    end: Time | None = Field(None, description="No occurrence at this instant or later.")
    jitter: Annotated[Duration, Field(le=MAX_JITTER)] | None = Field(
        None, description="Each occurrence is delivered later by less than this; the exact delay follows from id and time."
    )
    catch_up: CatchUp = Field(default_factory=CatchUp)
    channel: Name = "default"
    channels: Channels | None = Field(None, description="Instead of `channel`: each occurrence is a fan-out to these channels.")
    exclude: Exclusions | None = Field(None, description="Days without occurrences.")
    at_most_once_per: Period | None = Field(
        None, description="Only the first occurrence in each hour, day, week (from Monday) or month of the time zone counts."
    )
    retry: RetryIn | None = Field(None, description="Retry policy of each occurrence; see events.")
    timeout: AttemptTime | None = Field(None, description="Longest time of an attempt of each occurrence; see events.")
    content_type: ContentType | None = Field(None, description="Type of the bytes of which the payload is the base64; see events.")
    on_delivered: Name | None = Field(None, description="Channel of a callback of each occurrence that was delivered; see events.")
    on_dead: Name | None = Field(None, description="Channel of a callback of each occurrence that is dead or lapsed; see events.")
    overlap: OverlapPolicy | None = Field(
        None,
        description="The treatment of an occurrence that is due while one before it has not ended. allow (the default): it is delivered "
        "nevertheless. queue: it waits. skip: it is not delivered, and lapses with an error that says so.",
    )
    ordering_key: OrderingKey | None = Field(
        None, description="Ordering key of each occurrence; see events. Excludes an overlap of skip or queue."
    )

    def timing(self, created: Millis, calendar_days: Iterable[int] = ()) -> Timing:
        """Return the rule of the occurrences. created: time from which `every` counts if there is no start. calendar_days: the days of the
        calendars that it names."""
        excluded = frozenset(calendar_days) | frozenset(self.exclude.dates if self.exclude is not None else ())
        chosen: dict[str, Any] = {"end": self.end, "excluded": excluded, "once_per": self.at_most_once_per}
        if self.every is None:
            return Timing(cron=self.cron or "", zone=self.timezone or "UTC", start=self.start, **chosen)
        anchor = self.start if self.start is not None else -(-created // 1000) * 1000 + self.every
        return Timing(every=self.every, start=anchor, **chosen)


class RuleIn(Recurrence):
    """The rule of a schedule to preview, with exactly one of `cron` and `every`."""

    @field_validator("overlap")
    @classmethod
    def _overlap(cls, value: OverlapPolicy | None) -> OverlapPolicy | None:
        # Stored like a schedule that does not name it, so that the two are equal.
        return None if value == "allow" else value

    @field_validator("cron")
    @classmethod
    def _cron(cls, value: str | None) -> str | None:
        return None if value is None else cron.check(value)

    @field_validator("every")
    @classmethod
    def _every(cls, value: int | None) -> int | None:
        if value is not None and (value < 1000 or value % 1000):
            raise ValueError("must be whole seconds, at least one")
        return value

    @field_validator("timezone")
    @classmethod
    def _timezone(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            if info.data.get("every") is not None:
                raise ValueError("every counts elapsed time, which no time zone changes; leave it out")
            timing.zone(value)
        return value

    @field_validator("start")
    @classmethod
    def _start(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < 0:
            raise ValueError("must not be before 1970")
        if value is not None and info.data.get("every") is not None and value % 1000:
            raise ValueError("must be a whole second when used with every")
        return value

    @field_validator("end")
    @classmethod
    def _end(cls, value: int | None, info: ValidationInfo) -> int | None:
        start, data = info.data.get("start"), info.data
        if value is not None and start is not None:
            if value <= start:
                raise ValueError("must be later than start")
            if data.get("cron") is not None and "timezone" in data:
                rule = Timing(cron=data["cron"], zone=data["timezone"] or "UTC", start=start, end=value)
                if next(occurrences(rule, start - 1), None) is None:
                    raise ValueError("nothing occurs between start and end")
        return value

    @field_validator("jitter")
    @classmethod
    def _jitter(cls, value: int | None, info: ValidationInfo) -> int | None:
        every = info.data.get("every")
        if value is not None and every is not None and value > every:
            raise ValueError("must not be longer than every")
        return value

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if (self.cron is None) == (self.every is None):
            raise ValueError("give exactly one of cron and every")
        if self.channels is not None and "channel" in self.model_fields_set:
            raise ValueError("give at most one of channel and channels")
        if self.ordering_key is not None and self.overlap not in (None, "allow"):
            raise ValueError(f"overlap {self.overlap} has an order of its own; leave out ordering_key")
        if self.channels is not None and self.overlap not in (None, "allow"):
            raise ValueError(f"overlap {self.overlap} is for schedules with one channel; leave out channels")
        return self


class ScheduleIn(RuleIn):
    """A recurring schedule, with exactly one of `cron` and `every`."""

    payload: Any = Field(description="Any JSON. It is delivered byte for byte as sent with every occurrence.")


class SkippedOut(Strict):
    """The occurrences of a schedule that were skipped."""

    count: int
    last: Stamp = Field(description="Due time of the last of them.")


_READS_AS = Field(
    None, description="With `cron`: the expression in words, as it was read.", examples=["at 02:30 every day, in Europe/Berlin"]
)


class ScheduleOut(Strict):
    """A recurring schedule with its current state."""

    id: str
    tenant: str
    cron: Maybe[str] = None
    reads_as: Maybe[str] = _READS_AS
    every: Maybe[Duration] = None
    timezone: Maybe[str] = None
    start: Maybe[Stamp] = None
    end: Maybe[Stamp] = None
    jitter: Maybe[Duration] = None
    catch_up: CatchUp
    exclude: Maybe[Exclusions] = None
    at_most_once_per: Maybe[Period] = None
    channel: Maybe[str] = Field(None, description="Missing with `channels`.")
    channels: Maybe[list[str]] = None
    retry: Maybe[RetryIn] = None
    timeout: Maybe[Duration] = None
    content_type: Maybe[str] = None
    on_delivered: Maybe[str] = None
    on_dead: Maybe[str] = None
    overlap: Maybe[OverlapPolicy] = Field(None, description="Missing if it is allow.")
    ordering_key: Maybe[str] = None
    skipped: Maybe[SkippedOut] = Field(None, description="In `GET /schedules/{id}` only, if occurrences were skipped (`overlap`).")
    payload: Any
    paused: bool
    created: Stamp
    revision: int = Field(description="Number of changes to content or pause. It marks the ids of occurrences that were created again.")
    next: Stamp | None = Field(description="The next occurrence, without jitter; null if paused, or if there is none.")
    last: Stamp | None = Field(description="The latest past occurrence that became an event.")
    missed: Maybe[Stamp] = Field(
        None, description="The earliest occurrence that is over a minute late, because no sweep has run since; `catch_up` decides about it."
    )


class ScheduleList(Strict):
    """A page of schedules. They have no order."""

    items: list[ScheduleOut]
    next: str | None


class OccurrenceOut(Strict):
    """One future occurrence."""

    at: Stamp
    local: Maybe[str] = Field(
        None, description="With `cron`: the same instant in the schedule's zone.", examples=["2027-03-28T03:00:00.000+02:00"]
    )
    reason: Maybe[timing.ClockChange] = Field(
        None, description="gap: its local time does not exist, this is the first instant after. fold: it exists twice; this is the first."
    )


class PreviewOut(Strict):
    """Future occurrences, the earliest first."""

    items: list[OccurrenceOut]
    reads_as: Maybe[str] = _READS_AS


MAX_BACKFILL = 1000
"""Most occurrences of one backfill."""
AskedId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,15}$"), Shaped("1 to 16 of a-z 0-9 and inner hyphens")]


class TriggerIn(Strict):
    """A request for one event of a schedule at once."""

    id: AskedId | None = Field(None, description="The end of the event's id: the same id again makes no second event. Null: a new one.")


class BackfillIn(Strict):
    """A range in the past whose occurrences become events now."""

    from_: Time = Field(alias="from", description="The first time of the range.")
    to: Time = Field(description="The end of the range, exclusive; not later than now.")
    id: AskedId | None = Field(
        None, description="Names this backfill in the events' ids, so that it can be repeated without doubling any. Null: a new name."
    )
    spread: Annotated[Duration, Field(ge=0, le=DAY)] = Field(0, description="Deliver the events evenly over this time, instead of at once.")

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.from_ < 0:
            raise ValueError("from must not be before 1970")
        if self.to <= self.from_:
            raise ValueError("to must be later than from")
        return self


class BackfillOut(Strict):
    """The events of a backfill."""

    id: str
    created: int
    existing: int = Field(description="Events that an earlier call of the same id made.")


class DeleteQuery(Query):
    """The treatment of overdue occurrences."""

    overdue: Literal["cancel", "keep"] = Field(
        "cancel",
        description="For due occurrences that a late sweep is just storing. cancel: they are cancelled. keep: those that are "
        "stored stay, as all others that are due do.",
    )


class PreviewQuery(Query):
    """The number of occurrences to show."""

    n: Annotated[Whole, Field(ge=1, le=100)] = 10
