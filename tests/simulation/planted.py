"""Known bugs, to be planted one at a time: a simulation that cannot find these proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from shared.core.clock import Millis
from shared.delivery.flow.rules import ClaimHold
from shared.delivery.flow.service import Flow
from shared.engine.effects import LOST, Get, Steps, Write
from shared.scheduler import keys, rules
from shared.scheduler.changes import verbs as changes
from shared.scheduler.firing import attempt, owner_tasks
from shared.scheduler.ingest import queue_consumer, shard_filler, writer
from shared.scheduler.outcomes import callbacks
from shared.scheduler.points import Facets, Filing
from shared.scheduler.properties.owed import done
from shared.scheduler.protocol import changing, dispatch, ingest, moving, owning
from shared.scheduler.rows import EventToStore, withdrawn
from shared.scheduler.shard import gate
from shared.storage.names import EVENTS, IDS, LEDGER, SHARDS
from shared.storage.ports import ANY, Applied, Delete, Insert, Merge, Props, Row, Upsert
from tests.model.checking.mutants import patched

_withdrawn = withdrawn
_call_back = callbacks.CallbackWriter.__call__
_add = owner_tasks.DueTimes.add
_step, _append, _agenda, _may_change, _merge_gate = owning.step, ingest.append, rules.agenda, rules.may_change, gate.merge_gate


def claims_not_written(
    session: owning.OwnerSession, outcomes: Mapping[str, rules.RowOutcome], claims: Sequence[str], *rest: Any
) -> Steps[bool]:
    """An owner that believes its claims without writing them."""
    if not (yield from _step(session, outcomes, (), *rest)):
        return False
    for rk in claims:
        row = session.rows[rk]
        if rules.needs_claim(row.props, session.epoch):
            session.rows[rk] = replace(row, props={**row.props, **rules.claim_props(row.props, session.epoch)})
    return True


def nothing_sealed(shard: str) -> Steps[None]:
    """Ids move on although the place they named is still open."""
    return
    yield


def lost_means_stored(opened: ingest.OpenShard, entries: Sequence[ingest.Entry]) -> Steps[ingest.Appended]:
    """A writer that takes silence for consent."""
    return (yield from _on_lost(opened, entries, {entry.row: "?" for entry in entries}))


def lost_means_refused(opened: ingest.OpenShard, entries: Sequence[ingest.Entry]) -> Steps[ingest.Appended]:
    """A writer that takes silence for refusal, without a fence."""
    return (yield from _on_lost(opened, entries, {}))


def _on_lost(opened: ingest.OpenShard, entries: Sequence[ingest.Entry], stored: dict[str, str]) -> Steps[ingest.Appended]:
    steps = _append(opened, entries)
    effect = next(steps)
    while True:
        answer = yield effect
        if answer is LOST:
            opened.lost = True
            return ingest.Appended(stored)
        try:
            effect = steps.send(answer)
        except StopIteration as stop:
            found: ingest.Appended = stop.value
            return found


def retries_forgotten(rows: dict[str, Props], *rest: Any) -> rules.Agenda:
    """An owner that finishes a shard whose open events all wait for a retry."""
    found = _agenda(rows, *rest)
    states = {props["state"] for props in rows.values() if props["state"] not in rules.FINAL}
    return found._replace(claim=[], finished=True, rest=None) if states == {"retrying"} else found


def firing_may_change(props: Mapping[str, Any]) -> Any:
    """A cancel that does not care whether the event is being delivered."""
    return "yes" if props["state"] == "firing" else _may_change(props)


def index_not_written(shard: str, wake: int, *, sent: bool) -> Steps[None]:
    """A shard that is filled without being filed."""
    return
    yield


def gate_unconditional(gate: Any, etag: str) -> Merge:
    """Transactions that write the gate without regard to its holder."""
    return _merge_gate(gate, ANY)


def claimed_unconditionally(rk: str, props: Props, etag: str) -> Merge:
    """Claims that do not look whether the event has changed."""
    return Merge(rk, props, ANY)


def moved_before_placed(shard: str, row: Any, facets: Facets) -> Steps[Any]:
    """A move that points to the copy before there is one."""
    due = int(row.props["target_due"])
    target = keys.Address(moving.target_shard(shard, f"move:{row.rk}", 0), row.rk)
    moved: Props = {"state": "moved", "target": target.text}
    while row.props["state"] in rules.GOING:
        answer = yield Write(EVENTS, shard, (Merge(row.rk, moved, row.etag),))
        if isinstance(answer, Applied):
            yield from moving.place(shard, f"move:{row.rk}", {row.rk: moving.copied(row.props, due, facets)}, due)
            yield from ingest.file_shard(target.shard, due, sent=False)
            return replace(row, props={**row.props, **moved}, etag=answer.etags[0])
        row = yield Get(EVENTS, shard, row.rk)
    return row


def id_overwritten(tenant: str, event_id: str, body_hash: str, here: keys.Address) -> Steps[Any]:
    """A creator that takes over an id without looking at its event."""
    claim = Upsert(keys.id_row_key(event_id), {"at": here.text, "hash": body_hash})
    while not isinstance((yield Write(IDS, keys.id_partition(tenant, event_id), (claim,))), Applied):
        pass
    return ingest.FreshId()


def refiled_in_two_steps(session: owning.OwnerSession, old: str, key: str, wake: int, *, retries_only: bool, sent: bool) -> Steps[None]:
    """A rest that removes the old index row before it writes the new one."""
    partition = keys.index_partition(session.shard)
    yield Write(SHARDS, partition, (Delete(old, ANY),))
    tenant = keys.shard_tenant(session.shard)
    props: Props = {"state": "resting", "wake": wake, "retries": retries_only, "bucket": session.held.gate.bucket, "tenant": tenant}
    yield Write(SHARDS, partition, (Insert(key, props),))


def index_before_ledger(filing: Filing, gate: Any, entry: Any, named: str, *_: Any) -> Steps[None]:
    """A finish that removes the index row before the ledger has the shard."""
    shard = filing.shard
    for key in sorted({named, gate.index} - {""}):
        yield Write(SHARDS, keys.index_partition(shard), (Delete(key, ANY),))
    props = {**entry, "shard": shard, **gate.counts._asdict()}
    yield Write(LEDGER, keys.shard_tenant(shard), (Upsert(f"{filing.bucket}:{shard}", props),))


def started_at_once(self: owner_tasks.DueTimes[Any], at: Millis, event: Any) -> None:
    """A delivery that does not wait for its time."""
    _add(self, 0, event)


async def nothing_held(self: Flow, *_: Any) -> dict[str, ClaimHold]:
    """Flow control that is never asked before events are claimed, nor before they are delivered."""
    return {}


async def always_valid(self: attempt.StartPermission) -> bool:
    """An owner that starts deliveries however long ago its last heartbeat was."""
    return not self.ended


def owners_never_silent(gate: Any, age: int) -> bool:
    """A takeover that never comes: dead owners keep their shards."""
    return gate.state in ("open", "resting")


def counts_added(session: owning.OwnerSession, changes: Mapping[str, Any]) -> Any:
    """Counts that are added to what the gate says, a former owner's numbers included."""
    before, gained = session.held.gate.counts, rules.tally(str(change["state"]) for change in changes.values())
    return gained._replace(accepted=before.accepted, **{name: getattr(before, name) + getattr(gained, name) for name in _ENDS})


def withdrawn_elsewhere(event_id: str, created: int, due: int, now: int, nonce: str) -> EventToStore:
    """A cancel of a queued event that does not take its id."""
    return replace(_withdrawn(event_id, created, due, now, nonce), id=None)


async def put_back_in_vain(self: queue_consumer.Intake, *_: Any) -> None:
    """Events that could not be stored do not come again."""


def finished_while_owed(rows: dict[str, Props], *rest: Any) -> rules.Agenda:
    """An owner that finishes or rests a shard although callbacks are owed."""
    return _agenda(rows, *rest[:-1])


async def noted_in_any_case(self: callbacks.CallbackWriter, rows: Sequence[Row]) -> dict[str, Props]:
    """Callbacks that count as stored although storage did not take them."""
    return {row.rk: done("lost") for row in rows} | await _call_back(self, rows)


_ENDS = ("delivered", "dead", "lapsed", "cancelled", "moved")
type Place = tuple[object, str]
PLANTED: dict[str, list[tuple[Place, Callable[..., Any]]]] = {
    "claims are not written": [((owning, "step"), claims_not_written)],
    "nothing is sealed": [((ingest, "seal"), nothing_sealed)],
    "a lost answer means stored": [((shard_filler, "append"), lost_means_stored)],
    "a lost answer means refused": [((shard_filler, "append"), lost_means_refused)],
    "retries are forgotten at the finish": [((rules, "agenda"), retries_forgotten)],
    "what is being delivered may be cancelled": [((changing, "may_change"), firing_may_change)],
    "shards are not filed": [((shard_filler, "file_shard"), index_not_written)],
    "the gate is written unconditionally": [((owning, "merge_gate"), gate_unconditional)],
    "claims are unconditional": [((owning, "Merge"), claimed_unconditionally)],
    "a move points before it copies": [((changing, "finish_move"), moved_before_placed), ((owning, "finish_move"), moved_before_placed)],
    "an id is taken over unseen": [((writer, "register_id"), id_overwritten)],
    "a rest is refiled in two steps": [((owning, "refile"), refiled_in_two_steps)],
    "the index row goes before the ledger": [((owning, "close"), index_before_ledger)],
    "deliveries do not wait": [((owner_tasks.DueTimes, "add"), started_at_once)],
    "pauses are not looked at": [
        ((Flow, "holds"), nothing_held),
        ((Flow, "blocks"), lambda self, target: False),
        ((Flow, "admits"), lambda self, target: True),
    ],
    "owners start without a beat": [((attempt.StartPermission, "wait_to_start"), always_valid)],
    "dead owners keep their shards": [((rules, "may_take"), owners_never_silent), ((dispatch, "may_take"), owners_never_silent)],
    "counts are added up": [((owning, "counted"), counts_added)],
    "a cancel does not take the id of a queued event": [((changes, "withdrawn"), withdrawn_elsewhere)],
    "shards are finished while callbacks are owed": [((rules, "agenda"), finished_while_owed)],
    "callbacks are noted before they are stored": [((callbacks.CallbackWriter, "__call__"), noted_in_any_case)],
    "events of the ingest queue do not come again": [((queue_consumer.Intake, "_put_back"), put_back_in_vain)],
}

STYLES = {"owners start without a beat": "frozen", "pauses are not looked at": "none"}
"""Bugs that show in one kind of trouble, and hardly elsewhere."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The app with the bug `name`."""
    with patched((where, attribute, bug) for (where, attribute), bug in PLANTED[name]):
        yield
