"""The agent's process: threads that poll, run hooks, approve, report and answer probes, around the one loop that decides.

The loop waits only for its next tick and for the disk. Whenever the process ends, the next one finds all decisions in the journal and
continues.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import queue
import resource
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...core.clock import SystemClock, steady
from ...core.errors import TocsinError
from ...core.http_exchange import TransportFailure
from ...core.ids import SystemIds
from .app.messages import event_of
from .app.reporter import AppClient, Reporter, ReportSubject
from .caller_probe import CallerProber
from .config.config import Config
from .config.file_trust import find_untrusted_state
from .decisions.approvals import ASKING_TURN, turn_reason, unasked
from .decisions.step import next_wake, unready_reason
from .executor import NodeHooks, Polls, ThreadedExecutor
from .hooks.runner import HookRunner, ProcessRunner
from .imds.client import HttpImds, Imds, Machine
from .imds.identity import disown, identify, remembered
from .journal import Disk, DiskFolder, Journal, ReportBacklog, make_private_folder
from .loop import AgentLoop, NullJournal
from .model import EventPhase, EventRecord, NodeState
from .observability.health import AgentFigures, AgentHealth, HealthServer
from .observability.logs import LogContext
from .observability.service_manager import ServiceManager
from .observations import Observation, StartUp, StopRequested, Tick
from .process import AgentProcess
from .timings import IDENTIFY_INTERVAL, SHUTDOWN_WAIT, STALLED, TICK

log = logging.getLogger(__name__)

MAX_WAITING: Final = 200
"""Reports that are kept while the app cannot be reached."""
HOOK_NOTES: Final = "hooks"
"""Folder of the notes of running hooks, within the state folder."""
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class CannotStart(TocsinError):
    """The agent cannot start: another one runs, or its folder or port cannot be used."""


class Replaced(NamedTuple):
    """Dependencies that replace an agent's real ones in tests. None, or '': the real one."""

    imds: Imds | None = None
    runner: HookRunner | None = None
    disk: Disk | None = None
    client: AppClient | None = None
    boot_id: str = ""


REAL: Final = Replaced()


class Agent:
    """One node's agent. `run` returns when it is asked to end."""

    def __init__(
        self,
        config: Config,
        *,
        once: bool = False,
        log_counts: Callable[[], Mapping[str, int]] = dict,
        manager: ServiceManager | None = None,
        replaced: Replaced = REAL,
    ) -> None:
        """log_counts: the lines of the log's outputs, by outcome."""
        self.config, self.figures = config, AgentFigures()
        self._once, self._dry = once, config.settings.dry_run
        self._imds: Imds = replaced.imds if replaced.imds is not None else HttpImds(config.imds, api_version=config.api_version)
        self._replaced, self._log_counts = replaced, log_counts
        self._manager = manager if manager is not None else ServiceManager()
        self._boot_id = replaced.boot_id or BOOT.read_text().strip()
        self._inbox: queue.SimpleQueue[Observation] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._machine = Machine(config.node.vm)
        self._context = self._new_context()
        self._loop: AgentLoop | None = None
        self._reporter: Reporter | None = None
        self._progress, self._trouble = steady(), "the machine is not identified yet"

    # -- from any thread

    def stop(self) -> None:
        """End soon. A running hook is stopped, the state is saved, and nothing is restored or approved any more."""
        self._stopping.set()
        self._inbox.put(StopRequested())

    def about(self) -> dict[str, str]:
        """Return the fields of a log line about the agent: node, fleet, and the event that is under way."""
        return self._context.about()

    def health(self) -> AgentHealth:
        """Return the agent's health now."""
        live, loop = steady() - self._progress < STALLED, self._loop
        state = loop.state if loop is not None else NodeState()
        reasons = [self._trouble] if self._trouble else []
        if loop is not None and (why := unready_reason(state, loop.now(), loop.settings)):
            reasons.append(why)
        if not live:
            reasons.append("the loop hangs")
        mine = [record for record in state.events.values() if record.phase is not EventPhase.FOREIGN]
        events = [event_of(record) for record in mine]
        node: dict[str, Any] = {**self._identity(), "incarnation": state.incarnation, "disabled": state.disabled, "events": events}
        return AgentHealth(live, tuple(reasons), not (state.disabled or any(map(_takes_away, mine))), node)

    def metrics(self) -> str:
        """Return the metrics as Prometheus text."""
        state = self._loop.state if self._loop is not None else NodeState()
        if state.good_at is not None:
            self.figures.put("tocsin_agent_document_age_seconds", steady() - state.good_at)
        if state.incarnation is not None:
            self.figures.put("tocsin_agent_document_incarnation", state.incarnation)
        used = resource.getrusage(resource.RUSAGE_SELF)
        self.figures.put("process_cpu_seconds_total", used.ru_utime + used.ru_stime)
        self.figures.put("process_resident_memory_bytes", resident())
        for outcome, lines in self._log_counts().items():
            self.figures.put("tocsin_agent_log_lines_total", lines, outcome=outcome)
        return self.figures.text()

    # -- the process

    def run(self) -> bool:
        """Work until asked to end; with `once`, until the work of one poll is done. Returns false if no document ever came.

        Raises `CannotStart`.
        """
        with ExitStack() as stack:
            full = "" if self._dry else self._lock(stack)
            if not self._dry and not self._once:
                self._answer_probes(stack)
            # Not later: until the metadata service answers, the agent works and tries again.
            self._manager.started()
            if full and not self._wait_for_space(stack, full):
                return False
            disk: Disk = (
                self._replaced.disk if self._replaced.disk is not None else NullDisk() if self._dry else DiskFolder(self.config.state)
            )
            if not self._identify(disk):
                return False
            loop = self._start_loop(disk, stack)
            self._run_loop(loop)
            return loop.state.good_at is not None

    def _lock(self, stack: ExitStack) -> str:
        """Make the state folder and lock it. Returns the reason if its disk is full, which ends by itself. Raises `CannotStart`."""
        folder = self.config.state
        try:
            make_private_folder(folder)
            if found := find_untrusted_state(folder):
                raise CannotStart(found)
            make_private_folder(folder / HOOK_NOTES)
            opened = os.open(folder / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            file = stack.enter_context(os.fdopen(opened, "w"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotStart(f"another agent already uses {folder}; only one can run. Stop it, or set another folder in `state`") from None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return self._unsaved(error)
            raise CannotStart(f"{error.filename or folder} cannot be used: {error.strerror}; set another folder in `state`") from None
        return ""

    def _wait_for_space(self, stack: ExitStack, reason: str) -> bool:
        """Try again to lock the state folder until its disk has space. Returns false if the agent was asked to end before."""
        while reason:
            if self._trouble != reason:
                self._trouble = reason
                log.error("The agent does nothing: %s", reason, extra={"action": "agent_state_unsaved", **self.about()})
            self._moved()
            if self._once or self._stopping.wait(TICK):
                return False
            reason = self._lock(stack)
        return True

    def _answer_probes(self, stack: ExitStack) -> None:
        where = self.config.health
        if where is None:
            return
        try:
            server = HealthServer(*where, self.health, self.metrics, self.about)
        except OSError as error:
            text = f"the health endpoint cannot listen on {where[0]}:{where[1]}: {error.strerror}; set another health.address"
            raise CannotStart(text) from None
        server.start()
        stack.callback(server.close)

    def _identify(self, disk: Disk) -> bool:
        """Identify the machine, retrying until it succeeds. Returns false if the agent was asked to end before."""
        before = remembered(disk)
        while not self._stopping.is_set():
            found = self._identified(disk, before)
            if isinstance(found, Machine):
                self._machine, self._trouble = found, ""
                self._context = self._new_context()
                return True
            if self._trouble != found.reason:
                self._trouble = found.reason
                log.warning("The machine cannot be identified: %s", found.reason, extra={"action": "agent_machine_unknown", **self.about()})
            self._moved()
            if self._once:
                return False
            self._stopping.wait(IDENTIFY_INTERVAL)
        return False

    def _identified(self, disk: Disk, before: Machine | None) -> Machine | TransportFailure:
        """Return this machine, with the state of another one set aside; the reason if it cannot be identified, or that not be saved."""
        try:
            found = identify(self.config.node, self._imds, disk)
            if isinstance(found, Machine) and disown(disk, before, found):
                text = "The state in this folder belongs to another machine, %s. It is set aside"
                log.warning(text, before.vm if before else "", extra={"action": "agent_state_of_another", **self.about()})
        except OSError as error:
            return TransportFailure(self._unsaved(error))
        return found

    def _unsaved(self, error: OSError) -> str:
        return f"the state in {self.config.state} cannot be saved: {error.strerror}"

    def _start_loop(self, disk: Disk, stack: ExitStack) -> AgentLoop:
        process = AgentProcess(self.figures, self._context, SystemClock().now, steady, SystemIds().chance)
        runner = self._replaced.runner
        if runner is None and not self._dry:
            runner = processes = ProcessRunner(self.config.state / HOOK_NOTES)
            for name in processes.end_leftovers():
                extra = {"action": "agent_leftover_ended", **self.about()}
                log.warning("The hook %s of an earlier agent was still running and was ended", name, extra=extra)
        if self.config.app is not None and not self._dry:
            prober = CallerProber(self.config.probe, run=SystemIds().name(), steady=steady)
            stack.callback(prober.close)
            client = self._replaced.client if self._replaced.client is not None else AppClient(self.config.app)
            subject = ReportSubject(self._identity()["node"], self._machine, round(1000 * self.config.settings.longest_lead()))
            self._reporter = Reporter(client, ReportBacklog(disk, MAX_WAITING), self._inbox.put, subject, process, prober)
            self._reporter.start()
            stack.callback(self._reporter.close, SHUTDOWN_WAIT)
        polls = Polls(self._imds, self.config.poll, self._next_due)
        hooks = NodeHooks(self.config.hooks, runner, self._identity(), self.config.state)
        worker = ThreadedExecutor(polls, hooks, self._reporter, self._inbox.put, process)
        journal = Journal(disk)
        loaded = journal.load()
        memory = NullJournal() if self._dry else journal
        settings = replace(self.config.settings, vm=self._machine.vm)
        note = self._reporter.note if self._reporter is not None else None
        self._loop = AgentLoop(settings, loaded.state, memory, worker, process, note)
        self._observe(self._loop, StartUp(self._boot_id, loaded.found, loaded.marker))
        worker.start()
        stack.callback(worker.close)
        return self._loop

    def _next_due(self) -> float | None:
        loop = self._loop
        return next_wake(loop.state, loop.now(), loop.settings) if loop is not None else None

    def _run_loop(self, loop: AgentLoop) -> None:
        """Apply observations as they come, and a tick each second or when something is due."""
        # The first tick comes at once: the next is measured from it.
        ticked = steady() - TICK
        while True:
            if steady() >= ticked + TICK:
                # Before waiting observations, because a late tick counts as an impact.
                ticked = steady()
                self._observe(loop, Tick())
            wait = ticked + TICK - steady()
            due = next_wake(loop.state, loop.now(), loop.settings)
            observation = self._next_observation(min(wait, due) if due else wait)
            if isinstance(observation, Tick):
                ticked = steady()
            self._observe(loop, observation)
            if isinstance(observation, StopRequested):
                break
            if self._once and self._inbox.empty() and _is_done(loop.state) and not self._waits_for_fleet(loop):
                return
        # The stopped hook gets time to end.
        end = steady() + SHUTDOWN_WAIT
        while loop.state.run is not None and (left := end - steady()) > 0:
            self._observe(loop, self._next_observation(left))

    def _waits_for_fleet(self, loop: AgentLoop) -> bool:
        """Return true if an event is on this node and the app has not yet answered what to do about it."""
        state, now = loop.state, loop.now()
        mine = [record for record in state.events.values() if record.phase is EventPhase.WAITING]
        asks = any(record.at_once and turn_reason(record, state, now, loop.settings) == ASKING_TURN for record in mine)
        return self._reporter is not None and bool(mine) and (asks or unasked(state, now, loop.settings))

    def _next_observation(self, wait: float) -> Observation:
        try:
            return self._inbox.get(timeout=max(0.0, wait))
        except queue.Empty:
            return Tick()

    def _observe(self, loop: AgentLoop, observation: Observation) -> None:
        """Decide and act. While the disk fails, nothing is done and the observation waits."""
        while True:
            try:
                loop.observe(observation)
                break
            except OSError as error:
                if not self._trouble:
                    extra = {"action": "agent_state_unsaved", **self.about()}
                    log.error("The agent does nothing: %s", self._unsaved(error), extra=extra)
                self._trouble = self._unsaved(error)
                self._moved()
                if self._stopping.wait(TICK):
                    return
        if self._trouble:
            self._trouble = ""
            loop.forget_time()
        self._moved()
        if self._reporter is not None:
            self._reporter.latest(loop.state)

    def _moved(self) -> None:
        """Note that the loop does not hang."""
        self._progress = steady()
        self._manager.progress()

    def _new_context(self) -> LogContext:
        return LogContext(self._identity()["node"], self.config.settings.fleet)

    def _identity(self) -> dict[str, str]:
        return {"node": self.config.node.name or self._machine.vm, "vm": self._machine.vm}


class NullDisk:
    """A disk for dry runs: it is empty and stores nothing."""

    def read(self, name: str) -> bytes | None:
        return None

    def write(self, name: str, data: bytes) -> None:
        """Store nothing."""

    append = write

    def flush(self, name: str) -> None:
        """Do nothing."""

    remove = flush

    def rename(self, name: str, new: str) -> None:
        """Do nothing."""

    def flush_names(self) -> None:
        """Do nothing."""


def _takes_away(record: EventRecord) -> bool:
    """Return true if an event keeps the node out of service, with or without a hook."""
    if record.phase in (EventPhase.APPROVED, EventPhase.STARTED):
        return record.prepared_at is not None
    return record.phase in (EventPhase.PREPARING, EventPhase.PREPARED, EventPhase.PREPARE_FAILED)


def _is_done(state: NodeState) -> bool:
    """Return true if the work of a single poll is done: nothing runs or is under way."""
    looked = state.good_at is not None or state.complaint != ""
    under_way = any(record.posting or record.look_first for record in state.events.values())
    restoring = state.restore is not None and state.restore.failures == 0
    return looked and state.run is None and not under_way and not restoring


def resident() -> int:
    """Return the resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
