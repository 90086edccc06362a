"""The days that an expression means, held against tables worked out from what other schedulers document, and against slow definitions."""

from __future__ import annotations

import calendar
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from itertools import chain, combinations, islice, takewhile
from random import Random

import pytest

from shared.core.clock import to_millis
from shared.scheduler.recurring.cron import check, parse
from shared.scheduler.recurring.timing import MOST_DAYS, MOST_YEARS, LocalTimes, Timing, names, occurrences, reached_at, zone

from .oracle import DAY, HOUR, Expression, changes, draw_special, special_fits, walk


def days_of(expression: str, year: int, month: int) -> list[int]:
    """The days of a month on which an expression fires."""
    begin = datetime(year, month, 1)
    end = begin + timedelta(days=calendar.monthrange(year, month)[1])
    return sorted({each.day for each in takewhile(lambda each: each < end, LocalTimes(expression, begin - timedelta(seconds=1)))})


@pytest.mark.parametrize(
    ("case", "day", "year", "month", "expected"),
    [
        ("a weekday", 15, 2026, 12, [15]),
        ("a Saturday becomes the Friday before", 15, 2027, 5, [14]),
        ("a Sunday becomes the Monday after", 15, 2026, 11, [16]),
        ("a Saturday the 1st becomes Monday the 3rd", 1, 2027, 5, [3]),
        ("a Sunday the 1st becomes Monday the 2nd", 1, 2026, 11, [2]),
        ("a Saturday that is the last day becomes the Friday before", 31, 2026, 10, [30]),
        ("a Sunday that is the last day becomes the Friday before", 31, 2027, 1, [29]),
        ("a day that the month does not have", 31, 2026, 9, []),
    ],
)
def test_nearest_weekday_stays_within_its_month(case: str, day: int, year: int, month: int, expected: list[int]) -> None:
    assert days_of(f"0 0 {day}W * *", year, month) == expected, case


# Each rule is the scheduler's own, in our words; the days follow from it and a calendar. January 2027 begins on a Friday, and February on a
# Monday.
CRONOS = "github.com/HangfireIO/Cronos, README"
CRONER = "github.com/Hexagon/croner, README"
QUARTZ = "quartz-scheduler.org, CronTrigger Tutorial 2.5"
NCRONTAB = "Azure Functions, timer trigger; github.com/atifaziz/NCrontab, issues 63 and 107"
TABLE = [
    (CRONOS, "L in the day of month is the last day", "0 0 L * *", 2027, 2, [28]),
    (CRONOS, "L in the day of month is the last day", "0 0 L * *", 2028, 2, [29]),
    (CRONOS, "5L and FRIL are the last Friday", "0 0 * * 5L", 2027, 1, [29]),
    (CRONOS, "5L and FRIL are the last Friday", "0 0 * * FRIL", 2027, 2, [26]),
    (CRONOS, "2L is the last Tuesday", "0 0 * * 2L", 2027, 1, [26]),
    (CRONOS, "LW is the last weekday", "0 0 LW * *", 2027, 1, [29]),
    (CRONOS, "LW is the last weekday", "0 0 LW * *", 2027, 2, [26]),
    (CRONOS, "W moves a Saturday to Friday and a Sunday to Monday", "0 0 3W * *", 2027, 1, [4]),
    (CRONOS, "1W of a Saturday is Monday the 3rd", "0 0 1W * *", 2027, 5, [3]),
    (CRONOS, "31W of a Sunday is the Friday before", "0 0 31W * *", 2027, 1, [29]),
    (CRONOS, "6#3 is the third Saturday", "0 0 * * 6#3", 2027, 1, [16]),
    (CRONOS, "? MON#1 in January is the first Monday of January", "0 0 ? 1 MON#1", 2027, 1, [4]),
    (CRONOS, "0 and 7 are Sunday", "0 0 * * 7", 2027, 1, [3, 10, 17, 24, 31]),
    (CRONOS, "0 and 7 are Sunday", "0 0 * * 0#5", 2027, 1, [31]),
    (CRONOS, "? is a synonym of *", "0 0 5 * ?", 2027, 1, [5]),
    (CRONER, "L is the last day of the month", "0 0 L 2 *", 2027, 2, [28]),
    (CRONER, "5#2 is the second Friday", "0 0 * * 5#2", 2027, 1, [8]),
    (CRONER, "FRI#2 is the second Friday", "0 0 * * FRI#2", 2027, 2, [12]),
    (CRONER, "7 is Sunday, the same as 0", "0 0 * * 7#2", 2027, 1, [10]),
    (CRONER, "five fields: the 1st of the month as well as each Monday", "0 20 1 * MON", 2027, 1, [1, 4, 11, 18, 25]),
    (CRONER, "seconds are optional and come first", "*/5 * * L * *", 2027, 1, [31]),
    (QUARTZ, "0 15 10 L * ? is the last day of each month", "0 15 10 L * ?", 2027, 4, [30]),
    (QUARTZ, "6L, here 5L, is the last Friday", "0 15 10 ? * 5L", 2027, 4, [30]),
    (QUARTZ, "6#3, here 5#3, is the third Friday", "0 15 10 ? * 5#3", 2027, 4, [16]),
    (QUARTZ, "4#5, here 3#5: without a fifth one nothing fires", "0 0 12 ? * 3#5", 2027, 4, []),
    (QUARTZ, "15W of a Saturday fires on Friday the 14th", "0 0 12 15W * ?", 2027, 5, [14]),
    (QUARTZ, "15W of a Sunday fires on Monday the 16th", "0 0 12 15W * ?", 2027, 8, [16]),
    (QUARTZ, "15W of a Tuesday fires on that day", "0 0 12 15W * ?", 2027, 6, [15]),
    (QUARTZ, "1W of a Saturday is Monday the 3rd: no jump over the month's end", "0 0 12 1W * ?", 2027, 5, [3]),
    (QUARTZ, "LW is the last weekday", "0 0 12 LW * ?", 2027, 5, [31]),
    (
        QUARTZ,
        "MON-FRI without a day of month",
        "0 15 10 ? * MON-FRI",
        2027,
        2,
        [day for day in range(1, 29) if day % 7 not in (6, 0)],
    ),
    (NCRONTAB, "both day fields must match: the first Tuesday", "0 0 8 1-7 * Tue", 2027, 1, [5]),
    (NCRONTAB, "both day fields must match: Friday the 13th", "0 0 0 13 * FRI", 2027, 8, [13]),
    (NCRONTAB, "both day fields must match: Friday the 13th", "0 0 0 13 * FRI", 2027, 9, []),
    (NCRONTAB, "0 is Sunday", "0 0 0 * * 0", 2027, 2, [7, 14, 21, 28]),
    (NCRONTAB, "0 30 9 * Jan Mon: Mondays in January", "0 30 9 * Jan Mon", 2027, 1, [4, 11, 18, 25]),
]


@pytest.mark.parametrize(("source", "rule", "expression", "year", "month", "expected"), TABLE)
def test_days_are_those_that_other_schedulers_document(
    source: str, rule: str, expression: str, year: int, month: int, expected: list[int]
) -> None:
    assert days_of(expression, year, month) == expected, f"{source}: {rule}"


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        # The examples of Azure's page on timer triggers, and those that a list of seconds adds.
        ("0 */5 * * * *", "12:01:10", ["12:05:00", "12:10:00"]),
        ("0 0 */2 * * *", "12:01:10", ["14:00:00", "16:00:00"]),
        ("0 0 9-17 * * *", "16:01:10", ["17:00:00", "09:00:00"]),
        ("0 30 9 * * *", "12:01:10", ["09:30:00", "09:30:00"]),
        ("*/30 * * * * *", "12:01:10", ["12:01:30", "12:02:00"]),
        ("5,8,10 * * * * *", "12:01:08", ["12:01:10", "12:02:05"]),
        ("1-59/29 59 23 * * *", "23:59:01", ["23:59:30", "23:59:59"]),
    ],
)
def test_six_fields_fire_on_their_seconds(expression: str, after: str, expected: list[str]) -> None:
    found = islice(LocalTimes(expression, datetime.fromisoformat(f"2027-01-15T{after}")), 2)
    assert [each.strftime("%H:%M:%S") for each in found] == expected


def test_special_days_agree_with_their_definitions_in_each_kind_of_month() -> None:
    items = ["L", "LW", *(f"{day}W" for day in range(1, 32)), *(f"FRI#{number}" for number in range(1, 6)), "SUNL", "WEDL"]
    for item in items:
        expression = f"0 0 {item} * *" if item[0] in "L123456789" else f"0 0 * * {item}"
        for year in range(2024, 2052):
            for month in (2, 4, 12):
                wanted = [day for day in _month(year, month) if special_fits(item, day)]
                assert days_of(expression, year, month) == [each.day for each in wanted], (item, year, month)


def _month(year: int, month: int) -> list[date]:
    return [date(year, month, day) for day in range(1, calendar.monthrange(year, month)[1] + 1)]


def drawn(random: Random, *, seconds: bool) -> Expression:
    """An expression that ever fires."""
    while True:
        expression = draw_special(random, seconds=seconds)
        try:
            check(expression.text)
        except ValueError:
            continue
        return expression


def test_every_day_of_years_agrees_with_the_slow_definitions() -> None:
    random = Random(15)
    for number in range(80):
        expression = drawn(random, seconds=number % 2 == 1)
        begin = datetime(random.randint(1970, 2090), random.randint(1, 12), 1)
        end = begin + timedelta(days=400)
        text = " ".join([*(["0"] if expression.seconds is not None else []), "0", "0", *expression.text.split()[-3:]])
        found = {each.date() for each in LocalTimes(text, begin - timedelta(seconds=1), until=end - timedelta(seconds=1))}
        days = (begin.date() + number * DAY for number in range(400))
        assert found == {day for day in days if day.month in expression.values[3] and expression.fits_day(day)}, text


def test_expression_that_never_fires_is_told_from_one_that_rarely_does() -> None:
    # 28 years have each month with each weekday as its first day.
    random = Random(31)
    days = [date(2000, 1, 1) + number * DAY for number in range(28 * 366)]
    refused = 0
    for _ in range(60):
        expression = draw_special(random, seconds=True)
        try:
            check(expression.text)
            fires = True
        except ValueError:
            fires = False
            refused += 1
        assert fires == any(day.month in expression.values[3] and expression.fits_day(day) for day in days), expression.text
    assert 5 < refused < 55


def test_every_expression_that_ever_fires_is_found_within_the_bounds_of_a_search() -> None:
    months = [(year, month, *calendar.monthrange(year, month)) for year in range(2000, 2460) for month in range(1, 13)]
    dates = [*(f"{day}" for day in range(1, 32)), *(f"{day}W" for day in range(1, 32)), "L", "LW"]
    weekdays = [*"0123456", *(f"{day}#{number}" for day in range(7) for number in range(1, 6)), *(f"{day}L" for day in range(7))]
    shapes = [(first, length) for first in range(7) for length in (28, 29, 30, 31)]
    # Which kinds of month an expression matches decides how long a search may take.
    kinds = {
        frozenset(shape for shape in shapes if parsed.days_in(*shape))
        for parsed in (parse(f"0 0 0 {day} * {weekday}") for day in dates for weekday in weekdays)
    }
    lengths = [{2}, {4, 6, 9, 11}, {1, 3, 5, 7, 8, 10, 12}]
    for some in chain.from_iterable(combinations(lengths, count) for count in (1, 2, 3)):
        chosen = [(year, first, length) for year, month, first, length in months if any(month in each for each in some)]
        for kind in kinds:
            assert _longest(chosen, kind) <= (MOST_DAYS, MOST_YEARS - 1)


def _longest(months: Iterable[tuple[int, int, int]], kind: frozenset[tuple[int, int]]) -> tuple[int, int]:
    """The most days that a search looks at between two matches, if the years between two matches are few enough."""
    looked_at, last, most = 0, (0, 0), 0
    for year, first, length in months:
        looked_at += length
        if (first, length) in kind:
            if last != (0, 0):
                assert year - last[1] < MOST_YEARS
                most = max(most, looked_at - last[0])
            last = looked_at, year
    return most, 0


# ---- clock changes


@pytest.mark.parametrize(("seconds", "count"), [(False, 24), (True, 10)])
def test_special_days_and_seconds_hold_around_clock_changes(seconds: bool, count: int) -> None:
    """At changes that fall on a day that the expression names, in zones of all kinds."""
    random = Random(5 + seconds)
    met = 0
    zones = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Antarctica/Troll"]
    zones += random.sample(sorted(names()), 40)
    while met < count:
        name = random.choice(zones)
        found = list(changes(zone(name), 1975, 2040, timedelta(days=21)))
        if not found:
            continue
        change, by = random.choice(found)
        expression = drawn(random, seconds=seconds)
        margin = min(abs(by), 3 * HOUR) + timedelta(minutes=20 if seconds else 90)
        begin = (change - margin).replace(second=0)
        end = begin + 2 * margin
        if not any(expression.fits_day(day.date()) for day in (begin, change, end)):
            continue
        expected = [(to_millis(at), why) for at, why in walk(expression, zone(name), begin, end, abs(by) + timedelta(minutes=2))]
        met += bool(expected)
        coming = occurrences(Timing(expression.text, name, end=to_millis(end)), to_millis(begin) - 1)
        got = [(each.at, each.reason) for each in coming]
        assert got == expected, f"{expression.text!r} in {name}, {begin} to {end}"


def test_a_search_in_a_repeated_hour_begins_where_the_clock_had_got_to() -> None:
    for name, first, last in (("Europe/Berlin", 1975, 2030), ("Antarctica/Troll", 2005, 2030), ("Australia/Lord_Howe", 1980, 2030)):
        where = zone(name)
        for change, by in changes(where, first, last, timedelta(days=21)):
            if by > timedelta(0):
                continue
            before = (change - timedelta(seconds=1)).astimezone(where).replace(tzinfo=None)
            for after in (timedelta(0), timedelta(seconds=1), -by / 2, -by - timedelta(seconds=1)):
                assert reached_at(to_millis(change + after), where) == before
            assert reached_at(to_millis(change - by), where) == (change - by).astimezone(where).replace(tzinfo=None) > before
    assert reached_at(to_millis(datetime(2027, 7, 1, tzinfo=UTC)), zone("UTC")) == datetime(2027, 7, 1)
