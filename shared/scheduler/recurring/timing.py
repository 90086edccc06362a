"""The occurrences of a schedule: pure functions of the rule and a time. Instants are whole seconds, in milliseconds since 1970 UTC.

A cron expression means local times, without a zone. The iteration over them is done by cronsim, except that of days, which `cron` chooses.

A local time means the first instant at which the zone's clock has reached it: one rule, for every zone and every kind of change. So a time
in a gap means the first instant after the gap, and a repeated one the first of both. The data of zones is that of the pinned package
`tzdata`, never the machine's own: all instances must agree.

The days on which a schedule does not occur, and the periods in which it occurs once, are those of local time.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from importlib import resources
from typing import Annotated, Any, Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim
from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from ...core.clock import Millis, to_datetime, to_millis, to_text
from ...web.fields.types import Name, Strict
from .cron import parse

type ClockChange = Literal["gap", "fold"]
"""The reason why an occurrence is not at its plain local time: the clock skips that time, or shows it twice."""
type Period = Literal["hour", "day", "week", "month"]

LAST_YEAR = 9998
"""Every local time of this year is an instant that a datetime can hold."""
END: Millis = to_millis(datetime(LAST_YEAR, 12, 31, tzinfo=UTC))
"""Exclusive upper bound of the times of occurrences."""
MOST_YEARS: Final = 50
"""Years in which a search looks for the next match."""
MOST_SPAN: Final[Millis] = MOST_YEARS * 366 * 86_400_000
MOST_DAYS: Final = 5_000
"""Days that a search for the next match looks at. It looks at no day of a month that the expression leaves out, so that without excluded
days, 4,400 suffice for every expression that ever matches."""
MOST_SKIPPED: Final = 1_000
"""Occurrences of `every` on excluded days, each at least a day apart, after which a search for the next occurrence gives up."""
MAX_DATES = 366
"""Most dates of one schedule's own."""
MAX_CALENDARS = 5
"""Most calendars that one schedule names."""
SECOND: Millis = 1_000
FIRST_WINDOW: Millis = 60_000
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@cache
def release() -> str:
    """Return the release of the zone data, such as 2026f. Later releases sort later."""
    return resources.files("tzdata").joinpath("zoneinfo", "tzdata.zi").read_text("utf-8").partition("\n")[0].rpartition(" ")[2]


@cache
def names() -> frozenset[str]:
    """Return the names of all zones, as the tz database spells them."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("utf-8").split())


@cache
def zone(name: str) -> ZoneInfo:
    """Return the zone with exactly this name. ValueError if there is none."""
    if name not in names():
        raise ValueError("expected a zone of the tz database, such as Europe/Berlin (upper and lower case matter)")
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def local_at(instant: Millis, where: ZoneInfo) -> datetime:
    """Return the local time of the zone at `instant`."""
    return to_datetime(instant).astimezone(where).replace(tzinfo=None)


def reached_at(instant: Millis, where: ZoneInfo) -> datetime:
    """Return the latest local time that the zone's clock has shown by `instant`; to the second while the clock repeats a time.

    Then it is later than the local time.
    """
    local = to_datetime(instant).astimezone(where)
    if not local.fold:
        return local.replace(tzinfo=None)
    low, high = local.replace(fold=0).astimezone(UTC), local.astimezone(UTC)
    offset = low.astimezone(where).utcoffset()
    while high - low > _SECOND:
        middle = low + (high - low) // 2
        if middle.astimezone(where).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return low.astimezone(where).replace(tzinfo=None, microsecond=0)


def local_text(instant: Millis, where: ZoneInfo) -> str:
    """Return the local time of the zone at `instant` with its offset: `2027-03-28T03:00:00.000+02:00`."""
    return to_datetime(instant).astimezone(where).isoformat(timespec="milliseconds")


def instant_of(local: datetime, where: ZoneInfo) -> tuple[Millis, ClockChange | None]:
    """Return the first instant at which the zone's clock has reached `local` (naive, whole seconds), and why it is not plain."""
    before = local.replace(tzinfo=where, fold=0)
    after = local.replace(tzinfo=where, fold=1)
    early, late = before.astimezone(UTC), after.astimezone(UTC)
    if early == late:
        return to_millis(early), None
    if early < late:
        return to_millis(early), "fold"
    # In a gap, the earlier offset leads past the change and the later offset leads before it: the change is between the two.
    low, high = late, early
    while high - low > _SECOND:
        middle = low + (high - low) // 2
        middle = middle.replace(microsecond=0)
        if middle.astimezone(where).replace(tzinfo=None) >= local:
            high = middle
        else:
            low = middle
    return to_millis(high), "gap"


def _day(value: Any) -> int:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        raise ValueError("must be a date such as 2026-12-24")
    try:
        return date.fromisoformat(value).toordinal()
    except ValueError:
        raise ValueError("is not a date of the calendar") from None


def day_text(number: int) -> str:
    """Return the date of a day's number."""
    return date.fromordinal(number).isoformat()


Day = Annotated[
    int,
    BeforeValidator(_day, json_schema_input_type=str),
    PlainSerializer(day_text, return_type=str),
    WithJsonSchema({"type": "string", "format": "date", "examples": ["2026-12-24"]}),
]
"""A date: its number (`date.toordinal`) in the code, text in JSON."""


class Exclusions(Strict):
    """Days without occurrences, in the schedule's time zone; UTC with `every`."""

    dates: list[Day] = Field(default_factory=list, max_length=MAX_DATES)
    calendars: list[Name] = Field(default_factory=list, max_length=MAX_CALENDARS, description="Names of calendars of the tenant.")


def days_text(days: Iterable[int]) -> str:
    """Return the numbers of days as a short text: the first, and the distance of each from the one before."""
    before, parts = 0, []
    for day in sorted(days):
        parts.append(str(day - before))
        before = day
    return " ".join(parts)


def parse_days(text: str) -> tuple[int, ...]:
    """Return the numbers that `days_text` wrote."""
    total, found = 0, []
    for part in text.split():
        total += int(part)
        found.append(total)
    return tuple(found)


def period_start(local: datetime, period: Period) -> datetime:
    """Return the beginning of the period that a local time is in. Weeks begin on Monday."""
    hour = local.replace(minute=0, second=0, microsecond=0)
    if period == "hour":
        return hour
    day = hour.replace(hour=0)
    if period == "day":
        return day
    return day - timedelta(days=day.weekday()) if period == "week" else day.replace(day=1)


def period_end(local: datetime, period: Period) -> datetime:
    """Return the beginning of the period after the one that a local time is in."""
    start = period_start(local, period)
    if period == "month":
        return (start + timedelta(days=32)).replace(day=1)
    return start + {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}[period]


def next_allowed_day(local: datetime, excluded: frozenset[int]) -> datetime:
    """Return the beginning of the first day after a local time's that is not excluded."""
    day = local.toordinal() + 1
    while day in excluded:
        day += 1
    return datetime.fromordinal(day)


class LocalTimes(CronSim):
    """The matching local times later than `after` (naive), in order, up to `until` or `LAST_YEAR`.

    They end where a search has looked at `MOST_YEARS` or `MOST_DAYS` without a match.
    """

    def __init__(self, expression: str, after: datetime, until: datetime = datetime.max, excluded: Collection[int] = ()) -> None:
        """excluded: numbers of days without matches."""
        super().__init__(parse(expression).text, after)
        self._expression, self._until, self._excluded, self._looked_at = expression, until, excluded, 0
        self._month, self._length, self._days = (0, 0), 0, tuple[int, ...]()

    def __next__(self) -> datetime:
        self._looked_at = 0
        try:
            local = super().__next__()
        except (OverflowError, ValueError):
            # After the last day that a datetime can hold.
            raise StopIteration from None
        if local > self._until or local.year > LAST_YEAR:
            raise StopIteration
        return local

    def skip_to(self, local: datetime) -> None:
        """Go on with the first match that is not before `local`."""
        self.dt = local.replace(microsecond=0) - _SECOND

    def advance_month(self) -> None:
        """Go on to a month that matches. Each search comes here first, and after each day that does not match."""
        super().advance_month()
        if self.dt > self._until or self._looked_at > MOST_DAYS:
            raise StopIteration

    def advance_day(self) -> bool:
        """Go on to the next day of this month that matches, or to the next month. Return False if this day matches."""
        now = self.dt
        if (month := (now.year, now.month)) != self._month:
            self._month, (first, self._length) = month, calendar.monthrange(*month)
            self._days = _days_in(self._expression, first, self._length)
        for day in self._days:
            if day >= now.day and (not self._excluded or date(*month, day).toordinal() not in self._excluded):
                if day == now.day:
                    return False
                self._looked_at += day - now.day
                self.dt = datetime(*month, day)
                return True
        self._looked_at += self._length + 1 - now.day
        self.dt = datetime(*month, self._length) + _DAY
        return True


@lru_cache(maxsize=4096)
def _days_in(expression: str, first: int, length: int) -> tuple[int, ...]:
    return tuple(sorted(parse(expression).days_in(first, length)))


class ScheduleOccurrence(NamedTuple):
    """An instant at which a schedule occurs. reason: why it is not simply the local time of the expression."""

    at: Millis
    reason: ClockChange | None = None

    def shown(self, timing: Timing) -> dict[str, str]:
        """Return the occurrence as a preview shows it."""
        local = {"local": local_text(self.at, zone(timing.zone))} if timing.cron else {}
        return {"at": to_text(self.at)} | local | ({"reason": self.reason} if self.reason else {})


@dataclass(slots=True, frozen=True)
class Timing:
    """A rule: a cron expression in a zone, or an interval counted from `start`. Occurrences are in [`start`, `end`).

    excluded: numbers of local days without occurrences. once_per: only the first occurrence in each of these local periods counts.
    """

    cron: str = ""
    zone: str = "UTC"
    every: Millis = 0
    start: Millis | None = None
    end: Millis | None = None
    excluded: frozenset[int] = frozenset()
    once_per: Period | None = None


def occurrences(timing: Timing, after: Millis) -> Iterator[ScheduleOccurrence]:
    """Yield the occurrences later than `after`, in order, each instant once, before `END`.

    They end where the search for the next one gives up (`MOST_SPAN`, `MOST_SKIPPED`, `MOST_DAYS`), so that its work is bounded.
    """
    if timing.start is not None:
        after = max(after, timing.start - 1)
    end = END if timing.end is None else min(timing.end, END)
    if after >= end:
        return
    for found in _chosen(timing, after, end) if timing.excluded or timing.once_per else _all(timing, after, end):
        if found.at >= end:
            return
        yield found


def _all(timing: Timing, after: Millis, end: Millis) -> Iterator[ScheduleOccurrence]:
    return _elapsed(timing, after) if timing.every else _by_cron(timing, after, end)


def _chosen(timing: Timing, after: Millis, end: Millis) -> Iterator[ScheduleOccurrence]:
    """Yield the occurrences later than `after` that are on no excluded day, and the first in their period."""
    where, begin, since, skipped = zone(timing.zone), after, after, 0
    if timing.once_per:
        # An earlier occurrence in the same period decides about the next one.
        begin = min(after, instant_of(period_start(local_at(after + 1, where), timing.once_per), where)[0] - 1)
        begin = max(begin, timing.start - 1) if timing.start is not None else begin
    while True:
        following: datetime | None = None
        for found in _all(timing, begin, end):
            if found.at >= end or found.at > since + MOST_SPAN or skipped > MOST_SKIPPED:
                return
            local = local_at(found.at, where)
            if local.toordinal() in timing.excluded:
                following = next_allowed_day(local, timing.excluded)
                skipped += 1
            else:
                if found.at > after:
                    yield found
                    since, skipped = found.at, 0
                following = period_end(local, timing.once_per) if timing.once_per else None
            if following is not None:
                # What is left of the day or the period is not walked through, which may be a thousand occurrences. The clock may show a
                # later time already, and then go back.
                begin = max(found.at, instant_of(following, where)[0] - 1)
                break
        if following is None:
            return


def previous(timing: Timing, until: Millis, after: Millis) -> ScheduleOccurrence | None:
    """Return the latest occurrence in (`after`, `until`], or None. Takes about two searches for each time that the range can be halved."""

    def first(begin: Millis, last: Millis) -> ScheduleOccurrence | None:
        end = last + 1 if timing.end is None else min(timing.end, last + 1)
        return next(occurrences(replace(timing, end=end), begin), None)

    begin, high, window = until, until, FIRST_WINDOW
    found = None
    while found is None:
        if begin <= after:
            return None
        high, begin, window = begin, max(after, until - window), window * 2
        found = first(begin, high)
    # The latest one is not earlier than `found`, and not later than `high`.
    while high - found.at >= SECOND:
        middle = found.at + (high - found.at) // 2
        later = first(middle, high)
        found, high = (found, middle) if later is None else (later, high)
    return found


def _elapsed(timing: Timing, after: Millis) -> Iterator[ScheduleOccurrence]:
    assert timing.start is not None
    at = timing.start + max(0, (after - timing.start) // timing.every + 1) * timing.every
    while True:
        yield ScheduleOccurrence(at)
        at += timing.every


def _by_cron(timing: Timing, after: Millis, end: Millis) -> Iterator[ScheduleOccurrence]:
    """Map local times in order to instants in order. Where the clock jumps ahead, several become one instant, which fires once."""
    where = zone(timing.zone)
    waiting: ScheduleOccurrence | None = None
    coming = LocalTimes(timing.cron, reached_at(after, where), local_at(end, where) + _DAY, timing.excluded)
    for local in coming:
        at, reason = instant_of(local, where)
        if waiting is not None:
            if at == waiting.at:
                # The instant also has a local time of its own, so it needs no reason.
                waiting = ScheduleOccurrence(at)
                continue
            yield waiting
            waiting = None
        if at <= after:
            continue
        if reason == "gap":
            waiting = ScheduleOccurrence(at, reason)
            # The other times in the gap mean the same instant.
            coming.skip_to(local_at(at, where))
        else:
            yield ScheduleOccurrence(at, reason)
    if waiting is not None:
        yield waiting
