"""Drains for maintenance: the rows that they read, and the times at which they plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from shared.core.clock import SettableClock
from shared.engine.async_runner import AsyncRunner
from shared.leases.profiles import PROFILES
from shared.leases.protocol import takeover
from shared.leases.rows import SERVERS, Fleet, Server, server_key
from shared.leases.service.maintenance_drain import MaintenanceDrain
from shared.leases.service.planning import Planning
from shared.storage.memory import MemoryTables
from shared.storage.names import FLEETS
from shared.storage.ports import Insert
from tests.faults import Faults, Perform, Request

KEY = "t:db"


class CountedFleet(Faults):
    """Storage with a fleet of servers a, b and c. Counts the reads of the servers' rows."""

    looks = 0

    async def plan(self, request: Request, perform: Perform) -> Any:
        self.looks += request.first == SERVERS[0]
        return await perform()


class NotedPlanning(Planning):
    """Counts its plans."""

    plans = 0

    async def look(self, key: str) -> Any:
        self.plans += 1
        return await super().look(key)


async def fleet(*, scans: bool, names: Sequence[str] = "abc") -> tuple[CountedFleet, NotedPlanning, MaintenanceDrain]:
    clock = SettableClock()
    tables = CountedFleet(MemoryTables(clock))
    await tables.ensure([FLEETS])
    runner = AsyncRunner(tables, clock)
    assert await runner.run(takeover.create_fleet(KEY, Fleet(3, PROFILES["default"])))
    for name in names:
        server = Server(name, "live", f"{name}1", 1, scans=scans)
        await tables.write(FLEETS, KEY, [Insert(server_key(name), server.props())])
    planning = NotedPlanning(runner)
    tables.looks = 0
    return tables, planning, MaintenanceDrain(runner, planning, clock)


async def test_a_repeated_drain_reads_no_servers_and_plans_nothing() -> None:
    tables, planning, drain = await fleet(scans=True)
    await drain.leave(KEY, {"a": True, "b": False})
    assert planning.plans == 1
    tables.looks = 0
    for _ in range(3):
        await drain.leave(KEY, {"a": True, "b": False, "c": False})
    assert (tables.looks, planning.plans) == (0, 1)
    await drain.leave(KEY, {"a": True, "b": True})
    assert tables.looks > 0 and planning.plans == 2


@pytest.mark.parametrize(("scans", "plans"), [(True, 0), (False, 1)])
async def test_servers_that_plan_by_themselves_plan_the_return(scans: bool, plans: int) -> None:
    _, planning, drain = await fleet(scans=scans)
    await drain.leave(KEY, {"a": True})
    before = planning.plans
    await drain.leave(KEY, {"a": False})
    assert planning.plans - before == plans
