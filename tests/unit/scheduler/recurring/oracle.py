"""The times of a schedule, found the slow way: by walking through UTC and looking at the zone's clock, by minutes or seconds.

Nothing of the product is used here: neither its mapping of local times (only UTC to local is asked of zoneinfo), nor a cron library (an
expression is drawn together with what it means).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from random import Random
from zoneinfo import ZoneInfo

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


@dataclass(frozen=True)
class Expression:
    """A cron expression and the values that each field stands for.

    special: the items of its day fields that are no numbers. seconds: of an expression of six fields.
    """

    text: str
    values: tuple[frozenset[int], ...]
    special: tuple[str, ...] = ()
    seconds: frozenset[int] | None = None

    def fits(self, local: datetime) -> bool:
        minutes, hours, _, months, _ = self.values
        if local.minute not in minutes or local.hour not in hours or local.month not in months:
            return False
        return (self.seconds is None or local.second in self.seconds) and self.fits_day(local.date())

    def fits_day(self, day: date) -> bool:
        own = {item: special_fits(item, day) for item in self.special}
        by_date = day.day in self.values[2] or any(fits for item, fits in own.items() if not item[0].isalpha() or item in ("L", "LW"))
        by_weekday = day.isoweekday() % 7 in self.values[4] or any(
            fits for item, fits in own.items() if item[0].isalpha() and len(item) > 2
        )
        fields = self.text.split()
        both = self.seconds is not None or any(fields[number].startswith(("*", "?")) for number in (2, 4))
        return (by_date and by_weekday) if both else (by_date or by_weekday)


@cache
def special_fits(item: str, day: date) -> bool:
    """Return True if the day is the one that an item such as `L`, `LW`, `15W`, `FRI#2` or `FRIL` means, by the words of its definition."""
    month = [date(day.year, day.month, 1)]
    while (following := month[-1] + DAY).month == day.month:
        month.append(following)
    workdays = [each for each in month if each.isoweekday() <= 5]
    if item == "L":
        return day == month[-1]
    if item == "LW":
        return day == workdays[-1]
    if item.endswith("W"):
        wanted = int(item[:-1])
        return wanted <= len(month) and day == min(workdays, key=lambda each: abs(each.day - wanted))
    alike = [each for each in month if each.isoweekday() % 7 == _DAYS.index(item[:3])]
    return day == alike[-1] if item.endswith("L") else alike[int(item[4:]) - 1 : int(item[4:])] == [day]


def draw(random: Random, *, wide: bool = False) -> Expression:
    """An expression; `wide`: one that fits often, so that a short walk meets it."""
    texts, values = [], []
    for number, (low, high) in enumerate(_RANGES):
        text, fitting = _field(random, number, low, high, star=0.6 if number == 1 or not wide else 0.9 if number > 1 else 0.2)
        texts.append(text)
        values.append(frozenset(fitting))
    return Expression(" ".join(texts), tuple(values))


def draw_special(random: Random, *, seconds: bool) -> Expression:
    """An expression with special days in one or both of its day fields; `seconds`: of six fields."""
    plain = draw(random, wide=True)
    texts, values, special = plain.text.split(), list(plain.values), []
    places = random.choice(([2], [4], [2, 4]))
    for place in places:
        items = [_special(random, place) for _ in range(random.randint(1, 2))]
        # The oracle names weekdays; the expression may number them, and call Sunday 7.
        special += items
        written = [_numbered(random, item) if place == 4 else item for item in items]
        values[place] = frozenset()
        if random.random() < 0.3:
            value = random.randint(1, 6)
            written.append(str(value))
            values[place] = frozenset({value})
        texts[place] = ",".join(written)
    if len(places) == 1:
        other = 6 - places[0]
        texts[other], values[other] = random.choice("*?"), frozenset(range(32))
    second, among = _field(random, 0, 0, 59, star=0.3)
    if seconds:
        return Expression(f"{second} {' '.join(texts)}", tuple(values), tuple(special), frozenset(among))
    return Expression(" ".join(texts), tuple(values), tuple(special))


def _special(random: Random, place: int) -> str:
    if place == 2:
        return random.choice(("L", "LW", f"{random.randint(1, 31)}W", f"{random.choice((1, 2, 29, 30, 31))}W"))
    day = random.choice(_DAYS)
    return random.choice((f"{day}L", f"{day}#{random.randint(1, 5)}"))


def _numbered(random: Random, item: str) -> str:
    number = _DAYS.index(item[:3])
    return random.choice((item, item.lower(), f"{number}{item[3:]}", f"{number or 7}{item[3:]}"))


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

    the clock reaching a local minute for the first time fires it; minutes that the clock leaps over fire at the leap. With six fields, the
    same of seconds.

    back: at least as long as the longest time that a clock repeats near by, to know what it repeats.
    """
    at = begin - back
    # Some zones were off by half a minute once.
    odd = any(when.astimezone(where).second for when in (at, begin, end, end + back))
    unit = MINUTE if expression.seconds is None else SECOND
    step = timedelta(seconds=30) if odd and unit == MINUTE else unit
    reached = (at - step).astimezone(where).replace(tzinfo=None)
    plain: dict[datetime, datetime] = {}
    leapt: set[datetime] = set()
    again: set[datetime] = set()
    while at < end + back:
        local = at.astimezone(where).replace(tzinfo=None)
        if local <= reached:
            again.add(local)
        else:
            moment = (reached.replace(second=0) if unit == MINUTE else reached) + unit
            while moment <= local:
                if expression.fits(moment):
                    if moment == local:
                        plain[at] = moment
                    else:
                        leapt.add(at)
                moment += unit
            reached = local
        at += step
    found = [(at, "fold" if moment in again else None) for at, moment in plain.items()]
    found += [(at, "gap") for at in leapt - plain.keys()]
    return sorted((at, reason) for at, reason in found if begin <= at < end)
