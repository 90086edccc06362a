"""Broken fleets and agents. The checker must find what each leads to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final
from unittest.mock import patch

from shared.maintenance.agent.config.settings import AgentSettings
from shared.maintenance.agent.decisions import app_answers
from shared.maintenance.agent.decisions import approvals as agents
from shared.maintenance.agent.decisions.work import StepInProgress
from shared.maintenance.agent.model import EventRecord, NodeState, Now
from shared.maintenance.agent.observations import AppAnswer
from shared.maintenance.decisions import approvals
from shared.maintenance.rows import EventRow, FleetEvents, OtherNode
from shared.maintenance.rule_settings import MaintenanceSettings
from tests.model.checking.checker import Report, explore

from .plays import PLAYS
from .world import STRANGER, ApprovalWorld

_strangers, _known, _other, _lease = (
    approvals.strangers_reason,
    approvals.known_elsewhere,
    approvals.other_approver,
    approvals.lease_approval,
)
_answer, _turn = app_answers.apply_answer, agents.turn_reason


def _unknown_forgotten(event: EventRow, view: FleetEvents, settings: MaintenanceSettings) -> str | None:
    return _strangers(replace(event, resources=tuple(vm for vm in event.resources if vm != STRANGER)), view, settings)


def _not_left(record: EventRecord, node: NodeState, now: Now, settings: AgentSettings) -> str:
    return "" if node.app.others else _turn(record, node, now, settings)


def _agreed_though_held(events: Mapping[str, EventRow | None], scope: str) -> dict[str, OtherNode]:
    return _known({fleet: event and replace(event, hold=None) for fleet, event in events.items()}, scope)


def _any_answer_agrees(events: Mapping[str, EventRow | None], scope: str) -> dict[str, OtherNode]:
    return {vm: other._replace(agreed=True) for vm, other in _known(events, scope).items()}


def _no_end(work: StepInProgress, answer: AppAnswer) -> None:
    _answer(work, replace(answer, until=inf))


def _approved_is_not_told(event: EventRow, node: str, now: int) -> Any:
    other = _other(event, node, now)
    return None if other is not None and other.approved else other


def _lease_beside_turns(event: EventRow, *rest: Any) -> Any:
    made, leased = _lease(replace(event, turn=None, by_agent=None), *rest)
    return replace(made, turn=event.turn, by_agent=event.by_agent), leased


HOLES: Final[Mapping[str, tuple[Any, Mapping[str, Any]]]] = {
    "other fleets are not asked": (approvals, {"strangers_reason": lambda event, view, settings: None}),
    "a VM that nobody knows is forgotten": (approvals, {"strangers_reason": _unknown_forgotten}),
    "a fleet agrees before it is ready": (approvals, {"own_reason": lambda event, view, settings, now: None}),
    "a fleet that has not answered agrees": (approvals, {"known_elsewhere": _any_answer_agrees}),
    "a fleet that is held agrees": (approvals, {"known_elsewhere": _agreed_though_held}),
    "a fleet never agrees": (approvals, {"may_agree": lambda *_: False}),
    "nobody takes turns": (approvals, {"standing_turn": lambda event, now: None}),
    "a turn never ends": (approvals, {"standing_turn": lambda event, now: event.turn}),
    "an agent's turn never ends": (app_answers, {"apply_answer": _no_end}),
    "an agent does not leave an event to another": (agents, {"turn_reason": _not_left}),
    "nobody hears that it is approved": (approvals, {"other_approver": _approved_is_not_told}),
    "a leased approval does not heed turns": (approvals, {"lease_approval": _lease_beside_turns}),
    "an agent that hears of an approval waits on": (app_answers, {"note_approved": lambda work, event_id, node: None}),
}
"""Each hole by its name: the patched module, and its attributes."""


@dataclass(frozen=True)
class Mutant:
    """A hole, and the play in which it must be found."""

    name: str
    play: str


MUTANTS: Final = (
    Mutant("other fleets are not asked", "lost"),
    Mutant("a VM that nobody knows is forgotten", "stranger"),
    Mutant("a fleet agrees before it is ready", "lost"),
    Mutant("a fleet that has not answered agrees", "lost"),
    Mutant("a fleet that is held agrees", "stale"),
    Mutant("a fleet never agrees", "lost"),
    Mutant("nobody takes turns", "turns"),
    Mutant("a turn never ends", "at_once"),
    Mutant("an agent's turn never ends", "at_once"),
    Mutant("an agent does not leave an event to another", "at_once"),
    Mutant("nobody hears that it is approved", "at_once"),
    Mutant("a leased approval does not heed turns", "granted"),
    Mutant("an agent that hears of an approval waits on", "at_once"),
)


def hunt(mutant: Mutant, limit: int = 1_000_000) -> Report:
    """Explore the mutant's play with the hole in it."""
    module, holes = HOLES[mutant.name]
    with patch.multiple(module, **holes):
        return explore(ApprovalWorld(PLAYS[mutant.play](0)), limit=limit)
