"""The occurrences of schedules: the rule about clock changes in every zone, held against a slow oracle and an independent cron library."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import resources
from itertools import islice, takewhile
from random import Random

import pytest
from croniter import croniter
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from shared.core.clock import Millis, to_datetime, to_millis, to_text
from shared.scheduler.recurring import timing as timing_module
from shared.scheduler.recurring.timing import END, ScheduleOccurrence, Timing, instant_of, names, occurrences, previous, zone

from .oracle import Expression, changes, draw, walk

HOUR = timedelta(hours=1)
DAY: Millis = 86_400_000


def at(text: str) -> Millis:
    return to_millis(datetime.fromisoformat(text))


def short(found: Iterator[ScheduleOccurrence], count: int) -> list[tuple[str, str | None]]:
    return [(to_text(each.at)[:16], each.reason) for each in islice(found, count)]


def distinct_zones() -> list[str]:
    """One name for each set of rules: many names are only links."""
    found: dict[int, str] = {}
    for name in sorted(names()):
        raw = resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
        found.setdefault(zlib.crc32(raw), name)
    return sorted(found.values())


# ---- the examples of docs/reference/schedules.md

GAP = "gap"
FOLD = "fold"


@pytest.mark.parametrize(
    ("cron", "where", "after", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", "2027-03-27T12:00Z", [("2027-03-28T01:00", GAP), ("2027-03-29T00:30", None)]),
        ("30 2 * * *", "Europe/Berlin", "2027-10-30T12:00Z", [("2027-10-31T00:30", FOLD), ("2027-11-01T01:30", None)]),
        ("30 2 * * *", "America/New_York", "2027-03-13T12:00Z", [("2027-03-14T07:00", GAP), ("2027-03-15T06:30", None)]),
        ("30 1 * * *", "America/New_York", "2027-11-06T12:00Z", [("2027-11-07T05:30", FOLD), ("2027-11-08T06:30", None)]),
        ("15 2 * * *", "Australia/Lord_Howe", "2027-10-02T12:00Z", [("2027-10-02T15:30", GAP), ("2027-10-03T15:15", None)]),
        ("45 1 * * *", "Australia/Lord_Howe", "2027-04-03T12:00Z", [("2027-04-03T14:45", FOLD), ("2027-04-04T15:15", None)]),
        (
            "0 9 * * *",
            "Pacific/Apia",
            "2011-12-29T12:00Z",
            [("2011-12-29T19:00", None), ("2011-12-30T10:00", GAP), ("2011-12-30T19:00", None)],
        ),
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00Z", [("2018-11-04T03:00", GAP), ("2018-11-05T02:00", None)]),
    ],
)
def test_clock_changes_are_met_as_the_rule_says(cron: str, where: str, after: str, expected: list[tuple[str, str | None]]) -> None:
    assert short(occurrences(Timing(cron=cron, zone=where), at(after)), len(expected)) == expected


def test_times_in_one_gap_fire_together_once_and_plainly_when_its_end_is_due_itself() -> None:
    found = short(occurrences(Timing(cron="*/20 2 * * *", zone="Europe/Berlin"), at("2027-03-27T12:00Z")), 2)
    assert found == [("2027-03-28T01:00", GAP), ("2027-03-29T00:00", None)]
    found = short(occurrences(Timing(cron="*/20 2,3 * * *", zone="Europe/Berlin"), at("2027-03-28T00:00Z")), 2)
    assert found == [("2027-03-28T01:00", None), ("2027-03-28T01:20", None)]


def test_every_minute_is_silent_while_the_clock_repeats_an_hour() -> None:
    found = list(
        takewhile(
            lambda each: each.at < at("2027-10-31T03:00Z"), occurrences(Timing("* * * * *", "Europe/Berlin"), at("2027-10-31T00:00Z") - 1)
        )
    )
    assert len(found) == 120 and [each.reason for each in found] == [FOLD] * 60 + [None] * 60
    assert found[60].at - found[59].at == 61 * 60_000


# ---- every zone


def check_changes(expressions: int, first: int, last: int, *, every: int, step: timedelta) -> int:
    """Compare with the oracle around clock changes: all odd ones, and of those by an hour each `every`-th. How many were looked at."""
    random = Random(8)
    looked = 0
    for name in distinct_zones():
        where = zone(name)
        for number, (change, by) in enumerate(changes(where, first, last, step)):
            if abs(by) == HOUR and (number + zlib.crc32(name.encode())) % every:
                continue
            looked += 1
            margin = min(abs(by), 3 * HOUR) + HOUR
            begin = (change - margin).replace(second=0)
            end = begin + 2 * margin
            for _ in range(expressions):
                compare(draw(random, wide=True), name, begin, end, abs(by) + HOUR)
    return looked


def compare(expression: Expression, name: str, begin: datetime, end: datetime, back: timedelta) -> None:
    expected = [(to_millis(when), reason) for when, reason in walk(expression, zone(name), begin, end, back)]
    found = occurrences(Timing(expression.text, name), to_millis(begin) - 1)
    got = [(each.at, each.reason) for each in takewhile(lambda each: each.at < to_millis(end), found)]
    assert got == expected, f"{expression.text!r} in {name}, {begin} to {end}"


def test_rule_holds_around_clock_changes_of_all_zones() -> None:
    assert check_changes(1, 1970, 2045, every=40, step=timedelta(days=21)) > 700


@seed(20270328)
@settings(max_examples=150, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(names())), start=st.integers(0, 70 * 365 * 24 * 60), cron=st.integers(0, 10_000), cut=st.integers(0, 30))
def test_chain_that_goes_on_from_any_occurrence_neither_repeats_nor_skips_one(name: str, start: int, cron: int, cut: int) -> None:
    timing = Timing(draw(Random(cron)).text, name)
    after = start * 60_000
    whole = list(islice(occurrences(timing, after), 32))
    assert all(one.at < other.at for one, other in zip([ScheduleOccurrence(after), *whole], whole, strict=False))
    if len(whole) == 32:
        here = whole[cut].at
        assert list(islice(occurrences(timing, here), 31 - cut)) == whole[cut + 1 :]
        assert list(islice(occurrences(timing, here - 1), 32 - cut)) == whole[cut:]
        middle = (here + whole[cut + 1].at) // 2
        assert list(islice(occurrences(timing, middle), 31 - cut)) == whole[cut + 1 :]


@seed(20271031)
@settings(max_examples=300, deadline=None, database=None)
@given(name=st.sampled_from(sorted(names())), seconds=st.integers(0, 75 * 365 * 86_400))
def test_local_time_of_an_instant_means_that_instant_or_its_first_showing(name: str, seconds: int) -> None:
    where = zone(name)
    instant = seconds * 1000
    shown = to_datetime(instant).astimezone(where)
    found, reason = instant_of(shown.replace(tzinfo=None, fold=0), where)
    assert reason != GAP
    assert to_datetime(found).astimezone(where).replace(tzinfo=None) == shown.replace(tzinfo=None)
    assert found == instant if not shown.fold else found < instant and reason == FOLD


# ---- an independent library


@pytest.mark.parametrize(("name", "hours"), [("UTC", 0), ("Etc/GMT-5", 5)])
def test_zones_without_changes_agree_with_croniter(name: str, hours: int) -> None:
    random = Random(55)
    compared = 0
    for _ in range(150):
        expression = draw(random)
        after = datetime(
            random.randint(1970, 2060), random.randint(1, 12), random.randint(1, 28), random.randint(0, 23), random.randint(0, 59)
        )
        # Vixie's rule about days goes by the name of a bug there.
        other = croniter(expression.text, after, ret_type=datetime, implement_cron_bug=True, max_years_between_matches=60)
        ours = occurrences(Timing(expression.text, name), to_millis(after.replace(tzinfo=UTC)) - hours * 3_600_000)
        for found in islice(ours, 12):
            assert to_datetime(found.at).replace(tzinfo=None) + timedelta(hours=hours) == other.get_next(), expression.text
            compared += 1
    assert compared > 1_200


# ---- intervals, bounds, the way back


def test_interval_counts_elapsed_time_across_a_clock_change() -> None:
    start = at("2027-03-27T23:00+01:00")
    found = list(islice(occurrences(Timing(every=3 * 3_600_000, start=start), start - 1), 4))
    assert [each.at - start for each in found] == [0, 3 * 3_600_000, 6 * 3_600_000, 9 * 3_600_000]
    assert {each.reason for each in found} == {None}


def test_start_is_included_and_end_is_not() -> None:
    timing = Timing("0 * * * *", start=at("2027-01-01T10:00Z"), end=at("2027-01-01T12:00Z"))
    assert short(occurrences(timing, 0), 9) == [("2027-01-01T10:00", None), ("2027-01-01T11:00", None)]
    timing = Timing(every=3_600_000, start=at("2027-01-01T10:00Z"), end=at("2027-01-01T12:00Z"))
    assert short(occurrences(timing, 0), 9) == [("2027-01-01T10:00", None), ("2027-01-01T11:00", None)]


def test_nothing_occurs_at_the_end_of_the_calendar() -> None:
    for timing in (
        Timing("* * * * *", "Pacific/Kiritimati"),
        Timing("0 20 31 12 *", "America/Adak"),
        Timing(every=60_000, start=END - 60_000),
        Timing("0 0 1 1 *", start=at("9999-06-01T00:00Z")),
    ):
        assert len(list(islice(occurrences(timing, END - 120_000), 9))) <= 1
        assert list(occurrences(timing, at("9999-12-31T23:59Z"))) == []


@seed(7)
@settings(max_examples=150, deadline=None, database=None)
@given(cron=st.integers(0, 5_000), until=st.integers(0, 2_000_000_000), back=st.integers(0, 40 * DAY // 1000))
def test_previous_is_the_last_of_all_since(cron: int, until: int, back: int) -> None:
    # Coarse expressions only, so that the list to compare with stays short.
    fields = draw(Random(cron)).text.split()
    timing = Timing(" ".join(["17", *fields[1:]]), "Europe/Lisbon")
    end, after = until * 1000, (until - back) * 1000
    since = list(takewhile(lambda each: each.at <= end, occurrences(timing, after)))
    assert previous(timing, end, after) == (since[-1] if since else None)


def test_previous_of_a_dense_rule_is_found_close_by(monkeypatch: pytest.MonkeyPatch) -> None:
    walked = 0
    whole = timing_module.occurrences

    def counting(timing: Timing, after: Millis) -> Iterator[ScheduleOccurrence]:
        nonlocal walked
        for each in whole(timing, after):
            walked += 1
            yield each

    monkeypatch.setattr(timing_module, "occurrences", counting)
    assert previous(Timing(every=1000, start=0), 10**12, 0) == ScheduleOccurrence(10**12)
    assert previous(Timing("* * * * *"), 10**12, 0) == ScheduleOccurrence(10**12 - 10**12 % 60_000)
    assert walked < 100
