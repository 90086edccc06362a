"""The application of one process: settings, storage and the jobs, wired together."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

from ..checkpoints import routes as checkpoint_functions
from ..checkpoints.service.service import CheckpointService
from ..core.clock import Clock, Millis, SystemClock
from ..core.errors import StorageError, UnsafeSettings
from ..core.ids import Ids, SystemIds
from ..core.settings import Settings
from ..delivery.channels import Sender, close_senders, open_senders
from ..engine.async_runner import Carrier
from ..engine.effects import load
from ..extras.bigben import routes as bigben_functions
from ..extras.bigben.crons import Crons
from ..extras.bigben.processors import Processors
from ..extras.bigben.service import BigBen
from ..extras.kafka_source.ingest import KafkaIngest, opener
from ..extras.kafka_source.sources import read_sources
from ..fleets import routes as fleet_functions
from ..fleets.directory import FleetDirectory
from ..fleets.nodes import NodeViews
from ..fleets.watch import routes as watch_functions
from ..fleets.watch.service import FleetWatch
from ..leases import routes as lease_functions
from ..leases.service.control import routes as control_functions
from ..leases.service.control.service import ManualControls
from ..leases.service.http_servers import HttpServers
from ..leases.service.maintenance_drain import MaintenanceDrain
from ..leases.service.planning import Planning
from ..leases.service.resize import routes as resize_functions
from ..leases.service.resize.service import ResizeService
from ..leases.service.views import LeaseViews
from ..maintenance import routes as maintenance_functions
from ..maintenance.service.arm import ArmClient
from ..maintenance.service.service import Maintenance
from ..ops.export.service import Outlet, Publishing
from ..ops.health import routes as health_functions
from ..ops.health.service import Health
from ..ops.metrics import routes as metric_functions
from ..ops.metrics.service import Metrics
from ..scheduler import routes as scheduler_functions
from ..scheduler.ingest.internal_events import Events
from ..scheduler.mirror import routes as failover_functions
from ..scheduler.mirror.failover import Failover
from ..scheduler.mirror.pair import Pair, Waits
from ..scheduler.protocol.mirroring import Side
from ..scheduler.service import Scheduler
from ..storage import Storage, check, open_storage
from ..storage.names import TENANTS
from ..storage.ports import Tables
from ..tenants import routes as tenant_functions
from ..tenants.rows import PK_TENANTS
from ..tenants.store import TenantDirectory, seed_local
from ..web import openapi
from ..web.dashboard import routes as dashboard_functions
from ..web.routes import Routes
from .timers import KAFKA_PERIODS, PERIODS, Job, Timers

log = logging.getLogger(__name__)


class Application:
    """Everything a process runs. Belongs to one event loop; made by `open`, ended by `close`."""

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        senders: Mapping[str, Sender],
        pair: Pair | None = None,
        side: Side = "first",
        home: Tables | None = None,
        outlets: Sequence[Outlet] = (),
    ) -> None:
        """pair: of mirrored accounts, if there is one; `side` is then the one that this application works on. home: the first account's
        tables, where fleets live whichever side serves: their servers know that account alone. outlets: where figures are sent."""
        self.pair, self.side = pair, side
        self.other: Application | None = None
        """The application on the second account."""
        self.settings, self.storage, self.clock, self.senders = settings, storage, clock, senders
        self.directory = TenantDirectory(storage.tables, clock, settings)
        self.scheduler = Scheduler(settings, storage, clock, ids, self.directory, senders, pair, side)
        self.failover = Failover(pair, storage.tables, self.scheduler.driver, clock, storage.places)
        """Changing sides, and what is known of the accounts."""
        self.bigben = BigBen(self.scheduler, storage.tables)
        self.crons = Crons(self.scheduler.recurring)
        self.processors = Processors(self.directory)
        home = home or storage.tables
        self.carrier = Carrier(home, clock.monotonic)
        planning = Planning(self.carrier)
        self.control = ManualControls(self.carrier, planning, clock)
        """What operators say to fleets."""
        self.resizes = ResizeService(self.carrier, planning, clock)
        """Changes of fleets' partition counts."""
        self.arm = ArmClient(settings.client_id)
        drain = MaintenanceDrain(self.carrier, planning, clock)
        maintenance = Maintenance(home, clock, drain, Events(self.scheduler.ingest), self.arm)
        self.maintenance = maintenance.service
        self.checkpoints = CheckpointService(home, self.carrier, clock, ids, maintenance.pending)
        self.watch = FleetWatch(home, self.carrier, planning, clock, Events(self.scheduler.ingest), self.checkpoints.stuck)
        self.fleets = FleetDirectory(
            home,
            self.carrier,
            clock,
            self.directory.home,
            on_fleet_end=(self.checkpoints.end, self.maintenance.end),
            on_tenant_end=(self.checkpoints.forget,),
        )
        self.directory.refuse, self.directory.ends = self.fleets.refuse_living, self.fleets.end_all
        self.beats = HttpServers(self.carrier, clock, self.watch.takeover.nudge)
        """What servers that speak HTTP ask for."""
        self.views = LeaseViews(home, self.carrier, clock, self.checkpoints.turn_taker)
        self.nodes = NodeViews(self.views, self.carrier, clock, self.maintenance.nodes, maintenance.pending)
        sources = read_sources(settings.kafka_sources.get_secret_value())
        periods = {**PERIODS, **KAFKA_PERIODS} if sources else PERIODS
        self.metrics = Metrics(
            storage, clock, ids, self.scheduler.counters, self.watch.figures, self.checkpoints.figures, maintenance.figures, periods
        )
        publishing = Publishing(self.metrics.families, outlets)
        self.kafka = KafkaIngest(sources, self.scheduler.intake, clock, settings.kafka_poll_seconds, opener(settings.client_id))
        kafka: dict[str, list[tuple[str, Job]]] = {"ingest_kafka": [("kafka", self.kafka.run_once)]} if sources else {}
        self.health = Health(storage.tables, clock, periods, storage.places)
        self.timers = Timers(
            storage.tables,
            clock,
            {
                "scheduler_scan": [("dispatch", self.scheduler.sweeps.dispatch), ("recurring", self.scheduler.recurring.chain.sweep)],
                "lease_scan": [
                    ("takeover", self.watch.takeover.run_once),
                    ("turns", self.checkpoints.run_once),
                    ("maintenance", maintenance.watch.run_once),
                ],
                "stale_scan": [
                    ("dispatch", self.scheduler.sweeps.dispatch),
                    ("failover", self.failover.sweep),
                    ("leases", self.watch.inspect.run_once),
                    ("maintenance", maintenance.watch.inspect),
                    *([("telemetry", publishing.run_once)] if outlets else []),
                ],
                "retention_scan": [
                    ("retention", self._retain),
                    ("rejects", self._retain_rejects),
                    ("recurring", self.scheduler.recurring.chain.retain),
                    ("leases", self.watch.retain),
                    ("turns", self.checkpoints.retain),
                    ("maintenance", maintenance.watch.retain),
                ],
                **kafka,
            },
        )

    @classmethod
    async def open(
        cls,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        storage: Storage | None = None,
        senders: Mapping[str, Sender] | None = None,
        outlets: Sequence[Outlet] = (),
    ) -> Self:
        """The application for these settings (default: the environment's). Raises `UnsafeSettings`, `StorageError`."""
        settings = settings or Settings()
        clock = clock or SystemClock()
        storage = storage or open_storage(settings, clock)
        ids = ids or SystemIds()
        waits = Waits(settings.mirror_stop_seconds, round(settings.mirror_take_seconds * 1000))
        pair = Pair(storage.tables, clock, waits) if storage.second is not None else None
        app = cls(settings, storage, clock, ids, senders or open_senders(settings, storage.queues, clock), pair, outlets=outlets)
        if storage.second is not None:
            there = storage.second
            sending = senders or open_senders(settings, there.queues, clock)
            app.other = cls(settings, there, clock, ids, sending, pair, "second", storage.tables, outlets)
        try:
            if settings.local:
                await app._prepare()
            await check(storage, settings.mirror_detached)
        except BaseException:
            await app.close()
            raise
        return app

    async def _prepare(self) -> None:
        """The local default: tables and queues, the tenant `demo`. Of a pair one account may be away."""
        there = self.storage.second
        if there is not None:
            # First of all: what is written to the other is written to this one too.
            try:
                await there.ensure()
            except StorageError as error:
                log.warning("The second account could not be prepared: %s", error, extra={"action": "prepare_failed", "side": "second"})
        try:
            await self.storage.ensure()
            await seed_local(self.directory, self.settings)
        except StorageError as error:
            if there is None:
                raise
            log.warning("The first account could not be prepared: %s", error, extra={"action": "prepare_failed", "side": "first"})

    async def _retain(self, now: Millis) -> Counter[str]:
        tenants = await self._tenants()
        counts = await self.scheduler.sweeps.retain(tenants, now)
        await self.metrics.totals.forget(tenants)
        if forgotten := await self.directory.tidy():
            counts["tenants"] = forgotten
        return counts

    async def _retain_rejects(self, now: Millis) -> Counter[str]:
        return await self.scheduler.rejects.retain(await self._tenants(), now)

    async def _tenants(self) -> list[str]:
        return [row.rk for row in await load(self.storage.tables, TENANTS, PK_TENANTS, "", "~", ("deleting",))]

    async def resumed(self, tenant: str) -> None:
        """A channel of the tenant may be delivered to again: its shards need not wait for their wake-ups."""
        try:
            told = await self.scheduler.sweeps.recall(tenant)
        except StorageError as error:
            # The channel is resumed all the same, and every shard looks again by itself.
            log.warning("The shards of %s could not be called back: %s", tenant, error, extra={"action": "recall_failed", "tenant": tenant})
            return
        log.info("%d shards of %s were called back", told, tenant, extra={"action": "shards_recalled", "tenant": tenant})

    def leave(self) -> None:
        """The process is about to end: owners start nothing new, finish what they have begun, and let go of their shards."""
        self.scheduler.firing.leaving = True
        self.kafka.leaving = True
        if self.other is not None:
            self.other.leave()

    async def serving(self) -> Application:
        """The application of the side that serves now."""
        if self.other is None or self.pair is None:
            return self
        return self.other if await self.pair.side() == "second" else self

    async def close(self) -> None:
        """Let go of shards and connections."""
        self.leave()
        try:
            await self.watch.close()
            await self.failover.close()
            await self.kafka.close()
            if self.other is not None:
                await self.other.watch.close()
                await self.other.failover.close()
                await self.other.kafka.close()
        finally:
            await self.scheduler.flow.close()
            if self.other is not None:
                await self.other.scheduler.flow.close()
            await close_senders(self.senders)
            await self.arm.close()
            if self.other is not None:
                await self.other.arm.close()
            if self.other is not None and self.other.senders is not self.senders:
                await close_senders(self.other.senders)
            await self.storage.close()


def build_routes() -> Routes:
    """Every route of the API, in one table: what is bound, described and tested."""
    routes = Routes()
    scheduler_functions.register(routes)
    tenant_functions.register(routes)
    health_functions.register(routes)
    failover_functions.register(routes)
    metric_functions.register(routes)
    fleet_functions.register(routes)
    lease_functions.register(routes)
    control_functions.register(routes)
    resize_functions.register(routes)
    watch_functions.register(routes)
    checkpoint_functions.register(routes)
    maintenance_functions.register(routes)
    bigben_functions.register(routes)
    dashboard_functions.register(routes)
    openapi.register(routes)
    return routes


class Lazy:
    """Makes the application once, inside the running loop, when it is first needed.

    Calls that come while a start is under way share its outcome; after a failed one the next call tries again.
    """

    def __init__(self, outlets: Sequence[Outlet] = ()) -> None:
        """outlets: where figures are sent, if anywhere."""
        self._outlets = outlets
        self._app: Application | None = None
        self._start: asyncio.Task[Application] | None = None

    async def __call__(self) -> Application:
        """The application of the side that serves: what calls and timers go to."""
        return await (await self.first()).serving()

    async def second(self) -> Application:
        """The application on the second account of a mirrored pair: what its queues go to."""
        other = (await self.first()).other
        if other is None:
            raise UnsafeSettings("no second storage account is configured")
        return other

    async def first(self) -> Application:
        """The application on the home account: what its queues go to."""
        if self._app is not None:
            return self._app
        if self._start is None or self._start.done():
            self._start = asyncio.create_task(Application.open(outlets=self._outlets))
        # Shielded: a caller that goes away does not end the start of the others.
        self._app = await asyncio.shield(self._start)
        return self._app

    def leave(self) -> None:
        """Tell the application, if there is one, that the process is about to end."""
        if self._app is not None:
            self._app.leave()

    async def close(self) -> None:
        """End the application, if there is one."""
        app, self._app = self._app, None
        if app is not None:
            await app.close()
