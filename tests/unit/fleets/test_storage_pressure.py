"""The app's sweeps and the watch while storage refuses requests."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from shared.checkpoints.rows import INDEX as TURN_INDEX
from shared.checkpoints.service.service import CheckpointService, nothing_pending
from shared.core.ids import SeededIds
from shared.engine.sweeps import MAX_POSTPONED, RUNS_A_SWEEP, postponed_fleets
from shared.fleets.watch import rules
from shared.fleets.watch.rules import Findings
from shared.leases.protocol.membership import ServerReport
from shared.leases.rows import HttpServerState, Server
from shared.maintenance.rows import INDEX as MAINTENANCE_INDEX
from shared.maintenance.service.sweep import Told
from shared.maintenance.service.wiring import Maintenance
from shared.storage.names import MAINTENANCE, TURNS
from shared.storage.ports import Upsert
from tests.logs import actions
from tests.texts import assert_text

from ..leases.nodes import NOTIFY, Node, World, live

NOW = 1_800_000_000_000
REFUSED = ServerReport(refused=31)


@pytest.fixture
async def world() -> World:
    return await World().open()


def press(world: World) -> None:
    """Have storage refuse every third request of the app."""
    for number in range(90):
        world.pressure.record(number % 3 == 0)


# -- sweeps


@pytest.mark.parametrize(("stretch", "every"), [(1.0, 1), (1.4, 1), (2.3, 2), (4.0, 4), (8.0, MAX_POSTPONED)])
def test_each_fleet_is_visited_once_in_so_many_runs_and_each_run_visits_as_many(stretch: float, every: int) -> None:
    keys = [f"t:fleet{number}" for number in range(120)]
    visits: Counter[str] = Counter()
    for run in range(every):
        visited = set(keys) - postponed_fleets(keys, stretch, 15.0, NOW + run * 15_000)
        assert 0.6 * len(keys) / every <= len(visited) <= 1.5 * len(keys) / every
        visits.update(visited)
    assert set(visits.values()) == {1} and len(visits) == len(keys)


@pytest.mark.parametrize("every", [2, MAX_POSTPONED])
@pytest.mark.parametrize("step", range(1, RUNS_A_SWEEP + 1))
@pytest.mark.parametrize("first", range(RUNS_A_SWEEP))
def test_all_fleets_are_visited_although_storage_refuses_the_messages_that_plan_further_runs(every: int, step: int, first: int) -> None:
    keys = {f"t:fleet{number}" for number in range(40)}
    left, minutes = set(keys), 0
    while left:
        # The sweep of each minute takes place, and those of the further runs of which the message was stored.
        for run in {0, *range(first, RUNS_A_SWEEP, step)}:
            now = NOW + minutes * 60_000 + run * 15_000
            left &= postponed_fleets(keys, float(every), 15.0, now, sure=RUNS_A_SWEEP)
        minutes += 1
        assert minutes <= every


async def test_sweeps_of_turns_and_of_maintenance_postpone_fleets_under_pressure_and_visit_all_of_them(world: World) -> None:
    turns = CheckpointService(world.tables, world.runner, world.clock, SeededIds("1"), nothing_pending, world.pressure)
    maintenance = Maintenance(world.tables, world.clock, Mock(), Told(world.channel, AsyncMock()), pressure=world.pressure).watch
    for table, index in ((TURNS, TURN_INDEX), (MAINTENANCE, MAINTENANCE_INDEX)):
        await world.tables.write(table, index, [Upsert(f"t:fleet{number}", {"at": 1}) for number in range(24)])
    for sweep, period, runs in ((maintenance.run_once, 15, 2), (maintenance.inspect, 60, 2), (turns.run_once, 15, MAX_POSTPONED)):
        visited = 0
        press(world)
        for _ in range(runs):
            counts = await sweep(world.clock.now())
            assert counts["postponed"] and not counts["failed"]
            visited += counts["fleets"] - counts["postponed"]
            press(world)
            await world.clock.advance(period)
        assert visited == 24
        await world.clock.advance(600)
        assert not (await sweep(world.clock.now()))["postponed"]


async def test_sweeps_postpone_fleets_under_pressure_and_visit_all_of_them_without(world: World) -> None:
    for number in range(24):
        await world.fleet(f"fleet{number}", partitions=1)
    assert not (await world.scan())["postponed"] and not (await world.inspect())["postponed"]
    press(world)
    assert world.pressure.stretch >= MAX_POSTPONED
    for sweep, period, runs in ((world.scan, 15, MAX_POSTPONED), (world.inspect, 60, 2)):
        visited = 0
        for _ in range(runs):
            counts = await sweep()
            assert counts["postponed"] and not counts["failed"]
            visited += counts["fleets"] - counts["postponed"]
            press(world)
            await world.clock.advance(period)
        assert visited == 24
    await world.clock.advance(600)
    assert not (await world.scan())["postponed"] and not (await world.inspect())["postponed"]


# -- the alarm


def server(name: str, refused: int, *, scans: bool = True) -> Server:
    return Server(name, "live", f"{name}1", 9, scans=scans, refused=refused, http=HttpServerState())


def test_one_subject_says_how_many_servers_are_refused_and_one_among_many_is_its_own_problem() -> None:
    assert rules.throttled_servers([server("a", 31), server("b", 24), server("c", 0)]) == ("2 of 3 servers (31 %)",)
    assert rules.throttled_servers([server("a", 31), server("b", 0), server("c", 0)]) == ()
    assert rules.throttled_servers([server("a", 0)]) == rules.throttled_servers([]) == ()
    # Servers that speak HTTP report nothing.
    assert rules.throttled_servers([server("a", 31), *(server(f"h{number}", 0, scans=False) for number in range(9))])


def test_late_heartbeats_raise_no_alarm_of_their_own_beside_it() -> None:
    assert set(Findings(late=("a", "b")).subjects()) == {"late"}
    assert set(Findings(late=("a", "b"), throttled=("2 of 2 servers (31 %)",)).subjects()) == {"throttled"}


async def test_one_alarm_is_raised_for_all_servers_and_cleared_when_storage_accepts_requests(world: World, caplog: Any) -> None:
    caplog.set_level("INFO")
    key = await world.fleet(rest=NOTIFY)
    nodes = [await Node(world, key, name, scans=True).join() for name in "abcdef"]
    for node in nodes:
        node.report = REFUSED
    await live(world, 240, *nodes)
    assert actions(caplog, "WARNING").count("lease_storage_refuses") == 1 and "lease_beats_late" not in actions(caplog, "WARNING")
    [raised] = [event["payload"] for event in world.channel.events.values() if event["payload"]["alarm"] == "throttled"]
    assert raised["subjects"] == ["6 of 6 servers (31 %)"]
    assert_text("alarm.throttled", raised["text"], since=raised["since"], servers="6 of 6 servers (31 %)")
    for node in nodes:
        node.report = ServerReport()
    await live(world, 60, *nodes)
    states = [event["payload"]["state"] for event in world.channel.events.values() if event["payload"]["alarm"] == "throttled"]
    assert states == ["raised", "cleared"]


async def test_where_servers_speak_http_the_app_reports_its_own_refused_requests(world: World, caplog: Any) -> None:
    key = await world.fleet()
    node = await Node(world, key, "a").join()
    for _ in range(6):
        press(world)
        await live(world, 60, node)
    assert actions(caplog, "WARNING").count("lease_storage_refuses") == 1
