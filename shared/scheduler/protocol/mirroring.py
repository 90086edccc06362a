"""Keeping a copy of a shard in another account, and knowing which account serves.

Two accounts, the first and the second, hold the same tables. One side serves; what it acknowledges is in the copy too. A copy is made from
what is stored, never from what somebody remembers, so anybody may make it, any number at once:

    (1) read the copy: its gate, its rows      (3) only then read what is served: its rows, its gate
    (2) read the fence row in the second       (4) write what differs: the copy's gate, on the ETag of (1), and each row on its own

(1) before (3) makes the newest copy win: who has read older rows has read an older copy too, and its ETag is refused. (2) between them
makes who was overtaken by a failover harmless: had it read the copy after the take-over, it would have seen the fence. A copied row names
the ETag that it was copied from (`origin`), never the same twice: a row that is changed back to what it was is not taken for unchanged.

The copy's gate keeps its own index row, filed for the shard's first wake-up and never refiled: repair finds it, at or before its time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from ...core.packing import packs
from ...engine.effects import Get, Load, Steps, Write, get, load, write
from ...storage import names
from ...storage.names import EVENTS, IDS, SHARDS, SWEEPS
from ...storage.ports import Applied, Delete, Insert, Merge, Op, Props, Replace, Row, Upsert
from ..keys import (
    END_EVENTS,
    FIRST_EVENT,
    GATE,
    Address,
    base_of_use,
    id_partition,
    id_row_key,
    index_key,
    index_partition,
    minute_of,
    parse_address,
    use_row_key,
)
from ..rules import FINAL
from .changing import CAME, ORIGIN
from .gate import Held, parse_gate, seal
from .ingest import Entry, file_shard
from .owning import close

type Side = Literal["first", "second"]

FIRST, SECOND = names.FIRST, names.SECOND
FENCE_PK, FENCE_ROW = "storage", "mirror"
"""The fence row, in `TocsinSweeps` of the second account."""
AGAIN_PK = "again"
"""Partition of `TocsinSweeps`: mirrored shards that were changed when they were finished already, and are to be copied once more."""
GROUP = 99
GROUP_BYTES = 3 * 1024 * 1024


class Fence(NamedTuple):
    """Who serves: every change is a new epoch. syncing: nobody yet, the first is being brought up to date from the second."""

    active: Side = "first"
    epoch: int = 0
    syncing: bool = False

    def props(self) -> Props:
        """As stored."""
        return dict(self._asdict())


def parse_fence(row: Row | None) -> Fence:
    """What the fence row says; without one the first serves."""
    if row is None:
        return Fence()
    props = row.props
    active: Side = "second" if props["active"] == "second" else "first"
    return Fence(active, int(props["epoch"]), bool(props["syncing"]))


class Way(NamedTuple):
    """One direction of copying, and the fence under which it holds.

    source, copy, fence: prefixes of tables: of the side that is copied, of the copy, and of the second account. prune: what the source does
    not have is removed from the copy, and owned shards are let go: nobody serves while this is done.
    """

    source: str
    copy: str
    fence: str
    active: Side
    epoch: int
    prune: bool = False


def on[T](prefix: str, steps: Steps[T]) -> Steps[T]:
    """Run `steps` against the tables of one side."""
    answer: Any = None
    while True:
        try:
            effect = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer = yield effect._replace(table=prefix + effect.table) if isinstance(effect, Get | Load | Write) else effect


def holds(way: Way) -> Steps[bool]:
    """Whether the side still serves, under the epoch it began with."""
    row = yield from get(way.fence + SWEEPS, FENCE_PK, FENCE_ROW)
    fence = parse_fence(row)
    return (fence.active, fence.epoch) == (way.active, way.epoch)


def mirror(shard: str, way: Way, only: frozenset[str] | None = None) -> Steps[bool]:
    """Bring the copy of the shard up to date; False when this side no longer serves, and nothing may be acknowledged.

    only: the rows that matter to the caller; the others follow with the shard's owner. Places that copied rows point to are copied first,
    or the copy would for a moment say that an event is where it is not.
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
    """Copy one shard; answers the shards that must be copied before it (none: it is done), or None when this side no longer serves."""
    while True:
        gate = yield from get(way.copy + EVENTS, shard, GATE)
        if (yield from unfiled(shard, way, gate)) and not (yield from file_copy(shard, way)) and gate is None:
            return []
        narrow = only if gate is not None else None
        have = (yield from picked(way.copy, shard, narrow)) if gate is not None else {}
        if not (yield from holds(way)):
            return None
        rows = yield from picked(way.source, shard, narrow)
        if narrow is not None and any(rk not in rows or rk not in have or rows[rk].props["state"] == "firing" for rk in narrow):
            # A claim belongs together with the gate of its owner.
            only = None
            continue
        source: Row | None = gate
        if narrow is None:
            # After the rows: it is never behind a claim that is copied. A done one may be ahead of what was read.
            source = yield from get(way.source + EVENTS, shard, GATE)
            if source is None:
                return []
            if source.props["state"] == "done" and any(row.props["state"] not in FINAL for row in rows.values()):
                continue
        changes = {rk: row for rk, row in rows.items() if rk not in have or have[rk].props.get(ORIGIN) != row.etag}
        assert source is not None
        if needed := [place for rk, row in changes.items() for place in pointed(row, have.get(rk)) if place not in ready]:
            return needed
        for parent in [parse_address(str(row.props[CAME])) for rk, row in changes.items() if rk not in have and CAME in row.props]:
            if not (yield from set_going(parent, way)):
                return None
        ops: list[Op] = [put(rk, copied(row), have.get(rk)) for rk, row in sorted(changes.items())]
        if way.prune or (way.source == SECOND and source.props["state"] == "done"):
            # What is done takes nothing more in: whatever else the side that comes back has was never acknowledged.
            ops += [Delete(rk, row.etag) for rk, row in sorted(have.items()) if rk not in rows]
        if (yield from write_copy(shard, way, gate, source, ops, whole=narrow is None)):
            return []


def unfiled(shard: str, way: Way, gate: Row | None) -> Steps[bool]:
    """Whether the copy of a shard, whose gate this is, may lack its index row: it is not begun, or that side made it itself, which may have
    been cut off before it filed the place of a moved event."""
    if gate is None or ORIGIN in gate.props:
        return gate is None
    index = str(gate.props["index"])
    filed: Row | None = (yield from get(way.copy + SHARDS, index_partition(shard), index)) if index else None
    return filed is None


def file_copy(shard: str, way: Way) -> Steps[bool]:
    """Before a copy is begun: its index row, so that whatever gets into it is found. False when there is nothing to copy."""
    source = yield from get(way.source + EVENTS, shard, GATE)
    if source is None or not source.props["bucket"]:
        # Never filled.
        return False
    yield from on(way.copy, file_shard(shard, minute_of(str(source.props["bucket"])), sent=False))
    return True


def picked(prefix: str, shard: str, only: frozenset[str] | None) -> Steps[dict[str, Row]]:
    """The shard's event rows, or some of them."""
    if only is None:
        rows = yield from load(prefix + EVENTS, shard, FIRST_EVENT, END_EVENTS)
        return {row.rk: row for row in rows}
    found: dict[str, Row] = {}
    for rk in sorted(only):
        row = yield from get(prefix + EVENTS, shard, rk)
        if row is not None:
            found[rk] = row
    return found


def pointed(row: Row, have: Row | None) -> list[str]:
    """The shard that a row's pointer needs, unless the copy has that pointer already."""
    target = row.props.get("target")
    if not target or (have is not None and have.props.get("target") == target):
        return []
    return [parse_address(str(target)).shard]


def copied(row: Row) -> Props:
    """The row as the copy has it."""
    return {**row.props, ORIGIN: row.etag}


def put(rk: str, props: Props, have: Row | None) -> Op:
    """The operation that makes the copied row read `props`."""
    return Insert(rk, props) if have is None else Replace(rk, props, have.etag)


def set_going(parent: Address, way: Way) -> Steps[bool]:
    """Before an event that has moved, or was brought back, is copied at its new place: at its old one the copy must not show it as alive
    any more.

    It shows it as `moving` from then on: whoever meets that finishes the move, at the place that follows from its name; or as dead. False
    when this side no longer serves.
    """
    while True:
        gate = yield from get(way.copy + EVENTS, parent.shard, GATE)
        have: Row | None = None
        if gate is not None:
            have = yield from get(way.copy + EVENTS, parent.shard, parent.row)
        elif not (yield from file_copy(parent.shard, way)):
            return True
        if not (yield from holds(way)):
            return False
        row = yield from get(way.source + EVENTS, parent.shard, parent.row)
        if row is None or row.props["state"] not in ("moving", "moved", "dead") or (have is not None and is_going(row, have)):
            return True
        source = gate
        if source is None:
            source = yield from get(way.source + EVENTS, parent.shard, GATE)
            if source is None:
                return True
        # It may have moved there itself, and the copy may know its first place only.
        if have is None and CAME in row.props and not (yield from set_going(parse_address(str(row.props[CAME])), way)):
            return False
        if (yield from write_copy(parent.shard, way, gate, source, [put(parent.row, going(row), have)], whole=False)):
            return True


def going(row: Row) -> Props:
    """A moved row as it was while it moved; a dead one as it was before it was brought back."""
    state = "dead" if row.props["state"] == "dead" else "moving"
    return {**{key: value for key, value in row.props.items() if key != "target"}, "state": state, ORIGIN: ""}


def is_going(row: Row, have: Row) -> bool:
    """Whether the copy knows of the move, or the end, already."""
    if row.props["state"] == "dead":
        return bool(have.props["state"] == "dead")
    return have.props["state"] == "moved" or (have.props["state"] == "moving" and have.props["moving"] == row.props["moving"])


def write_copy(shard: str, way: Way, gate: Row | None, source: Row, ops: list[Op], *, whole: bool) -> Steps[bool]:
    """Write what differs, group by group, each with the copy's gate; False when somebody else wrote first, or an answer was lost."""
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
            # A copy that is called done is never served: only the last group may say so.
            props = {**final, ORIGIN: "", "state": "owned" if final["state"] == "done" else final["state"]}
        first: Op = Insert(GATE, props) if etag is None else Merge(GATE, props, etag)
        answer = yield from write(way.copy + EVENTS, shard, first, *group)
        if not isinstance(answer, Applied):
            return False
        etag = answer.etags[0]
    return True


def gate_copy(way: Way, gate: Row | None, source: Row, shard: str) -> Props:
    """The copy's gate: as the source's, but with an index row of its own."""
    found = parse_gate(source.props)
    index = str(gate.props["index"]) if gate is not None else index_key(shard, minute_of(found.bucket))
    kept = replace(found, index=index)
    if way.prune and found.state == "owned":
        # Its owner has been told to stop, and had the time to.
        kept = replace(kept, state="resting")
    return {**kept.props(), ORIGIN: source.etag}


def grouped(ops: list[Op]) -> Iterator[list[Op]]:
    """As many operations as one transaction takes."""

    def weight(op: Op) -> int:
        return 500 if isinstance(op, Delete) else sum(len(value) for value in op.props.values() if isinstance(value, str)) * 2 + 1000

    return packs(ops, weight, GROUP_BYTES, GROUP)


def mirror_event(address: Address, way: Way) -> Steps[bool]:
    """Copy what says where the event is and how it stands: every row from its address along the pointers.

    All of them: a move that nobody has copied yet would leave the event alive at its old place, whatever is done to it at the new one.
    """
    while True:
        if not (yield from mirror(address.shard, way, frozenset({address.row}))):
            return False
        row = yield from get(way.source + EVENTS, address.shard, address.row)
        if row is None or not row.props.get("target"):
            return True
        address = parse_address(str(row.props["target"]))


def mirror_id(tenant: str, event_id: str, way: Way) -> Steps[bool]:
    """Copy a client id's row, by the same order of reads as a shard, and the row that counts its uses, if it has one; False when this side
    no longer serves."""
    if (base := base_of_use(event_id)) and not (yield from mirror_id_row(id_partition(tenant, base), use_row_key(base), way)):
        return False
    return (yield from mirror_id_row(id_partition(tenant, event_id), id_row_key(event_id), way))


def mirror_id_row(partition: str, key: str, way: Way) -> Steps[bool]:
    """Copy one row of ids; False when this side no longer serves."""
    while True:
        have = yield from get(way.copy + IDS, partition, key)
        if not (yield from holds(way)):
            return False
        row = yield from get(way.source + IDS, partition, key)
        if row is None or (have is not None and have.props.get(ORIGIN) == row.etag):
            return True
        op = Insert(key, copied(row)) if have is None else Replace(key, copied(row), have.etag)
        if isinstance((yield from write(way.copy + IDS, partition, op)), Applied):
            return True


def append_copy(
    shard: str, way: Way, held: Held, copy: str | None, entries: Sequence[Entry], etags: Mapping[str, str]
) -> Steps[str | None]:
    """A writer's short way: put a batch that is stored into the copy, whose gate was last seen with ETag `copy` (None: there is none yet).

    Answers the gate's ETag; None when the copy is no longer as this writer left it, or may not be: then `mirror` decides. No fence is read:
    who takes the copy changes its gate, and before that whatever gets in will be served.
    """
    props = {**held.gate.props(), ORIGIN: held.etag}
    first: Op = Insert(GATE, props) if copy is None else Merge(GATE, props, copy)
    rows = (Insert(entry.row, {**entry.props, ORIGIN: etags[entry.row]}) for entry in entries)
    answer = yield from write(way.copy + EVENTS, shard, first, *rows)
    return answer.etags[0] if isinstance(answer, Applied) else None


def again(shard: str) -> Steps[None]:
    """Before something is changed in a mirrored shard that is finished, and so in no index: a row that asks for another copy of it."""
    while not isinstance((yield from write(SWEEPS, AGAIN_PK, Upsert(shard, {}))), Applied):
        pass


def finish_copy(shard: str, way: Way, entry: Props) -> Steps[bool]:
    """What belongs between a done gate and its ledger row: the copy is brought up to date and closed. Until then the source stays in the
    index, so that a crash leaves the shard to be found; False when this side no longer serves."""
    if not (yield from mirror(shard, way)):
        return False
    row = yield from get(way.copy + EVENTS, shard, GATE)
    if row is not None:
        gate = parse_gate(row.props)
        if gate.state == "done" and gate.bucket:
            yield from on(way.copy, close(shard, gate, entry, index_key(shard, minute_of(gate.bucket))))
    return True


def restore(shard: str, way: Way) -> Steps[bool]:
    """Bring a shard of the side that comes back up to date (`way.prune`), whatever either side has of it.

    The source is sealed first: a batch of a writer that slept through everything must not get into it any more, once the other side has
    been rid of what was never acknowledged. That includes shards of which the source has nothing.
    """
    if way.prune:
        yield from on(way.source, seal(shard))
    return (yield from mirror(shard, way))
