"""Owning a shard: take, load, claim and settle, rest, finish.

An `OwnerSession` is one owner's view. Only these functions change it, and only to what the store has confirmed. Each returns False as
soon as the store shows that another owner has the shard; the session is then ended, and its owner starts nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from ...core.clock import Millis
from ...engine import effects
from ...engine.effects import Lost, Steps, Written, get, write
from ...storage.names import EVENTS, LEDGER, SHARDS
from ...storage.ports import ANY, Applied, Delete, Insert, Merge, Op, Props, Row, WriteRefused
from .. import rules, timings
from ..keys import END_EVENTS, FIRST_EVENT, GATE, NEWS, index_key, index_partition, shard_tenant
from ..points import Facets, Filing, Known
from ..shard.gate import Counts, Gate, HeldGate, fence, merge_gate, parse_gate, read_gate
from .ingest import Entry, counts_props
from .moving import finish_move, note_redriven, point_sources
from .owned_rows import OwnedRows

MAX_CHANGES = 99
"""Rows in one transaction beside the gate, which is the hundredth: event rows, and rows with answers."""


@dataclass(slots=True)
class OwnerSession:
    """One owner's view of a shard that it has taken."""

    shard: str
    owner: str
    held: HeldGate
    named: str
    """Row key of the index row that the message named."""
    facets: Facets
    rows: OwnedRows = field(default_factory=OwnedRows)
    known: Known = field(default_factory=dict)
    """The rows that make the shard findable, as far as this owner knows them."""
    lost_at: Millis | None = None
    """Storage's time of the previous owner's last write of the gate, if that owner disappeared without releasing the shard."""

    @property
    def succeeds_lost(self) -> bool:
        """Return True if the owner before this one disappeared."""
        return self.lost_at is not None

    @property
    def epoch(self) -> int:
        return self.held.gate.epoch

    @property
    def bucket(self) -> str:
        """The minute for which the shard was opened."""
        return self.held.gate.bucket or bucket_of(self.named)

    @property
    def filing(self) -> Filing:
        """The shard, as facets look after it."""
        return Filing(self.shard, self.bucket, self.known)

    @property
    def owed(self) -> list[str]:
        """The ended events for which something is left to do."""
        return self.rows.owed(self.facets.owes)


class ShardBusy(NamedTuple):
    """Another owner has the shard and is alive. wait: milliseconds after which its gate would be old enough to be taken."""

    wait: Millis


type TakeResult = OwnerSession | ShardBusy | Literal["done", "gone"]


def take(
    shard: str, named: str, owner: str, facets: Facets, seen: Row | None = None, stopped: Millis = 0, *, process: str = "", ended: str = ""
) -> Steps[TakeResult]:
    """Become the owner with epoch + 1. `done`: finished, its index row may remain. `gone`: no gate and no index row, nothing to do.

    seen: the gate, if it was just read; the store refuses the write if that was too long ago. stopped: an owner that last wrote the gate
    before this time, by the store's time, is known to have stopped. process: identity of this process, for the gate. ended: name of an
    owner that is proven to have ended. It is a name and not a yes: by now another owner may have the shard.
    """
    runs_in = f"{owner} {process}" if process else None
    while True:
        row = seen if seen is not None else (yield from read_gate(shard))
        seen = None
        if row is None:
            index = yield from get(SHARDS, index_partition(shard), named)
            if index is None:
                return "gone"
            # Filed but never filled: taking the absent gate excludes the writer's first batch.
            mine = Gate("owned", owner, epoch=1, index=named, bucket=bucket_of(named), process=runs_in)
            answer = yield from write(EVENTS, shard, Insert(GATE, mine.props()))
            if isinstance(answer, Applied):
                return OwnerSession(shard, owner, HeldGate(mine, answer.etags[0]), named, facets, known=facets.recall(mine))
            continue
        gate = parse_gate(row.props)
        if gate.holder == owner and gate.state == "owned":
            # This owner's own lost answer. Its other writes that are still in flight carry an older ETag.
            return OwnerSession(shard, owner, HeldGate(gate, row.etag), named, facets, known=facets.recall(gate))
        if gate.state == "done":
            return "done"
        age = row.read_at - row.timestamp
        if not rules.may_take(gate, age) and row.timestamp >= stopped and gate.holder != ended:
            return ShardBusy(timings.OWNER_SILENT - age)
        mine = replace(gate, state="owned", holder=owner, epoch=gate.epoch + 1, process=runs_in)
        answer = yield from write(EVENTS, shard, merge_gate(mine, row.etag))
        if isinstance(answer, Applied):
            lost_at = row.timestamp if gate.state == "owned" else None
            held, known = HeldGate(mine, answer.etags[0]), facets.recall(gate)
            return OwnerSession(shard, owner, held, named, facets, known=known, lost_at=lost_at)


def load(session: OwnerSession) -> Steps[bool]:
    """Read every row, finish interrupted moves and redrives, and count again."""
    rows = yield from effects.load(EVENTS, session.shard, FIRST_EVENT, END_EVENTS)
    session.rows = OwnedRows(rows)
    for row in rows:
        if row.props["state"] in rules.GOING:
            session.rows[row.rk] = yield from finish_move(session.shard, row, session.facets)
    for source in sorted((yield from point_sources(session.shard, session.rows, session.facets))):
        yield from note_of(source)
    return True


def refence(session: OwnerSession, answer: Written | None = None) -> Steps[bool]:
    """After a lost or refused answer, fence and then read everything again. Nothing is decided before that.

    answer: the answer to a transaction that this session has sent. If it is lost, and the fence shows that the transaction was not applied,
    the rows are as this session knows them, or users have changed them, which the store says when such a row is written: they are not read.
    Storage that refuses requests would be asked for the whole shard each time otherwise.
    """
    held = yield from fence(session.shard, session.held, session.held.gate)
    if held is None or held.gate.epoch != session.epoch:
        return False
    session.held = HeldGate(held.gate, held.etag)
    if held.untouched and isinstance(answer, Lost):
        return True
    return (yield from load(session))


def step(
    session: OwnerSession, outcomes: Mapping[str, rules.RowOutcome], claims: Iterable[str], entries: Sequence[Entry] = ()
) -> Steps[bool]:
    """Run one transaction: settle `outcomes`, claim `claims`, add `entries` as claimed, send a heartbeat. At most `MAX_CHANGES` rows.

    After True each outcome is settled and each entry is stored. A claim is stored for those of `claims` whose row is now `firing` under
    this session's epoch. Others were cancelled or moved in between, as `session.rows` shows, or were left for the next step; the earliest
    is never left. entries: events that no id row names (`express`). After False, `session.rows` shows which of them are stored.
    """
    pending, wanted = dict(outcomes), list(claims)
    refusals = 0
    yield from session.facets.before_store(session.filing, [entry.props for entry in entries])
    while True:
        changes = plan(session, pending, wanted)
        beside = ops_beside(session, pending, changes)
        fresh = [entry for entry in entries if entry.row not in session.rows]
        counts = counted(session, changes)
        yield from session.facets.before_settle(session.filing, counts)
        counts = counts._replace(accepted=counts.accepted + len(fresh))
        gate = replace(session.held.gate, state="owned", counts=counts, user_ends=session.rows.user_ends)
        if fresh:
            gate = replace(gate, bytes=gate.bytes + sum(entry.size for entry in fresh))
        ops: list[Op] = [merge_gate(gate, session.held.etag)]
        ops += [Merge(rk, change, session.rows[rk].etag) for rk, change in changes.items()]
        ops += [Insert(entry.row, claimed_props(session, entry)) for entry in fresh]
        ops += beside
        answer = yield from write(EVENTS, session.shard, *ops)
        if isinstance(answer, Applied):
            session.held = HeldGate(gate, answer.etags[0])
            for (rk, change), etag in zip(changes.items(), answer.etags[1:], strict=False):
                session.rows[rk] = changed(session.rows[rk], change, etag)
            add_rows(session, fresh, answer.etags[1 + len(changes) : 1 + len(changes) + len(fresh)])
            return True
        if isinstance(answer, WriteRefused) and 0 < answer.at <= len(changes):
            refusals += 1
            if refusals > 1:
                # Users keep changing rows at the same time: read all of them at once and claim fewer, otherwise none would ever be claimed.
                yield from load(session)
                wanted = wanted[: (len(wanted) + 1) // 2]
                continue
            rk = list(changes)[answer.at - 1]
            row = yield from get(EVENTS, session.shard, rk)
            if row is not None and row.props["state"] in rules.GOING:
                row = yield from finish_move(session.shard, row, session.facets)
            if row is not None and row.etag != session.rows[rk].etag:
                session.rows[rk] = row
                continue
        if not (yield from refence(session, answer)):
            if entries:
                # Another owner has the gate, so no transaction of this session can be applied any more.
                yield from read_rows(session)
            return False


def claimed_props(session: OwnerSession, entry: Entry) -> Props:
    """Return the properties of an event that its owner stores: it is claimed from the start."""
    return {**entry.props, **rules.claim_props(entry.props, session.epoch)}


def add_rows(session: OwnerSession, entries: Sequence[Entry], etags: Sequence[str]) -> None:
    """Note entries that this session has stored."""
    for entry, etag in zip(entries, etags, strict=True):
        session.rows[entry.row] = Row(session.shard, entry.row, claimed_props(session, entry), etag, 0, 0)


def read_rows(session: OwnerSession) -> Steps[None]:
    """Read every row."""
    rows = yield from effects.load(EVENTS, session.shard, FIRST_EVENT, END_EVENTS)
    session.rows = OwnedRows(rows)


def plan(session: OwnerSession, outcomes: Mapping[str, rules.RowOutcome], claims: Iterable[str]) -> dict[str, Props]:
    """Return the row changes that are still to be made, given the rows as last confirmed."""
    changes: dict[str, Props] = {}
    epoch = session.epoch
    for rk, outcome in outcomes.items():
        if rk not in session.rows:
            continue  # a row that is gone needs nothing
        props = session.rows[rk].props
        if _applies(outcome, props, session):
            changes[rk] = {"state": outcome.state, **outcome.props, **session.facets.marks(props, outcome)}
        elif outcome.state == props["state"] and session.facets.owes(props):
            changes[rk] = {"state": outcome.state, **outcome.props}
    for rk in claims:
        if rk not in session.rows:
            continue
        props = session.rows[rk].props
        if rk not in changes and rules.needs_claim(props, epoch):
            changes[rk] = rules.claim_props(props, epoch)
    return changes


def _applies(outcome: rules.RowOutcome, props: Props, session: OwnerSession) -> bool:
    """Return True if the outcome is still that of the row: a settlement that of one which this owner had claimed, a lapse that of an
    unclaimed one."""
    if (still := session.facets.still(outcome, props)) is not None:
        return still
    if props["state"] == "firing" and props.get("epoch") == session.epoch:
        return True
    return outcome.state in ("lapsed", "dead") and rules.needs_claim(props, session.epoch)


def ops_beside(session: OwnerSession, outcomes: Mapping[str, rules.RowOutcome], changes: Mapping[str, Props]) -> list[Op]:
    """Return the operations that go with the outcomes which `changes` settle; the changes may be completed."""
    return [
        op
        for rk, change in changes.items()
        if (outcome := outcomes.get(rk)) is not None and change["state"] == outcome.state
        for op in session.facets.beside(session.rows[rk], outcome, change)
    ]


def changed(row: Row, change: Props, etag: str) -> Row:
    """Return the row after a confirmed merge."""
    return Row(row.pk, row.rk, {**row.props, **change}, etag, row.timestamp, row.read_at)


def counted(session: OwnerSession, changes: Mapping[str, Props]) -> Counts:
    """Return the full counts as they will be once `changes` are stored."""
    states = session.rows.states.copy()
    states.subtract([session.rows[rk].props["state"] for rk in changes])
    states.update([change["state"] for change in changes.values()])
    return rules.tally(states)


def rest(session: OwnerSession, wake: Millis, *, retries_only: bool, sent: bool) -> Steps[bool]:
    """Release the shard until `wake`: first the gate, which names the wake-up, then the index row.

    sent: the caller sends the wake-up's message itself. A crash in between leaves the old index row, which repair finds.
    """
    key = index_key(session.shard, wake)
    old = session.held.gate.index or session.named
    # Work that fails is retried before its deadline, so a later owner may file the shard here again before this one moves the row.
    works = any(session.facets.wakes_early(row.props) for row in session.rows.values())
    version = ANY
    if works and old != key:
        present = yield from get(SHARDS, index_partition(session.shard), old)
        version = present.etag if present is not None else ANY
    if not (yield from let_go(session, "resting", key)):
        return False
    yield from refile(session, old, key, wake, retries_only=retries_only, sent=sent, version=version, works=works)
    return True


def let_go(session: OwnerSession, state: Literal["resting", "done"], index: str) -> Steps[bool]:
    """Write the session's last gate, with full counts. index: the index row that it names."""
    while True:
        counts = counted(session, {})
        # The rows may be those of a former owner.
        yield from session.facets.before_settle(session.filing, counts)
        yield from session.facets.before_release(session.filing, list(session.rows.values()))
        beside = session.facets.kept(session.held.gate, session.known, session.epoch)
        gate = replace(session.held.gate, state=state, index=index, counts=counts, beside=beside, user_ends=session.rows.user_ends)
        answer = yield from write(EVENTS, session.shard, merge_gate(gate, session.held.etag))
        if isinstance(answer, Applied):
            session.held = HeldGate(gate, answer.etags[0])
            return True
        if not (yield from refence(session, answer)):
            return False
        if session.held.gate.state == state:
            return True


def refile(
    session: OwnerSession, old: str, key: str, wake: Millis, *, retries_only: bool, sent: bool, version: str, works: bool
) -> Steps[None]:
    """Move the index row to the wake-up's minute, or change it in place within the same minute. There is an index row at every instant.

    works: a later owner may file the shard for an earlier time, also under the old index row, whose ETag is `version`.
    """
    partition = index_partition(session.shard)
    props: Props = {
        "state": "sent" if sent else "resting",
        "wake": wake,
        "retries": retries_only,
        "bucket": session.bucket,
        "tenant": shard_tenant(session.shard),
        "resent": 0,
        "rounds": 0,
        "events": 0,
        **counts_props(wake, session.held.gate.tally),
    }
    if old != key:
        answer = yield from write(SHARDS, partition, Delete(old, version), Insert(key, props))
        if isinstance(answer, Applied):
            return
    first = old == key
    while True:
        # A missing old row is no success: a crash may have left the index behind the gate. Look for the wake-up's own row, and make it only
        # while the shard still rests as this session left it.
        if not first:
            gate = yield from read_gate(session.shard)
            if gate is None or gate.etag != session.held.etag:
                return
        first = False
        present = yield from get(SHARDS, partition, key)
        answer = yield from write(SHARDS, partition, Insert(key, props) if present is None else Merge(key, props, present.etag))
        if isinstance(answer, Applied):
            break
    for stale in sorted({old, session.named} - {key}):
        left = yield from get(SHARDS, partition, stale)
        if left is not None and works:
            # Whoever has filed the shard here again has taken the gate before.
            gate = yield from read_gate(session.shard)
            left = left if gate is not None and gate.etag == session.held.etag else None
        if left is not None:
            # On its ETag: a delete that is long in flight must not hit a row of the same minute that a later owner files. If the delete is
            # lost, the remaining row costs one message.
            yield from write(SHARDS, partition, Delete(stale, left.etag))


def bucket_of(key: str) -> str:
    """Return the minute in an index row's key: the bucket of a shard whose gate was made before it was filled."""
    return key.partition(":")[0]


def finish(session: OwnerSession, entry: Props, before: Steps[bool] | None = None) -> Steps[bool]:
    """Finish a shard without open events: gate done, then the ledger row, then the index rows.

    entry: the ledger row without the counts. before: steps between the gate and the rest; if they return False, the rest is left to the
    next process that reads the done gate.
    """
    if not (yield from let_go(session, "done", session.held.gate.index)):
        return False
    if before is not None and not (yield from before):
        return False
    yield from close(session.filing, session.held.gate, entry, session.named, session.facets, list(session.rows.values()))
    return True


def close(filing: Filing, gate: Gate, entry: Props, named: str, facets: Facets, rows: Collection[Row] = ()) -> Steps[None]:
    """Do what follows a done gate; a repetition is harmless. The ledger is first: a shard that is not in it is in the index.

    rows: the shard's event rows; none for a copy, which no owner has served.
    """
    shard = filing.shard
    props: Props = {**entry, "shard": shard, **dict(zip(gate.counts._fields, gate.counts, strict=True))}
    key = f"{filing.bucket}:{shard}"
    ops: list[Op] = [Insert(key, props)]
    if gate.counts.accepted:
        # In one transaction and inserted, so that a shard is news once, however often this is repeated.
        ops.append(Insert(NEWS + key, props))
    while not isinstance((yield from write(LEDGER, shard_tenant(shard), *ops)), Applied | WriteRefused):
        pass
    if gate.counts.dead:
        # Events may have been redriven before the ledger row was there to note it.
        yield from note_redriven(shard, key)
    yield from facets.at_end(filing, gate, rows)
    for key in sorted({named, gate.index} - {""}):
        while not isinstance((yield from write(SHARDS, index_partition(shard), Delete(key, ANY))), Applied | WriteRefused):
            pass


def note_of(shard: str) -> Steps[None]:
    """Note the redriven events of a shard on its ledger row, if the shard is finished."""
    row = yield from get(EVENTS, shard, GATE)
    if row is not None and (gate := parse_gate(row.props)).state == "done" and gate.bucket:
        yield from note_redriven(shard, f"{gate.bucket}:{shard}")


def claimed(session: OwnerSession, started: Container[str]) -> list[str]:
    """Return the rows with a stored claim of this session and no started delivery, the earliest due first."""
    epoch = session.epoch
    ready = [
        (int(props["due"]), rk)
        for rk, props in session.rows.open.items()
        if props["state"] == "firing" and rk not in started and props.get("epoch") == epoch
    ]
    return [rk for _, rk in sorted(ready)]


def tidy(
    shard: str, named: str, entry: Callable[[list[Row]], Props], facets: Facets, before: Callable[[Props], Steps[bool]] | None = None
) -> Steps[None]:
    """Repeat what follows a done gate, unless nothing is left in the index. before: see `finish`."""
    row = yield from read_gate(shard)
    if row is None:
        return
    gate = parse_gate(row.props)
    left = []
    for key in sorted({named, gate.index} - {""}):
        left.append((yield from get(SHARDS, index_partition(shard), key)))
    if not any(left):
        return
    rows = yield from effects.load(EVENTS, shard, FIRST_EVENT, END_EVENTS)
    found = entry(rows)
    if before is None or (yield from before(found)):
        yield from close(Filing(shard, gate.bucket or bucket_of(named), {}), gate, found, named, facets, rows)
