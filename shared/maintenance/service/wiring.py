"""Builds the parts of maintenance in the app and connects them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...checkpoints.turns import NO_PENDING, PendingImpact
from ...core.clock import Clock
from ...core.pressure import PressureGauge
from ...engine.sweeps import CountedTables, RowPace
from ...storage.ports import Tables
from ...tenants.cache import Cached
from ...tenants.model import Limits, no_limits
from . import figures
from .definition import read_maintenance_settings
from .leases_port import Leases
from .reports import OtherFleets, ReportRounds
from .service import MaintenanceService
from .store import MaintenanceStore
from .sweep import MaintenanceSweep, Told

PENDING_AGE = 5.0
"""Seconds for which pending impacts are answered from memory. Every report of a replica asks for them."""
MOST_PENDING = 1000


class Maintenance:
    """Maintenance in one process: the service, the timers' sweep and the views of others."""

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        leases: Callable[[Tables], Leases],
        told: Told,
        tenant_limits: Callable[[str], Awaitable[Limits]] = no_limits,
        pace: RowPace | None = None,
        pressure: PressureGauge | None = None,
    ) -> None:
        """leases: returns the access to fleets' leases by way of some tables. pace: that of the sweeps; the rows that the sweep reads count
        for it. pressure: of the requests of this process to storage."""
        store = MaintenanceStore(tables, clock.now)
        swept: Tables = tables if pace is None else CountedTables(tables, pace)
        self._tables, self._store = tables, store
        reports = ReportRounds(store, read_maintenance_settings, leases(tables), OtherFleets(store, clock), tenant_limits, clock=clock)
        self.service = MaintenanceService(store, read_maintenance_settings, reports, leases(tables))
        """Serves agents, operators and Event Grid."""
        self.watch = MaintenanceSweep(swept, clock, leases(swept), told, pace, pressure)
        """Serves the timers."""
        self._pending = Cached(self._read_pending, clock, ttl=PENDING_AGE, missing_ttl=PENDING_AGE, size=MOST_PENDING)

    async def pending(self, key: str) -> dict[str, PendingImpact]:
        """Return the next impact of each node of a fleet, at most `PENDING_AGE` seconds old. Raises `StorageError`."""
        return await self._pending.get(key) or dict(NO_PENDING)

    async def figures(self) -> list[figures.MaintenanceFigures]:
        """Return the gauges. Raises `StorageError`."""
        return await figures.read_figures(self._tables)

    async def _read_pending(self, key: str) -> dict[str, PendingImpact] | None:
        return await self.service.pending(key) or None
