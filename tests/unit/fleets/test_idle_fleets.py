"""Idle fleets: what the timers spend on them, and how soon they are noticed again."""

from __future__ import annotations

from collections import Counter

import pytest

from shared.leases.service.planning import Planning
from shared.leases.service.resize import ResizeService
from shared.leases.service.sweep_memory import PLANNED
from shared.leases.service.takeover_rules import skipped_fleets
from shared.leases.timings import FENCE_MARGIN, IDLE_AFTER, IDLE_EVERY, TAKEOVER_PERIOD, TAKEOVER_RUNS_A_SWEEP
from shared.storage.names import SWEEPS
from tests.logs import actions

from ..leases.nodes import TENANT, Node, World, live

T = 15.0


@pytest.fixture
async def world() -> World:
    return await World().open()


async def is_idle(world: World, key: str) -> bool:
    row = await world.tables.get(SWEEPS, PLANNED, key)
    return row is not None and row.props.get("idle") is not None


async def runs(world: World, number: int) -> Counter[str]:
    """Run the takeover sweep `number` times, 15 s apart."""
    counts: Counter[str] = Counter()
    for _ in range(number):
        await world.clock.advance(TAKEOVER_PERIOD)
        counts += await world.scan()
    return counts


async def go_idle(world: World) -> None:
    await live(world, IDLE_AFTER + 120)


async def test_cost_of_runs_does_not_grow_with_idle_fleets(world: World) -> None:
    keys = [await world.fleet(f"f{number:02d}", partitions=50) for number in range(20)]
    await go_idle(world)
    assert [key for key in keys if not await is_idle(world, key)] == []
    world.tables.transactions.clear()
    counts = await runs(world, IDLE_EVERY)
    assert counts == {"fleets": 20 * IDLE_EVERY, "idle": 20 * (IDLE_EVERY - 1)}
    # Each run reads the index and the stored plans; each fleet is read once in all these runs.
    seen = world.tables.transactions
    assert (seen["get"], seen["query"], seen["write"]) == (0, 2 * IDLE_EVERY + 2 * 20, 0)
    world.tables.transactions.clear()
    inspected: Counter[str] = Counter()
    for _ in range(IDLE_EVERY):
        await world.clock.advance(60)
        inspected += await world.inspect()
    assert inspected == {"fleets": 20 * IDLE_EVERY, "idle": 20 * (IDLE_EVERY - 1)}
    seen = world.tables.transactions
    assert (seen["get"], seen["query"], seen["write"]) == (0, 3 * IDLE_EVERY + 2 * 20, 0)
    world.tables.transactions.clear()
    assert {(each.live, each.needed, each.unserved) for each in await world.watch.figures()} == {(0, 1, 50)}
    assert world.tables.transactions["query"] == 3


async def test_partitions_of_a_fleet_without_servers_are_read_once(world: World) -> None:
    await world.fleet(partitions=50)
    assert (await live(world, 600))["whole"] == 1


@pytest.mark.parametrize("late", [-2, 0, 3])
def test_each_idle_fleet_has_its_turn(late: int) -> None:
    keys = [f"demo:f{number}" for number in range(300)]
    visited: Counter[str] = Counter()
    for run in range(IDLE_EVERY):
        visited.update(set(keys) - skipped_fleets(keys, 15.0, 1_800_000_000_000 + run * 15_000 + late))
    assert visited == dict.fromkeys(keys, 1)


@pytest.mark.parametrize("late", [-2.0, 0.0, 7.0, 14.0])
def test_each_idle_fleet_has_its_turn_where_only_each_fourth_run_is_sure(late: float) -> None:
    keys = [f"demo:f{number}" for number in range(300)]
    visited: Counter[str] = Counter()
    for sweep in range(IDLE_EVERY // TAKEOVER_RUNS_A_SWEEP):
        now = 1_800_000_000_000 + sweep * 60_000 + round(1000 * late)
        visited.update(set(keys) - skipped_fleets(keys, TAKEOVER_PERIOD, now, TAKEOVER_RUNS_A_SWEEP))
    assert visited == dict.fromkeys(keys, 1)


async def test_crash_of_a_server_in_a_fleet_that_was_idle_is_noticed(world: World) -> None:
    key = await world.fleet()
    await go_idle(world)
    a = await Node(world, key, "a", scans=True).join()
    # At the latest after this the app visits the fleet at each run again.
    await live(world, IDLE_EVERY * TAKEOVER_PERIOD, a)
    assert not await is_idle(world, key)
    counts = await runs(world, round((T + FENCE_MARGIN) / TAKEOVER_PERIOD) + 1)
    assert counts["fenced"] == 1


async def test_heartbeat_over_http_ends_the_idleness_at_once(world: World) -> None:
    key = await world.fleet()
    await go_idle(world)
    a = await Node(world, key, "a").join()
    world.watch.takeover.nudge(TENANT, "fleet", 5.0)
    await world.watch.takeover.quiet()
    assert not await is_idle(world, key)
    await a.beat()
    assert a.has == {0, 1, 2, 3}


async def test_restart_of_all_servers_does_not_make_a_fleet_idle(world: World) -> None:
    key = await world.fleet()
    a = await Node(world, key, "a", scans=True).join()
    await live(world, IDLE_AFTER, a)
    await live(world, IDLE_AFTER - 120)
    assert (await world.server(key, "a")).state == "dead" and not await is_idle(world, key)
    await live(world, 240)
    assert await is_idle(world, key)


async def test_alarm_of_a_deserted_fleet_lasts_while_it_is_idle_and_ends_with_its_servers(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    key = await world.fleet(minimum=1)
    a = await Node(world, key, "a").join()
    await live(world, 60, a)
    await live(world, IDLE_AFTER + 600)
    assert await is_idle(world, key)
    assert Counter(actions(caplog, "WARNING")) == {"lease_fenced": 1, "lease_servers_few": 1, "lease_partitions_unserved": 1}
    [shown] = await world.watch.figures()
    assert (shown.live, shown.unserved, set(shown.alarms)) == (0, 4, {"unserved", "servers"})
    b = await Node(world, key, "b").join()
    world.watch.takeover.nudge(TENANT, "fleet", 5.0)
    await world.watch.takeover.quiet()
    await live(world, 120, b)
    assert actions(caplog, "INFO").count("lease_alarm_cleared") == 2


async def test_resize_and_control_of_an_idle_fleet_take_effect(world: World) -> None:
    key = await world.fleet()
    await go_idle(world)
    await world.say("offline", 1, expires=world.clock.now() + 60_000)
    resizes = ResizeService(world.runner, Planning(world.runner), world.clock, nudge=world.watch.takeover.nudge)
    await world.clock.advance(61)
    await resizes.resize(TENANT, "fleet", 8)
    await world.watch.takeover.quiet()
    row = await world.row(key)
    assert (row.partitions, row.former) == (8, 0)
    await live(world, 60)
    assert not await is_idle(world, key)
    assert await world.intents(key) == []


async def test_fleet_recreated_under_the_name_of_an_idle_one_is_not_idle(world: World) -> None:
    key = await world.fleet()
    await go_idle(world)
    await world.watch.forget(key)
    assert not await is_idle(world, key)
    await world.watch.forget(key)
