"""Writing the held row of a shard (`finding.held`), by its owner.

    gate: begun ─► insert the row ─► gate: resting, epoch and digest ─► (taken; other numbers) replace the row ─► ... ─► done ─► remove it

The gate says that there is a row before there is one, so the shard of events that were never held has none, and needs no look for it. At
rest the gate names the row's digest: a shard that waits, and looks again, writes the row only if its numbers have changed.

The row is written on its ETag and names its writer's epoch, so a former owner never overwrites what a later one found. Until the shard is
finished it is emptied and not removed: a delayed insert would otherwise bring former numbers back. The finisher removes it.
"""

from __future__ import annotations

from dataclasses import replace

from ...core.clock import Millis
from ...engine.effects import Steps, get, write
from ...storage.names import EVENTS, SWEEPS
from ...storage.ports import Applied, Insert, Op, Replace
from ..facets.finding import BEGUN, HELD, STATE_ROWS, digest_of, held_props, key_of, partition_of
from ..shard.gate import HeldGate, merge_gate
from .owning import OwnerSession, refence, rest


def rest_holding(session: OwnerSession, wake: Millis, *, retries_only: bool, sent: bool, held: str | None) -> Steps[bool]:
    """Release the shard (`owning.rest`) after its held row has these numbers. held: None if this owner has not asked for holds."""
    if held is not None and not (yield from note_held(session, held)):
        return False
    return (yield from rest(session, wake, retries_only=retries_only, sent=sent))


def note_held(session: OwnerSession, text: str) -> Steps[bool]:
    """Make sure that the shard's held row has these numbers (`held_numbers`). Return False if another owner has the shard."""
    known = digest_of(text)
    if session.known.get(HELD) == known:
        return True
    fresh = session.held.gate.beside is None
    while session.held.gate.beside is None:
        gate = replace(session.held.gate, beside=BEGUN)
        answer = yield from write(EVENTS, session.shard, merge_gate(gate, session.held.etag))
        if isinstance(answer, Applied):
            session.held = HeldGate(gate, answer.etags[0])
        elif not (yield from refence(session, answer)):
            return False
    key, partition = key_of(HELD, session.shard), partition_of(STATE_ROWS, session.shard)
    props = held_props(text, session.bucket, session.epoch)
    while True:
        found = None if fresh else (yield from get(SWEEPS, partition, key))
        fresh = False
        # A later owner has written it; or the epochs of a mirrored shard began anew from its copy, which the gate shows.
        if found is not None and int(found.props["epoch"]) > session.epoch and not (yield from refence(session)):
            return False
        # Also without numbers, so that a former owner's insert that is still under way is refused.
        op: Op = Insert(key, props) if found is None else Replace(key, props, found.etag)
        if isinstance((yield from write(SWEEPS, partition, op)), Applied):
            session.known[HELD] = known
            return True
