"""Broken guards and agents. The checker must find what each leads to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final
from unittest.mock import patch

from shared.maintenance.agent.decisions import permission
from shared.maintenance.decisions import reservations
from shared.maintenance.rows import FleetEvents, GuardRow
from tests.model.checking.checker import Report, explore

from .plays import PLAYS
from .world import GuardWorld

_reserve = reservations.reserve


def _reserved_for_all(view: FleetEvents, settings: Any, now: int) -> GuardRow:
    return GuardRow({event.event_id: now for event in view.events.values() if event.open})


def _reserved_for_ever(view: FleetEvents, settings: Any, now: int) -> GuardRow:
    """Release nothing. What is reserved takes its fault domain also after its event."""
    kept = {event_id: replace(event, status="scheduled") for event_id, event in view.events.items() if event_id in view.guard.reserved}
    return _reserve(replace(view, events={**view.events, **kept}), settings, now)


HOLES: Final[Mapping[str, tuple[Any, Mapping[str, Any]]]] = {
    "two have reservations": (
        reservations,
        {"reserve": _reserved_for_all, "_earlier_reason": lambda event, view, settings: None},
    ),
    "a reservation is not kept": (reservations, {"_is_needed": lambda *_: False}),
    "a reservation is never released": (reservations, {"reserve": _reserved_for_ever, "_is_needed": lambda *_: True}),
    "a reservation is all it takes": (reservations, {"block_reason": lambda event, view, settings, now, begin: None}),
    "nobody is refused": (reservations, {"refusal": lambda event, view, settings, now: None}),
    "a refused node waits for ever": (permission, {"latest_start": lambda event, settings: 10**12}),
    "a lost answer is permission": (permission, {"_silent_at": lambda record, node, now, settings: 0 if node.app.away else inf}),
    "an event that was not answered is permitted": (permission, {"_silent_at": lambda record, node, now, settings: 0}),
    "a reservation is taken at any time": (reservations, {"YIELD_AHEAD": -(10**12)}),
    "an eviction waits for permission": (permission, {"LASTING": ()}),
}
"""Each hole by its name: the patched module, and its attributes."""


@dataclass(frozen=True)
class Mutant:
    """A hole, and the play in which it must be found."""

    name: str
    play: str


MUTANTS: Final = (
    Mutant("two have reservations", "lost"),
    Mutant("a reservation is not kept", "lost"),
    Mutant("a reservation is never released", "lost"),
    Mutant("a reservation is all it takes", "lost"),
    Mutant("nobody is refused", "lost"),
    Mutant("a refused node waits for ever", "lost"),
    Mutant("a lost answer is permission", "lost"),
    Mutant("an event that was not answered is permitted", "restarts"),
    Mutant("a reservation is taken at any time", "ahead"),
    Mutant("an eviction waits for permission", "evicted"),
)


def hunt(mutant: Mutant, limit: int = 1_000_000) -> Report:
    """Explore the mutant's play with the hole in it."""
    module, holes = HOLES[mutant.name]
    with patch.multiple(module, **holes):
        return explore(GuardWorld(PLAYS[mutant.play](0)), limit=limit)
