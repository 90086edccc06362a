"""An outage of a day, through the API: the process that lived through it finds everything, and fresh events go first."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.core.clock import to_text

from ..harness import World

HOUR = 3_600_000
RATE = 100
LATE = 96
"""Events, one each quarter of an hour; a shard counts as twenty events of the backlog."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    opened = await World(backlog_per_second=RATE).open()
    yield opened
    await opened.close()


async def store(world: World) -> dict[str, int]:
    """Store events that are due over a day. Return their due times by id."""
    dues = [world.now + (number + 1) * HOUR // 4 for number in range(LATE)]
    answer = await world.demo.post("/api/v1/events/batch", [{"due": to_text(due), "payload": due} for due in dues])
    return {line["id"]: due for line, due in zip(answer.json()["results"], dues, strict=True)}


def arrived(world: World) -> dict[str, int]:
    """Return when each event was delivered. Each is delivered once."""
    found = {got.id: got.began for got in world.receiver.received}
    assert len(found) == len(world.receiver.received)
    return found


async def test_events_of_a_days_outage_are_found_without_a_restart_and_fresh_ones_go_before_them(world: World) -> None:
    late = await store(world)
    short = await world.demo.create(delay="PT1H", expires="PT1H", payload=1)
    await world.clock.advance(24 * 3600)
    over = world.now
    fresh = [await world.demo.create(delay=f"PT{5 + number}S", payload=number) for number in range(20)]
    await world.run(90)
    times = arrived(world)
    assert late.keys() <= times.keys() and min(times[each] - late[each] for each in late) >= 0
    # The whole backlog took its time on the line; fresh events did not wait for it.
    assert max(times[each] for each in late) - over > 10_000
    assert max(times[event["id"]] - (over + (5 + number) * 1000) for number, event in enumerate(fresh)) < 1000
    assert (await world.demo.event(short["id"]))["state"] == "lapsed" and short["id"] not in times


async def test_a_day_that_was_missed_is_in_the_lists_and_totals_of_its_own_times(world: World) -> None:
    late = await store(world)
    began = world.now
    await world.clock.advance(24 * 3600)
    listed = await world.demo.all(f"/api/v1/events?from={to_text(began)}&to={to_text(began + 25 * HOUR)}")
    assert {each["id"] for each in listed} == late.keys() and {each["state"] for each in listed} == {"scheduled"}
    await world.run(60)
    listed = await world.demo.all(f"/api/v1/events?from={to_text(began)}&to={to_text(began + 25 * HOUR)}")
    assert {each["id"] for each in listed} == late.keys() and {each["state"] for each in listed} == {"delivered"}
    [oldest] = [each for each in listed if late[each["id"]] == min(late.values())]
    shown = await world.demo.event(oldest["id"])
    assert shown["due"] == to_text(min(late.values()))


async def test_events_that_are_due_before_the_first_sweep_after_an_outage_do_not_wait_for_it(world: World) -> None:
    soon = [world.now + 24 * HOUR + 5_000 + number * 1_000 for number in range(20)]
    answer = await world.demo.post("/api/v1/events/batch", [{"due": to_text(due), "payload": due} for due in soon])
    ids = [line["id"] for line in answer.json()["results"]]
    await world.app.timers.run_once("scheduler_scan")
    await world.clock.advance(24 * 3600)
    # A process starts after the outage; the timer's next tick is most of a minute away.
    world._scanned = world.clock.monotonic() + 45
    assert await world.app.timers.catch_up()
    await world.run(30)
    times = arrived(world)
    assert max(times[each] - due for each, due in zip(ids, soon, strict=True)) < 1000
    assert not await world.app.timers.catch_up(), "the last sweep was not long ago"
