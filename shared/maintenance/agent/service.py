"""The agent as a process: threads that look, run hooks, approve, report and answer probes, around the one loop that decides.

The loop waits for nothing but its next tick and the disk. Whatever ends the process at whatever point, the next one finds in the journal
what was decided, and goes on from there.
"""

from __future__ import annotations

import fcntl
import logging
import os
import queue
import resource
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ...core.clock import SystemClock, steady
from ...core.errors import TocsinError
from ...core.ids import SystemIds
from .app.messages import event_of
from .app.reporter import AppClient, Reporter
from .config.config import Config
from .decisions.approvals import unasked
from .decisions.step import next_wake, unready
from .executor import ThreadedExecutor
from .figures import AgentFigures
from .health import AgentHealth, HealthServer
from .hooks.runner import HookRunner, ProcessRunner
from .imds.client import HttpImds, Imds, Machine
from .imds.identity import disown, identify, remembered
from .journal import Disk, DiskFolder, Journal, ReportBacklog
from .loop import AgentLoop, NullJournal
from .model import EventPhase, EventRecord, NodeState, Observation, StartUp, StopRequested, Tick

log = logging.getLogger(__name__)

TICK: Final = 1.0
AGAIN: Final = 5.0
"""Seconds between two questions who this machine is."""
STALLED: Final = 30.0
"""Without a turn of the loop for so many seconds, it hangs."""
LEAVING: Final = 8.0
"""Seconds that a hook under way has to end when the agent does: more than the grace between SIGTERM and SIGKILL."""
MOST_WAITING: Final = 200
"""Reports kept for an app that is away."""
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class CannotStart(TocsinError):
    """The agent cannot begin: another one runs, or its folder or port cannot be used."""


class Agent:
    """One node's agent. `run` returns when it was told to end. The rest of the arguments stand in for the real world in tests."""

    def __init__(
        self,
        config: Config,
        *,
        once: bool = False,
        imds: Imds | None = None,
        runner: HookRunner | None = None,
        disk: Disk | None = None,
        door: AppClient | None = None,
        boot_id: str = "",
    ) -> None:
        self.config, self.figures = config, AgentFigures()
        self._once, self._dry = once, config.settings.dry_run
        self._imds: Imds = imds if imds is not None else HttpImds(config.imds, api_version=config.api_version)
        self._runner, self._disk, self._door = runner, disk, door
        self._boot_id = boot_id or BOOT.read_text().strip()
        self._inbox: queue.SimpleQueue[Observation] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._machine = Machine(config.node.vm)
        self._loop: AgentLoop | None = None
        self._reporter: Reporter | None = None
        self._turned, self._trouble = steady(), "it is not known yet which machine this is"

    # -- from any thread

    def stop(self) -> None:
        """End soon: what runs is stopped and saved, nothing is put back or approved."""
        self._stopping.set()
        self._inbox.put(StopRequested())

    def health(self) -> AgentHealth:
        """How the agent is now."""
        live, loop = steady() - self._turned < STALLED, self._loop
        state = loop.state if loop is not None else NodeState()
        reasons = [self._trouble] if self._trouble else []
        if loop is not None and (why := unready(state, loop.now(), loop.settings)):
            reasons.append(why)
        if not live:
            reasons.append("the loop does not turn")
        mine = [record for record in state.events.values() if record.phase is not EventPhase.FOREIGN]
        events = [event_of(record) for record in mine]
        node: dict[str, Any] = {**self._identity(), "incarnation": state.incarnation, "disabled": state.disabled, "events": events}
        return AgentHealth(live, tuple(reasons), not (state.disabled or any(map(_takes_away, mine))), node)

    def metrics(self) -> str:
        """Prometheus text."""
        state = self._loop.state if self._loop is not None else NodeState()
        if state.good_at is not None:
            self.figures.put("tocsin_agent_document_age_seconds", steady() - state.good_at)
        if state.incarnation is not None:
            self.figures.put("tocsin_agent_document_incarnation", state.incarnation)
        used = resource.getrusage(resource.RUSAGE_SELF)
        self.figures.put("process_cpu_seconds_total", used.ru_utime + used.ru_stime)
        self.figures.put("process_resident_memory_bytes", resident())
        return self.figures.text()

    # -- the process

    def run(self) -> bool:
        """Work until told to end, or, when made for once, until what one look asks for is done. False: no document ever came.

        Raises `CannotStart` where it cannot begin.
        """
        with ExitStack() as stack:
            if not self._dry:
                self._lock(stack)
            if not self._dry and not self._once:
                self._answer_probes(stack)
            disk: Disk = self._disk if self._disk is not None else NullDisk() if self._dry else DiskFolder(self.config.state)
            if not self._identify(disk):
                return False
            loop = self._begin(disk, stack)
            self._turn(loop)
            return loop.state.good_at is not None

    def _lock(self, stack: ExitStack) -> None:
        folder = self.config.state
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = stack.enter_context((folder / "lock").open("w"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotStart(f"another agent works with {folder}; there can be one") from None
        except OSError as error:
            raise CannotStart(f"{error.filename or folder} cannot be used: {error.strerror}; give a folder of its own in `state`") from None

    def _answer_probes(self, stack: ExitStack) -> None:
        where = self.config.health
        if where is None:
            return
        try:
            server = HealthServer(*where, self.health, self.metrics)
        except OSError as error:
            text = f"health cannot be answered on {where[0]}:{where[1]}: {error.strerror}; write another health.address"
            raise CannotStart(text) from None
        server.start()
        stack.callback(server.close)

    def _identify(self, disk: Disk) -> bool:
        """Find out who this machine is, asking until somebody knows; False: told to end before."""
        before = remembered(disk)
        while not self._stopping.is_set():
            found = identify(self.config.node, self._imds, disk)
            if isinstance(found, Machine):
                if disown(disk, before, found):
                    text = "The state in this folder is of another machine, %s, and is set aside"
                    log.warning(text, before.vm if before else "", extra={"action": "agent_state_of_another"})
                self._machine, self._trouble = found, ""
                return True
            if self._trouble != found.reason:
                self._trouble = found.reason
                log.warning("It cannot be told which machine this is: %s", found.reason, extra={"action": "agent_machine_unknown"})
            self._turned = steady()
            if self._once:
                return False
            self._stopping.wait(AGAIN)
        return False

    def _begin(self, disk: Disk, stack: ExitStack) -> AgentLoop:
        runner = self._runner
        if runner is None and not self._dry:
            runner = processes = ProcessRunner(self.config.state / "hooks")
            for name in processes.end_leftovers():
                log.warning("The hook %s of an earlier agent still ran, and was ended", name, extra={"action": "agent_leftover_ended"})
        if self.config.app is not None and not self._dry:
            self._reporter = Reporter(
                self._door if self._door is not None else AppClient(self.config.app),
                ReportBacklog(disk, MOST_WAITING),
                self._inbox.put,
                self.figures,
                node=self._identity()["node"],
                machine=self._machine,
                wall=SystemClock().now,
                steady=steady,
                chance=SystemIds().chance,
            )
            self._reporter.start()
            stack.callback(self._reporter.close, LEAVING)
        worker = ThreadedExecutor(
            self._imds,
            self.config.hooks,
            runner,
            self._reporter,
            self._inbox.put,
            self.figures,
            identity=self._identity(),
            state=self.config.state,
            poll=self.config.poll,
            steady=steady,
        )
        journal = Journal(disk)
        loaded = journal.load()
        memory = NullJournal() if self._dry else journal
        settings = replace(self.config.settings, vm=self._machine.vm)
        self._loop = AgentLoop(settings, loaded.state, memory, worker, self.figures, wall=SystemClock().now, steady=steady)
        self._observe(self._loop, StartUp(self._boot_id, loaded.found, loaded.marker))
        worker.start()
        stack.callback(worker.close)
        return self._loop

    def _turn(self, loop: AgentLoop) -> None:
        """Observations as they come, and a tick each second, or when something is due."""
        # The first at once: the next is measured from it.
        ticked = steady() - TICK
        while True:
            if steady() >= ticked + TICK:
                # Before what waits: a tick that comes late is taken for an impact.
                ticked = steady()
                self._observe(loop, Tick())
            wait = ticked + TICK - steady()
            due = next_wake(loop.state, loop.now(), loop.settings)
            observation = self._hear(min(wait, due) if due else wait)
            if isinstance(observation, Tick):
                ticked = steady()
            self._observe(loop, observation)
            if isinstance(observation, StopRequested):
                break
            if self._once and self._inbox.empty() and _is_done(loop.state) and not self._waits_for_fleet(loop):
                return
        # The hook that was stopped has a moment to end.
        end = steady() + LEAVING
        while loop.state.run is not None and (left := end - steady()) > 0:
            self._observe(loop, self._hear(left))

    def _waits_for_fleet(self, loop: AgentLoop) -> bool:
        """Whether something is on this node, and the fleet has not yet been heard on what is to be done about it."""
        mine = any(record.phase is EventPhase.WAITING for record in loop.state.events.values())
        return mine and self._reporter is not None and unasked(loop.state, loop.now(), loop.settings)

    def _hear(self, wait: float) -> Observation:
        try:
            return self._inbox.get(timeout=max(0.0, wait))
        except queue.Empty:
            return Tick()

    def _observe(self, loop: AgentLoop, observation: Observation) -> None:
        """Decide and act. While the disk takes nothing, nothing is done, and the observation waits."""
        while True:
            try:
                loop.observe(observation)
                break
            except OSError as error:
                if not self._trouble:
                    log.error("The state cannot be saved, so nothing is done: %s", error.strerror, extra={"action": "agent_state_unsaved"})
                self._trouble, self._turned = f"the state cannot be saved: {error.strerror}", steady()
                if self._stopping.wait(TICK):
                    return
        if self._trouble:
            self._trouble = ""
            loop.forget_time()
        self._turned = steady()
        if self._reporter is not None:
            self._reporter.latest(loop.state)

    def _identity(self) -> dict[str, str]:
        return {"node": self.config.node.name or self._machine.vm, "vm": self._machine.vm}


class NullDisk:
    """A disk for dry runs: empty, and it forgets."""

    def read(self, name: str) -> bytes | None:
        return None

    def write(self, name: str, data: bytes) -> None:
        """Nothing is kept."""

    append = write

    def flush(self, name: str) -> None:
        """Nothing is there."""

    remove = flush

    def rename(self, name: str, new: str) -> None:
        """Nothing is there."""

    def flush_names(self) -> None:
        """Nothing is there."""


def _takes_away(record: EventRecord) -> bool:
    """Whether an event keeps the node out of service, hook or no hook."""
    if record.phase in (EventPhase.APPROVED, EventPhase.STARTED):
        return record.prepared_at is not None
    return record.phase in (EventPhase.PREPARING, EventPhase.PREPARED, EventPhase.PREPARE_FAILED)


def _is_done(state: NodeState) -> bool:
    """Whether the work of a single look is done: nothing runs, nothing is on its way."""
    looked = state.good_at is not None or state.complaint != ""
    under_way = any(record.posting or record.look_first for record in state.events.values())
    restoring = state.restore is not None and state.restore.failures == 0
    return looked and state.run is None and not under_way and not restoring


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
