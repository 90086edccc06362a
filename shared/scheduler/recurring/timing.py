"""The occurrences of a schedule: pure functions of the rule and a time. Instants are whole seconds, in milliseconds since 1970 UTC."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from ...core.clock import Millis, to_millis, to_text
from .exclusions import Period, next_allowed_day, period_end, period_start
from .local_times import LAST_YEAR, MOST_YEARS, LocalTimes
from .zones import ClockChange, instant_of, local_at, local_text, reached_at, zone

SECOND: Millis = 1_000
FIRST_WINDOW: Millis = 60_000
END: Millis = to_millis(datetime(LAST_YEAR, 12, 31, tzinfo=UTC))
"""Exclusive upper bound of the times of occurrences."""
MOST_SPAN: Final[Millis] = MOST_YEARS * 366 * 86_400_000
MOST_SKIPPED: Final = 1_000
"""Occurrences of `every` on excluded days, each at least a day apart, after which a search for the next occurrence gives up."""
_DAY = timedelta(days=1)


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
