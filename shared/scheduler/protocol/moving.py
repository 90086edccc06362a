"""The move of a stored event to another place: copies first, and then the pointer.

    scheduled --(1)--> moving: names the target and the new due time
    (2) the copy is placed at the target, together with the target's gate     (3) the target's index row
    (4) moving --> moved, with the pointer

Every process that reads a `moving` row finishes steps 2 to 4. The target's name follows from the source alone, so all of them use one
place. `changing` begins moves, and describes those into a shard that is being filled (`joining`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...core.clock import Millis
from ...engine.effects import Steps, get, load, write
from ...storage.names import EVENTS
from ...storage.ports import Applied, Insert, Merge, Op, Props, Row
from ..keys import (
    END_EVENTS,
    FIRST_EVENT,
    GATE,
    Address,
    derived_name,
    index_key,
    minute_text,
    parse_address,
    place_of,
    placed,
    shard_key,
    shard_tenant,
)
from ..late_reasons import WAITS
from ..points import Facets, Filing
from ..rules import GOING
from ..shard.gate import Counts, Gate, merge_gate, parse_gate, read_gate
from ..timings import KEEP_FINISHED
from .ingest import file_shard, read_named

SOURCE = "redrove"
"""Property of a redriven event of which no facet says where it came from: the place where it died."""
REDRIVE = "redrive"
"""Property of a dead event that is being redriven, or was: the mark of the request. The place of its copy follows from it."""
FORMER = "former"
"""Property of an event that was moved to a much earlier time: its former place. If the move stopped before its pointer, nothing wakes that
place before retention removes this one; retention then completes the move first, so that the event is not placed here once more."""
MUCH_EARLIER: Millis = KEEP_FINISHED // 2
OWN = frozenset(
    {"state", "target", "target_due", "moving", "goal", "epoch", "flag", "next", "waited", "ended", "late", "by"}
    | {SOURCE, REDRIVE, FORMER, WAITS}
)
"""Properties that belong to a row's place or due time and not to the event: a copy starts without them, and without those of facets."""


def finish_move(shard: str, row: Row, facets: Facets) -> Steps[Row]:
    """Finish the move of a row in a state of `GOING`; return the row as `moved`. Idempotent, for any number of processes at once."""
    while row.props["state"] in GOING:
        target = (yield from _joined(row)) if row.props["state"] == "joining" else None
        if target is None:
            target = yield from _placed(shard, row, facets)
        moved: Props = {"state": "moved", "target": target.text, **facets.touched(row.props)}
        answer = yield from write(EVENTS, shard, Merge(row.rk, moved, row.etag))
        if isinstance(answer, Applied):
            return Row(row.pk, row.rk, {**row.props, **moved}, answer.etags[0], row.timestamp, row.read_at)
        seen = yield from get(EVENTS, shard, row.rk)
        if seen is None:
            break
        row = seen
    return row


def _joined(row: Row) -> Steps[Address | None]:
    """Return the place of the copy of a `joining` row; None only if its writer has not stored it there, and never will."""
    goal = parse_address(str(row.props["goal"]))
    return goal if (yield from read_named(goal)) is not None else None


def _placed(shard: str, row: Row, facets: Facets) -> Steps[Address]:
    """Do steps 2 and 3 for a `moving` row, at the place that follows from it."""
    due = int(row.props["target_due"])
    wake = moved_wake(row.props, due)
    copy = copied(row.props, due, facets)
    copy |= facets.came_from(Address(shard, row.rk))
    if int(row.props["due"]) - due > MUCH_EARLIER:
        copy[FORMER] = Address(shard, row.rk).text
    target = yield from place(shard, f"move:{row.rk}", {row.rk: copy}, wake)
    yield from file_shard(target[row.rk].shard, wake, sent=False)
    # Before the pointer: until then lists show the event here.
    yield from facets.on_move(Filing(target[row.rk].shard, minute_text(wake), {}), (copy,))
    return target[row.rk]


def moved_wake(props: Props, due: Millis) -> Millis:
    """Return the time under which a moved event is filed: its due time, but not before the minute of its creation, so that lists by time
    find it."""
    return max(due, int(props.get("created", due)))


def copied(props: Props, due: Millis, facets: Facets) -> Props:
    """Return the event's row as it starts at its new place."""
    left = OWN | facets.own
    return {**{key: value for key, value in props.items() if key not in left}, "state": "scheduled", "due": due}


def target_shard(source: str, purpose: str, attempt: int) -> str:
    """Return the place that every process which moves the same events out of `source` uses."""
    name = derived_name(source, purpose, str(attempt))
    return shard_key(shard_tenant(source), placed(name, place_of(source)))


def redrive_purpose(dead: Mapping[str, Any]) -> str:
    """Return the purpose that names the places of a marked event's copy (`target_shard`)."""
    return f"redrive:{dead[REDRIVE]}"


def place(source: str, purpose: str, copies: Mapping[str, Props], wake: Millis) -> Steps[dict[str, Address]]:
    """Store copies at their deterministic target, together with its gate; return the address of each.

    A copy that exists is done. If the gate is not open and the row is missing, the gate can never accept the row, so the next attempt's
    name is used. An open gate is merged on its ETag, which also invalidates an insert that is still in flight.
    """
    placed: dict[str, Address] = {}
    attempt = 0
    while True:
        missing = {rk: props for rk, props in copies.items() if rk not in placed}
        if not missing:
            return placed
        shard = target_shard(source, purpose, attempt)
        if not (yield from place_at(shard, missing, placed, wake)):
            attempt += 1


def place_at(shard: str, missing: Mapping[str, Props], placed: dict[str, Address], wake: Millis) -> Steps[bool]:
    """Make one attempt of `place`; return False if this target is shut and some rows are missing."""
    gate_row: Row | None = None
    size = sum(int(props.get("size", 0)) for props in missing.values())
    while True:
        left = {rk: props for rk, props in missing.items() if rk not in placed}
        if not left:
            return True
        if gate_row is None:
            fresh = Gate("open", "", bytes=size, index=index_key(shard, wake), bucket=minute_text(wake), counts=Counts(accepted=len(left)))
            first: Op = Insert(GATE, fresh.props())
        else:
            gate = parse_gate(gate_row.props)
            if gate.state != "open":
                return False
            counts = Counts(accepted=gate.counts.accepted + len(left))
            first = merge_gate(replace(gate, bytes=gate.bytes + size, counts=counts), gate_row.etag)
        answer = yield from write(EVENTS, shard, first, *(Insert(rk, props) for rk, props in left.items()))
        if isinstance(answer, Applied):
            placed.update({rk: Address(shard, rk) for rk in left})
            return True
        gate_row = yield from read_gate(shard)
        rows = yield from load(EVENTS, shard, FIRST_EVENT, END_EVENTS)
        placed.update({row.rk: Address(shard, row.rk) for row in rows if row.rk in missing})


def point(source: str, row: Row, target: Address, facets: Facets) -> Steps[None]:
    """Give a dead row its pointer, unless it has one."""
    while not row.props.get("target"):
        answer = yield from write(EVENTS, source, Merge(row.rk, {"target": target.text, **facets.touched(row.props)}, row.etag))
        if isinstance(answer, Applied):
            return
        seen = yield from get(EVENTS, source, row.rk)
        if seen is None:
            return
        row = seen
