"""A cron expression in words, as this service reads it: `at 10:30 on the last weekday of each month, in Europe/Berlin`.

The words follow from the values of the fields, not from the way they are written: `0,15,30,45` and `*/15` read the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, product
from typing import Final

from .cron import DAY_OF_MONTH, DAY_OF_WEEK, MONTH, Expression, Item, parse

MOST_TIMES: Final = 6
"""Times of day that are named one by one."""
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MOST_NAMED: Final = 4
"""Values at equal distances that are named one by one."""


def in_words(expression: str, zone: str) -> str:
    """Return a valid expression in words, with its time zone."""
    parsed = parse(expression)
    time, whole_day = _time(*(_values(parsed, field) for field in range(3)))
    days = _days(parsed)
    return f"{time}{'' if whole_day and days == 'every day' else f' {days}'}, in {zone}"


def _values(parsed: Expression, field: int) -> list[int]:
    """Return the values of a field's plain items, in order. Sunday is 7."""
    found = parsed.values(field)
    return sorted({value or 7 for value in found} if field == DAY_OF_WEEK else found)


# -- times of day


def _time(seconds: list[int], minutes: list[int], hours: list[int]) -> tuple[str, bool]:
    """Return the times of day, and True if they are spread over the whole day without a time being named."""
    if len(seconds) * len(minutes) * len(hours) <= MOST_TIMES:
        return "at " + _joined([_clock(*each) for each in product(hours, minutes, seconds)]), False
    step = _step(hours)
    if len(minutes) == len(seconds) == 1 and len(hours) < 24 and step:
        first, last = (_clock(hour, minutes[0], seconds[0]) for hour in (hours[0], hours[-1]))
        return f"{_every(step, 'hour')} from {first} to {last}", False
    # From the finest field on, each says of which values of the next one it is.
    parts, open_end = ([], True) if seconds == [0] else ([_often(seconds, "second")], _is_even(seconds))
    if not parts:
        parts, open_end = [_often(minutes, "minute")], _is_even(minutes)
    elif len(minutes) < 60:
        parts, open_end = [*parts, f"of {_named(minutes, 'minute')}"], False
    elif not open_end:
        parts, open_end = [*parts, "of every minute"], True
    if len(hours) == 24:
        return " ".join(parts if open_end else [*parts, "of every hour"]), True
    if open_end and not (step and step > 1):
        windows = [f"from {first:02}:00 to {last:02}:59" for first, last in _runs(hours)]
        return f"{' '.join(parts)} {_joined(windows)}", False
    return f"{' '.join(parts)} of {_named(hours, 'hour')}", False


def _clock(hour: int, minute: int, second: int) -> str:
    return f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")


def _often(values: list[int], unit: str) -> str:
    return _every(values[1] - values[0], unit) if _is_even(values) else f"at {_named(values, unit)}"


def _every(step: int, unit: str) -> str:
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _named(values: list[int], unit: str) -> str:
    """Name values of a unit: `minute 5`, `minutes 0 and 20 to 30`, `every 2nd minute from 0 to 58`."""
    step = _step(values)
    if step and step > 1 and len(values) > MOST_NAMED:
        return f"every {_ordinal(step)} {unit} from {values[0]} to {values[-1]}"
    return f"{unit}{'s' if len(values) > 1 else ''} {_listed(values, str)}"


def _is_even(values: list[int]) -> bool:
    """Return True for seconds or minutes at equal distances all around, from 0 on."""
    step = _step(values)
    return bool(step) and values[0] == 0 and values[-1] + step == 60


# -- days


def _days(parsed: Expression) -> str:
    months = _values(parsed, MONTH)
    named = None if len(months) == 12 else _listed(months, lambda number: _MONTHS[number - 1])
    days, weekdays = _days_of_month(parsed), _values(parsed, DAY_OF_WEEK)
    special = [_special(item) for item in parsed.fields[DAY_OF_WEEK] if item.special]
    every_weekday = len(weekdays) == 7
    if (every_weekday and not days) or (not parsed.both and (every_weekday or not days)):
        return "every day" if named is None else f"every day in {named}"
    of_months = f"of {named or 'each month'}"
    if not days:
        plain = _listed(weekdays, _weekday) if weekdays else ""
        if not special:
            return f"on {plain}" + ("" if named is None else f" in {named}")
        return f"on {_joined([*filter(None, [plain]), *special])} {of_months}"
    on_days = f"on {_joined(days)} {of_months}"
    if parsed.both and every_weekday:
        return on_days
    if parsed.both:
        return f"{on_days} if it is {_joined([*map(_weekday, weekdays), *special], 'or')}"
    also = [f"every {_weekday(number)}" for number in weekdays] + special
    return f"{on_days} and also on {_joined(also)}" + ("" if named is None else f" in {named}")


def _days_of_month(parsed: Expression) -> list[str]:
    """Name the days of the month; an empty list if it has all of them."""
    values = _values(parsed, DAY_OF_MONTH)
    if len(values) == 31:
        return []
    found = []
    if values:
        step = _step(values)
        if step and step > 1 and len(values) > MOST_NAMED:
            found.append(f"every {_ordinal(step)} day from day {values[0]} to day {values[-1]}")
        else:
            found.append(f"day{'s' if len(values) > 1 else ''} {_listed(values, str)}")
    return found + [_special(item) for item in parsed.fields[DAY_OF_MONTH] if item.special]


def _special(item: Item) -> str:
    match item.special:
        case "nearest weekday":
            return f"the weekday nearest to day {item.low}"
        case "nth":
            return f"the {_ordinal(item.step)} {_weekday(item.low)}"
        case "last":
            return f"the last {_weekday(item.low)}"
        case _:
            return f"the {item.special}"


def _weekday(number: int) -> str:
    return _WEEKDAYS[number - 1]


# -- lists


def _step(values: Sequence[int]) -> int:
    """Return the distance between all neighbours; 0 if it varies, or for a single value."""
    steps = {later - earlier for earlier, later in pairwise(values)}
    return steps.pop() if len(steps) == 1 else 0


def _runs(values: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last value of each run without a gap."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][1] == value - 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs


def _listed(values: Iterable[int], name: Callable[[int], str]) -> str:
    """Name values; three or more in a row as a range."""
    parts: list[str] = []
    for first, last in _runs(values):
        parts += [f"{name(first)} to {name(last)}"] if last - first > 1 else map(name, range(first, last + 1))
    return _joined(parts)


def _joined(parts: Sequence[str], word: str = "and") -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {word} {parts[-1]}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
