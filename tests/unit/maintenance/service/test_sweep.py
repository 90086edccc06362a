"""Visits of the maintenance sweep: the rows that they read, and the rows that they publish while others write."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import orjson
import pytest

from shared.core.clock import SettableClock, to_text
from shared.engine.async_runner import AsyncRunner
from shared.engine.sweeps import RowPace
from shared.leases.profiles import PROFILES
from shared.leases.protocol import takeover
from shared.leases.rows import FLEET, Fleet, Server, server_key
from shared.leases.service.maintenance_drain import MaintenanceDrain
from shared.leases.service.planning import Planning
from shared.maintenance.model import AgentReportIn
from shared.maintenance.rows import INDEX, event_key
from shared.maintenance.service.store import MaintenanceStore
from shared.maintenance.service.sweep import Told
from shared.maintenance.service.wiring import Maintenance
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES, FLEETS, MAINTENANCE
from shared.storage.ports import Insert, Merge, Tables
from tests.faults import Faults, Perform, Request

KEY, NODES = "t:db", 6
NOTIFY = orjson.dumps({"notify": {"channel": "ops", "kinds": ["maintenance"]}}).decode()


class CountedTables(Faults):
    """Storage that counts the rows of the fleet that are read, by table, and the reads that are under way at the same time."""

    def __init__(self, clock: SettableClock) -> None:
        super().__init__(MemoryTables(clock))
        self.read, self.running, self.most = Counter[str](), 0, 0

    async def plan(self, request: Request, perform: Perform) -> Any:
        if request.kind == "get":
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0)
            self.running -= 1
        answer = await perform()
        if request.pk == KEY and request.kind != "write":
            self.read[request.table] += len(answer.rows) if request.kind == "query" else 1
        return answer


class SweptFleet:
    """A fleet whose nodes all have an event of their own, and the app."""

    def __init__(self) -> None:
        self.clock = SettableClock()
        self.tables = CountedTables(self.clock)
        self.pace = RowPace(self.clock)
        self.notices = list[str]()
        self.at_notice: Any = None
        maintenance = Maintenance(self.tables, self.clock, self.drain, Told(self.publish, self.unused), pace=self.pace)
        self.service, self.sweep, self.store = maintenance.service, maintenance.watch, MaintenanceStore(self.tables, self.clock.now)
        self.seq = 0

    def drain(self, tables: Tables) -> MaintenanceDrain:
        runner = AsyncRunner(tables, self.clock)
        return MaintenanceDrain(runner, Planning(runner), self.clock)

    async def unused(self, *_: Any) -> Any:
        raise AssertionError("no approval goes through Azure Resource Manager")

    async def publish(self, tenant: str, event: Any) -> None:
        self.notices.append(event["id"])
        if self.at_notice is not None:
            await self.at_notice()

    async def open(self, rest: str = "{}") -> SweptFleet:
        await self.tables.ensure(ALL_TABLES)
        assert await AsyncRunner(self.tables, self.clock).run(takeover.create_fleet(KEY, Fleet(3, PROFILES["default"], rest=rest)))
        servers = [Server(f"n{each}", "live", "1", 1, scans=True) for each in range(NODES)]
        await self.tables.write(FLEETS, KEY, [Insert(server_key(server.name), server.props()) for server in servers])
        await self.report()
        return self

    async def report(self, phase: str = "WAITING") -> None:
        self.seq += 1
        await asyncio.gather(*(self.service.report("t", "db", self.body(each, phase)) for each in range(NODES)))

    def body(self, number: int, phase: str) -> AgentReportIn:
        event = {"event_id": f"e{number}", "type": "Freeze", "status": "Scheduled", "not_before": to_text(1_900_000_000_000)}
        event |= {"duration_s": 9, "resources": [f"vm_{number}"], "phase": phase}
        fields = {"node": f"n{number}", "seq": self.seq, "vm": f"vm_{number}", "scope": "set", "fault_domain": str(number % 3)}
        return AgentReportIn.model_validate({**fields, "disabled": False, "events": [event]})

    async def run(self, *, inspect: bool = False) -> Counter[str]:
        """Sweep; return the rows of the fleet that it read, by table."""
        self.tables.read.clear()
        counts = await (self.sweep.inspect if inspect else self.sweep.run_once)(self.clock.now())
        assert counts["fleets"] == 1 and not counts["failed"]
        return Counter(self.tables.read)

    async def told(self, event_id: str) -> tuple[str, ...]:
        return (await self.store.read(KEY)).view.events[event_id].told


@pytest.fixture
async def fleet() -> SweptFleet:
    return await SweptFleet().open()


async def test_a_visit_reads_each_row_of_a_fleet_with_open_events_once(fleet: SweptFleet) -> None:
    await fleet.run()
    await fleet.run(inspect=True)
    rows = len((await fleet.store.read(KEY, whole=True)).view.nodes) + NODES + 3
    for _ in range(2):
        await fleet.report()
        read = await fleet.run()
        assert read[MAINTENANCE] <= rows, "events, nodes, and one row each of alarms, guard and monitors"
        assert read[FLEETS] <= 2, "its definition, for itself and for the drains"


async def test_a_visit_that_publishes_reads_no_row_twice(fleet: SweptFleet) -> None:
    await fleet.run(inspect=True)
    known = await fleet.store.read(KEY, whole=True)
    rows = len(known.etags)
    unpublished = {event_key(each.event_id): replace(each, told=()) for each in known.view.events.values()}
    assert await fleet.store.write(KEY, known, unpublished)
    assert (await fleet.run())[MAINTENANCE] <= rows
    assert await fleet.told("e0") == ("scheduled",)


@pytest.mark.parametrize("care", [None, '{"open":0}', "odd", "[]"])
async def test_open_events_of_which_the_index_row_does_not_know_are_swept_all_the_same(fleet: SweptFleet, care: str | None) -> None:
    if care is not None:
        await fleet.tables.write(MAINTENANCE, INDEX, [Merge(KEY, {"care": care}, "*")])
    await fleet.run()
    assert await fleet.told("e0") == ("scheduled",)


async def test_notices_are_published_once_though_a_report_comes_in_between() -> None:
    fleet = await SweptFleet().open(NOTIFY)

    async def report() -> None:
        fleet.at_notice = None
        await fleet.report("PREPARING")
        # Its phase is in the node's row, so this changes the event.
        await fleet.service.hold("t", "db", "e0", "me", "later")

    fleet.at_notice = report
    await fleet.run()
    published = list(fleet.notices)
    assert published and await fleet.told("e0")
    await fleet.run()
    assert len(set(fleet.notices)) == len(fleet.notices) and set(fleet.notices) >= set(published)


async def test_rows_that_a_sweep_reads_for_drains_count_for_its_pace(fleet: SweptFleet) -> None:
    known = await fleet.store.read(KEY, whole=True)
    leaving = {f"node:n{each}": replace(known.view.nodes[f"n{each}"], disabled=True) for each in range(3)}
    assert await fleet.store.write(KEY, known, leaving)
    left = fleet.pace._left
    read = await fleet.run()
    assert read[FLEETS] > NODES
    assert left - fleet.pace._left >= read.total()


async def test_stories_of_many_nodes_are_read_at_the_same_time(fleet: SweptFleet) -> None:
    known = await fleet.store.read(KEY, whole=True)
    fleet.tables.most = 0
    leaving = {f"node:{name}": replace(node, leaving=True) for name, node in known.view.nodes.items()}
    written = await fleet.store.write(KEY, known, leaving)
    assert fleet.tables.most >= NODES
    again = await fleet.store.read(KEY, whole=True)
    assert written is not None and (written.view, written.etags) == (again.view, again.etags), "a write returns the fleet as it is then"
    assert FLEET not in written.etags
