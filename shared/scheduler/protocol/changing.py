"""Cancel, edit, move and redrive: what users do to an event that is already stored.

Each changes the event row alone, on its ETag. A claim carries the row's ETag too, so exactly one of the two gets through.

A move copies and then points; it never deletes and inserts:

    scheduled --(1)--> moving: names the target and the new due time
    (2) the copy is placed at the target, together with the target's gate     (3) the target's index row
    (4) moving --> moved, with the pointer

Whoever meets a `moving` row finishes 2 to 4. The target's name follows from the source alone, so all of them meet at one place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from ...core.clock import Millis
from ...engine.effects import Steps, get, load, write
from ...storage.names import EVENTS
from ...storage.ports import Applied, Insert, Merge, Op, Props, Refused, Row
from ..keys import (
    END_EVENTS,
    FIRST_EVENT,
    GATE,
    MIRRORED,
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
from ..rules import may_change
from .gate import Counts, Gate, merge_gate, parse_gate, read_gate
from .ingest import file_shard

ORIGIN = "origin"
"""In a copy in another account: the ETag of the row that it was copied from (`mirroring`)."""
CAME = "came"
"""In a mirrored event that has moved here, or was brought back: where it was before, so that no copy shows it as alive at both."""
OWN = frozenset({"state", "target", "target_due", "moving", "epoch", "flag", "next", "waited", "ended", "late", "by", ORIGIN, CAME})
"""Properties that belong to a row's place, or to its due time, not to the event: a copy starts without them."""

WINDOW = frozenset({"flex", "shift"})


class Done(NamedTuple):
    """The change is in; `row` is the event where it now lives."""

    row: Row


type ChangeResult = Done | Literal["already-firing", "already-final", "missing"]
type Match = Callable[[Row], None]
"""Raises when the event is no longer as the caller saw it (`If-Match`)."""


def find(address: Address) -> Steps[Row | None]:
    """The event where it lives now: pointers are followed, a half-way move is finished."""
    while True:
        row = yield from get(EVENTS, address.shard, address.row)
        if row is None:
            return None
        if row.props["state"] == "moving":
            row = yield from finish_move(address.shard, row)
        pointer = row.props.get("target")
        if not pointer:
            return row
        address = parse_address(str(pointer))


def edit(address: Address, change: Props, match: Match | None = None) -> Steps[ChangeResult]:
    """Merge `change` into the event, wherever it lives, if it may still be changed and `match` does not object."""
    unsure: Row | None = None
    while True:
        row = None
        if unsure is not None:
            # A write on this ETag may be in, or still be under way. It is looked for where it went: by now the row may have moved on.
            seen = yield from get(EVENTS, unsure.pk, unsure.rk)
            if seen is not None and is_in(change, seen.props):
                return Done((yield from find(Address(seen.pk, seen.rk))) or seen)
            # The same change on the same ETag can be applied once at most, so it is safe to try again; on another ETag it is dead.
            row = seen if seen is not None and seen.etag == unsure.etag else None
        if row is None:
            unsure = None
            row = yield from find(address)
        if row is None:
            return "missing"
        if match is not None:
            match(row)
        verdict = may_change(row.props)
        if verdict in ("already-firing", "already-final"):
            return verdict
        if verdict != "yes":
            continue
        answer = yield from write(EVENTS, row.pk, Merge(row.rk, change, row.etag))
        if isinstance(answer, Applied):
            return Done(Row(row.pk, row.rk, {**row.props, **change}, answer.etags[0], row.timestamp, row.read_at))
        if not isinstance(answer, Refused):
            unsure = row


def is_in(change: Props, props: Mapping[str, Any]) -> bool:
    """Whether the row has this very change. A move is known by its name: somebody else may have finished it since."""
    if "moving" in change:
        return props.get("moving") == change["moving"]
    return all(props.get(key) == value for key, value in change.items())


def cancel(address: Address, now: Millis, nonce: str, match: Match | None = None) -> Steps[ChangeResult]:
    """Cancel the event. Once this has answered `Done`, no delivery of it starts."""
    return (yield from edit(address, {"state": "cancelled", "ended": now, "by": nonce}, match))


def move(address: Address, due: Millis, change: Props, nonce: str, match: Match | None = None) -> Steps[ChangeResult]:
    """Give the event another due time, and whatever else `change` holds. It fires at one of both times, once."""
    started = yield from edit(address, {**change, "state": "moving", "target_due": due, "moving": nonce}, match)
    if not isinstance(started, Done):
        return started
    # Finding the event finishes its move.
    found = yield from find(Address(started.row.pk, started.row.rk))
    return Done(found) if found is not None else "missing"


def finish_move(shard: str, row: Row) -> Steps[Row]:
    """Steps 2 to 4 for a `moving` row; returns the row as `moved`. Idempotent, by any number of finishers at once."""
    while row.props["state"] == "moving":
        due = int(row.props["target_due"])
        wake = moved_wake(row.props, due)
        copy = copied(row.props, due)
        if place_of(shard) == MIRRORED:
            copy[CAME] = Address(shard, row.rk).text
        target = yield from place(shard, f"move:{row.rk}", {row.rk: copy}, wake)
        yield from file_shard(target[row.rk].shard, wake, sent=False)
        moved: Props = {"state": "moved", "target": target[row.rk].text}
        answer = yield from write(EVENTS, shard, Merge(row.rk, moved, row.etag))
        if isinstance(answer, Applied):
            return Row(row.pk, row.rk, {**row.props, **moved}, answer.etags[0], row.timestamp, row.read_at)
        seen = yield from get(EVENTS, shard, row.rk)
        if seen is None:
            break
        row = seen
    return row


def moved_wake(props: Props, due: Millis) -> Millis:
    """Where a moved event is filed: under its due time, but no earlier a minute than it came in, so that lists by time find it."""
    return max(due, int(props.get("created", due)))


def copied(props: Props, due: Millis) -> Props:
    """The event as it starts at its new place."""
    return {**{key: value for key, value in props.items() if key not in OWN}, "state": "scheduled", "due": due}


def without_window(props: Props) -> Props:
    """The event without its flexible window: due at an instant that was chosen anew."""
    return {key: value for key, value in props.items() if key not in WINDOW}


def target_shard(source: str, purpose: str, attempt: int) -> str:
    """The place that all who carry the same events from `source` meet at."""
    name = derived_name(source, purpose, str(attempt))
    return shard_key(shard_tenant(source), placed(name, place_of(source)))


def place(source: str, purpose: str, copies: Mapping[str, Props], wake: Millis) -> Steps[dict[str, Address]]:
    """Bring copies to their deterministic target, together with its gate; answers where each one is.

    "Exists" is done. A gate that is not open, with the row not there, means the next attempt's name: it can never take the row any
    more. An open gate is merged on its ETag, which also kills an insert that is still travelling.
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
    """One attempt of `place`: False when this target is shut and some rows are not there."""
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


def redrive(
    source: str, rows: Mapping[str, Row], now: Millis, shut: Callable[[str], Steps[bool]] | None = None
) -> Steps[dict[str, Address] | None]:
    """Bring dead events of one shard back: index row, gate and copies, and only then the pointers; answers where each one is.

    Never through `moving`: nothing would wake a finished shard to carry on. A crash after the index row leaves a shard that finishes
    empty or fires; after the copies, dead rows without a pointer, which the next redrive points to the same copies.

    shut: what must be done about a place that turned out to be shut before the next one is begun (False ends it, with None): whoever
    carries on in a copy must find it shut too.
    """
    placed: dict[str, Address] = {}
    attempt = 0
    copies: dict[str, Props] = {rk: {**without_window(copied(row.props, now)), "tries": 0, "failed": 0} for rk, row in rows.items()}
    if place_of(source) == MIRRORED:
        for rk, copy in copies.items():
            copy[CAME] = Address(source, rk).text
    while len(placed) < len(copies):
        shard = target_shard(source, "redrive", attempt)
        yield from file_shard(shard, now, sent=False)
        yield from place_at(shard, {rk: props for rk, props in copies.items() if rk not in placed}, placed, now)
        attempt += 1
        if len(placed) < len(copies) and shut is not None and not (yield from shut(shard)):
            return None
    for rk, row in rows.items():
        yield from point(source, row, placed[rk])
    return placed


def point(source: str, row: Row, target: Address) -> Steps[None]:
    """Give a dead row its pointer, unless it has one."""
    while not row.props.get("target"):
        answer = yield from write(EVENTS, source, Merge(row.rk, {"target": target.text}, row.etag))
        if isinstance(answer, Applied):
            return
        seen = yield from get(EVENTS, source, row.rk)
        if seen is None:
            return
        row = seen
