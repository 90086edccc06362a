"""A sample of fleets in full, the rows of all others, and the app's sweeps over all of them, on virtual time.

The keepers of the sample run in the world of `tests/simulation/leases`, the agents and the app on an event loop beside it, all on one
storage account in memory behind the limits that Azure publishes. The other fleets have the rows of the sample, copied when a sweep comes to
them.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from shared.app.application import Application
from shared.core.clock import Millis
from shared.core.errors import Unavailable
from shared.core.ids import SeededIds
from shared.core.settings import Settings
from shared.fleets.model import FleetIn
from shared.fleets.watch.state import WATCHED
from shared.leases.profiles import PROFILES
from shared.leases.rows import INDEX as FLEET_INDEX
from shared.leases.rows import fleet_key
from shared.leases.service.sweep_memory import PLANNED
from shared.maintenance.agent.imds.client import Machine
from shared.maintenance.model import AgentReportIn
from shared.maintenance.rows import INDEX
from shared.storage import spread_storage
from shared.storage.blocking import run_through
from shared.storage.names import ALL_TABLES, FLEETS, MAINTENANCE, SWEEPS
from shared.storage.ports import Insert, Page, Row, RowQuery
from shared.tenants.model import Limits as TenantLimits
from shared.tenants.model import Tenant
from shared.whatif.fleet.agents import IMPACT, AgentPlace, AzureEvent, Scope, VirtualAgent
from shared.whatif.twin.cpu import Charges, VirtualProcessor
from shared.whatif.twin.loop import VirtualLoop, run_to_end
from shared.whatif.twin.storage import AccountConnection, LimitedAccount, LimitedQueues, LimitedTables, StorageLimits
from tests.simulation.leases.measured.fleet import AZURE
from tests.simulation.leases.node import Disk, Node
from tests.simulation.leases.world import Host, Store, World

from ..tools.stage import local_settings

TENANT: Final = "demo"
STEP: Final = 0.02
"""Seconds by which the keepers' world and the event loop proceed in turn."""
LOCATIONS: Final = 3
DOMAINS: Final = 3
WARM: Final = 180.0
"""Seconds before the first figure: keepers share out the partitions, agents report for the first time."""
REACTION: Final = (2.0, 10.0)
"""Seconds from an approval to the start of the impact."""

who: ContextVar[str] = ContextVar("who", default="app")
"""The part of the system that sends a request to storage."""


@dataclass(frozen=True, slots=True)
class Wave:
    """Fleets, and a maintenance wave over one fault domain of each. Times in seconds after the warm-up.

    fleets: in all. sample: those that run in full. nodes: of a fleet, each with an agent and a keeper. notice: from the announcement to
    NotBefore. listed: from the impact's start to the end of the event. length: of the measurement. instances: of the app, which take the
    reports in no order.
    """

    fleets: int = 300
    sample: int = 1
    nodes: int = 150
    profile: str = "default"
    partitions: int = 300
    announced: float = 120.0
    notice: float = 240.0
    listed: float = 90.0
    length: float = 600.0
    instances: int = 10
    seed: int = 1
    limits: StorageLimits = field(default_factory=StorageLimits)


@dataclass(slots=True)
class Scan:
    """One run of a part of the app's sweep. fleets: those that it visited. at, took: virtual seconds. cpu: seconds of this machine."""

    part: str
    fleets: int
    at: float
    took: float
    cpu: float
    requests: int
    entities: int
    failed: int


@dataclass(slots=True)
class Outcome:
    """The results of the run. Requests and entities are those of the sample, except for those of scans."""

    wave: Wave
    requests: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Requests of agents, keepers and scans in each second."""
    entities: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    partitions: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    """Entities of each partition in each second, by second, table and partition."""
    kinds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    scans: list[Scan] = field(default_factory=list)
    approved: list[float] = field(default_factory=list)
    """Seconds from the time at which a node prepares to its approval, sorted."""
    unapproved: int = 0
    alarms: Counter[str] = field(default_factory=Counter)
    """The kinds of alarms that fleets of the sample had, with the number of fleets."""
    reports: Counter[str] = field(default_factory=Counter)
    """Reports of agents by phase of the run: quiet, wave."""
    refused_reports: int = 0
    slowest: float = 0.0
    lost: int = 0
    """Partitions without an owner after the wave."""
    series: int = 0


class Counted(Store):
    """The table service, which counts requests and entities by their sender."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.outcome: Outcome | None = None
        self.before_scan: Callable[[str], None] = lambda pk: None
        """Called before a sweep reads a partition."""

    def note(self, table: str, pk: str, rows: int, kind: str) -> None:
        """Count a request."""
        found = self.outcome
        if found is None:
            return
        second, sender = int(self._time.seconds), who.get()
        found.requests[sender][second] += 1
        found.entities[sender][second] += rows
        if sender != "scan":
            found.partitions[second, table, pk] += rows
        found.kinds[f"{sender} {kind}"] += 1

    async def get(self, table: str, pk: str, rk: str) -> Row | None:
        if who.get() == "scan":
            self.before_scan(pk)
        self.note(table, pk, 1, "get")
        return await super().get(table, pk, rk)

    async def query(self, query: RowQuery) -> Page:
        if who.get() == "scan":
            self.before_scan(query.pk)
        page = await super().query(query)
        self.note(query.table, query.pk, max(1, len(page.rows)), "query")
        return page

    async def write(self, table: str, pk: str, ops: Sequence[Any]) -> Any:
        self.note(table, pk, len(ops), "write")
        return await super().write(table, pk, ops)


class WaveClock:
    """The clock of the app and of the agents, which agrees with the keepers' world."""

    def __init__(self, loop: VirtualLoop, start: Millis) -> None:
        self._loop, self._start = loop, start

    def now(self) -> Millis:
        return self._start + int(self._loop.now * 1000 + 1e-6)

    def monotonic(self) -> float:
        return self._loop.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class WaveRun:
    """One run, from the first heartbeat to the last figure."""

    def __init__(self, wave: Wave, progress: Callable[[float, float], None]) -> None:
        self.wave, self._progress = wave, progress
        self.chance = random.Random(wave.seed)
        self.loop = VirtualLoop()
        self.world = World(f"fleets {wave.seed}", traced=False)
        self.world.store = self.store = Counted(self.world.time)
        run_through(self.store.ensure(ALL_TABLES))
        self.world.weather = AZURE
        self.clock = WaveClock(self.loop, self.world.time.now())
        self.account = LimitedAccount(self.clock, wave.limits)
        self.account.tables = self.store
        self.outcome = Outcome(wave)
        self.names = [f"cluster-{number:03d}" for number in range(wave.fleets)]
        # Sweeps go by name, so they come to the sample last: no copy has a row that the same run of a sweep has written.
        self.copies, self.sample = self.names[: -wave.sample], self.names[-wave.sample :]
        self.sources = {
            fleet_key(TENANT, name): fleet_key(TENANT, self.sample[number % wave.sample]) for number, name in enumerate(self.copies)
        }
        self.stale: set[str] = set()
        """Copies to which the current run of a sweep has not come."""
        self.keepers: dict[tuple[str, str], Node] = {}
        self.agents: list[VirtualAgent] = []
        self.scopes: list[Scope] = []
        self.events: list[AzureEvent] = []
        self._tasks: list[asyncio.Task[Any]] = []

    def play(self) -> Outcome:
        """Run to the end."""
        run_to_end(self.loop, self._story())
        return self.outcome

    async def _story(self) -> None:
        wave = self.wave
        self._tasks.append(asyncio.create_task(self._keep_time()))
        self.apps = [await self._open(f"reports {number}") for number in range(wave.instances)]
        self.app, self.sweeper = self.apps[0], await self._open("sweep")
        limits = TenantLimits(fleets=wave.fleets, partitions=wave.fleets * wave.partitions)
        await self.app.directory.put(TENANT, Tenant(limits=limits))
        for name in self.sample:
            await self._fleet(name)
        created = run_through(self.store.get(FLEETS, FLEET_INDEX, fleet_key(TENANT, self.sample[0])))
        assert created is not None
        for name in self.copies:
            run_through(self.store.write(FLEETS, FLEET_INDEX, [Insert(fleet_key(TENANT, name), created.props)]))
            run_through(self.store.write(MAINTENANCE, INDEX, [Insert(fleet_key(TENANT, name), {"fresh": True})]))
        self._tasks.append(asyncio.create_task(self._sweep_on()))
        await self._until(WARM)
        self.store.outcome = self.outcome
        self.began = self.loop.now
        before = self._reports()
        await self._until(WARM + wave.announced)
        self.outcome.reports["quiet"] = self._reports() - before
        self._announce()
        self._tasks.append(asyncio.create_task(self._azure()))
        before = self._reports()
        await self._until(WARM + wave.length)
        self.outcome.reports["wave"] = self._reports() - before
        self.store.outcome = None
        self._stop()
        await self._finish()

    def _stop(self) -> None:
        """End the sweeps, so that nothing else uses the account."""
        for task in self._tasks:
            if task.get_coro().__name__ == "_sweep_on":
                task.cancel()

    async def _until(self, end: float) -> None:
        while self.loop.now < end:
            await asyncio.sleep(min(5.0, end - self.loop.now))
            self._progress(self.loop.now, WARM + self.wave.length)
            for task in self._tasks:
                if task.done():
                    task.result()

    async def _open(self, name: str) -> Application:
        processor = VirtualProcessor()
        way = AccountConnection(self.account, processor, Charges(), self.clock, random.Random(f"{self.wave.seed}/{name}"))
        queues = LimitedQueues(way)
        storage = spread_storage([LimitedTables(way, self.clock)], queues, self.clock)
        settings: Settings = local_settings("UseDevelopmentStorage=true")
        return await Application.open(settings, clock=self.clock, ids=SeededIds(name), storage=storage, senders={})

    async def _keep_time(self) -> None:
        """Let the keepers' world follow the event loop."""
        who.set("keepers")
        while True:
            self.world.run(self.loop.now)
            await asyncio.sleep(STEP)

    # -- the sample

    async def _fleet(self, name: str) -> None:
        wave = self.wave
        spec = FleetIn.model_validate(
            {"partitions": wave.partitions, "profile": wave.profile, "servers": {"minimum": max(1, wave.nodes // 2)}}
        )
        await self.app.fleets.put(TENANT, name, spec)
        scopes = [Scope(f"{name}-region-{number}") for number in range(LOCATIONS)]
        self.scopes += scopes
        for number in range(wave.nodes):
            node, at = f"n{number:03d}", number % LOCATIONS
            machine = Machine(f"{name}-{node}", f"region-{at}", scopes[at].name, str(number // LOCATIONS % DOMAINS))
            host = Host(self.world, f"{name}/{node}")
            keeper = Node(self.world, fleet_key(TENANT, name), node, host, PROFILES[wave.profile], disk=Disk())
            self.keepers[name, machine.vm] = keeper
            self.world.at(self.world.time.seconds + PROFILES[wave.profile].beat * self.chance.random(), keeper.start)
            agent = VirtualAgent(AgentPlace(name, node, machine), scopes[at], self.clock, self._post(name), random.Random(f"{name}/{node}"))
            self.agents.append(agent)
            self._tasks.append(asyncio.create_task(agent.play()))

    def _post(self, fleet: str) -> Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]:
        async def post(body: dict[str, Any]) -> dict[str, Any]:
            return await self.chance.choice(self.apps).maintenance.report(TENANT, fleet, AgentReportIn.model_validate(body))

        async def sent(body: dict[str, Any]) -> dict[str, Any]:
            token = who.set("agents")
            try:
                return await post(body)
            finally:
                who.reset(token)

        return sent

    def _reports(self) -> int:
        return sum(agent.reports for agent in self.agents)

    # -- Azure

    def _announce(self) -> None:
        """List an event for each machine of fault domain 0."""
        not_before = self.clock.now() + round(1000 * self.wave.notice)
        for number, agent in enumerate(self.agents):
            if agent.machine.fault_domain == "0":
                event = AzureEvent(f"event-{number:05d}", agent.machine.vm, not_before)
                agent.scope.events[event.event_id] = event
                self.events.append(event)
        for scope in self.scopes:
            scope.changed()

    async def _azure(self) -> None:
        """Start each event soon after its approval, and end it."""
        ends: dict[str, float] = {}
        keepers = {vm: keeper for (_, vm), keeper in self.keepers.items()}
        while True:
            await asyncio.sleep(1.0)
            now = self.loop.now
            for scope in self.scopes:
                changed = False
                for event in list(scope.events.values()):
                    passed = self.clock.now() >= event.not_before + 5000
                    if event.status == "Scheduled" and (passed or (event.approved is not None and now >= event.approved + REACTION[0])):
                        event.status, changed = "Started", True
                        ends[event.event_id] = now + self.wave.listed
                        keeper = keepers[event.vm]
                        keeper.host.freeze(self.world.time.seconds + IMPACT)
                    elif event.status == "Started" and now >= ends[event.event_id]:
                        del scope.events[event.event_id]
                        changed = True
                if changed:
                    scope.changed()

    # -- the app's sweeps over all fleets

    async def _sweep_on(self) -> None:
        who.set("scan")
        self.store.before_scan = self._renew
        await asyncio.sleep(7.0)
        for number in itertools.count():
            began = self.loop.now
            app, now = self.sweeper, self.clock.now()
            parts: dict[str, Callable[[Millis], Awaitable[Mapping[str, int]]]] = {
                "takeover": app.watch.takeover.run_once,
                "maintenance": app.maintenance_sweeps.run_once,
            }
            if number % 4 == 0:
                parts |= {"inspection": app.watch.inspect.run_once, "maintenance inspection": app.maintenance_sweeps.inspect}
            # One after the other, so that each has figures of its own.
            for name, part in parts.items():
                await self._scan(name, part, now)
            await asyncio.sleep(max(0.0, began + 15.0 - self.loop.now))

    async def _scan(self, name: str, part: Callable[[Millis], Awaitable[Mapping[str, int]]], now: Millis) -> None:
        self._copy()
        began, cpu, sum_ = self.loop.now, time.process_time(), self._scanned()
        counts = await part(now)
        if self.store.outcome is None:
            return
        requests, entities = (after - before for after, before in zip(self._scanned(), sum_, strict=True))
        used, failed = time.process_time() - cpu, counts.get("failed", 0)
        visited = counts.get("fleets", 0)
        self.outcome.scans.append(Scan(name, visited, began - self.began, self.loop.now - began, used, requests, entities, failed))

    def _scanned(self) -> tuple[int, int]:
        return self.outcome.requests["scan"].total(), self.outcome.entities["scan"].total()

    def _copy(self) -> None:
        """Give the other fleets what sweeps remember of the sample, and let them have its rows when the sweep comes to them."""
        for key, source in self.sources.items():
            for duty in (WATCHED, PLANNED):
                rows = self.store._tables[SWEEPS].get(duty)
                if rows is not None and source in rows.rows:
                    rows.put(key, rows.rows[source]._replace(rk=key))
        self.stale = set(self.sources)

    def _renew(self, key: str) -> None:
        """Give a fleet the rows that the sample has now, as if its own agents and keepers had written them meanwhile."""
        if key not in self.stale:
            return
        self.stale.discard(key)
        tables = self.store._tables
        for table in (FLEETS, MAINTENANCE):
            if (source := tables[table].get(self.sources[key])) is not None:
                copy = tables[table][key] = type(source)()
                copy.rows, copy.keys = dict(source.rows), list(source.ordered())

    # -- the end

    async def _finish(self) -> None:
        found, lead = self.outcome, 30.0
        due = self.began + self.wave.announced + self.wave.notice - lead
        found.approved = sorted(event.approved - due for event in self.events if event.approved is not None)
        found.unapproved = sum(event.approved is None for event in self.events)
        found.refused = self.account.refused
        found.refused_reports = sum(agent.refused for agent in self.agents)
        found.slowest = max(agent.slowest for agent in self.agents)
        for name in self.sample:
            served = sum(len(keeper.view.epochs) for (fleet, _), keeper in self.keepers.items() if fleet == name and keeper.running)
            found.lost += max(0, self.wave.partitions - served)
            ledger = await self._calm(lambda name=name: self.app.maintenance.events(TENANT, name, 1000))
            found.alarms.update({what for event in ledger[0] for what in event["alarms"]})
        figures = await self._calm(self.sweeper.metrics.families)
        found.series = sum(len(family.samples) for family in figures)

    async def _calm[T](self, read: Callable[[], Awaitable[T]]) -> T:
        """Read for the figures, between the requests that are still being made."""
        for _ in range(60):
            try:
                return await read()
            except Unavailable:
                await asyncio.sleep(1.0)
        return await read()


def play(wave: Wave, progress: Callable[[float, float], None] = lambda done, total: None) -> Outcome:
    """Run a wave. The same wave gives the same outcome on every machine, apart from `cpu`."""
    return WaveRun(wave, progress).play()
