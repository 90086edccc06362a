"""Cron expressions of five fields, as local times: no zone, no clock.

The grammar is that of crontab(5): `*`, numbers, three-letter names of months and days, ranges, lists, and steps after `*` or a range. Forms
that cron implementations read differently are refused (`5/10`, ranges that run backwards, `L`, `W`, `#`, `?`, `@reboot`); nicknames on
which all agree are accepted. Days follow Vixie's rule: if neither day field starts with `*`, a day that matches one of them matches;
otherwise it must match both. The iteration is done by cronsim.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple

from cronsim import CronSim, CronSimError

MAX_LENGTH = 256
LAST_YEAR = 9998
"""Every local time of this year is an instant that a datetime can hold."""
MOST_YEARS: Final = 50
"""Years in which a search looks for the next match."""
MOST_DAYS: Final = 5_000
"""Days that a search for the next match looks at. It looks at no day of a month that the expression leaves out, so that without excluded
days, 2,000 suffice for 50 years."""
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
NICKNAMES: Mapping[str, str] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_ITEM = re.compile(r"(?:(?P<all>\*)|(?P<low>\d{1,2}|[A-Z]{3})(?:-(?P<high>\d{1,2}|[A-Z]{3}))?)(?:/(?P<step>\d{1,2}))?", re.ASCII)
_EPOCH = datetime(1970, 1, 1)


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: dict[str, int]
    span: int
    """The longest step that reaches a second value."""


_FIELDS = (
    _Field("minute", 0, 59, {}, 59),
    _Field("hour", 0, 23, {}, 23),
    _Field("day of month", 1, 31, {}, 30),
    _Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}, 11),
    _Field("day of week", 0, 7, {name: number for number, name in enumerate(_DAYS)}, 6),
)


def check(expression: str) -> str:
    """Return the expression. ValueError names the wrong field and the reason, or says that no day ever matches."""
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"longer than {MAX_LENGTH} characters")
    fields = _fields(expression)
    if fields.startswith("@"):
        raise ValueError(f"not one of {', '.join(NICKNAMES)}")
    parts = fields.upper().split()
    if len(parts) != len(_FIELDS):
        raise ValueError("expected five fields: minute, hour, day of month, month, day of week")
    for field, part in zip(_FIELDS, parts, strict=True):
        for item in part.split(","):
            _check_item(field, item)
    try:
        found = next(CronSim(fields, _EPOCH), None)
    except CronSimError:
        found = None
    if found is None:
        raise ValueError("never fires: these months have no such day")
    return expression


class LocalTimes(CronSim):
    """The matching local times later than `after` (naive), in order, up to `until` or `LAST_YEAR`.

    They end where a search has looked at `MOST_YEARS` or `MOST_DAYS` without a match.
    """

    def __init__(self, expression: str, after: datetime, until: datetime = datetime.max, excluded: Container[int] = ()) -> None:
        """excluded: numbers of days without matches."""
        super().__init__(_fields(expression), after)
        self._until, self._excluded, self._days, self._day = until, excluded, 0, date.min

    def __next__(self) -> datetime:
        self._days = 0
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
        if self.dt > self._until or self._days > MOST_DAYS:
            raise StopIteration

    def match_day(self, d: date) -> bool:
        """Return True if the day matches."""
        if d != self._day:
            self._day = d
            self._days += 1
        return d.toordinal() not in self._excluded and super().match_day(d)


def _fields(expression: str) -> str:
    """Return the expression of a nickname; other expressions unchanged."""
    plain = expression.strip()
    return NICKNAMES.get(plain.lower(), plain)


def _check_item(field: _Field, item: str) -> None:
    found = _ITEM.fullmatch(item)
    if found is None:
        raise ValueError(f"{field.name}: expected *, a value, a range or a step of one of them")
    low, high, span = field.low, field.high, field.span
    if not found["all"]:
        low = high = _value(field, found["low"])
        if found["high"]:
            high = _value(field, found["high"])
            if high < low:
                raise ValueError(f"{field.name}: the range runs backwards; write it as two ranges")
        span = high - low
    if found["step"]:
        if not (found["all"] or found["high"]):
            raise ValueError(f"{field.name}: a step needs * or a range before it; write {low}-{field.high}/{int(found['step'])}")
        if not 1 <= int(found["step"]) <= span:
            raise ValueError(f"{field.name}: the step must be 1 to {span}; a larger one matches only one value")


def _value(field: _Field, text: str) -> int:
    value = int(text) if text.isdigit() else field.names.get(text, -1)
    if not field.low <= value <= field.high:
        raise ValueError(f"{field.name}: values are {field.low} to {field.high}" + (" or three-letter names" if field.names else ""))
    return value
