"""Copies of shards in another account, and the fence that says which account serves.

Two accounts, the first and the second, have the same tables. One side serves; everything it acknowledges is in the copy too. A copy is made
from stored state and never from memory, so any process may make it, and several at once:

    (1) read the copy: its gate, its rows      (3) only then read the source: its rows, its gate
    (2) read the fence row in the second       (4) write what differs: the copy's gate, on the ETag of (1), and each row on its own

(1) before (3) makes the newest copy win: a process that has read older rows has read an older copy too, and its ETag is refused. (2)
between them makes an overtaken process harmless: had it read the copy after the take-over, it would have seen the fence. A copied row names
the ETag that it was copied from (`origin`), which is never the same twice: a row that was changed and changed back does not count as
unchanged.

The copy's gate keeps an index row of its own, filed for the shard's first wake-up and never refiled: repair finds it at or before its time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from ...core.packing import packs
from ...engine.effects import Get, Load, Steps, Write, get, load, write
from ...engine.row_codec import Format, RowCodec
from ...storage import names
from ...storage.names import EVENTS, IDS, LEDGER, SHARDS, SWEEPS
from ...storage.ports import Applied, Delete, Insert, Merge, Op, Props, Replace, Row, Upsert
from ..facets import CAME, FACETS, ORIGIN
from ..keys import (
    END_EVENTS,
    FIRST_EVENT,
    GATE,
    MIRRORED,
    Address,
    BesideId,
    id_partition,
    id_row_key,
    index_key,
    index_partition,
    minute_of,
    nothing_beside,
    parse_address,
    place_of,
)
from ..points import Filing
from ..rules import FINAL
from ..shard.gate import HeldGate, parse_gate, seal
from .ingest import GROUP_BYTES, Entry, file_shard
from .owning import close, note_of

type Side = Literal["first", "second"]

FIRST, SECOND = names.FIRST, names.SECOND
FENCE_PK, FENCE_ROW = "storage", "mirror"
"""The fence row, in `TocsinSweeps` of the second account."""
AGAIN_PK = "again"
"""Partition of `TocsinSweeps`: mirrored shards that were changed after they were finished, and must be copied once more."""
ELSEWHERE_PK = "again-elsewhere"
"""Partition of `TocsinSweeps` in the second account: shards that are not mirrored, whose events the second redrives. Their ledger rows may
be in the first account."""
GROUP = 99


class Fence(NamedTuple):
    """The side that serves; every change is a new epoch. syncing: no side serves yet, because the first is being brought up to date."""

    active: Side = "first"
    epoch: int = 0
    syncing: bool = False

    def props(self) -> Props:
        """Return the stored properties."""
        return _FENCE.encode(self)


def _read_side(value: object) -> Side:
    return "second" if value == "second" else "first"


_FENCE: Final = RowCodec(Fence, formats={"active": Format(None, _read_side)})


def parse_fence(row: Row | None) -> Fence:
    """Parse the fence row; without one the first account serves."""
    return Fence() if row is None else _FENCE.decode(row.props)


class Way(NamedTuple):
    """One direction of copying, and the fence under which it is valid.

    source, copy, fence: prefixes of the tables of the side that is copied, of the copy, and of the second account. prune: remove from the
    copy what the source lacks, and release owned shards; no side serves while this is done.
    """

    source: str
    copy: str
    fence: str
    active: Side
    epoch: int
    prune: bool = False


def on_side[T](prefix: str, steps: Steps[T], only: Collection[str] | None = None) -> Steps[T]:
    """Run `steps` against the tables of one side. only: these tables; by default all."""
    answer: Any = None
    while True:
        try:
            effect = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if isinstance(effect, Get | Load | Write) and (only is None or effect.table in only):
            effect = effect._replace(table=prefix + effect.table)
        answer = yield effect


def note_on_side(prefix: str, shard: str) -> Steps[None]:
    """Note the redriven events of a shard on the ledger row that one side has.

    The ledger row of a shard that is not mirrored may be in either account: what the second redrives is noted in the first after the
    failback, by the requests in `ELSEWHERE_PK`. Both sides see the same event rows of such a shard.
    """
    return on_side(prefix, note_of(shard), None if place_of(shard) == MIRRORED else (LEDGER,))


def still_serves(way: Way) -> Steps[bool]:
    """Return True if the side still serves, under the epoch with which it began."""
    row = yield from get(way.fence + SWEEPS, FENCE_PK, FENCE_ROW)
    fence = parse_fence(row)
    return (fence.active, fence.epoch) == (way.active, way.epoch)


def mirror(shard: str, way: Way, only: frozenset[str] | None = None) -> Steps[bool]:
    """Bring the copy of the shard up to date; return False if this side no longer serves, so that nothing may be acknowledged.

    only: the rows that matter to the caller; the shard's owner copies the others later. Places that copied rows point to are copied first;
    otherwise the copy would briefly name a place where the event is missing.
    """
    ready: set[str] = set()
    waiting = [shard]
    while waiting:
        top = waiting[-1]
        if top in ready:
            waiting.pop()
            continue
        needed = yield from copy_shard(top, way, only if top == shard else None, ready)
        if needed is None:
            return False
        if needed:
            waiting += reversed(needed)
        else:
            ready.add(top)
    return True


def copy_shard(shard: str, way: Way, only: frozenset[str] | None, ready: set[str]) -> Steps[list[str] | None]:
    """Copy one shard; return the shards that must be copied before it (none: it is done), or None if this side no longer serves."""
    while True:
        gate = yield from get(way.copy + EVENTS, shard, GATE)
        if (yield from unfiled(shard, way, gate)) and not (yield from file_copy(shard, way)) and gate is None:
            return []
        narrow = only if gate is not None else None
        have = (yield from load_events(way.copy, shard, narrow)) if gate is not None else {}
        if not (yield from still_serves(way)):
            return None
        rows = yield from load_events(way.source, shard, narrow)
        if narrow is not None and any(rk not in rows or rk not in have or rows[rk].props["state"] == "firing" for rk in narrow):
            # A claim must be copied together with its owner's gate.
            only = None
            continue
        source: Row | None = gate
        if narrow is None:
            # Read after the rows, so that it is never older than a copied claim. A done gate may be newer than the rows.
            source = yield from get(way.source + EVENTS, shard, GATE)
            if source is None:
                return []
            if source.props["state"] == "done" and any(row.props["state"] not in FINAL for row in rows.values()):
                continue
        changes = {rk: row for rk, row in rows.items() if rk not in have or have[rk].props.get(ORIGIN) != row.etag}
        assert source is not None
        if needed := [place for rk, row in changes.items() for place in pointed_shards(row, have.get(rk)) if place not in ready]:
            return needed
        for parent in [parse_address(str(row.props[CAME])) for rk, row in changes.items() if rk not in have and CAME in row.props]:
            if not (yield from set_going(parent, way)):
                return None
        ops: list[Op] = [copy_op(rk, copied(row), have.get(rk)) for rk, row in sorted(changes.items())]
        if way.prune or (way.source == SECOND and source.props["state"] == "done"):
            # A done shard accepts nothing more: other rows of the side that comes back were never acknowledged.
            ops += [Delete(rk, row.etag) for rk, row in sorted(have.items()) if rk not in rows]
        if (yield from write_copy(shard, way, gate, source, ops, whole=narrow is None)):
            return []


def unfiled(shard: str, way: Way, gate: Row | None) -> Steps[bool]:
    """Return True if the copy of a shard may lack its index row.

    gate: the copy's gate. Either the copy is not begun, or that side made the shard itself and may have been interrupted before it filed
    the place of a moved event.
    """
    if gate is None or ORIGIN in gate.props:
        return gate is None
    index = str(gate.props["index"])
    filed: Row | None = (yield from get(way.copy + SHARDS, index_partition(shard), index)) if index else None
    return filed is None


def file_copy(shard: str, way: Way) -> Steps[bool]:
    """File the copy's index row before the copy is begun, so that repair finds its content. Return False if there is nothing to copy."""
    source = yield from get(way.source + EVENTS, shard, GATE)
    if source is None or not source.props["bucket"]:
        # The shard was never filled.
        return False
    yield from on_side(way.copy, file_shard(shard, minute_of(str(source.props["bucket"])), sent=False))
    return True


def load_events(prefix: str, shard: str, only: frozenset[str] | None) -> Steps[dict[str, Row]]:
    """Return the shard's event rows, or those named by `only`."""
    if only is None:
        rows = yield from load(prefix + EVENTS, shard, FIRST_EVENT, END_EVENTS)
        return {row.rk: row for row in rows}
    found: dict[str, Row] = {}
    for rk in sorted(only):
        row = yield from get(prefix + EVENTS, shard, rk)
        if row is not None:
            found[rk] = row
    return found


def pointed_shards(row: Row, have: Row | None) -> list[str]:
    """Return the shard that a row's pointer needs, unless the copy has that pointer already."""
    target = row.props.get("target")
    if not target or (have is not None and have.props.get("target") == target):
        return []
    return [parse_address(str(target)).shard]


def copied(row: Row) -> Props:
    """Return the row's properties in the copy."""
    return {**row.props, ORIGIN: row.etag}


def copy_op(rk: str, props: Props, have: Row | None) -> Op:
    """Return the operation that writes `props` to the copied row."""
    return Insert(rk, props) if have is None else Replace(rk, props, have.etag)


def set_going(parent: Address, way: Way) -> Steps[bool]:
    """Make sure that the copy does not show a moved or redriven event as alive at its old place, before it is copied at its new one.

    The copy then shows it as `moving`, and every process that reads it finishes the move at the place that follows from its name; or it
    shows it as dead. Returns False if this side no longer serves.
    """
    while True:
        gate = yield from get(way.copy + EVENTS, parent.shard, GATE)
        have: Row | None = None
        if gate is not None:
            have = yield from get(way.copy + EVENTS, parent.shard, parent.row)
        elif not (yield from file_copy(parent.shard, way)):
            return True
        if not (yield from still_serves(way)):
            return False
        row = yield from get(way.source + EVENTS, parent.shard, parent.row)
        if row is None or row.props["state"] not in ("moving", "moved", "dead") or (have is not None and is_going(row, have)):
            return True
        source = gate
        if source is None:
            source = yield from get(way.source + EVENTS, parent.shard, GATE)
            if source is None:
                return True
        # The event may have been moved there before, while the copy knows only its first place.
        if have is None and CAME in row.props and not (yield from set_going(parse_address(str(row.props[CAME])), way)):
            return False
        if (yield from write_copy(parent.shard, way, gate, source, [copy_op(parent.row, going(row), have)], whole=False)):
            return True


def going(row: Row) -> Props:
    """Return a moved row as it was during the move, or a dead one as it was before it was redriven."""
    state = "dead" if row.props["state"] == "dead" else "moving"
    return {**{key: value for key, value in row.props.items() if key != "target"}, "state": state, ORIGIN: ""}


def is_going(row: Row, have: Row) -> bool:
    """Return True if the copy has the move, or the end, already."""
    if row.props["state"] == "dead":
        return bool(have.props["state"] == "dead")
    return have.props["state"] == "moved" or (have.props["state"] == "moving" and have.props["moving"] == row.props["moving"])


def write_copy(shard: str, way: Way, gate: Row | None, source: Row, ops: list[Op], *, whole: bool) -> Steps[bool]:
    """Write what differs in groups, each with the copy's gate; return False if another process wrote first or an answer was lost."""
    etag = gate.etag if gate is not None else None
    if not ops and (not whole or (gate is not None and gate.props.get(ORIGIN) == source.etag)):
        return True
    final: Props = {ORIGIN: str(gate.props.get(ORIGIN, ""))} if gate is not None else {}
    if whole or gate is None:
        final = gate_copy(way, gate, source, shard)
    groups = list(grouped(ops)) or [[]]
    for number, group in enumerate(groups, 1):
        props: Props = final
        if (number < len(groups) and whole) or (gate is None and not whole):
            # A copy that is called done is never served, so only the last group may say so.
            props = {**final, ORIGIN: "", "state": "owned" if final["state"] == "done" else final["state"]}
        first: Op = Insert(GATE, props) if etag is None else Merge(GATE, props, etag)
        answer = yield from write(way.copy + EVENTS, shard, first, *group)
        if not isinstance(answer, Applied):
            return False
        etag = answer.etags[0]
    return True


def gate_copy(way: Way, gate: Row | None, source: Row, shard: str) -> Props:
    """Return the copy's gate: like the source's, but with an index row of its own."""
    found = parse_gate(source.props)
    index = str(gate.props["index"]) if gate is not None else index_key(shard, minute_of(found.bucket))
    # Each account has held rows of its own.
    kept = replace(found, index=index, beside=None)
    if way.prune and found.state == "owned":
        # Its owner was asked to stop and had the time to do so.
        kept = replace(kept, state="resting")
    return {**kept.props(), ORIGIN: source.etag}


def grouped(ops: list[Op]) -> Iterator[list[Op]]:
    """Group the operations into transactions."""

    def weight(op: Op) -> int:
        return 500 if isinstance(op, Delete) else sum(len(value) for value in op.props.values() if isinstance(value, str)) * 2 + 1000

    return packs(ops, weight, GROUP_BYTES, GROUP)


def mirror_event(address: Address, way: Way) -> Steps[bool]:
    """Copy everything that says where the event is and its state: every row from its address along the pointers.

    All of them, because an uncopied move would leave the event alive at its old place, whatever happens at the new one.
    """
    while True:
        if not (yield from mirror(address.shard, way, frozenset({address.row}))):
            return False
        row = yield from get(way.source + EVENTS, address.shard, address.row)
        if row is None or not row.props.get("target"):
            return True
        address = parse_address(str(row.props["target"]))


def mirror_id(tenant: str, event_id: str, way: Way, beside: BesideId = nothing_beside) -> Steps[bool]:
    """Copy a client id's row, after the rows beside it, in the same order of reads as a shard.

    Returns False if this side no longer serves.
    """
    for row in beside(tenant, event_id):
        if not (yield from mirror_id_row(row.partition, row.key, way)):
            return False
    return (yield from mirror_id_row(id_partition(tenant, event_id), id_row_key(event_id), way))


def mirror_id_row(partition: str, key: str, way: Way) -> Steps[bool]:
    """Copy one row of ids; return False if this side no longer serves."""
    while True:
        have = yield from get(way.copy + IDS, partition, key)
        if not (yield from still_serves(way)):
            return False
        row = yield from get(way.source + IDS, partition, key)
        if row is None or (have is not None and have.props.get(ORIGIN) == row.etag):
            return True
        op = Insert(key, copied(row)) if have is None else Replace(key, copied(row), have.etag)
        if isinstance((yield from write(way.copy + IDS, partition, op)), Applied):
            return True


def append_copy(
    shard: str, way: Way, held: HeldGate, copy: str | None, entries: Sequence[Entry], etags: Mapping[str, str]
) -> Steps[str | None]:
    """Copy a stored batch in the shortest way, for a writer that last saw the copy's gate with ETag `copy` (None: there is none yet).

    Returns the gate's ETag; None if the copy is, or may be, no longer as this writer left it: then `mirror` decides. The fence is not read:
    a process that takes the copy changes its gate, and rows that are stored before that will be served.
    """
    props = {**replace(held.gate, beside=None).props(), ORIGIN: held.etag}
    first: Op = Insert(GATE, props) if copy is None else Merge(GATE, props, copy)
    rows = (Insert(entry.row, {**entry.props, ORIGIN: etags[entry.row]}) for entry in entries)
    answer = yield from write(way.copy + EVENTS, shard, first, *rows)
    return answer.etags[0] if isinstance(answer, Applied) else None


def request_copy(shard: str, partition: str = AGAIN_PK) -> Steps[None]:
    """Request another copy of a mirrored shard before a change to it, because a finished shard is in no index.

    partition: `ELSEWHERE_PK` requests that the redriven events of a shard that is not mirrored are noted in the first account.
    """
    while not isinstance((yield from write(SWEEPS, partition, Upsert(shard, {}))), Applied):
        pass


def finish_copy(shard: str, way: Way, entry: Props) -> Steps[bool]:
    """Bring the copy up to date and close it, between a done gate and its ledger row.

    Until then the source stays in the index, so that repair finds the shard after a crash. Returns False if this side no longer serves.
    """
    if not (yield from mirror(shard, way)):
        return False
    row = yield from get(way.copy + EVENTS, shard, GATE)
    if row is not None:
        gate = parse_gate(row.props)
        if gate.state == "done" and gate.bucket:
            yield from on_side(
                way.copy, close(Filing(shard, gate.bucket, {}), gate, entry, index_key(shard, minute_of(gate.bucket)), FACETS)
            )
    return True


def restore(shard: str, way: Way) -> Steps[bool]:
    """Bring a shard of the side that comes back up to date (`way.prune`), whatever either side has of it.

    The source is sealed first: a batch of a writer that was suspended must not enter it after unacknowledged rows were removed from the
    other side. This includes shards of which the source has nothing.
    """
    if way.prune:
        yield from on_side(way.source, seal(shard))
    return (yield from mirror(shard, way))
