"""Wire models of recurring schedules (api.md, "Scheduler")."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, StringConstraints, ValidationInfo, field_validator, model_validator

from ...core.clock import Millis
from ...core.durations import Duration, Time
from ...web.fields.error_texts import Shaped
from ...web.fields.params import Query, Whole
from ...web.fields.types import Maybe, Name, Stamp, Strict
from ..timings import DEFAULT_GRACE
from . import cron, zones
from .timing import Timing, occurrences

MAX_ID = 160
"""Longest schedule id: an occurrence's event id, with time and revision, stays within 200."""
ScheduleId = Annotated[
    str, StringConstraints(pattern=rf"^[A-Za-z0-9_:@~-]{{1,{MAX_ID}}}$"), Shaped(f"1 to {MAX_ID} of A-Z a-z 0-9 _ - : @ ~")
]


DAY: Millis = 86_400_000
MAX_JITTER = DAY

type Policy = Literal["none", "last", "all"]


class CatchUp(Strict):
    """What becomes of missed occurrences: over a minute late, jitter left out, because nothing ran. While paused nothing is missed."""

    policy: Policy = Field("last", description="none: they are dropped; last: the latest fires; all: each of them fires, in order.")
    within: Annotated[Duration, Field(ge=DEFAULT_GRACE, le=7 * DAY, description="What was missed longer ago than this is dropped.")] = DAY


class Recurrence(Strict):
    """When a schedule fires, and where to."""

    cron: str | None = Field(
        None,
        description="Minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly.",
        examples=["30 2 * * MON-FRI"],
    )
    every: Duration | None = Field(None, description="Elapsed time from `start`, or from the schedule's creation; whole seconds.")
    timezone: str | None = Field(None, description="IANA name, for `cron`; UTC unless given.", examples=["Europe/Berlin"])
    start: Time | None = Field(None, description="No occurrence before this; with `every`, the first one.")
    end: Time | None = Field(None, description="No occurrence at this instant or later.")
    jitter: Annotated[Duration, Field(le=MAX_JITTER)] | None = Field(
        None, description="Each occurrence is delivered up to, not including, this much later; how much follows from id and time."
    )
    catch_up: CatchUp = Field(default_factory=CatchUp)
    channel: Name = "default"

    def timing(self, created: Millis) -> Timing:
        """The rule that occurrences follow. `created`: what `every` counts from when there is no start."""
        if self.every is None:
            return Timing(cron=self.cron or "", zone=self.timezone or "UTC", start=self.start, end=self.end)
        anchor = self.start if self.start is not None else -(-created // 1000) * 1000 + self.every
        return Timing(every=self.every, start=anchor, end=self.end)


def _given(name: str) -> dict[str, JsonValue]:
    return {"required": [name], "properties": {name: {"type": "string"}}}


class ScheduleIn(Recurrence):
    """A recurring schedule: exactly one of `cron` and `every`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [_given("cron"), _given("every")]})

    payload: Any = Field(description="Any JSON, delivered byte for byte as sent with every occurrence.")

    @field_validator("cron")
    @classmethod
    def _cron(cls, value: str | None) -> str | None:
        return None if value is None else cron.check(value)

    @field_validator("every")
    @classmethod
    def _every(cls, value: int | None) -> int | None:
        if value is not None and (value < 1000 or value % 1000):
            raise ValueError("whole seconds, at least one")
        return value

    @field_validator("timezone")
    @classmethod
    def _timezone(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            if info.data.get("every") is not None:
                raise ValueError("every counts elapsed time, which no zone changes; leave it out")
            zones.zone(value)
        return value

    @field_validator("start")
    @classmethod
    def _start(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < 0:
            raise ValueError("before 1970")
        if value is not None and info.data.get("every") is not None and value % 1000:
            raise ValueError("with every, a whole second")
        return value

    @field_validator("end")
    @classmethod
    def _end(cls, value: int | None, info: ValidationInfo) -> int | None:
        start, data = info.data.get("start"), info.data
        if value is not None and start is not None:
            if value <= start:
                raise ValueError("not later than start")
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
            raise ValueError("longer than every")
        return value

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if (self.cron is None) == (self.every is None):
            raise ValueError("give exactly one of cron and every")
        return self


class ScheduleOut(Strict):
    """A recurring schedule as it stands."""

    id: str
    tenant: str
    cron: Maybe[str] = None
    every: Maybe[Duration] = None
    timezone: Maybe[str] = None
    start: Maybe[Stamp] = None
    end: Maybe[Stamp] = None
    jitter: Maybe[Duration] = None
    catch_up: CatchUp
    channel: str
    payload: Any
    paused: bool
    created: Stamp
    revision: int = Field(description="Counts what was changed: content, pause, resume. It marks ids of occurrences that were made anew.")
    next: Stamp | None = Field(description="The next occurrence, jitter left out; null when paused, or when there is none.")
    last: Stamp | None = Field(description="The latest occurrence whose time has come and that became an event.")


class ScheduleList(Strict):
    """A page of schedules, in no order."""

    items: list[ScheduleOut]
    next: str | None


class OccurrenceOut(Strict):
    """One coming occurrence."""

    at: Stamp
    local: Maybe[str] = Field(
        None, description="With `cron`: the same instant in the schedule's zone.", examples=["2027-03-28T03:00:00.000+02:00"]
    )
    reason: Maybe[zones.Reason] = Field(
        None, description="gap: its local time does not exist, this is the first instant after; fold: it exists twice, this is the first."
    )


class PreviewOut(Strict):
    """Coming occurrences, the earliest first."""

    items: list[OccurrenceOut]


class PreviewQuery(Query):
    """How many occurrences to show."""

    n: Annotated[Whole, Field(ge=1, le=100)] = 10
