"""Plays with a facet that the service does not have (`tests.added_facet`): the core is that of production, and the table has one line more.

J1 to J3 hold at every instant, J4 once all shards are finished: whoever crashes between any two effects, and whichever answer is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shared.engine.effects import Steps, Write
from shared.scheduler.points import Facets, Filing
from shared.scheduler.properties.receipts import with_receipts
from shared.scheduler.protocol import changing, completing, owning
from shared.storage.names import EVENTS, SWEEPS
from shared.storage.ports import Applied, Upsert, WriteRefused
from tests.added_facet import JOURNAL, NOTED, Journal, added, broken, note_key, unfinished

from ..checking.checker import Report, Violation
from ..checking.checker import explore as explore_world
from ..checking.mutants import Mutant, Patch
from ..checking.state import Budget, Cell, Play, State, Store
from .actors import DUE
from .long_work import LONG_WORK_PLAYS
from .plays import A1, CANCELS_X, MOVES_X, PLAYS, REDRIVERS, WRITES_X, play
from .world import World


class AddedWorld(World):
    """The world of the shard protocol, with the journal's promises."""

    def _transact(self, state: State, who: str, write: Write) -> tuple[State, Applied | WriteRefused]:
        state, answer = super()._transact(state, who, write)
        if sentence := broken({cell: dict(props) for cell, _, props in state.store if props is not None}):
            raise Violation(sentence)
        return state, answer

    def _in_order(self, cells: dict[Cell, dict[str, Any]]) -> bool:
        if not super()._in_order(cells):
            return False
        if sentence := unfinished(cells):
            raise Violation(sentence)
        return True


def explore(model: Any, **options: Any) -> Report:
    """Explore a play with the journal in the table of facets."""
    with added(Journal()):
        return explore_world(model, **options)


def _filed(stored: Store, **header: Any) -> Store:
    """Return stored rows whose shard is in the journal."""
    return stored | {((SWEEPS, JOURNAL, A1.shard), 1, tuple(sorted({"bucket": "197001010000", **header}.items())))}


def _noted_dead(stored: Store) -> Store:
    """Return the rows of a finished shard whose dead event is noted."""
    rows = {cell: (version, dict(props or ())) for cell, version, props in _filed(stored, ended=True)}
    rows[EVENTS, A1.shard, A1.row][1].update({NOTED: "dead", "epoch": 1})
    rows[EVENTS, A1.shard, note_key(A1.row)] = 1, {"event": "x", "end": "dead"}
    return frozenset((cell, version, tuple(sorted(props.items()))) for cell, (version, props) in rows.items())


def _plays() -> dict[str, Callable[[int], Play]]:
    later = {"due": {"x": frozenset({DUE, 80_000})}, "times": (DUE, 80_000)}
    redriven, completed = PLAYS["redrive"](0).stored, LONG_WORK_PLAYS["work"]
    return {
        "facet": lambda level: play("facet", Budget(lost=1, crash=1, owners=1 + level), {**WRITES_X, **CANCELS_X}, times=(DUE,)),
        "facet and retry": lambda level: play("facet and retry", Budget(lost=level, crash=1, fail=1, owners=2), WRITES_X, **later),
        "facet and move": lambda level: play("facet and move", Budget(lost=level, crash=1, owners=2), {**WRITES_X, **MOVES_X}, **later),
        "facet and redrive": lambda level: play(
            "facet and redrive",
            Budget(lost=level, crash=1, owners=1),
            REDRIVERS,
            stored=_noted_dead(redriven),
            times=(DUE,),
            due={"x": frozenset({0})},
        ),
        "facet and long work": lambda level: _with(
            completed(level), name="facet and long work", budget=Budget(lost=level, crash=1, later=1, owners=2)
        ),
    }


def _with(given: Play, **changes: Any) -> Play:
    return replace(given, stored=_filed(given.stored), **changes)


ADDED_PLAYS = _plays()


def _nothing(*_: Any) -> Steps[None]:
    return
    yield


def never_filed() -> list[Patch]:
    return [(Journal, "before_store", _nothing)]


def not_filed_when_moved() -> list[Patch]:
    return [(Journal, "on_move", _nothing)]


def filed_anew() -> list[Patch]:
    """A repetition writes over what the end of the shard has written."""

    def on_move(self: Journal, filing: Filing, copies: Any) -> Steps[None]:
        while not isinstance((yield Write(SWEEPS, JOURNAL, (Upsert(filing.shard, {"bucket": filing.bucket}),))), Applied):
            pass

    return [(Journal, "on_move", on_move)]


def kept_by_copies() -> list[Patch]:
    return [(Journal, "own", property(lambda self: frozenset()))]


def settled_alone() -> list[Patch]:
    return [(owning, "ops_beside", lambda *_: [])]


def completed_alone() -> list[Patch]:
    plain = completing._changed
    return [(completing, "_changed", lambda row, change, beside=(): plain(row, change))]


def cancelled_alone() -> list[Patch]:
    return [(changing, "as_written", with_receipts)]


def tidied_alone() -> list[Patch]:
    """Whoever comes after a crash finishes the shard without its facets."""
    plain = owning.tidy
    return [(owning, "tidy", lambda shard, named, entry, facets, before=None: plain(shard, named, entry, Facets(), before))]


ADDED_MUTANTS = [
    Mutant("a shard filled before it is filed", "facet", never_filed),
    Mutant("a moved event's shard that is not filed", "facet and move", not_filed_when_moved),
    Mutant("a finished shard filed anew", "facet and move", filed_anew),
    Mutant("a property of the place kept by a copy", "facet and redrive", kept_by_copies),
    Mutant("an end settled without the rows beside it", "facet", settled_alone),
    Mutant("a completion without the rows beside it", "facet and long work", completed_alone),
    Mutant("a cancel that facets do not see", "facet", cancelled_alone),
    Mutant("a shard tidied without its facets", "facet", tidied_alone),
]


def hunt_added(mutant: Mutant) -> Report:
    """Hunt a mutant in its play: first at every instant, with the shortest trace; then once all shards are finished."""
    with mutant.applied():
        for recover in (False, True):
            world = AddedWorld(ADDED_PLAYS[mutant.play](0))
            world.recover = recover
            report = explore(world)
            if report.violation is not None:
                break
    return report
