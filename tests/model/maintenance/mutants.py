"""Broken agents. Each leaves out one rule of the protocol; the checker, and random lives, must find what it leads to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

from shared.maintenance.agent import journal
from shared.maintenance.agent.decisions import app_answers, approvals, documents, event_rules, hook_runs, step
from shared.maintenance.agent.decisions.work import StepInProgress
from shared.maintenance.agent.imds import document
from shared.maintenance.agent.model import EventPhase, EventRecord, EventsDocument, UnreadableDocument
from shared.maintenance.agent.policy import Action
from tests.model.checking.checker import Report, explore

from .plays import PLAYS
from .world import AgentWorld

type Hole = tuple[Any, str, Any]
"""Each hole by its name: the patched object, the attribute, and its value."""

_read, _launch, _ended, _restore_ended = document.read, hook_runs._launch, hook_runs.apply_hook_end, hook_runs._restore_ended
_start, _blind, _look, _ready = documents.apply_start, documents.apply_poll_failure, documents.apply_document, approvals._ready
_strictest, _held, _away = event_rules.strictest, approvals.held, app_answers.apply_unreachable_app


def _nonsense_is_empty(body: bytes) -> EventsDocument | UnreadableDocument:
    found = _read(body)
    return EventsDocument(None, ()) if isinstance(found, UnreadableDocument) else found


def _part_is_whole(work: StepInProgress, found: EventsDocument) -> None:
    _look(work, replace(found, problems=()))


def _launch_unmarked(work: StepInProgress, *args: Any, **more: Any) -> None:
    before = work.node.disabled
    _launch(work, *args, **more)
    work.set(disabled=before)


def _ended_though_stopped(work: StepInProgress, end: Any) -> None:
    if work.node.run is not None:
        work.set(run=replace(work.node.run, stopping=False))
    _ended(work, end)


def _start_marked(marker: bool) -> Any:
    def start(work: StepInProgress, begun: Any) -> None:
        _start(work, replace(begun, marker=marker))

    return start


def _start_sighted(work: StepInProgress, begun: Any) -> None:
    _start(work, begun)
    work.set(sighted=True)


def _still_sighted(work: StepInProgress, reason: str) -> None:
    before = work.node.sighted
    _blind(work, reason)
    work.set(sighted=before)


def _failure_forgotten(work: StepInProgress, kind: Any, end: Any) -> None:
    if end.ok:
        _restore_ended(work, kind, end)
    else:
        work.set(restore=None, disabled=False)


def _ready_when_leased(work: StepInProgress, record: EventRecord) -> bool:
    return _ready(work, record) or (record.event.event_id in work.node.app.grants and record.phase is not EventPhase.STARTED)


def _ready_though_failed(work: StepInProgress, record: EventRecord) -> bool:
    return _ready(work, record) or record.phase is EventPhase.PREPARE_FAILED


def _held_by_holds_alone(work: StepInProgress, record: EventRecord) -> tuple[str, Any]:
    """Take an app that has not answered yet for one that agrees."""
    reason, grant = _held(work, record)
    return ("" if reason == approvals.ASKING else reason), grant


def _away_forgets_nothing(work: StepInProgress, reason: str) -> None:
    heard = work.node.app.heard
    _away(work, reason)
    work.set(app=replace(work.node.app, away=False, heard=heard))


def _number_alone(work: StepInProgress, found: EventsDocument) -> None:
    if found.incarnation is not None and found.incarnation == work.node.incarnation:
        work.set(document=found)
    _look(work, found)


def _not_held_undated(work: StepInProgress, record: EventRecord) -> tuple[str, Any]:
    reason, grant = _held(work, record)
    return ("" if reason == approvals.UNDATED else reason), grant


def _laxest(actions: Iterable[Action]) -> Action:
    return "approve" if "approve" in actions else _strictest(actions)


HOLES: Final[Mapping[str, Hole]] = {
    "approved while it waits": (approvals, "_ready", lambda work, record: True),
    "approved after a failed prepare": (approvals, "_ready", _ready_though_failed),
    "prepared before the boot is prepared": (StepInProgress, "is_prepared", lambda self, record: record.prepared_boot != ""),
    "nothing needs preparation": (StepInProgress, "needs", lambda self, record: False),
    "a lease is all it takes": (approvals, "_ready", _ready_when_leased),
    "a stopped hook believed": (hook_runs, "apply_hook_end", _ended_though_stopped),
    "taken out of service unmarked": (hook_runs, "_launch", _launch_unmarked),
    "our mark not believed": (documents, "apply_start", _start_marked(False)),
    "every lost state taken for our mark": (documents, "apply_start", _start_marked(True)),
    "a failed restore taken for one": (hook_runs, "_restore_ended", _failure_forgotten),
    "nonsense taken for no events": (document, "read", _nonsense_is_empty),
    "parts taken for the whole": (documents, "apply_document", _part_is_whole),
    "a failed look forgotten": (documents, "apply_poll_failure", _still_sighted),
    "no look after a start": (documents, "apply_start", _start_sighted),
    "put back beside another event": (hook_runs, "keeps_away", lambda work, record: False),
    "the end not heeded": (step, "StopRequested", step.Tick),
    "what the fleet asks forgotten": (journal, "_policy_in", lambda raw: None),
    "an app that is asked agrees": (approvals, "held", _held_by_holds_alone),
    "an answer counts after the app is gone": (app_answers, "apply_unreachable_app", _away_forgets_nothing),
    "the number of a document is all that counts": (documents, "apply_document", _number_alone),
    "an unreadable NotBefore is no reason to wait": (approvals, "held", _not_held_undated),
    "the laxer rule counts": (event_rules, "strictest", _laxest),
}


@dataclass(frozen=True)
class Mutant:
    """A hole, and the play in which it must be found."""

    name: str
    play: str


MUTANTS: Final = (
    Mutant("approved while it waits", "garbage"),
    Mutant("approved after a failed prepare", "crashes"),
    Mutant("prepared before the boot is prepared", "crashes"),
    Mutant("nothing needs preparation", "garbage"),
    Mutant("a lease is all it takes", "fleet"),
    Mutant("taken out of service unmarked", "crashes"),
    Mutant("our mark not believed", "drained"),
    Mutant("every lost state taken for our mark", "drained"),
    Mutant("a failed restore taken for one", "drained"),
    Mutant("parts taken for the whole", "garbage"),
    Mutant("a failed look forgotten", "garbage"),
    Mutant("no look after a start", "crashes"),
    Mutant("put back beside another event", "garbage"),
    Mutant("the end not heeded", "drained"),
    Mutant("what the fleet asks forgotten", "asked"),
    Mutant("the laxer rule counts", "asked"),
    Mutant("an app that is asked agrees", "together"),
    Mutant("an answer counts after the app is gone", "together"),
    Mutant("the number of a document is all that counts", "numbered"),
    Mutant("an unreadable NotBefore is no reason to wait", "undated"),
)


def hunt(mutant: Mutant, limit: int = 1_000_000) -> Report:
    """Explore the mutant's play with the hole in it."""
    with patch.object(*HOLES[mutant.name]):
        return explore(AgentWorld(PLAYS[mutant.play](0)), limit=limit)
