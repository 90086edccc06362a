"""Plays of user ends: processes cancel and move events and note it, while owners claim, settle, rest and finish."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.engine.effects import Get
from shared.scheduler.facets.finding import STATE_ROWS, key_of, partition_of
from shared.scheduler.keys import Address, event_row, index_key, index_partition
from shared.scheduler.protocol import changing, user_ends
from shared.scheduler.shard import gate
from shared.storage.names import EVENTS, SHARDS, SWEEPS

from ..checking.state import Budget, Play, Told
from .actors import CHANNEL, DUE, TENANT
from .plays import A1, Starts, after, always, play

A2 = Address(A1.shard, event_row(1))
NEXT = 80_000


def changer(name: str, *changes: tuple[str, Address, str]) -> Any:
    """`changes.verbs` and `end_notes`: a process cancels or moves events of the shard, one after the other, and notes each.

    changes: the event, its place, and `cancelled` or `moved`.
    """
    note: user_ends.EndsNote | None = None
    for event, address, state in changes:
        if state == "cancelled":
            answer = yield from changing.cancel(address, 0, name)
            row = answer.row if isinstance(answer, changing.Done) else None
        else:
            answer = yield from changing.move(address, NEXT, {}, name)
            row = answer.left if isinstance(answer, changing.Done) else None
        if isinstance(answer, changing.Done):
            yield Told(((state, event if state == "cancelled" else (event, NEXT)),))
        if row is None:
            continue
        note = note or user_ends.new_note(row.pk, row.rk)
        note.ends = note.ends.joined(user_ends.end_of(row.rk, state, row.props))
        yield from user_ends.store_notes(user_ends.partition_of(row.pk), [note])
        yield Told((("counted", (row.pk, row.rk)),))
    return ()


def _stored() -> Any:
    """Return the holder of a shard whose writer has stored its events and left."""
    yield Get(EVENTS, A1.shard, A1.row)
    return (("stored", "x"), ("stored", "y"))


def _shard(*, retrying: bool = False) -> frozenset[Any]:
    """A resting shard with two events that are due, or that wait for their second attempt."""
    index = {"state": "resting", "wake": 0, "bucket": "197001010000", "tenant": TENANT}
    counts = gate.Counts(2, retrying=2 if retrying else 0)
    held = gate.Gate("resting", "o0", 1, 1, index_key(A1.shard, 0), "197001010000", counts)
    cells: list[Any] = [
        ((EVENTS, A1.shard, "gate"), 1, tuple(sorted(held.props().items()))),
        ((SHARDS, index_partition(A1.shard), index_key(A1.shard, 0)), 1, tuple(sorted(index.items()))),
    ]
    for event, place in (("x", A1), ("y", A2)):
        row = {"id": event, "state": "scheduled", "due": DUE, "created": 0, "channel": CHANNEL}
        if retrying:
            row |= {"state": "retrying", "tries": 1, "next": DUE, "epoch": 1}
        cells.append(((EVENTS, place.shard, place.row), 1, tuple(sorted(row.items()))))
    if retrying:
        cells.append(((SWEEPS, partition_of(STATE_ROWS, A1.shard), key_of("retrying", A1.shard)), 1, (("bucket", "197001010000"),)))
    return frozenset(cells)


def _play(name: str, budget: Budget, starts: Starts, *, retrying: bool = False, **options: Any) -> Play:
    stored: Starts = {"a": ("user", _stored, always)}
    both = frozenset({DUE, NEXT})
    return play(
        name,
        budget,
        stored | starts,
        stored=_shard(retrying=retrying),
        times=(DUE, NEXT),
        due={"x": both, "y": both},
        ends=True,
        **options,
    )


def _cancels(name: str, *changes: tuple[str, Address, str]) -> Starts:
    return {name: ("writer", lambda: changer(name, *changes), after(("stored", "x")))}


X, Y = ("x", A1, "cancelled"), ("y", A2, "cancelled")


def _plays() -> dict[str, Callable[[int], Play]]:
    return {
        # A process cancels both events, and notes each in one row, while an owner takes the shard, fails to deliver, and rests.
        "ends": lambda level: _play("ends", Budget(lost=1, crash=level, fail=1, owners=1 + level), _cancels("c", X, Y)),
        # It ends between a cancel and its note: the next owner counts it, and a later note of another event adds to that.
        "ends lost": lambda level: _play(
            "ends lost", Budget(crash=1, lost=level, fail=1, owners=2), {**_cancels("c", X), **_cancels("d", Y)}
        ),
        # Two processes note the same shard; one of them moves its event.
        "ends and move": lambda level: _play(
            "ends and move", Budget(lost=1, crash=level, owners=1), {**_cancels("c", X), **_cancels("m", ("y", A2, "moved"))}
        ),
        # Events that wait for another attempt: what is cancelled waits no more.
        "ends of retries": lambda level: _play(
            "ends of retries", Budget(lost=1, crash=level, fail=1, owners=1 + level), _cancels("c", X, Y), retrying=True
        ),
    }


END_PLAYS = _plays()
