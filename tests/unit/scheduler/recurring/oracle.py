"""The times of a schedule, found the slow way: by walking through UTC and looking at the zone's clock, minute by minute.

Nothing of the product is used here: neither its mapping of local times (only UTC to local is asked of zoneinfo), nor a cron library (an
expression is drawn together with what it means).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


@dataclass(frozen=True)
class Expression:
    """A cron expression and the values that each field stands for."""

    text: str
    values: tuple[frozenset[int], ...]

    def fits(self, local: datetime) -> bool:
        minutes, hours, days, months, weekdays = self.values
        if local.minute not in minutes or local.hour not in hours or local.month not in months:
            return False
        day, weekday = local.day in days, local.isoweekday() % 7 in weekdays
        fields = self.text.split()
        return (day and weekday) if fields[2].startswith("*") or fields[4].startswith("*") else (day or weekday)


def draw(random: Random, *, wide: bool = False) -> Expression:
    """An expression; `wide`: one that fits often, so that a short walk meets it."""
    texts, values = [], []
    for number, (low, high) in enumerate(_RANGES):
        text, fitting = _field(random, number, low, high, star=0.6 if number == 1 or not wide else 0.9 if number > 1 else 0.2)
        texts.append(text)
        values.append(frozenset(fitting))
    return Expression(" ".join(texts), tuple(values))


def _field(random: Random, number: int, low: int, high: int, *, star: float) -> tuple[str, set[int]]:
    if random.random() < star:
        if random.random() < 0.6:
            return "*", set(range(low, high + 1))
        step = random.randint(1, high - low)
        return f"*/{step}", set(range(low, high + 1, step))
    items, fitting = [], set()
    for _ in range(random.randint(1, 3)):
        first = random.randint(low, high)
        last = random.randint(first, high)
        if last == first or random.random() < 0.4:
            items.append(_name(random, number, first))
            fitting.add(first)
            continue
        text = f"{_name(random, number, first)}-{_name(random, number, last)}"
        step = random.randint(1, last - first)
        items.append(text if step == 1 else f"{text}/{step}")
        fitting |= set(range(first, last + 1, step))
    if number == 4 and random.random() < 0.2:
        items.append("7")
        fitting.add(0)
    return ",".join(items), fitting


def _name(random: Random, number: int, value: int) -> str:
    if number == 3 and random.random() < 0.5:
        return random.choice((str.lower, str.upper))(_MONTHS[value - 1])
    if number == 4 and random.random() < 0.5:
        return random.choice((str.lower, str.upper))(_DAYS[value])
    return str(value)


def changes(where: ZoneInfo, first: int, last: int, step: timedelta) -> Iterator[tuple[datetime, timedelta]]:
    """Instants (UTC) at which the zone's offset changes in the years `first` to `last`, and by how much, probed `step` apart."""
    at, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last + 1, 1, 1, tzinfo=UTC)
    offset = at.astimezone(where).utcoffset()
    assert offset is not None
    while at < end:
        after = at + step
        then = after.astimezone(where).utcoffset()
        assert then is not None
        if then != offset:
            low, high = at, after
            while high - low > timedelta(seconds=1):
                middle = (low + (high - low) // 2).replace(microsecond=0)
                if middle.astimezone(where).utcoffset() == offset:
                    low = middle
                else:
                    high = middle
            yield high, then - offset
        at, offset = after, then


def walk(expression: Expression, where: ZoneInfo, begin: datetime, end: datetime, back: timedelta) -> list[tuple[datetime, str | None]]:
    """Every firing in [begin, end) (UTC, whole minutes), and why it is not plain, by the words of the rule:

    the clock reaching a local minute for the first time fires it; minutes that the clock leaps over fire at the leap.

    back: at least as long as the longest time that a clock repeats near by, to know what it repeats.
    """
    at = begin - back
    # Some zones were off by half a minute once.
    odd = any(when.astimezone(where).second for when in (at, begin, end, end + back))
    step = timedelta(seconds=30) if odd else MINUTE
    reached = (at - step).astimezone(where).replace(tzinfo=None)
    plain: dict[datetime, datetime] = {}
    leapt: set[datetime] = set()
    again: set[datetime] = set()
    while at < end + back:
        local = at.astimezone(where).replace(tzinfo=None)
        if local <= reached:
            again.add(local)
        else:
            minute = reached.replace(second=0) + MINUTE
            while minute <= local:
                if expression.fits(minute):
                    if minute == local:
                        plain[at] = minute
                    else:
                        leapt.add(at)
                minute += MINUTE
            reached = local
        at += step
    found = [(at, "fold" if minute in again else None) for at, minute in plain.items()]
    found += [(at, "gap") for at in leapt - plain.keys()]
    return sorted((at, reason) for at, reason in found if begin <= at < end)
