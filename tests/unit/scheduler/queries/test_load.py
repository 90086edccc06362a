"""`GET /load`: what is filed for each minute."""

from __future__ import annotations

import pytest

from shared.core.clock import to_text
from shared.delivery.channels.ports import Verdict
from shared.scheduler.keys import MINUTE
from tests.unit.scheduler.harness import START, World

LOAD = "/api/v1/load"


async def load(world: World, query: str = "") -> dict[int, int]:
    """Events by minutes from the start, the empty ones left out."""
    answer = await world.demo.get(LOAD + query)
    assert answer.status == 200, answer
    found = {item["minute"]: item["scheduled"] for item in answer.json()["items"]}
    return {number: found[at] for number in range(-60, 1500) if found.get(at := to_text(START + number * MINUTE))}


async def test_every_minute_of_the_next_hour_is_listed_with_its_planned_events(world: World) -> None:
    for minute in (0, 1, 1, 7, 59, 60):
        await world.demo.create(due=to_text(START + minute * MINUTE + 30_000))
    items = (await world.demo.get(LOAD)).json()["items"]
    assert [item["minute"] for item in items] == [to_text(START + number * MINUTE) for number in range(60)]
    assert [item["scheduled"] for item in items] == [1, 2, 0, 0, 0, 0, 0, 1, *[0] * 51, 1]


async def test_load_adds_up_all_shards_of_a_minute_and_of_this_tenant_only(world: World) -> None:
    due = to_text(START + 5 * MINUTE)
    answer = await world.demo.post("/api/v1/events/batch", [{"due": due, "payload": n} for n in range(1_500)])
    assert answer.json()["accepted"] == 1_500
    await (await world.tenant("acme")).create(due=due)
    assert await load(world) == {5: 1_500}


async def test_flexible_events_count_where_they_are_planned(world: World) -> None:
    made = [await world.demo.create(due=to_text(START + MINUTE), flex="PT10M") for _ in range(50)]
    planned = [event["planned"] for event in made]
    found = await load(world)
    assert sum(found.values()) == 50 and len(found) == 10 and set(found) == set(range(1, 11))
    assert {number: sum(each.startswith(to_text(START + number * MINUTE)[:16]) for each in planned) for number in found} == found


async def test_range_is_of_whole_minutes_its_end_left_out(world: World) -> None:
    for minute in (4, 5, 6, 7):
        await world.demo.create(due=to_text(START + minute * MINUTE + 59_999))
    inside = await load(world, f"?from={to_text(START + 5 * MINUTE + 10_000)}&to={to_text(START + 6 * MINUTE + 1)}")
    assert inside == {5: 1, 6: 1}
    assert await load(world, f"?from={to_text(START + 5 * MINUTE)}&to={to_text(START + 6 * MINUTE)}") == {5: 1}


async def test_last_minutes_of_the_year_9999_are_listed(world: World) -> None:
    for query in ("?from=9999-12-31T23:58:30Z", "?from=9999-12-31T23:58:30Z&to=9999-12-31T23:59:59.999Z"):
        items = (await world.demo.get(LOAD + query)).json()["items"]
        assert [(item["minute"][-13:], item["scheduled"]) for item in items] == [("23:58:00.000Z", 0), ("23:59:00.000Z", 0)]


async def test_what_waits_for_a_retry_counts_for_the_minute_of_the_retry(world: World) -> None:
    made = await world.demo.create(delay="PT1S")
    world.receiver.script(made["id"], Verdict("retry", 503, retry_after=600.0), Verdict("delivered", 200))
    assert await load(world) == {0: 1}
    await world.run(20)
    assert await load(world) == {10: 1}
    await world.run(640)
    assert await load(world) == {}


async def test_cancelled_events_are_out_within_five_seconds(world: World) -> None:
    made = await world.demo.create(delay="PT2M")
    assert (await world.demo.delete(f"/api/v1/events/{made['id']}")).status == 204
    await world.run(5)
    assert await load(world) == {}


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("?from=2027-01-15T08:00:00Z&to=2027-01-15T08:00:00Z", "?to"),
        ("?from=2027-01-15T09:00:00Z&to=2027-01-15T08:00:00Z", "?to"),
        ("?from=2027-01-15T08:00:00Z&to=2027-01-16T08:00:00.001Z", "?to"),
        ("?to=2027-01-14T08:00:00Z", "?to"),
        ("?from=2027", "?from"),
        ("?minutes=5", "?minutes"),
    ],
)
async def test_ranges_that_make_no_sense_are_refused_by_name(world: World, query: str, pointer: str) -> None:
    answer = await world.demo.get(LOAD + query)
    assert answer.status == 422 and answer.json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize(
    ("first", "end", "count"),
    [
        ("2027-01-15T08:00:00Z", "2027-01-16T08:00:00Z", 1_440),
        ("9999-12-31T23:58:30Z", "9999-12-31T23:59:59.999Z", 2),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:01Z", 1),
        ("1969-12-31T23:59:00Z", "1970-01-01T00:01:00Z", 2),
    ],
)
async def test_ranges_as_long_and_as_far_as_allowed_are_answered(world: World, first: str, end: str, count: int) -> None:
    answer = await world.demo.get(f"{LOAD}?from={first}&to={end}")
    assert answer.status == 200 and len(answer.json()["items"]) == count


async def test_load_costs_what_is_in_the_range(world: World) -> None:
    async def cost() -> int:
        before = world.tables.transactions.total()
        await load(world)
        return world.tables.transactions.total() - before

    await world.demo.create(delay="PT5M")
    small = await cost()
    for hours in range(2, 40):
        await world.demo.create(delay=f"PT{hours}H")
    assert await cost() == small
