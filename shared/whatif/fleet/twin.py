"""A fleet on virtual time: its servers, agents and replicas, Azure's announcements, and the changes that concern it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Final

from ...core.clock import Millis
from ...fleets.model import FleetIn
from ...leases.protocol.membership import ServerReport
from ...maintenance.agent.imds.client import Machine
from ...maintenance.model import AgentReportIn
from ..changes import ANNOUNCED_BEFORE, Change, DomainChange, ServerRemoval
from ..outcome import POINTS, FleetOutcome
from ..service import TENANT, TwinService
from ..snapshot import ExportedFleet, ExportedNode
from ..twin.cpu import Charges, VirtualProcessor
from ..twin.loop import LoopClock
from ..twin.storage import AccountConnection, LimitedTables
from .agents import AgentPlace, AzureEvent, Scope, VirtualAgent
from .machine import NodePlace, TwinMachine
from .replica import TwinReplica
from .server import TwinServer

LOOK: Final = 0.2
"""Seconds between two looks at the owners, and the error of times without an owner."""
STARTS_OVER: Final = 10.0
"""Seconds over which the nodes start, before the window."""
REACTION: Final = (2.0, 10.0)
"""Seconds from an approval to the start of the impact."""
LISTED: Final = 30.0
"""Seconds from the end of an impact until the event is no longer listed."""
PASSED: Final[Millis] = 5_000
"""Milliseconds after NotBefore at which an impact without an approval begins."""
KNOWN_BEFORE: Final[Millis] = 60_000
"""Milliseconds before the window at which the export's maintenance is announced: agents have started, and partitions are shared out."""
FREE: Final = Charges(0.0, 0.0, 0.0, 0.0)
"""Requests of nodes cost the instances no CPU: nodes have machines of their own."""

type Spawn = Callable[[Coroutine[Any, Any, None]], object]
"""Starts a task that ends with the run."""


class TwinNode:
    """One node: its machine and the processes on it."""

    def __init__(self, facts: ExportedNode, clock: LoopClock) -> None:
        self.facts, self.machine = facts, TwinMachine(clock)
        self.server: TwinServer | None = None
        self.agent: VirtualAgent | None = None
        self.replica: TwinReplica | None = None
        self.tasks: list[asyncio.Task[None]] = []


class TwinFleet:
    """One fleet of the export."""

    def __init__(self, facts: ExportedFleet, service: TwinService, changes: Sequence[Change], clock: LoopClock, seed: int) -> None:
        self.name, self._facts, self._service, self._clock, self._seed = facts.name, facts, service, clock, seed
        mine = [each for each in changes if isinstance(each, DomainChange | ServerRemoval) and each.fleet in ("", facts.name)]
        self._domains = [each for each in mine if isinstance(each, DomainChange)]
        self._fewer = [each for each in mine if isinstance(each, ServerRemoval)]
        self._chance = random.Random(f"{seed}/{facts.name}")
        self._nodes = {node.name: TwinNode(node, clock) for node in facts.nodes}
        self._scopes: dict[str, Scope] = {}
        self._events: list[tuple[AzureEvent, TwinNode, float]] = []
        self._numbers = iter(range(10**9))
        self._spec = FleetIn.model_validate(dict(facts.definition))
        self._outcome = FleetOutcome(self._spec.partitions)
        self._owners: dict[int, str] = {}
        self._unowned_since: dict[int, float] = {}
        self._measures = False
        self._began = 0.0
        self._first_turn = 0

    # -- the life of the fleet

    async def open(self, spawn: Spawn) -> None:
        """Create the fleet, and start its nodes."""
        await self._service.app.fleets.put(TENANT, self.name, self._spec)
        for number, node in enumerate(self._nodes.values()):
            spawn(self._start(node, STARTS_OVER * number / max(1, len(self._nodes))))
        spawn(self._watch_owners())
        spawn(self._run_azure())
        for each in self._announcements():
            spawn(each)
        for change in self._domains:
            if change.kind == "outage":
                spawn(self._outage(change))
        for removal in self._fewer:
            spawn(self._remove(removal))

    async def _start(self, node: TwinNode, after: float) -> None:
        facts = node.facts
        await asyncio.sleep(after)
        seed = f"{self._seed}/{self.name}/{facts.name}"
        place = NodePlace(self.name, facts.name, self._clock, node.machine, seed)
        works: list[Coroutine[Any, Any, None]] = []
        if facts.serves:
            way = AccountConnection(self._service.account, VirtualProcessor(), FREE, self._clock, random.Random(seed))
            tables = LimitedTables(way, self._clock)
            node.server = TwinServer(TENANT, place, tables, ServerReport(facts.server_domain, facts.capacity))
            works.append(node.server.play())
        if facts.agent:
            scope = self._scopes.setdefault(facts.scope, Scope(facts.scope or self.name))
            machine = Machine(facts.vm or facts.name, facts.location, facts.scope, facts.fault_domain)
            node.agent = VirtualAgent(AgentPlace(self.name, facts.name, machine), scope, self._clock, self._post, random.Random(seed))
            works.append(node.agent.play())
        if facts.role:
            node.replica = TwinReplica(
                self._service.app,
                TENANT,
                place,
                primary=facts.role == "primary",
                took=self._facts.checkpoints_took,
            )
            works.append(node.replica.play())
        node.tasks = [asyncio.create_task(work) for work in works]
        await asyncio.gather(*node.tasks, return_exceptions=False)

    async def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        node = self._nodes[body["node"]]
        await node.machine.thawed()
        return await self._service.app.maintenance.report(TENANT, self.name, AgentReportIn.model_validate(body))

    def begin(self) -> None:
        """Measure from now on. A fleet without servers, which only takes turns or has agents, has no owners to measure."""
        self._measures, self._began = any(node.serves for node in self._facts.nodes), self._clock.monotonic()
        for partition in self._unowned_since:
            self._unowned_since[partition] = self._began

    async def end(self) -> FleetOutcome:
        """Stop measuring, end the nodes, and return the figures."""
        if self._measures:
            self._note_owners()
            self._outcome.without_owner = len(self._unowned_since)
            for since in self._unowned_since.values():
                self._note_unowned(since)
            self._measures = False
        for task in (task for node in self._nodes.values() for task in node.tasks):
            task.cancel()
        found, settings = self._outcome, self._spec.maintenance
        lead = settings.leads.get("Freeze", settings.lead) / 1000
        # Seconds of the clock at which a node begins to prepare.
        offset = self._clock.monotonic() - self._clock.now() / 1000
        begins = {event.event_id: event.not_before / 1000 + offset - lead for event, *_ in self._events}
        found.approved = sorted(event.approved - begins[event.event_id] for event, *_ in self._events if event.approved is not None)
        found.unapproved = sum(event.approved is None for event, *_ in self._events)
        turns, _ = await self._service.app.checkpoints.turns(TENANT, self.name, 1000)
        within = [turn for turn in turns if turn["granted"] >= self._service.first_text]
        found.turns = len(within)
        found.turns_late = sum(bool(turn.get("late")) for turn in within)
        found.turns_failed = sum(turn["state"] in ("timed-out", "revoked") for turn in within)
        return found

    # -- owners

    async def _watch_owners(self) -> None:
        self._unowned_since = dict.fromkeys(range(self._spec.partitions), self._clock.monotonic())
        while True:
            await asyncio.sleep(LOOK)
            self._note_owners()

    def _note_owners(self) -> None:
        now = self._clock.monotonic()
        serving: dict[int, str] = {}
        for node in self._nodes.values():
            if node.server is not None:
                serving.update(dict.fromkeys(node.server.serves(), node.server.name))
        for partition, owner in serving.items():
            if self._owners.get(partition, owner) != owner and self._measures:
                self._outcome.moves += 1
            self._owners[partition] = owner
            since = self._unowned_since.pop(partition, None)
            if since is not None and self._measures:
                self._note_unowned(since)
        for partition in range(self._spec.partitions):
            if partition not in serving:
                self._unowned_since.setdefault(partition, now)
        if self._measures:
            self._note_series(now - self._began, float(len(self._unowned_since)))

    def _note_unowned(self, since: float) -> None:
        seconds = self._clock.monotonic() - since
        self._outcome.unowned += seconds
        self._outcome.longest_unowned = max(self._outcome.longest_unowned, seconds)

    def _note_series(self, at: float, count: float) -> None:
        series, width = self._outcome.series, self._service.window / POINTS
        start = int(at / width) * width
        if series and series[-1][0] == start:
            series[-1] = start, max(series[-1][1], count)
        else:
            series.append((start, count))

    # -- Azure, and changes

    def _announcements(self) -> Iterator[Coroutine[Any, Any, None]]:
        for known in self._facts.announced:
            nodes = [self._nodes[name] for name in known.nodes if name in self._nodes]
            yield self._announce(nodes, self._service.first - KNOWN_BEFORE, known.not_before, known.lasts / 1000)
        for change in self._domains:
            if change.kind == "maintenance":
                nodes = [node for node in self._nodes.values() if node.facts.fault_domain == change.domain]
                listed_at = max(change.at - ANNOUNCED_BEFORE, self._service.first)
                yield self._announce(nodes, listed_at, change.at, change.lasts / 1000)

    async def _announce(self, nodes: Sequence[TwinNode], listed_at: Millis, not_before: Millis, lasts: float) -> None:
        """List an event for each node that has an agent; others stand still without notice."""
        await self._until(listed_at)
        for node in nodes:
            if node.agent is None:
                continue
            event = AzureEvent(f"event-{next(self._numbers):05d}", node.agent.machine.vm, not_before, duration=lasts)
            node.agent.scope.events[event.event_id] = event
            self._events.append((event, node, lasts))
        for scope in self._scopes.values():
            scope.changed()
        await self._until(not_before)
        for node in nodes:
            if node.agent is None:
                node.machine.freeze(lasts)

    async def _run_azure(self) -> None:
        """Start each event soon after its approval, and end it."""
        ends: dict[str, float] = {}
        while True:
            await asyncio.sleep(1.0)
            now = self._clock.monotonic()
            changed: set[str] = set()
            for event, node, lasts in self._events:
                assert node.agent is not None
                scope = node.agent.scope
                if event.event_id not in scope.events:
                    continue
                passed = self._clock.now() >= event.not_before + PASSED
                reaction = self._chance.uniform(*REACTION) if event.status == "Scheduled" else 0.0
                approved = event.approved is not None and now >= event.approved + reaction
                if event.status == "Scheduled" and (passed or approved):
                    event.status = "Started"
                    ends[event.event_id] = now + lasts + LISTED
                    node.machine.freeze(lasts)
                    changed.add(scope.name)
                elif event.status == "Started" and now >= ends[event.event_id]:
                    del scope.events[event.event_id]
                    changed.add(scope.name)
            for name in sorted(changed):
                next(scope for scope in self._scopes.values() if scope.name == name).changed()

    async def _outage(self, change: DomainChange) -> None:
        await self._until(change.at)
        for node in self._nodes.values():
            if node.facts.fault_domain == change.domain:
                node.machine.freeze(change.lasts / 1000)

    async def _remove(self, removal: ServerRemoval) -> None:
        await self._until(removal.at)
        names = sorted(name for name, node in self._nodes.items() if node.server is not None and not node.server.left)
        for name in names[-removal.count :]:
            node = self._nodes[name]
            assert node.server is not None
            node.server.stop()

    async def _until(self, moment: Millis) -> None:
        while (left := (moment - self._clock.now()) / 1000) > 0:  # noqa: ASYNC110  rounding
            await asyncio.sleep(left)
