"""Carries the rules' effects out: each observation makes a new state, which is saved before anything follows from it.

Belongs to one thread. What takes time is done by `EffectExecutor` elsewhere, and comes back as the next observation.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from .config.settings import AgentSettings
from .decisions import step
from .dry_run import replace_effect
from .figures import AgentFigures
from .http_exchange import HttpAnswer, TransportFailure
from .imds.document import read
from .model import (
    AgentEffect,
    ApprovalPosted,
    Approve,
    DocumentRead,
    NodeState,
    Now,
    Observation,
    PollFailed,
    PollNow,
    RunHook,
    SendReport,
    SendResult,
    StopHook,
    UnreadableDocument,
    WriteLog,
)

log = logging.getLogger(__name__)

_LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING}
_BUSY: Final = (410, 429)


class StateStore(Protocol):
    """Keeps the state over crashes: `journal.Journal`."""

    def save(self, state: NodeState) -> bool:
        """Keep it; OSError where that failed."""


class NullJournal:
    """Keeps nothing: for dry runs."""

    def save(self, state: NodeState) -> bool:
        return False


class EffectExecutor(Protocol):
    """What acts on the world. No call waits for what it begins."""

    def run_hook(self, effect: RunHook) -> None:
        """Run a hook; exactly one HookEnded comes of it."""

    def stop_hook(self, run: int) -> None:
        """Stop it; its HookEnded still comes."""

    def approve(self, effect: Approve) -> None:
        """POST an approval; exactly one Posted comes of it."""

    def look(self) -> None:
        """Ask for the document now."""

    def report(self, state: NodeState) -> None:
        """Tell the app what has changed."""

    def result(self, effect: SendResult) -> None:
        """Tell the app how a leased approval went."""


class AgentLoop:
    """The agent's state, and what is done about each observation. wall: milliseconds since 1970; steady: seconds."""

    def __init__(
        self,
        settings: AgentSettings,
        state: NodeState,
        memory: StateStore,
        hands: EffectExecutor,
        figures: AgentFigures,
        *,
        wall: Callable[[], int],
        steady: Callable[[], float],
    ) -> None:
        self.settings, self.state = settings, state
        self._memory, self._hands, self._figures = memory, hands, figures
        self._wall, self._steady = wall, steady

    def now(self) -> Now:
        """This moment on both clocks."""
        return Now(self._wall(), self._steady())

    def observe(self, observation: Observation) -> None:
        """Decide and act. OSError where the new state could not be saved: then nothing was done, and the observation is to come again."""
        waiting = deque([observation])
        while waiting:
            after, effects = step.step(self.state, waiting[0], self.now(), self.settings)
            self._memory.save(after)
            waiting.popleft()
            self.state = after
            for effect in effects:
                if self.settings.dry_run and (instead := replace_effect(effect)) is not None:
                    self._say(instead.log)
                    if instead.observation is not None:
                        waiting.append(instead.observation)
                else:
                    self._carry_out(effect)
        self._count()

    def forget_time(self) -> None:
        """The next tick is the first one again: what went by was our own trouble, and no impact."""
        self.state = replace(self.state, ticked=None)

    def _carry_out(self, effect: AgentEffect) -> None:
        match effect:
            case RunHook():
                self._hands.run_hook(effect)
            case StopHook(run):
                self._hands.stop_hook(run)
            case Approve():
                self._hands.approve(effect)
            case PollNow():
                self._hands.look()
            case SendReport():
                self._hands.report(self.state)
            case SendResult():
                self._hands.result(effect)
            case WriteLog():
                self._say(effect)

    def _say(self, line: WriteLog) -> None:
        if line.level == "warning":
            self._figures.add("tocsin_agent_warnings_total", action=line.action)
        extra = {"action": line.action, "event_id": line.event_id, "fields": line.fields}
        log.log(_LEVELS[line.level], "%s", line.text, extra=extra)

    def _count(self) -> None:
        phases: dict[str, float] = {}
        for record in self.state.events.values():
            phases[record.phase] = phases.get(record.phase, 0) + 1
        self._figures.replace("tocsin_agent_events", "phase", phases)
        self._figures.put("tocsin_agent_node_disabled", int(self.state.disabled))


def interpret_poll(answer: HttpAnswer | TransportFailure) -> DocumentRead | PollFailed:
    """What the answer to a GET shows: only a 200 with a document in it shows anything."""
    if isinstance(answer, TransportFailure):
        return PollFailed(f"IMDS: {answer.reason}")
    if answer.status != 200:
        return PollFailed(f"IMDS answers {answer.status}{_words(answer.body)}")
    found = read(answer.body)
    return PollFailed(f"IMDS: {found.reason}") if isinstance(found, UnreadableDocument) else DocumentRead(found)


def interpret_approval(effect: Approve, answer: HttpAnswer | TransportFailure) -> ApprovalPosted:
    """What came of an approval's POST."""
    if isinstance(answer, TransportFailure):
        return ApprovalPosted(effect.event_id, "busy", 0, effect.grant)
    if answer.status == 200:
        return ApprovalPosted(effect.event_id, "accepted", 200, effect.grant)
    busy = answer.status in _BUSY or answer.status >= 500
    return ApprovalPosted(effect.event_id, "busy" if busy else "refused", answer.status, effect.grant)


def _words(body: bytes) -> str:
    """The beginning of what a refusal says, on one line."""
    text = " ".join(body[:400].decode(errors="replace").split())
    return f": {text[:200]}" if text else ""
