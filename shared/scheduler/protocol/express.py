"""Express delivery: the process that stores events that are due now owns their shard from its first transaction.

The order is that of ingest: first the index row, so that a sweep finds everything that is stored; then for client ids the id row; then the
events together with the gate. But the gate is inserted as owned, and the events as claimed, so their deliveries may start as soon as that
transaction is stored. A later owner takes the shard by the same rules as any other.

An event that an id row names is stored in the shard's first transaction or not at all: `gate.seal` takes a shard that has an owner as
closed, and an id may go on to another place from then on. Events whose id contains their place may be added later (`owning.step`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...core.clock import Millis
from ...engine.effects import Steps, write
from ...storage.names import EVENTS
from ...storage.ports import Applied, Insert, Merge, Op, Props
from .. import rules
from ..keys import GATE, index_key, minute_text
from ..points import Facets
from ..shard.gate import Gate, HeldGate, merge_gate
from .ingest import Entry
from .owning import OwnerSession, add_rows, changed, claimed_props, close, counted, ops_beside, plan, read_rows, refence

NOT_STORED = ""
"""ETag of a gate that is yet to be inserted."""


def begin(shard: str, wake: Millis, owner: str, facets: Facets, process: str = "") -> OwnerSession:
    """Return the session of an owner whose shard is not stored yet. process: identity of this process, for the gate."""
    key = index_key(shard, wake)
    runs_in = f"{owner} {process}" if process else None
    gate = Gate("owned", owner, epoch=1, index=key, bucket=minute_text(wake), process=runs_in)
    return OwnerSession(shard, owner, HeldGate(gate, NOT_STORED), key, facets, known=facets.recall(gate))


def store_first(session: OwnerSession, entries: Sequence[Entry]) -> Steps[bool]:
    """Store the shard's first events with its gate, in one transaction. Index row and id rows are stored already.

    Returns False if another process has the shard. After either, `session.rows` shows which of the entries are stored; the others never
    will be.
    """
    size = sum(entry.size for entry in entries)
    gate = replace(session.held.gate, bytes=size, counts=session.held.gate.counts._replace(accepted=len(entries)))
    inserts = [Insert(entry.row, claimed_props(session, entry)) for entry in entries]
    yield from session.facets.before_store(session.filing, [entry.props for entry in entries])
    answer = yield from write(EVENTS, session.shard, Insert(GATE, gate.props()), *inserts)
    if isinstance(answer, Applied):
        session.held = HeldGate(gate, answer.etags[0])
        add_rows(session, entries, answer.etags[1:])
        return True
    # It is not sent again, because a process that looks for an event by its id may have taken the shard as closed since.
    if (yield from refence(session)):
        return True
    yield from read_rows(session)
    return False


def settle_all(session: OwnerSession, outcomes: Mapping[str, rules.RowOutcome]) -> Steps[bool | None]:
    """Settle the last open events of a shard and finish it, in one transaction; `close_done` does the rest.

    Returns True if the gate is done, and False if another owner has the shard. None: something has changed; the outcomes that
    `session.rows` still shows as claimed are to be settled by `owning.step`.
    """
    changes = plan(session, outcomes, ())
    beside = ops_beside(session, outcomes, changes)
    counts = counted(session, changes)
    yield from session.facets.before_settle(session.filing, counts)
    gate = replace(session.held.gate, state="done", counts=counts, user_ends=session.rows.user_ends)
    ops: list[Op] = [merge_gate(gate, session.held.etag)]
    ops += [Merge(rk, change, session.rows[rk].etag) for rk, change in changes.items()]
    answer = yield from write(EVENTS, session.shard, *ops, *beside)
    if isinstance(answer, Applied):
        session.held = HeldGate(gate, answer.etags[0])
        for (rk, change), etag in zip(changes.items(), answer.etags[1 : 1 + len(changes)], strict=True):
            session.rows[rk] = changed(session.rows[rk], change, etag)
        return True
    if not (yield from refence(session)):
        return False
    # A done gate never reopens, so a transaction that was stored although its answer was lost must be recognized.
    return True if session.held.gate.state == "done" else None


def may_settle_all(session: OwnerSession, outcomes: Mapping[str, rules.RowOutcome]) -> bool:
    """Return True if `outcomes` leave no event of the shard open, and nothing owed."""
    changes = plan(session, outcomes, ())
    after = ({**row.props, **changes.get(rk, {})} for rk, row in session.rows.items())
    return all(props["state"] in rules.FINAL and not session.facets.owes(props) for props in after)


def close_done(session: OwnerSession, entry: Props, before: Steps[bool] | None = None) -> Steps[None]:
    """Do what follows `settle_all`. entry, before: see `owning.finish`."""
    if before is None or (yield from before):
        yield from close(session.filing, session.held.gate, entry, session.named, session.facets, list(session.rows.values()))
