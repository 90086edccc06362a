"""Cron expressions: their grammar, and the days that they mean. Pure.

Five fields are those of crontab(5): minute, hour, day of month, month, day of week. Their days follow Vixie's rule: if neither day field
starts with `*`, a day that matches one of them matches; otherwise it must match both. Six fields are NCRONTAB: a second comes first, and a
day must always match both.

A field holds `*`, numbers, three-letter names of months and days, ranges, lists, and steps after `*` or a range. The day of month also has
`L` (the last day), `LW` (the last weekday) and `15W` (the weekday nearest to the 15th, in the same month); the day of week `FRI#2` (the
second Friday) and `FRIL` or `5L` (the last one). `?` instead of a day field leaves the choice to the other one. Sunday is 0 or 7.

Forms that cron implementations read differently are refused (`5/10`, ranges that run backwards, `L` alone as a day of week, `@reboot`);
nicknames on which all agree are accepted. `cron_dialects` rewrites the expressions of other schedulers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, NamedTuple

MAX_LENGTH = 256
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
_PLAIN = re.compile(r"(?:(?P<all>\*)|(?P<low>\d{1,2}|[A-Z]{3})(?:-(?P<high>\d{1,2}|[A-Z]{3}))?)(?:/(?P<step>\d{1,2}))?", re.ASCII)
_SPECIAL_DAY = re.compile(r"(?P<last>LW?)|(?P<near>\d{1,2})W", re.ASCII)
_SPECIAL_WEEKDAY = re.compile(r"(?P<day>\d{1,2}|[A-Z]{3})(?:(?P<last>L)|#(?P<nth>\d{1,2}))", re.ASCII)
_LENGTHS = {month: (28, 29) if month == 2 else (30,) if month in (4, 6, 9, 11) else (31,) for month in range(1, 13)}
"""The days that each month may have."""


class Field(NamedTuple):
    """A field of an expression, and the values that it may have."""

    name: str
    low: int
    high: int
    names: dict[str, int]
    span: int
    """The longest step that reaches a second value."""
    special: re.Pattern[str] | None = None
    forms: str = ""
    """Names the special forms in an error."""


FIELDS = (
    Field("second", 0, 59, {}, 59),
    Field("minute", 0, 59, {}, 59),
    Field("hour", 0, 23, {}, 23),
    Field("day of month", 1, 31, {}, 30, _SPECIAL_DAY, ", or L, LW or 15W"),
    Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}, 11),
    Field("day of week", 0, 7, {name: number for number, name in enumerate(_DAYS)}, 6, _SPECIAL_WEEKDAY, ", or FRI#2 or FRIL"),
)
DAY_OF_MONTH, MONTH, DAY_OF_WEEK = 3, 4, 5
"""Places of fields in an expression."""
_DAY_FIELDS: Final = (DAY_OF_MONTH, DAY_OF_WEEK)

type Special = Literal["", "last day", "last weekday", "nearest weekday", "nth", "last"]


class Item(NamedTuple):
    """An item of a field: the values from `low` to `high` in steps of `step`, or a special form.

    special: the day of month is the `last day`, the `last weekday` or the `nearest weekday` to `low`; the day of week is the `nth` one of
    the month, with the number in `step`, or the `last` one.
    """

    low: int
    high: int
    step: int = 1
    special: Special = ""

    @property
    def values(self) -> range:
        """The values of a plain item."""
        return range(self.low, self.high + 1, self.step)


class Expression(NamedTuple):
    """A parsed expression: the items of six fields, second first. A field of `*` or `?` has one item."""

    fields: tuple[tuple[Item, ...], ...]
    both: bool
    """True if a day must match both day fields."""
    text: str
    """The six fields with `*` for the days, which `days_in` chooses."""

    def values(self, field: int) -> frozenset[int]:
        """Return the values of a field without its special items."""
        return frozenset(value for item in self.fields[field] if not item.special for value in item.values)

    def days_in(self, first: int, length: int) -> frozenset[int]:
        """Return the days that match in a month. first: the weekday of its 1st, 0 for Monday. length: its days."""
        days = self.values(DAY_OF_MONTH) & frozenset(range(1, length + 1))
        days |= {_day_of(item, first, length) for item in self.fields[DAY_OF_MONTH] if item.special}
        numbers = {(value - 1) % 7 for value in self.values(DAY_OF_WEEK)}
        weekdays = {day for day in range(1, length + 1) if (first + day - 1) % 7 in numbers}
        weekdays |= {_day_of(item, first, length) for item in self.fields[DAY_OF_WEEK] if item.special}
        return (days & weekdays if self.both else days | weekdays) - {0}


def _day_of(item: Item, first: int, length: int) -> int:
    """Return the day of a month that a special item means, or 0 if the month has none. first: as for `days_in`."""
    weekday = (item.low - 1 - first) % 7 + 1  # the first one of the month
    match item.special:
        case "last day":
            return length
        case "last weekday":
            return length - max(0, (first + length - 1) % 7 - 4)
        case "nearest weekday":
            return nearest_weekday(item.low, first, length)
        case "last":
            return weekday + (length - weekday) // 7 * 7
        case _:
            day = weekday + 7 * (item.step - 1)
            return day if day <= length else 0


def nearest_weekday(day: int, first: int, length: int) -> int:
    """Return the day of a month that is the weekday (Monday to Friday) nearest to `day`; 0 if the month has no such day.

    Saturday becomes the Friday before, or, on the 1st, the Monday after. Sunday becomes the Monday after, or, on the last day, the Friday
    before. first: the weekday of the 1st, 0 for Monday. length: the days of the month.
    """
    if day > length:
        return 0
    match (first + day - 1) % 7:
        case 5:
            return day - 1 if day > 1 else day + 2
        case 6:
            return day + 1 if day < length else day - 2
        case _:
            return day


def check(expression: str) -> str:
    """Return the expression. ValueError names the wrong field and the reason, or says that no day ever matches."""
    parsed = parse(expression)
    lengths = {length for month in parsed.values(MONTH) for length in _LENGTHS[month]}
    if not any(parsed.days_in(first, length) for length in lengths for first in range(7)):
        raise ValueError("never fires: these months have no such day")
    return expression


@lru_cache(maxsize=256)
def parse(expression: str) -> Expression:
    """Return the parts of the expression. ValueError names the wrong field and the reason."""
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"longer than {MAX_LENGTH} characters")
    fields = expression.strip()
    fields = NICKNAMES.get(fields.lower(), fields)
    if fields.startswith("@"):
        raise ValueError(f"not one of {', '.join(NICKNAMES)}")
    parts = fields.upper().split()
    if len(parts) not in (5, 6):
        raise ValueError("expected five fields: minute, hour, day of month, month, day of week; or six, with the second first")
    both = len(parts) == 6
    if not both:
        parts.insert(0, "0")
    for number, other in (_DAY_FIELDS, _DAY_FIELDS[::-1]):
        if parts[number] == "?" and parts[other] in ("*", "?"):
            raise ValueError(f"{FIELDS[number].name}: ? needs days in the field {FIELDS[other].name}; write * instead")
    parts = ["*" if part == "?" and number in _DAY_FIELDS else part for number, part in enumerate(parts)]
    both = both or any(parts[number].startswith("*") for number in _DAY_FIELDS)
    items = tuple(tuple(_item(field, item) for item in part.split(",")) for field, part in zip(FIELDS, parts, strict=True))
    return Expression(items, both, " ".join("*" if number in _DAY_FIELDS else part for number, part in enumerate(parts)))


def _item(field: Field, text: str) -> Item:
    if field.special is not None and (special := field.special.fullmatch(text)) is not None:
        return _special(field, special)
    found = _PLAIN.fullmatch(text)
    if found is None:
        raise ValueError(f"{field.name}: expected *, a value, a range or a step of one of them{field.forms}")
    low, high, span = field.low, _all_high(field), field.span
    if not found["all"]:
        low = high = value_of(field, found["low"])
        if found["high"]:
            high = value_of(field, found["high"])
            if high < low:
                raise ValueError(f"{field.name}: the range runs backwards; write it as two ranges")
        span = high - low
    if found["step"]:
        if not (found["all"] or found["high"]):
            raise ValueError(f"{field.name}: a step needs * or a range before it; write {low}-{field.high}/{int(found['step'])}")
        if not 1 <= int(found["step"]) <= span:
            raise ValueError(f"{field.name}: the step must be 1 to {span}; a larger one matches only one value")
    return Item(low, high, int(found["step"] or 1))


def _special(field: Field, found: re.Match[str]) -> Item:
    parts = found.groupdict()
    if near := parts.get("near"):
        day = value_of(field, near)
        return Item(day, day, special="nearest weekday")
    if "day" not in parts:
        return Item(0, 0, special="last weekday" if parts["last"] == "LW" else "last day")
    day = value_of(field, parts["day"]) % 7
    if parts["last"]:
        return Item(day, day, special="last")
    if not 1 <= int(parts["nth"]) <= 5:
        raise ValueError(f"{field.name}: the number after # must be 1 to 5; for the last one of the month, write {_DAYS[day]}L")
    return Item(day, day, int(parts["nth"]), "nth")


def _all_high(field: Field) -> int:
    """Return the last value of `*`: Sunday counts once."""
    return field.low + field.span


def value_of(field: Field, text: str) -> int:
    """Return the number of a value or of its name. ValueError names the values that there are."""
    value = int(text) if text.isdigit() else field.names.get(text, -1)
    if not field.low <= value <= field.high:
        raise ValueError(f"{field.name}: values are {field.low} to {field.high}" + (" or three-letter names" if field.names else ""))
    return value
