"""Plays of callbacks: the transaction that ends an event notes that its callback is owed, and an owner stores the callback afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.scheduler.keys import index_key, index_partition
from shared.scheduler.properties.owed import callbacks_props
from shared.scheduler.shard import gate
from shared.storage.names import EVENTS, SHARDS

from ..checking.state import Budget, Play
from .actors import CHANNEL, DUE, TENANT
from .express import express_owner
from .plays import A1, always, play

TOLD = {"x": frozenset({DUE}), **{f"k-x{owner}": frozenset({DUE}) for owner in ("", "-a", "-o1", "-o2", "-o3")}}
"""The callback may be delivered as soon as the event has ended."""


def _ending_shard() -> frozenset[Any]:
    """A resting shard with one event that has failed twice, dies if it fails again, and names both callbacks."""
    index = {"state": "resting", "wake": 0, "bucket": "197001010000", "tenant": TENANT}
    held = gate.Gate("resting", "o0", 1, 1, index_key(A1.shard, 0), "197001010000", gate.Counts(1))
    row = {"id": "x", "state": "scheduled", "due": DUE, "tries": 2, "failed": 2, "channel": CHANNEL, **callbacks_props("c", "c")}
    return frozenset(
        {
            ((EVENTS, A1.shard, "gate"), 1, tuple(sorted(held.props().items()))),
            ((EVENTS, A1.shard, A1.row), 1, tuple(sorted(row.items()))),
            ((SHARDS, index_partition(A1.shard), index_key(A1.shard, 0)), 1, tuple(sorted(index.items()))),
        }
    )


def _plays() -> dict[str, Callable[[int], Play]]:
    return {
        # An owner crashes at each step between the settlement and the note that the callback is stored, and another one follows.
        "callbacks": lambda level: play(
            "callbacks",
            Budget(lost=1, crash=1, fail=1, owners=2 + level),
            {},
            stored=_ending_shard(),
            times=(DUE,),
            due=TOLD,
        ),
        # Two owners at once: the first is taken for dead while it stores the callback, and comes back.
        "callbacks of two owners": lambda level: play(
            "callbacks of two owners",
            Budget(lost=level, crash=level, suspect=1, owners=2),
            {},
            stored=_ending_shard(),
            times=(DUE,),
            due=TOLD,
        ),
        # An event whose creator delivers it, and stores its callback before it finishes the shard.
        "express callbacks": lambda level: play(
            "express callbacks",
            Budget(lost=level, crash=1, fail=level, owners=2),
            {"a": ("owner", lambda: express_owner("a", "x", calls=True), always)},
            times=(DUE,),
            due=TOLD,
        ),
    }


CALLBACK_PLAYS = _plays()
