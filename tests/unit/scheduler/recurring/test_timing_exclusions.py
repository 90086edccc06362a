"""Excluded days, and "at most once per": compared with a filter over all occurrences of years, which shares no code with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.core.clock import Millis, to_datetime, to_millis
from shared.core.errors import Unavailable
from shared.scheduler.recurring.timing import Period, Timing, days_text, occurrences, parse_days
from shared.scheduler.recurring.timing import zone as zone_of
from tests.unit.scheduler.harness import World

START = to_millis(datetime(2027, 1, 1, tzinfo=UTC))
DAY: Millis = 86_400_000
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca")
PERIODS = (None, "hour", "day", "week", "month")
RULES = ("*/20 * * * *", "0 0 * * *", "30 2 * * *", "59 23 * * MON", "0 9,17 * * *", "5 */6 1,15 * *")


def _period(at: Millis, zone: str, period: Period) -> object:
    local = to_datetime(at).astimezone(zone_of(zone))
    day = local.date()
    return {
        "hour": (day, local.hour),
        "day": day,
        "week": day - timedelta(days=day.weekday()),
        "month": (day.year, day.month),
    }[period]


def _expected(timing: Timing, after: Millis, count: int) -> list[Millis]:
    """Walk all occurrences from two months before `after`, so that every period that matters is seen from its beginning."""
    plain = Timing(timing.cron, timing.zone, timing.every, timing.start, timing.end)
    seen: set[object] = set()
    found: list[Millis] = []
    for each in occurrences(plain, after - 62 * DAY):
        local = to_datetime(each.at).astimezone(zone_of(timing.zone))
        if local.date().toordinal() in timing.excluded:
            continue
        if timing.once_per:
            period = _period(each.at, timing.zone, timing.once_per)
            if period in seen:
                continue
            seen.add(period)
        if each.at > after:
            found.append(each.at)
            if len(found) == count:
                break
    return found


@settings(max_examples=60)
@given(
    st.sampled_from(RULES),
    st.sampled_from(ZONES),
    st.sampled_from(PERIODS),
    st.frozensets(st.integers(0, 400), max_size=12),
    st.integers(0, 380 * 24 * 60),
)
@example("*/20 * * * *", "Europe/Berlin", "hour", frozenset(), (303 * 24 - 1) * 60)
@example("*/20 * * * *", "Europe/Berlin", "day", frozenset({86, 87}), 86 * 24 * 60)
def test_same_as_a_filter_over_all_occurrences(rule: str, zone: str, period: Period | None, days: frozenset[int], minutes: int) -> None:
    first = date(2027, 1, 1).toordinal()
    timing = Timing(cron=rule, zone=zone, excluded=frozenset(first + day for day in days), once_per=period)
    after = START + minutes * 60_000
    assert [each.at for each in islice(occurrences(timing, after), 4)] == _expected(timing, after, 4)


@settings(max_examples=60)
@given(st.sampled_from([420, 3600, 86_400, 1_000_000]), st.sampled_from(PERIODS), st.integers(0, 10_000_000))
def test_interval_counts_in_utc_from_its_start(seconds: int, period: Period | None, after: int) -> None:
    start = START + 12_345_000
    timing = Timing(every=seconds * 1000, start=start, excluded=frozenset({date(2027, 1, 3).toordinal()}), once_per=period)
    expected = _expected(timing, START + after * 1000, 6)
    assert [each.at for each in islice(occurrences(timing, START + after * 1000), 6)] == expected


def test_years_of_excluded_days_are_passed_quickly() -> None:
    first = date(2027, 1, 1).toordinal()
    timing = Timing(cron="* * * * *", zone="Europe/Berlin", excluded=frozenset(range(first, first + 2000)))
    assert to_datetime(next(occurrences(timing, START)).at).date() == date.fromordinal(first + 2000) - timedelta(days=1)
    assert next(occurrences(Timing(cron="0 0 1 1 *", zone="UTC", once_per="month"), START)).at == START + 365 * DAY


@pytest.mark.parametrize("days", [(), (1,), (730_000, 730_001, 739_999)])
def test_days_survive_their_text(days: tuple[int, ...]) -> None:
    assert parse_days(days_text(reversed(days))) == days


# -- through the API


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World().open()
    yield world
    await world.close()


async def preview(world: World, schedule: str, count: int) -> list[str]:
    found = await world.demo.get(f"/api/v1/schedules/{schedule}/preview?n={count}")
    return [each["local"][:16] for each in found.json()["items"]]


async def delivered(world: World) -> list[str]:
    return sorted(str(row.props["id"]) for row in world.events() if row.props["state"] == "delivered")


def local_day(world: World, ahead: int) -> str:
    return (to_datetime(world.now) + timedelta(days=ahead)).date().isoformat()


async def test_schedule_follows_its_calendars(world: World) -> None:
    day = [local_day(world, ahead) for ahead in range(8)]
    body = {"cron": "0 12 * * *", "payload": 1, "exclude": {"dates": [day[1]], "calendars": ["holidays"]}}
    refused = await world.demo.put("/api/v1/schedules/noon", body)
    assert refused.status == 422 and refused.json()["errors"][0]["pointer"] == "/exclude/calendars/0"
    made = await world.demo.put("/api/v1/calendars/holidays", {"dates": [day[3], day[2], day[2]]})
    assert (made.status, made.json()) == (201, {"name": "holidays", "dates": [day[2], day[3]]})
    assert (await world.demo.put("/api/v1/schedules/noon", body)).json()["exclude"] == body["exclude"]
    kept = [each for each in day if each not in day[1:4]]
    assert [each for each in await preview(world, "noon", 3) if each[:10] in day][-2:] == [f"{each}T12:00" for each in kept[-4:-2]]

    changed = await world.demo.put("/api/v1/calendars/holidays", {"dates": [day[4]]}, {"if-match": made.headers["etag"]})
    assert changed.status == 200
    shown = await preview(world, "noon", 3)
    assert f"{day[2]}T12:00" in shown and f"{day[1]}T12:00" not in shown
    revision = (await world.demo.get("/api/v1/schedules/noon")).json()["revision"]
    assert (await world.demo.put("/api/v1/calendars/holidays", {"dates": [day[4]]})).headers["etag"] == changed.headers["etag"]
    assert (await world.demo.get("/api/v1/schedules/noon")).json()["revision"] == revision, "the same dates change nothing"
    used = await world.demo.delete("/api/v1/calendars/holidays")
    assert used.status == 409 and "noon" in used.json()["detail"]

    await world.run(6 * 86_400, step=150)
    fired = {each.split(":")[1][:8] for each in await delivered(world) if each.startswith("noon:")}
    assert fired & {each.replace("-", "") for each in day[1:6]} == {each.replace("-", "") for each in (day[2], day[3], day[5])}
    await world.demo.delete("/api/v1/schedules/noon")
    assert (await world.demo.delete("/api/v1/calendars/holidays")).status == 204
    assert (await world.demo.get("/api/v1/calendars")).json() == {"items": [], "next": None}


async def test_change_of_a_calendar_that_was_interrupted_is_completed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    day = local_day(world, 2)
    await world.demo.put("/api/v1/calendars/days", {"dates": []})
    for name in ("a", "b"):
        await world.demo.put(f"/api/v1/schedules/{name}", {"cron": "@daily", "payload": 1, "exclude": {"calendars": ["days"]}})
    follow, followed = world.app.scheduler.recurring.calendars.follow, list[str]()

    async def fail(tenant: str, uid: str, schedule: str) -> bool:
        if followed:
            raise Unavailable("away")
        followed.append(schedule)
        return await follow(tenant, uid, schedule)

    monkeypatch.setattr(world.app.scheduler.recurring.calendars, "follow", fail)
    assert (await world.demo.put("/api/v1/calendars/days", {"dates": [day]})).status == 503
    monkeypatch.undo()
    counts = await world.app.scheduler.recurring.calendars.follow_all(world.now)
    assert counts["followed"] == 1
    for name in ("a", "b"):
        assert f"{day}T00:00" not in await preview(world, name, 4)
    await world.admin.delete("/api/v1/tenants/demo")
    assert (await world.app.scheduler.recurring.calendars.follow_all(world.now))["removed"] == 1


async def test_calendar_that_is_filled_while_a_schedule_is_stored_reaches_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    day, recurring = local_day(world, 2), world.app.scheduler.recurring
    await world.demo.put("/api/v1/calendars/days", {"dates": []})
    write = recurring._write

    async def fill_first(*definitions: Any) -> Any:
        monkeypatch.undo()
        assert (await world.demo.put("/api/v1/calendars/days", {"dates": [day]})).status == 200
        return await write(*definitions)

    monkeypatch.setattr(recurring, "_write", fill_first)
    await world.demo.put("/api/v1/schedules/a", {"cron": "@daily", "payload": 1, "exclude": {"calendars": ["days"]}})
    assert f"{day}T00:00" not in await preview(world, "a", 4)


@pytest.mark.parametrize(
    ("part", "pointer"),
    [
        ({"exclude": {"dates": ["2026-02-30"]}}, "/exclude/dates/0"),
        ({"exclude": {"dates": [20261224]}}, "/exclude/dates/0"),
        ({"exclude": {"dates": ["2026-12-24T00:00:00Z"]}}, "/exclude/dates/0"),
        ({"exclude": {"dates": ["2026-12-24"] * 367}}, "/exclude/dates"),
        ({"exclude": {"calendars": ["none"]}}, "/exclude/calendars/0"),
        ({"at_most_once_per": "year"}, "/at_most_once_per"),
    ],
)
async def test_wrong_exclusion_is_refused_with_its_place(world: World, part: dict[str, Any], pointer: str) -> None:
    refused = await world.demo.put("/api/v1/schedules/wrong", {"cron": "@daily", "payload": 1, **part})
    assert refused.status == 422 and refused.json()["errors"][0]["pointer"] == pointer
