"""Broken express delivery: each mutant leaves out one rule of the protocol."""

from __future__ import annotations

from typing import Any

from shared.engine.effects import LOST, Write
from shared.scheduler.keys import GATE
from shared.scheduler.protocol import express, ingest, owning
from shared.storage.ports import Applied, Insert, Merge

from ..checking.mutants import Mutant, Patch, relay


def events_before_index() -> list[Patch]:
    plain_first, plain_file = express.store_first, ingest.file_shard

    def file_shard(shard: str, wake: int, *, sent: bool) -> Any:
        return
        yield

    def store_first(session: owning.OwnerSession, entries: Any) -> Any:
        serving = yield from plain_first(session, entries)
        yield from plain_file(session.shard, 0, sent=True)
        return serving

    return [(ingest, "file_shard", file_shard), (express, "store_first", store_first)]


def named_event_sent_again() -> list[Patch]:
    plain = express.store_first

    def store_first(session: owning.OwnerSession, entries: Any) -> Any:
        serving = yield from plain(session, entries)
        if serving and any(entry.row not in session.rows for entry in entries):
            serving = yield from owning.step(session, {}, [], entries)
        return serving

    return [(express, "store_first", store_first)]


def lost_first_taken_as_stored() -> list[Patch]:
    plain = express.store_first

    def store_first(session: owning.OwnerSession, entries: Any) -> Any:
        def revise(effect: Any, answer: Any) -> Any:
            return Applied(["1"] * len(effect.ops)) if answer is LOST and isinstance(effect, Write) else answer

        return relay(plain(session, entries), revise=revise)

    return [(express, "store_first", store_first)]


def added_without_gate() -> list[Patch]:
    plain = owning.step

    def step(session: owning.OwnerSession, outcomes: Any, claims: Any, entries: Any = ()) -> Any:
        def change(effect: Any) -> Any:
            if isinstance(effect, Write) and any(isinstance(op, Insert) for op in effect.ops):
                return Write(effect.table, effect.pk, tuple(op for op in effect.ops if op.rk != GATE or not isinstance(op, Merge)))
            return effect

        def revise(effect: Any, answer: Any) -> Any:
            added = isinstance(effect, Write) and any(isinstance(op, Insert) for op in effect.ops)
            return Applied([session.held.etag, *answer.etags]) if added and isinstance(answer, Applied) else answer

        return relay(plain(session, outcomes, claims, entries), change, revise)

    return [(owning, "step", step)]


EXPRESS_MUTANTS = [
    Mutant("express events stored before their index row", "express", events_before_index, strands=True),
    Mutant("an express event with an id row sent again", "express creators", named_event_sent_again),
    Mutant("a lost first transaction of an express shard taken as stored", "express", lost_first_taken_as_stored),
    Mutant("an event added to an express shard without its gate", "express group", added_without_gate),
]
