"""Mutants of the held row: each leaves out one sentence of `holding`."""

from __future__ import annotations

from typing import Any

from shared.engine.effects import Write
from shared.scheduler.protocol import holding, owning
from shared.storage.names import EVENTS, SWEEPS
from shared.storage.ports import Merge, Upsert

from ..checking.mutants import Mutant, Patch, relay


def noted_after_rest() -> list[Patch]:
    def rest_holding(session: owning.OwnerSession, wake: int, *, held: str, **options: Any) -> Any:
        rested = yield from owning.rest(session, wake, **options)
        yield from holding.note_held(session, held)
        return rested

    return [(holding, "rest_holding", rest_holding)]


def former_numbers_kept() -> list[Patch]:
    plain = holding.note_held

    def note_held(session: owning.OwnerSession, text: str) -> Any:
        return (yield from plain(session, text)) if text else True

    return [(holding, "note_held", note_held)]


def at_will(effect: Any) -> Any:
    """Let a write of rows of `TocsinSweeps` replace them, whatever they are."""
    if isinstance(effect, Write) and effect.table == SWEEPS:
        return effect._replace(ops=tuple(Upsert(op.rk, op.props) for op in effect.ops))
    return effect


def written_at_will() -> list[Patch]:
    """The row is written whatever it says, so a former owner overwrites what a later one has found."""
    plain = holding.note_held
    return [(holding, "note_held", lambda session, text: relay(plain(session, text), at_will))]


def unknown_to_the_gate() -> list[Patch]:
    """The gate does not say that the row is begun: the successor of an owner that has crashed leaves it as it is."""
    plain = holding.note_held

    def note_held(session: owning.OwnerSession, text: str) -> Any:
        def change(effect: Any) -> Any:
            if isinstance(effect, Write) and effect.table == EVENTS and len(effect.ops) == 1:
                [op] = effect.ops
                return effect._replace(ops=(Merge(op.rk, {key: value for key, value in op.props.items() if key != "held_row"}, op.etag),))
            return effect

        return relay(plain(session, text), change)

    return [(holding, "note_held", note_held)]


HELD_MUTANTS = [
    Mutant("a held row after the gate", "held", noted_after_rest),
    Mutant("events in a held row that are held no more", "held and failed", former_numbers_kept),
    Mutant("a held row written at will", "held and failed", written_at_will),
    Mutant("a held row that the gate does not name", "held and failed", unknown_to_the_gate),
]
