"""The move of a stored event to another place: copies first, and then the pointer.

    scheduled --(1)--> moving: names the target and the new due time
    (2) the copy is placed at the target, together with the target's gate     (3) the target's index row
    (4) moving --> moved, with the pointer

Every process that reads a `moving` row finishes steps 2 to 4. The target's name follows from the source alone, so all of them use one
place. `changing` begins moves, and describes those into a shard that is being filled (`joining`).

The steps that follow a redrive are here too: the pointers on the dead rows, and the number of redriven events on the ledger row of their
shard.

The counts of gates and ledger rows stay as they were when the events died. The ledger row has beside them, by channel, how many of its dead
events live on elsewhere; `GET /stats` and `/history` subtract them. The number is computed from the rows, so any process may repeat it. The
redriver notes it, and so does whoever closes the shard, after the row is inserted; and the owner of the copies does so before it delivers
one, which completes a redrive that ended half-way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from ...core.clock import Millis
from ...engine.effects import Steps, get, load, write
from ...storage.names import EVENTS, LEDGER
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
from ..points import Facets, Filing
from ..properties.late_reasons import WAITS
from ..rules import FINAL, GOING
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


REDRIVEN = "redriven"
"""Property of a ledger row: the redriven events of each channel, as JSON. Absent: none."""


def is_redriven(props: Mapping[str, Any]) -> bool:
    """Return True for the row of a dead event that lives on at another place."""
    return props["state"] == "dead" and bool(props.get("target"))


def redriven_by_channel(rows: Iterable[Row]) -> Counter[str]:
    """Return the number of redriven events of each channel."""
    return Counter(str(row.props.get("channel", "")) for row in rows if is_redriven(row.props))


def parse_redriven(props: Mapping[str, Any]) -> Counter[str]:
    """Return the redriven events of each channel as a ledger row notes them."""
    return Counter(orjson.loads(str(props.get(REDRIVEN) or "{}")))


def note_redriven(shard: str, ledger_key: str) -> Steps[bool]:
    """Write the number of redriven events to the shard's ledger row; return False if there is none yet: then its inserter does this."""
    while True:
        entry = yield from get(LEDGER, shard_tenant(shard), ledger_key)
        if entry is None:
            return False
        # Read after the ledger row: a pointer that is missing here is noted by the process that writes it.
        rows = yield from load(EVENTS, shard, FIRST_EVENT, END_EVENTS)
        found = redriven_by_channel(rows)
        if found == parse_redriven(entry.props):
            return True
        text = orjson.dumps(dict(found), option=orjson.OPT_SORT_KEYS).decode()
        if isinstance((yield from write(LEDGER, shard_tenant(shard), Merge(ledger_key, {REDRIVEN: text}, entry.etag))), Applied):
            return True


def point_sources(shard: str, rows: Mapping[str, Row], facets: Facets) -> Steps[set[str]]:
    """Complete the redrives that made these copies: give each dead row its pointer. Return the shards that the copies came from.

    rows: the rows of `shard`. Copies that were claimed before are left out: their first owner has done this. A copy that was cancelled or
    moved before any owner came gets no pointer here, but its source shard is returned: its redriver may have ended before noting the event.
    """
    copies: dict[str, dict[str, Row]] = {}
    for row in rows.values():
        if SOURCE in row.props and not row.props.get("tries"):
            source = parse_address(str(row.props[SOURCE]))
            waiting = copies.setdefault(source.shard, {})
            if row.props["state"] not in FINAL:
                waiting[source.row] = row
    for source_shard, wanted in copies.items():
        if not wanted:
            continue
        dead = yield from load(EVENTS, source_shard, FIRST_EVENT, END_EVENTS)
        for row in dead:
            if row.rk in wanted and row.props["state"] == "dead" and not row.props.get("target"):
                yield from point(source_shard, row, Address(shard, wanted[row.rk].rk), facets)
    return set(copies)
