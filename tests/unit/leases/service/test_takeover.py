"""The timer's work for fleets every 15 s, in memory: fencing, planning where no server scans, fair turns; and two at once do no harm."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from shared.core.clock import SettableClock
from shared.core.errors import Unavailable
from shared.engine import sweeps
from shared.leases import rules
from shared.leases.planner import PartitionPlan
from shared.leases.planner_input import PlannerInput
from shared.leases.profiles import PROFILES
from shared.leases.rows import MoveLimits
from shared.leases.service import planning
from shared.storage.memory import MemoryTables
from shared.storage.names import FLEETS, SWEEPS
from shared.storage.ports import ANY, Merge, RowQuery
from tests.faults import Faults, Perform, Request
from tests.logs import actions

from ..nodes import NOTIFY, TENANT, Node, T, World, live, settle


@pytest.fixture
async def world() -> World:
    return await World().open()


async def test_the_app_takes_over_where_no_server_looks(world: World) -> None:
    key = await world.fleet()
    a, b = await Node(world, key, "a").join(), await Node(world, key, "b").join()
    await world.scan()
    await settle(a, b)
    assert (len(a.has), len(b.has)) == (2, 2)
    counts = await live(world, T + 5 + 15, b)
    assert counts["fenced"] == 1 and (await world.server(key, "a")).state == "dead"
    await settle(b)
    assert b.has == {0, 1, 2, 3} and (await world.partition(key, min(a.has))).epoch == 2


async def test_the_app_takes_over_when_all_scanning_servers_are_dead(world: World) -> None:
    key = await world.fleet()
    a = await Node(world, key, "a", scans=True).join()
    b = await Node(world, key, "b").join()
    a.session.take = (0, 1, 2, 3)
    await a.beat()
    assert (await world.scan())["plans"] == 0, "who looks, plans"
    await live(world, T + 5 + 15, b)
    assert b.has == {0, 1, 2, 3}


async def test_nobody_is_fenced_before_five_seconds_beyond_t(world: World) -> None:
    key = await world.fleet()
    await Node(world, key, "a").join()
    await world.clock.advance(T + 4.9)
    assert (await world.scan())["fenced"] == 0
    await world.clock.advance(0.1)
    assert (await world.scan())["fenced"] == 1


async def test_a_beat_in_between_refuses_the_fence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    key = await world.fleet()
    a = await Node(world, key, "a").join()
    await world.clock.advance(T + 30)
    real = world.tables.write

    async def beats_first(table: str, pk: str, ops: Any) -> Any:
        if ops[0].rk == "s:a" and ops[0].props == {"state": "dead"}:
            monkeypatch.undo()
            await a.beat()
        return await real(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", beats_first)
    assert (await world.scan())["fenced"] == 0
    await a.beat()
    assert (await world.server(key, "a")).state == "live"


async def test_moves_that_only_balance_are_bounded_per_look(world: World) -> None:
    key = await world.fleet(partitions=40, limits=MoveLimits(max_per_server=40, moves_per_minute=24))
    a = await Node(world, key, "a").join()
    await world.scan()
    await settle(a)
    assert len(a.has) == 40
    b = await Node(world, key, "b").join()
    await world.scan()
    await settle(a, b)
    assert len(b.has) == 2
    for _ in range(9):
        await world.scan()
        await settle(a, b)
    assert len(b.has) == 20


async def test_large_fleets_are_planned_beside_the_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    real = PlannerInput.plan

    def noted(facts: PlannerInput, budget: int) -> PartitionPlan:
        threads.append(threading.get_ident())
        return real(facts, budget)

    monkeypatch.setattr(PlannerInput, "plan", noted)
    key = await world.fleet()
    a = await Node(world, key, "a").join()
    await world.scan()
    monkeypatch.setattr(planning, "THREAD_ABOVE", 3)
    await Node(world, key, "b").join()
    await world.scan()
    await settle(a)
    assert a.has and [each == threading.get_ident() for each in threads] == [True, False]


async def test_a_nudge_looks_at_once_but_once_a_beat_only(world: World) -> None:
    key = await world.fleet()
    a, b = await Node(world, key, "a").join(), await Node(world, key, "b").join()
    for _ in range(2):
        world.watch.takeover.nudge(TENANT, "fleet", 5.0)
        await world.watch.takeover.quiet()
        await settle(a, b)
    assert (len(a.has), len(b.has)) == (2, 2)
    for _ in range(5):
        await world.clock.advance(5)
        await b.beat()
        before = world.tables.transactions.total()
        world.watch.takeover.nudge(TENANT, "fleet", 5.0)
        world.watch.takeover.nudge(TENANT, "fleet", 5.0)
        await world.watch.takeover.quiet()
        assert before < world.tables.transactions.total()
        before = world.tables.transactions.total()
        world.watch.takeover.nudge(TENANT, "fleet", 5.0)
        await world.watch.takeover.quiet()
        assert before == world.tables.transactions.total()
    await settle(b)
    assert b.has == {0, 1, 2, 3}


async def test_a_fleet_whose_look_fails_does_not_stop_the_next(world: World, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    for name in ("f1", "f2", "f3"):
        key = await world.fleet(name)
        await Node(world, key, "a").join()
    await world.clock.advance(T + 5)
    real = world.tables.query

    async def fails(asked: RowQuery) -> Any:
        if asked.pk == "demo:f1":
            raise Unavailable("throttled")
        if asked.pk == "demo:f2":
            raise KeyError("a row that cannot be read")
        return await real(asked)

    monkeypatch.setattr(world.tables, "query", fails)
    counts = await world.scan()
    assert (counts["fleets"], counts["failed"], counts["fenced"]) == (3, 2, 1)
    assert actions(caplog) == ["lease_watch_failed", "lease_watch_failed", "lease_fenced"]


async def test_many_fleets_come_in_fair_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "FLEETS_PER_PAGE", 3)
    monkeypatch.setattr(sweeps, "MAX_FLEETS_PER_TICK", 3)
    names = [f"f{number}" for number in range(10)]
    for name in names:
        await world.fleet(name, partitions=1)
    looked: Counter[str] = Counter()
    real = world.tables.query

    async def notes(asked: RowQuery) -> Any:
        looked[asked.pk] += asked.first == "s:"
        return await real(asked)

    monkeypatch.setattr(world.tables, "query", notes)
    for _ in range(10):
        counts = await world.scan()
        assert 3 <= counts["fleets"] <= 5
    assert min(looked[f"demo:{name}"] for name in names) >= 3 and max(looked[f"demo:{name}"] for name in names) <= 5


async def test_one_tick_comes_round_to_all_fleets_wherever_it_begins(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "FLEETS_PER_PAGE", 2)
    monkeypatch.setattr(sweeps, "MAX_FLEETS_PER_TICK", 4)
    for number in range(6):
        await world.fleet(f"f{number}", partitions=1)
    assert (await world.scan())["fleets"] == 4
    monkeypatch.setattr(sweeps, "MAX_FLEETS_PER_TICK", 100)
    assert (await world.scan())["fleets"] == 6
    assert await world.tables.get(SWEEPS, sweeps.CURSORS, "lease-plans") is None


async def interleaved(_: Request, perform: Perform) -> Any:
    """Let others go first, in each call."""
    await asyncio.sleep(0)
    return await perform()


async def test_two_instances_at_once_do_no_harm(caplog: Any) -> None:
    caplog.set_level("INFO")
    clock = SettableClock()
    world = await World(clock=clock, tables=Faults(MemoryTables(clock), interleaved)).open()
    other = World(clock=clock, tables=world.tables, channel=world.channel)
    key = await world.fleet(minimum=2, limits=MoveLimits(max_per_server=4), rest=NOTIFY)
    b = await Node(world, key, "b").join()
    await Node(world, key, "a").join()
    await world.say("offline", 1, expires=clock.now() + 60_000)
    for _ in range(36):
        await clock.advance(5)
        await b.beat()
        await asyncio.gather(world.scan(), other.scan(), world.inspect(), other.inspect())
    await settle(b)
    assert b.has == {0, 1, 2, 3} and (await world.server(key, "a")).state == "dead"
    assert Counter(actions(caplog)) == {
        "lease_control": 1,
        "lease_control_over": 1,
        "lease_fenced": 1,
        "lease_servers_few": 1,
    }
    assert [event["payload"]["alarm"] for event in world.channel.events.values()] == ["servers"]


async def test_a_fleet_of_the_fast_profile_is_taken_over_by_its_own_times(world: World) -> None:
    key = await world.fleet(profile=PROFILES["fast"])
    await Node(world, key, "a").join()
    await world.clock.advance(7.2 + 5 + 1)
    assert (await world.scan())["fenced"] == 1


async def test_an_operators_write_to_a_silent_servers_row_only_delays_its_end(world: World) -> None:
    key = await world.fleet()
    await Node(world, key, "a").join()
    await world.clock.advance(T)
    await world.tables.write(FLEETS, key, [Merge("s:a", {"take": "1"}, ANY)])
    await world.clock.advance(16)
    assert (await world.scan())["fenced"] == 0
    await world.clock.advance(7)
    assert (await world.scan())["fenced"] == 1


async def test_a_fleet_that_was_closed_by_one_cut_short_opens_again(world: World) -> None:
    key = await world.fleet()
    await world.put_fleet(key, closed=True)
    await world.clock.advance(59)
    assert (await world.scan())["opened"] == 0 and (await world.row(key)).closed
    await world.clock.advance(2)
    assert (await world.scan())["opened"] == 1 and not (await world.row(key)).closed


async def test_a_server_that_speaks_http_is_given_no_more_than_its_row_can_hold(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_HELD", 1)
    key = await world.fleet(partitions=4)
    a, b = await Node(world, key, "a").join(), await Node(world, key, "b", scans=True).join()
    await world.control.plan(TENANT, "fleet", dry_run=False)
    await settle(a, b)
    assert (len(a.has), len(b.has)) == (1, 3)
