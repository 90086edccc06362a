"""Carries the rules' effects out: each observation makes a new state, which is saved before anything follows from it.

Belongs to one thread. What takes time is done by `Hands` elsewhere, and comes back as the next observation.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from .config.settings import Settings
from .decisions import step
from .dry_run import pretend
from .figures import Figures
from .http_exchange import Answer, Silence
from .imds.document import read
from .model import (
    Approve,
    Effect,
    Log,
    Look,
    NodeState,
    Nonsense,
    Now,
    Observation,
    Posted,
    Report,
    Result,
    RunHook,
    Seen,
    StopHook,
    Unseen,
)

log = logging.getLogger(__name__)

_LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING}
_BUSY: Final = (410, 429)


class Memory(Protocol):
    """Keeps the state over crashes: `journal.Journal`."""

    def save(self, state: NodeState) -> bool:
        """Keep it; OSError where that failed."""


class Forgetful:
    """Keeps nothing: for dry runs."""

    def save(self, state: NodeState) -> bool:
        return False


class Hands(Protocol):
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

    def result(self, effect: Result) -> None:
        """Tell the app how a leased approval went."""


class Loop:
    """The agent's state, and what is done about each observation. wall: milliseconds since 1970; steady: seconds."""

    def __init__(
        self,
        settings: Settings,
        state: NodeState,
        memory: Memory,
        hands: Hands,
        figures: Figures,
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
                if self.settings.dry_run and (instead := pretend(effect)) is not None:
                    self._say(instead.log)
                    if instead.observation is not None:
                        waiting.append(instead.observation)
                else:
                    self._carry_out(effect)
        self._count()

    def forget_time(self) -> None:
        """The next tick is the first one again: what went by was our own trouble, and no impact."""
        self.state = replace(self.state, ticked=None)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case RunHook():
                self._hands.run_hook(effect)
            case StopHook(run):
                self._hands.stop_hook(run)
            case Approve():
                self._hands.approve(effect)
            case Look():
                self._hands.look()
            case Report():
                self._hands.report(self.state)
            case Result():
                self._hands.result(effect)
            case Log():
                self._say(effect)

    def _say(self, line: Log) -> None:
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


def sight(answer: Answer | Silence) -> Seen | Unseen:
    """What the answer to a GET shows: only a 200 with a document in it shows anything."""
    if isinstance(answer, Silence):
        return Unseen(f"IMDS: {answer.reason}")
    if answer.status != 200:
        return Unseen(f"IMDS answers {answer.status}{_words(answer.body)}")
    found = read(answer.body)
    return Unseen(f"IMDS: {found.reason}") if isinstance(found, Nonsense) else Seen(found)


def posted(effect: Approve, answer: Answer | Silence) -> Posted:
    """What came of an approval's POST."""
    if isinstance(answer, Silence):
        return Posted(effect.event_id, "busy", 0, effect.grant)
    if answer.status == 200:
        return Posted(effect.event_id, "accepted", 200, effect.grant)
    busy = answer.status in _BUSY or answer.status >= 500
    return Posted(effect.event_id, "busy" if busy else "refused", answer.status, effect.grant)


def _words(body: bytes) -> str:
    """The beginning of what a refusal says, on one line."""
    text = " ".join(body[:400].decode(errors="replace").split())
    return f": {text[:200]}" if text else ""
