"""Long work: a receiver completes, fails or extends the event that it has accepted.

Like a cancel, this is one conditional write of the event's row, on the ETag of the row that the decision was made from. An owner that
settles the receiver's silence carries that ETag too, so exactly one of them succeeds. The row must still have the work of this very
attempt, so a receiver that is late, or whose attempt was superseded, changes nothing.

Before the row is written, whatever must find its new state is stored: the state row of a dead event, and an index row if an owner is needed
before the shard's wake-up, for a retry or for a callback. A crash in between leaves a row that leads to nothing, or an owner that comes and
rests again. The gate is not written: its counts show the change when the next owner comes, as they do after a cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from ...core.clock import Millis
from ...engine.effects import Steps, get, write
from ...storage.names import EVENTS, SHARDS
from ...storage.ports import Applied, Insert, Merge, Op, Props, Row
from ..facets import FACETS
from ..facets.long_work import HeldToken, WorkState, state_of
from ..keys import Address, index_key, index_partition, shard_tenant
from ..points import Facets, Filing
from ..rules import FINAL, RowOutcome, due_at, tally
from ..shard.gate import parse_gate, read_gate

type Decide = Callable[[Props], RowOutcome]


class WorkSettled(NamedTuple):
    """The state of an attempt's work after a call about it. row: the event at the place of the attempt. changed: by this call."""

    row: Row
    state: WorkState
    changed: bool = False


def settle_work(address: Address, token: HeldToken, now: Millis, decide: Decide, facets: Facets) -> Steps[WorkSettled | None]:
    """Settle the work with the outcome that `decide` returns for the row; None if the event is no longer stored.

    A repetition, also by another process, finds the work ended and changes nothing.
    """
    while True:
        row = yield from get(EVENTS, address.shard, address.row)
        if row is None:
            return None
        state = state_of(row.props, token)
        if state != "working":
            return WorkSettled(row, state)
        outcome = decide(row.props)
        change: Props = {"state": outcome.state, **outcome.props, **facets.marks(row.props, outcome)}
        beside = facets.beside(row, outcome, change)
        yield from _prepare(row, outcome, now if facets.owes({**row.props, **change}) else None, facets)
        settled = yield from _changed(row, change, beside)
        if settled is not None:
            return WorkSettled(settled, state_of(settled.props, token), changed=True)


def extend_work(address: Address, token: HeldToken, change_of: Callable[[Props], Props]) -> Steps[WorkSettled | None]:
    """Give the work more time; None if the event is no longer stored. change_of: returns the row's change, empty for none."""
    while True:
        row = yield from get(EVENTS, address.shard, address.row)
        if row is None:
            return None
        state = state_of(row.props, token)
        change = change_of(row.props) if state == "working" else {}
        if not change:
            return WorkSettled(row, state)
        settled = yield from _changed(row, change)
        if settled is not None:
            return WorkSettled(settled, state, changed=True)


def _changed(row: Row, change: Props, beside: Collection[Op] = ()) -> Steps[Row | None]:
    """Merge a change on the row's ETag, with the operations that go with it; None if it is refused or lost. Then the row is read again: it
    shows what became of it."""
    answer = yield from write(EVENTS, row.pk, Merge(row.rk, {**change, **FACETS.touched(row.props)}, row.etag), *beside)
    if not isinstance(answer, Applied):
        return None
    return Row(row.pk, row.rk, {**row.props, **change}, answer.etags[0], row.timestamp, row.read_at)


def _prepare(row: Row, outcome: RowOutcome, needed: Millis | None, facets: Facets) -> Steps[None]:
    """Store what must find the event in its new state. needed: time from which an owner is needed for what is left to do after its end."""
    wake = int(outcome.props["next"]) if outcome.state == "retrying" else needed
    if wake is not None and wake >= due_at(row.props):
        wake = None
    if outcome.state != "dead" and wake is None:
        return
    gate = yield from read_gate(row.pk)
    bucket = parse_gate(gate.props).bucket if gate is not None else ""
    if outcome.state in FINAL:
        # A retry is in the state that the event already has.
        yield from facets.before_settle(Filing(row.pk, bucket, {}), tally((outcome.state,)))
    if wake is not None:
        yield from wake_by(row.pk, wake, bucket)


def wake_by(shard: str, wake: Millis, bucket: str) -> Steps[None]:
    """Make sure that the index asks for a resting shard by `wake`, which is before its wake-up. bucket: the minute it was opened for.

    The row is a second one, beside that of the shard's wake-up. Its owner removes it when the shard rests again or is finished.
    """
    partition, key = index_partition(shard), index_key(shard, wake)
    props: Props = {"state": "pending", "wake": wake, "retries": True, "bucket": bucket, "tenant": shard_tenant(shard)}
    while True:
        present = yield from get(SHARDS, partition, key)
        if present is not None and int(present.props["wake"]) <= wake:
            return
        if present is None:
            answer = yield from write(SHARDS, partition, Insert(key, props))
        else:
            # The wake-up is in the same minute. What the row says of counts belongs to its former wake-up, and counts no more.
            answer = yield from write(SHARDS, partition, Merge(key, {"state": "pending", "wake": wake}, present.etag))
        if isinstance(answer, Applied):
            return
