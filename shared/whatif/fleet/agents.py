"""Agents of virtual nodes, and Azure around them.

An agent's decisions, its reports and its reading of documents and answers are production's. Its threads are tasks here, its disk keeps
nothing, and its hooks only take time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from random import Random
from typing import Any, Final, NamedTuple

from ...core.clock import Clock, Millis
from ...core.errors import Problem, StorageError
from ...maintenance.agent.app.messages import ReportReceipt, body_of, distinct_changes, near, read_answer
from ...maintenance.agent.config.settings import AgentSettings
from ...maintenance.agent.decisions.step import asked_events
from ...maintenance.agent.effects import Approve, RunHook, SendResult
from ...maintenance.agent.imds.client import Machine
from ...maintenance.agent.imds.document import read
from ...maintenance.agent.loop import AgentLoop, NullJournal
from ...maintenance.agent.model import EventsDocument, HookKind, NodeState
from ...maintenance.agent.observability.health import AgentFigures
from ...maintenance.agent.observability.logs import LogContext
from ...maintenance.agent.observations import ApprovalPosted, AppUnreachable, DocumentRead, HookEnded, Observation, StartUp, Tick
from ...maintenance.agent.process import AgentProcess
from ...maintenance.agent.timings import FAR_RETRY, FIRST_REPORT, NEAR_RETRY, TICK, USUAL_REPORT

HOOKS: Final[Mapping[HookKind, float]] = {"prepare": 60.0, "emergency": 20.0, "restore": 60.0, "verify": 30.0}
"""Deadlines of the hooks, in seconds."""
TAKES: Final[Mapping[HookKind, tuple[float, float]]] = {"prepare": (2.0, 6.0), "restore": (5.0, 15.0), "verify": (0.5, 1.5)}
"""Seconds that a hook takes, at least and at most."""
IMPACT: Final = 7.0
"""Seconds of an impact, as in the case study."""
ROUND: Final = (0.005, 0.020)
"""Seconds of a message between a node and the app, at least and at most."""

type Post = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Sends a report to the app and returns its answer. Raises `Problem`, `StorageError`."""


@dataclass(slots=True)
class AzureEvent:
    """A Scheduled Event of one machine."""

    event_id: str
    vm: str
    not_before: Millis
    status: str = "Scheduled"
    approved: float | None = None
    """Seconds at which an agent approved it."""
    duration: float = IMPACT
    """Seconds of the impact."""


@dataclass(slots=True)
class Scope:
    """A placement group: its machines get the same document."""

    name: str
    events: dict[str, AzureEvent] = field(default_factory=dict)
    incarnation: int = 1
    _read: tuple[int, EventsDocument] | None = None

    def document(self) -> EventsDocument:
        """Return the document as an agent reads it."""
        if self._read is None or self._read[0] != self.incarnation:
            listed = [
                {
                    "EventId": each.event_id,
                    "EventType": "Freeze",
                    "EventStatus": each.status,
                    "EventSource": "Platform",
                    "ResourceType": "VirtualMachine",
                    "Resources": [each.vm],
                    "NotBefore": formatdate(each.not_before / 1000, usegmt=True) if each.status == "Scheduled" else "",
                    "DurationInSeconds": each.duration,
                    "Description": "Host server is undergoing maintenance.",
                }
                for each in self.events.values()
            ]
            found = read(json.dumps({"DocumentIncarnation": self.incarnation, "Events": listed}).encode())
            assert isinstance(found, EventsDocument)
            self._read = self.incarnation, found
        return self._read[1]

    def changed(self) -> None:
        """Give the document a new incarnation."""
        self.incarnation += 1


class AgentPlace(NamedTuple):
    """The node that an agent is on, and the machine under it."""

    fleet: str
    node: str
    machine: Machine


class VirtualAgent:
    """One node's agent. `play` runs until it is cancelled."""

    def __init__(self, place: AgentPlace, scope: Scope, clock: Clock, post: Post, chance: Random) -> None:
        fleet, self.name, self.machine = place
        self.scope, self._clock, self._post, self._chance = scope, clock, post, chance
        machine = self.machine
        settings = AgentSettings(machine.vm, hooks=HOOKS, central=True, fleet=fleet)
        process = AgentProcess(AgentFigures(), LogContext(), clock.now, clock.monotonic, chance.random)
        self.loop = AgentLoop(settings, NodeState(), NullJournal(), self, process)
        self.reports = self.refused = 0
        self.slowest = 0.0
        """Seconds of the slowest answer."""
        self._seq, self._failures = clock.now(), 0
        self._changes: list[NodeState] = []
        self._bell = asyncio.Event()
        self._due = clock.monotonic() + FIRST_REPORT * chance.random()
        self._tasks: set[asyncio.Task[None]] = set()

    async def play(self) -> None:
        """Poll, tick and report."""
        reporting = asyncio.create_task(self._report_on())
        try:
            await asyncio.sleep(TICK * self._chance.random())
            self.loop.observe(StartUp("boot-1", "none"))
            while True:
                self.loop.observe(Tick())
                self.loop.observe(DocumentRead(self.scope.document()))
                await asyncio.sleep(TICK)
        finally:
            for task in (reporting, *self._tasks):
                task.cancel()

    def observe(self, observation: Observation) -> None:
        """Give the agent the outcome of one of its effects."""
        self.loop.observe(observation)

    # -- effects

    def run_hook(self, effect: RunHook) -> None:
        """Take the hook's time."""
        least, most = TAKES.get(effect.kind, (0.1, 0.2))
        self._later(self._chance.uniform(least, most), lambda: self.observe(HookEnded(effect.run, True)))

    def stop_hook(self, run: int) -> None:
        """Do nothing: the hook ends after its time."""

    def approve(self, effect: Approve) -> None:
        """Approve the event at Azure."""

        def posted() -> None:
            event = self.scope.events.get(effect.raw_id)
            if event is not None and event.approved is None:
                event.approved = self._clock.monotonic()
            outcome, status = ("accepted", 200) if event is not None else ("refused", 404)
            self.observe(ApprovalPosted(effect.event_id, outcome, status, effect.grant))  # type: ignore[arg-type]

        self._later(self._chance.uniform(0.02, 0.2), posted)

    def look(self) -> None:
        """Poll now."""
        self._later(0.01, lambda: self.observe(DocumentRead(self.scope.document())))

    def report(self, state: NodeState) -> None:
        """Send a report of a change."""
        self._changes.append(state)
        self._bell.set()

    def result(self, effect: SendResult) -> None:
        """Do nothing: the app leases no approvals here."""

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            act()

        task = asyncio.create_task(wait())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- reports, as `Reporter` sends them

    async def _report_on(self) -> None:
        while True:
            wait = self._due - self._clock.monotonic()
            if wait > 0 and (not self._changes or self._failures):
                self._bell.clear()
                try:
                    async with asyncio.timeout(wait):
                        await self._bell.wait()
                except TimeoutError:
                    pass
                if self._failures and self._due > self._clock.monotonic():
                    await asyncio.sleep(self._due - self._clock.monotonic())
            states = distinct_changes(self._changes) or [self.loop.state]
            self._changes = []
            for number, state in enumerate(states, 1):
                if not await self._send(state, asked_events(state) if number == len(states) else frozenset()):
                    self._changes = [*states[number - 1 :], *self._changes]
                    break

    async def _send(self, state: NodeState, prepared: frozenset[str]) -> bool:
        self._seq += 1
        body = {**body_of(state, self.name, self.machine), "seq": self._seq}
        sent = self._clock.monotonic()
        await asyncio.sleep(self._chance.uniform(*ROUND))
        try:
            answer = await self._post(body)
        except (Problem, StorageError) as error:
            self.refused += 1
            self._failures += 1
            most = NEAR_RETRY if near(self.loop.state) else FAR_RETRY
            self._due = self._clock.monotonic() + min(most, 2.0 ** (self._failures - 1)) * self._chance.uniform(0.75, 1.0)
            self.observe(AppUnreachable(str(error)))
            return False
        await asyncio.sleep(self._chance.uniform(*ROUND))
        self.reports += 1
        self.slowest = max(self.slowest, self._clock.monotonic() - sent)
        shown = frozenset(entry["event_id"] for entry in body["events"])
        receipt = read_answer(json.dumps(answer, default=str).encode(), sent, prepared & shown)
        assert isinstance(receipt, ReportReceipt), receipt
        self._failures = 0
        spread = 1.0 if receipt.next < USUAL_REPORT / 10 else self._chance.uniform(0.75, 1.0)
        self._due = self._clock.monotonic() + receipt.next * spread
        self.observe(receipt.answer)
        return True
