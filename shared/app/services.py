"""The services of one process, each made when it is first used, and imported then.

A process that serves queue messages needs few of them, and one that serves a kind of call needs those of this kind. What imports all of
them takes most of the time in which a cold process starts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..core.clock import Clock, Millis
from ..core.settings import Settings
from ..engine.async_runner import AsyncRunner
from ..engine.stored_forms import StoredForms
from ..scheduler.queue_functions import QUEUE_FUNCTIONS, SECOND
from ..scheduler.service import Scheduler
from ..storage import Storage
from ..storage.ports import Queues, Tables
from ..tenants.store import TenantDirectory
from .parts import Part, PartService, PartTimer, rows_beside
from .ports import Ports
from .timers import PERIODS, SOON_FUNCTION

if TYPE_CHECKING:
    from ..checkpoints.service.service import CheckpointService
    from ..checkpoints.turns import PendingImpact
    from ..engine.sweeps import RowPace
    from ..fleets.directory import FleetDirectory
    from ..fleets.nodes import NodeViews
    from ..fleets.overview import Overview
    from ..fleets.watch.service import FleetWatch
    from ..leases.service.control.service import ManualControls
    from ..leases.service.http_servers import HttpServers
    from ..leases.service.maintenance_drain import MaintenanceDrain
    from ..leases.service.planning import Planning
    from ..leases.service.resize import ResizeService
    from ..leases.service.views import LeaseViews
    from ..locks.service import LockService
    from ..maintenance.service.arm import ArmClient
    from ..maintenance.service.service import MaintenanceService
    from ..maintenance.service.sweep import MaintenanceSweep
    from ..maintenance.service.wiring import Maintenance
    from ..ops.health.service import HealthProbe
    from ..ops.metrics.service import Metrics
    from ..ops.stored_forms import StoredFormsService
    from ..ops.tenant_overview import TenantOverview
    from ..scheduler.ingest.queue_consumer import InternalEvents
    from ..scheduler.mirror.failover import Failover
    from ..scheduler.mirror.pair import MirrorPair
    from ..scheduler.protocol.mirroring import Side
    from ..tenants.audit import AuditRecords
    from ..tenants.model import Limits
    from ..tenants.routes import TenantServices


class Services:
    """The services of an application beside its scheduler and its tenants. `Application` sets the attributes that are declared here."""

    settings: Settings
    ports: Ports
    parts: Sequence[Part]
    """The optional parts of the service that this application has."""
    storage: Storage
    """The account to work on."""
    clock: Clock
    directory: TenantDirectory
    scheduler: Scheduler
    runner: AsyncRunner
    """Runs protocols on the account with the fleets."""
    home: Tables
    """The tables with the fleets: those of the first account, whichever side serves. Their servers know only that account."""
    pair: MirrorPair | None
    forms: StoredForms
    """The number of the stored forms of the account."""
    all_forms: Sequence[StoredForms]
    """The same for each account of a mirrored pair; without one, `forms` alone."""
    began: Millis
    began_monotonic: float
    """The start of the application, by both clocks."""
    queue_sides: list[tuple[Queues, Scheduler]]
    """The accounts whose queues the host listens to, whichever serves, each with the scheduler that works on it."""
    on_failover: Callable[[Side], Awaitable[None]] | None
    """Called with the side that serves after a failover."""
    leaving: bool
    """True once the process is about to end."""
    unserved: str = ""
    """The sentence that names functions which are demanded and do not run; '' if all do."""

    def longest_stall(self) -> float:
        """Return the seconds of the longest stall of the event loop."""
        raise NotImplementedError

    async def resumed(self, tenant: str) -> None:
        """Wake the tenant's shards, because one of its channels accepts deliveries again."""
        raise NotImplementedError

    def made(self, name: str) -> Any:
        """Return a service if it has been used; None otherwise."""
        return self.__dict__.get(name)

    # Tenants, storage

    @cached_property
    def tenants(self) -> TenantServices:
        """The services behind the routes of tenants."""
        from ..tenants.routes import TenantServices

        return TenantServices(self.directory, self.resumed)

    @cached_property
    def audit(self) -> AuditRecords:
        """The trail of administrative calls."""
        from ..tenants.audit import AuditRecords

        return AuditRecords(self.storage.tables, self.clock)

    @cached_property
    def stored_forms(self) -> StoredFormsService:
        """Shows and raises the number of the stored forms."""
        from ..ops.stored_forms import StoredFormsService

        return StoredFormsService(self.all_forms)

    @cached_property
    def failover(self) -> Failover:
        """Failover and failback of a mirrored pair."""
        from ..scheduler.mirror.failover import Failover, Listeners
        from ..storage.azure.account import queue_address

        runner = self.scheduler.runner
        names = [*(name for name, _, _ in QUEUE_FUNCTIONS), SOON_FUNCTION]
        functions = {"home": names, "second": [name + SECOND for name in names]}
        listeners = Listeners(queue_address(self.settings), functions)
        beside = rows_beside(self.parts)
        made = Failover(self.pair, runner, self.clock, self.storage.places, listeners, beside)
        if self.on_failover is not None:
            made.changed = self.on_failover
        return made

    # Maintenance, checkpoints, fleets, locks

    @cached_property
    def internal_events(self) -> InternalEvents:
        """Stores alarms as events of their tenant."""
        from ..scheduler.ingest.queue_consumer import InternalEvents

        return InternalEvents(self.scheduler.ingest)

    @cached_property
    def arm(self) -> ArmClient:
        """Sends approvals through Azure Resource Manager."""
        from ..maintenance.service.arm import ArmClient

        return ArmClient(self.settings.client_id, self.settings.arm_api_version, endpoint=self.settings.arm_endpoint)

    @cached_property
    def _pace(self) -> RowPace:
        from ..engine.sweeps import RowPace

        return RowPace(self.clock)

    @cached_property
    def _maintenance(self) -> Maintenance:
        from ..maintenance.service.sweep import Told
        from ..maintenance.service.wiring import Maintenance

        pressure = self.ports.storage.pressure
        told = Told(self.internal_events, self.arm)
        return Maintenance(self.home, self.clock, self._drain, told, self._limits, self._pace, pressure)

    @cached_property
    def maintenance(self) -> MaintenanceService:
        """Serves agents, operators and Event Grid."""
        return self._maintenance.service

    @cached_property
    def maintenance_sweeps(self) -> MaintenanceSweep:
        """Serves the timers."""
        return self._maintenance.watch

    @cached_property
    def checkpoints(self) -> CheckpointService:
        """The turns of replicas."""
        from ..checkpoints.service.service import CheckpointService

        return CheckpointService(self.home, self.runner, self.clock, self.ports.ids, self._pending, self.ports.storage.pressure)

    @cached_property
    def watch(self) -> FleetWatch:
        """The sweeps of fleets."""
        from ..fleets.watch.service import FleetWatch

        pressure = self.ports.storage.pressure
        return FleetWatch(self.runner, self._planning, self.internal_events, self._stuck, pressure, self._pace)

    @cached_property
    def locks(self) -> LockService:
        """Locks."""
        from ..locks.service import LockService

        return LockService(self.home, self.runner, self.clock, self._limits)

    @cached_property
    def fleets(self) -> FleetDirectory:
        """The fleets of tenants."""
        from ..fleets.directory import FleetDirectory

        return FleetDirectory(
            self.runner,
            self.directory.home,
            tenant_limits=self._limits_now,
            on_fleet_end=(self.checkpoints.end, self.maintenance.end, self.watch.forget),
            on_tenant_end=(self.checkpoints.forget, self.locks.forget),
        )

    # Leases

    @cached_property
    def _planning(self) -> Planning:
        from ..leases.service.planning import Planning

        return Planning(self.runner)

    @cached_property
    def beats(self) -> HttpServers:
        """Serves servers that speak HTTP."""
        from ..delivery.egress_guard import Egress
        from ..leases.service.http_servers import HttpServers

        egress = Egress(self.settings.egress_names, plain=self.settings.plain_http)
        return HttpServers(self.runner, self.clock, self.watch.takeover.nudge, self._limits, egress)

    @cached_property
    def control(self) -> ManualControls:
        """Manual controls of partitions and servers."""
        from ..leases.service.control.service import ManualControls

        return ManualControls(self.runner, self._planning, self.clock)

    @cached_property
    def resizes(self) -> ResizeService:
        """Changes of fleets' numbers of partitions."""
        from ..leases.service.resize import ResizeService

        return ResizeService(self.runner, self._planning, self.clock, self.fleets.room, self.watch.takeover.nudge)

    @cached_property
    def views(self) -> LeaseViews:
        """The partitions of fleets, for readers."""
        from ..leases.service.views import LeaseViews

        return LeaseViews(self.home, self.runner, self.clock, self.checkpoints.turn_taker)

    @cached_property
    def overview(self) -> Overview:
        """All fleets of a tenant at a glance."""
        from ..fleets.overview import Overview

        return Overview(self.home)

    @cached_property
    def nodes(self) -> NodeViews:
        """The nodes of fleets, for readers."""
        from ..fleets.nodes import NodeViews

        return NodeViews(self.views, self.runner, self.clock, self.maintenance.nodes, self._pending)

    # Parts

    @property
    def instance(self) -> str:
        """The name of this process; '' if it is not known."""
        return self.ports.process.name if self.ports.process is not None else ""

    def part(self, name: str) -> Any:
        """Return the service of a part, which is made at its first use."""
        if name not in self._part_services:
            make = next(part.service for part in self.parts if part.name == name)
            assert make is not None, f"the part {name} has no service"
            service = self._part_services[name] = make(self)
            if self.leaving:
                service.leave()
        return self._part_services[name]

    @property
    def used_parts(self) -> Sequence[PartService]:
        """The services of parts that have been used."""
        return tuple(self._part_services.values())

    @cached_property
    def _part_services(self) -> dict[str, PartService]:
        return {}

    @cached_property
    def part_timers(self) -> Mapping[str, PartTimer]:
        """The timers of parts that have work, by the names of their jobs. Raises `UnsafeSettings`."""
        timers = (each for part in self.parts for each in part.timers.items())
        return {name: timer for name, timer in timers if timer.runs(self.settings)}

    # Operation

    @cached_property
    def _periods(self) -> Mapping[str, float]:
        return {**PERIODS, **{name: timer.period for name, timer in self.part_timers.items()}}

    @cached_property
    def health(self) -> HealthProbe:
        """Finds out if the service is ready."""
        from ..ops.health.service import ExpectedWork, HealthProbe

        tables, places, measured = self.storage.tables, self.storage.places, self.scheduler.clock.finding
        looked = self.scheduler.wakes.looked if self.scheduler.wakes.on else None
        work = ExpectedWork(self._periods, looked, self.unserved, self.began_monotonic)
        return HealthProbe(tables, self.clock, work, places, measured, self.forms)

    @cached_property
    def metrics(self) -> Metrics:
        """The metrics of the service."""
        from ..ops.metrics.service import JobFigures, Metrics, ProcessFigures

        counters = (self.scheduler.counters, self.locks.counters, *(reader.counters for reader in self.ports.trace_readers))
        return Metrics(
            self.storage,
            self.clock,
            self.ports.ids,
            ProcessFigures(counters, self.longest_stall, self.began, self._periods),
            JobFigures(self.watch.figures, self.checkpoints.figures, self._maintenance.figures),
            self.directory.channels.allow_long_work,
        )

    @cached_property
    def tenant_overview(self) -> TenantOverview:
        """The summary of all tenants."""
        from ..ops.tenant_overview import TenantOverview

        return TenantOverview(self.storage.tables, self.home, self.clock, self.metrics)

    # By methods and not by the services' own: to make one service does not make another.

    async def _pending(self, key: str) -> Mapping[str, PendingImpact]:
        return await self._maintenance.pending(key)

    async def _stuck(self, keys: Sequence[str]) -> Mapping[str, str]:
        return await self.checkpoints.stuck(keys)

    def _drain(self, tables: Tables) -> MaintenanceDrain:
        from ..leases.service.maintenance_drain import MaintenanceDrain
        from ..leases.service.planning import Planning

        runner = AsyncRunner(tables, self.clock)
        return MaintenanceDrain(runner, Planning(runner), self.clock)

    async def _limits_now(self, tenant: str) -> Limits:
        return (await self.directory.home(tenant)).spec.limits

    async def _limits(self, tenant: str) -> Limits:
        """Return a tenant's limits, which may be a few seconds old."""
        from ..tenants.model import Limits

        found = await self.directory.tenant(tenant)
        return found.limits if found is not None else Limits()
