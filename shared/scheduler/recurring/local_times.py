"""The local times of a cron expression: no zone, no clock. The iteration is done by cronsim, except that of days."""

from __future__ import annotations

import calendar
from collections.abc import Collection
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final

from cronsim import CronSim

from .cron import parse

LAST_YEAR = 9998
"""Every local time of this year is an instant that a datetime can hold."""
MOST_YEARS: Final = 50
"""Years in which a search looks for the next match."""
MOST_DAYS: Final = 5_000
"""Days that a search for the next match looks at. It looks at no day of a month that the expression leaves out, so that without excluded
days, 4,400 suffice for every expression that ever matches."""


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
        self.dt = local.replace(microsecond=0) - timedelta(seconds=1)

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
        self.dt = datetime(*month, self._length) + timedelta(days=1)
        return True


@lru_cache(maxsize=4096)
def _days_in(expression: str, first: int, length: int) -> tuple[int, ...]:
    return tuple(sorted(parse(expression).days_in(first, length)))
