"""Mutants of user ends: each leaves out one sentence of `user_ends`."""

from __future__ import annotations

from typing import Any

from shared.engine.effects import get
from shared.scheduler.protocol import owning, user_ends
from shared.scheduler.shard import gate
from shared.storage.names import EVENTS

from ..checking.mutants import Mutant, Patch, relay
from . import end_plays
from .held_mutants import at_will


def ends_unnamed() -> list[Patch]:
    """The gate does not name the ends that its counts contain: with their note they count twice."""
    plain = owning.replace

    def without(value: Any, **change: Any) -> Any:
        return plain(value, **{**change, "user_ends": 0}) if isinstance(value, gate.Gate) else plain(value, **change)

    return [(owning, "replace", without)]


def named_before_counted() -> list[Patch]:
    """The gate names the ends of all events, also of those that its counts have as open."""
    plain = owning.replace

    def named(value: Any, **change: Any) -> Any:
        return plain(value, **{**change, "user_ends": 0b11}) if "user_ends" in change else plain(value, **change)

    return [(owning, "replace", named)]


def noted_before_the_end() -> list[Patch]:
    """The note is stored first, and the cancel may be refused."""

    def changer(name: str, *changes: Any) -> Any:
        note: user_ends.EndsNote | None = None
        for _, address, state in changes:
            row = yield from get(EVENTS, address.shard, address.row)
            assert row is not None
            note = note or user_ends.new_note(row.pk, row.rk)
            note.ends = note.ends.joined(user_ends.end_of(row.rk, state, row.props))
            yield from user_ends.store_notes(user_ends.partition_of(row.pk), [note])
            yield from end_plays.changing.cancel(address, 0, name)
        return ()

    return [(end_plays, "changer", changer)]


def noted_at_will() -> list[Patch]:
    """The row is written without its ETag: a delayed request takes the second event away."""
    plain = user_ends.store_notes
    return [(user_ends, "store_notes", lambda partition, notes: relay(plain(partition, notes), at_will))]


def numbers_for_events() -> list[Patch]:
    """Ends of retries leave the number of retries as it is."""
    plain = user_ends.end_of
    return [(user_ends, "end_of", lambda rk, state, props: plain(rk, state, props)._replace(retried=0))]


def left_is_where_it_stands() -> list[Patch]:
    """The place that is noted as left is the one to which the event has moved."""
    plain = end_plays.changing.move

    def move(*given: Any, **options: Any) -> Any:
        answer = yield from plain(*given, **options)
        return answer._replace(left=answer.row) if isinstance(answer, end_plays.changing.Done) else answer

    return [(end_plays.changing, "move", move)]


END_MUTANTS = [
    Mutant("counted ends that the gate does not name", "ends", ends_unnamed),
    Mutant("ends named by the gate before they are counted", "ends", named_before_counted),
    Mutant("an end noted before it is made", "ends", noted_before_the_end),
    Mutant("a note written at will", "ends", noted_at_will),
    Mutant("a cancelled retry that stays a retry", "ends of retries", numbers_for_events),
    Mutant("a moved event noted at its new place", "ends and move", left_is_where_it_stands),
]
