"""The agent's loop: each observation leads to a new state, which is saved before its effects are carried out.

Belongs to one thread. An `EffectExecutor` does what takes time on other threads; the outcome comes back as the next observation.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from ...core.http_exchange import HttpReply, TransportFailure
from .config.settings import AgentSettings
from .decisions import step
from .dry_run import replace_effect
from .effects import AgentEffect, Approve, PollNow, RunHook, SendReport, SendResult, StopHook, WriteLog
from .imds.document import read
from .model import EventPhase, NodeState, Now, UnreadableDocument
from .observations import ApprovalPosted, DocumentRead, Observation, PollFailed
from .process import AgentProcess

log = logging.getLogger(__name__)

_LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING}
_BUSY: Final = (410, 429)


class StateStore(Protocol):
    """Keeps the state over crashes. Implemented by `journal.Journal`."""

    def save(self, state: NodeState) -> bool:
        """Save the state. Raises OSError on failure."""


class NullJournal:
    """Saves nothing; for dry runs."""

    def save(self, state: NodeState) -> bool:
        return False


class EffectExecutor(Protocol):
    """Carries out effects outside the agent. No call waits for its outcome."""

    def run_hook(self, effect: RunHook) -> None:
        """Run a hook; exactly one HookEnded follows."""

    def stop_hook(self, run: int) -> None:
        """Stop a hook; its HookEnded still follows."""

    def approve(self, effect: Approve) -> None:
        """POST an approval; exactly one ApprovalPosted follows."""

    def look(self) -> None:
        """Poll the document now."""

    def report(self, state: NodeState) -> None:
        """Send the app a report of the changed state."""

    def result(self, effect: SendResult) -> None:
        """Send the app the result of a leased approval."""


class AgentLoop:
    """Holds the agent's state and applies each observation."""

    def __init__(
        self,
        settings: AgentSettings,
        state: NodeState,
        memory: StateStore,
        executor: EffectExecutor,
        process: AgentProcess,
        note: Callable[[WriteLog, str], None] | None = None,
    ) -> None:
        """note: gets each line about an event on this node, with the event's id, for the event's story."""
        self.settings, self.state, self._note = settings, state, note
        self._memory, self._executor, self._process = memory, executor, process
        self._figures, self._context = process.figures, process.context

    def now(self) -> Now:
        """Return the present moment on both clocks."""
        return Now(self._process.wall(), self._process.steady())

    def observe(self, observation: Observation) -> None:
        """Decide and act. Raises OSError if the new state cannot be saved: then nothing was done, and the observation must be passed
        again."""
        waiting = deque([observation])
        while waiting:
            after, effects = step.step(self.state, waiting[0], self.now(), self.settings)
            self._memory.save(after)
            waiting.popleft()
            self.state = after
            self._context.follow(after)
            for effect in effects:
                if self.settings.dry_run and (instead := replace_effect(effect)) is not None:
                    self._write(instead.log)
                    if instead.observation is not None:
                        waiting.append(instead.observation)
                else:
                    self._carry_out(effect)
        self._count()

    def forget_time(self) -> None:
        """Treat the next tick as the first one: the gap before it was caused by the agent itself and is no impact."""
        self.state = replace(self.state, ticked=None)

    def _carry_out(self, effect: AgentEffect) -> None:
        match effect:
            case RunHook():
                self._executor.run_hook(effect)
            case StopHook(run):
                self._executor.stop_hook(run)
            case Approve():
                self._executor.approve(effect)
            case PollNow():
                self._executor.look()
            case SendReport():
                self._executor.report(self.state)
            case SendResult():
                self._executor.result(effect)
            case WriteLog():
                self._write(effect)

    def _write(self, line: WriteLog) -> None:
        if line.level == "warning":
            self._figures.add("tocsin_agent_warnings_total", action=line.action)
        extra = {"action": line.action, **self._context.about(line.event_id), "fields": line.fields}
        log.log(_LEVELS[line.level], "%s", line.text, extra=extra)
        for event_id in self._context.events(line.event_id) if self._note is not None else ():
            record = self.state.events.get(event_id)
            if self._note is not None and record is not None and record.phase is not EventPhase.FOREIGN:
                self._note(line, event_id)

    def _count(self) -> None:
        phases: dict[str, float] = {}
        for record in self.state.events.values():
            phases[record.phase] = phases.get(record.phase, 0) + 1
        self._figures.replace("tocsin_agent_events", "phase", phases)
        self._figures.put("tocsin_agent_node_disabled", int(self.state.disabled))


def interpret_poll(answer: HttpReply | TransportFailure) -> DocumentRead | PollFailed:
    """Interpret the answer to a poll. Only a 200 with a valid document is a DocumentRead."""
    if isinstance(answer, TransportFailure):
        return PollFailed(f"IMDS: {answer.reason}")
    if answer.status != 200:
        return PollFailed(f"IMDS answers {answer.status}{_excerpt(answer.body)}")
    found = read(answer.body)
    return PollFailed(f"IMDS: {found.reason}") if isinstance(found, UnreadableDocument) else DocumentRead(found)


def interpret_approval(effect: Approve, answer: HttpReply | TransportFailure) -> ApprovalPosted:
    """Interpret the answer to an approval's POST."""
    if isinstance(answer, TransportFailure):
        return ApprovalPosted(effect.event_id, "busy", 0, effect.grant)
    if answer.status == 200:
        return ApprovalPosted(effect.event_id, "accepted", 200, effect.grant)
    busy = answer.status in _BUSY or answer.status >= 500
    return ApprovalPosted(effect.event_id, "busy" if busy else "refused", answer.status, effect.grant)


def _excerpt(body: bytes) -> str:
    """Return the beginning of a refusal's text, on one line."""
    text = " ".join(body[:400].decode(errors="replace").split())
    return f": {text[:200]}" if text else ""
