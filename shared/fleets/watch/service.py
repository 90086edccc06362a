"""`FleetWatch`: the parts of the watch, wired together."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ...core.clock import Millis
from ...core.pressure import PressureGauge
from ...engine.async_runner import AsyncRunner
from ...engine.effects import load_rows
from ...engine.sweeps import CountedTables, FleetCursor, RowPace
from ...leases.rows import INDEX, fleet_key
from ...leases.service.planning import Planning
from ...leases.service.sweep_memory import PLANNED, SweepMemory
from ...leases.service.takeover import SweptFleets, TakeoverSweep
from ...scheduler.ingest.queue_consumer import EventPublisher
from ...storage.names import FLEETS, SWEEPS
from ...storage.ports import RowQuery
from ...web.problem import not_found
from . import rules
from .figures import FleetFigures, read_figures
from .inspection import FleetInspection, StuckTurns, no_stuck_turns
from .rules import Findings, WatchState
from .state import WATCHED, parse_watch_state


class StaleReport(NamedTuple):
    """The findings of one inspection, and the state that earlier ones left."""

    findings: Findings
    watched: WatchState


class FleetWatch:
    """The sweeps over all fleets and what they know. One per process."""

    def __init__(
        self,
        runner: AsyncRunner,
        planning: Planning,
        publisher: EventPublisher,
        stuck_turns: StuckTurns = no_stuck_turns,
        pressure: PressureGauge | None = None,
        pace: RowPace | None = None,
    ) -> None:
        """stuck_turns: finds the fleets whose checkpoint turns are stuck. pressure: of the requests of this process to storage. pace: that
        of the sweeps, for which the rows that they read count.
        """
        tables, clock = runner.tables, runner.clock
        self._tables, self._planning, self._clock = tables, planning, clock
        self._memory, self._pace = SweepMemory(tables), pace
        if pace is not None:
            # What callers ask for by `stale` is not counted, so that they cannot slow the sweeps down.
            runner = AsyncRunner(CountedTables(tables, pace), clock)
            planning = Planning(runner)
        self._sweeping = runner
        cursor = FleetCursor(tables, clock, FLEETS, INDEX, pace)
        swept = SweptFleets(self._memory, cursor, runner, planning, pressure)
        self.takeover = TakeoverSweep(swept)
        """Runs every 15 s, and when heartbeats over HTTP ask for it."""
        self.inspect = FleetInspection(swept, self.takeover, publisher, stuck_turns)
        """Runs every minute."""

    async def forget(self, key: str) -> None:
        """Remove the stored state of a fleet that ends. Raises `StorageError`."""
        for duty in (WATCHED, PLANNED):
            await self._memory.forget(duty, key)

    async def retain(self, now: Millis) -> Counter[str]:
        """Remove the stored state of fleets that have ended. Counts `forgotten`."""
        index = {row.rk for row in await load_rows(self._tables, RowQuery(FLEETS, INDEX, "", "~", select=("created",)))}
        counts: Counter[str] = Counter()
        for duty in (WATCHED, PLANNED):
            for row in await load_rows(self._tables, RowQuery(SWEEPS, duty, "", "~", select=("seen",))):
                if row.rk not in index:
                    await self._memory.forget(duty, row.rk)
                    counts["forgotten"] += 1
        return counts

    async def stale(self, tenant: str, fleet: str) -> StaleReport:
        """Inspect one fleet now. Raises 404, `StorageError`."""
        key = fleet_key(tenant, fleet)
        snapshot = await self._planning.look(key)
        if snapshot is None:
            raise not_found("fleet")
        now = self._clock.now()
        planned = await self._planning.plan(snapshot, now)
        known = await self._memory.load(WATCHED, [key])
        return StaleReport(rules.findings_of_snapshot(snapshot, planned.plan, now), parse_watch_state(known.get(key)).value)

    async def figures(self) -> list[FleetFigures]:
        """Return the gauges of all fleets. Raises `StorageError`."""
        return await read_figures(self._tables, self._sweeping, self._memory, self._clock.now(), self._pace)

    async def close(self) -> None:
        """End background tasks."""
        await self.takeover.close()
