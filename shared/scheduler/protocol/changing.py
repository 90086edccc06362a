"""Cancel, edit, move and redrive: the changes that users make to a stored event.

Each changes only the event row, on its ETag. A claim carries the row's ETag too, so exactly one of the two succeeds.

A move copies and then points; it never deletes and inserts:

    scheduled --(1)--> moving: names the target and the new due time
    (2) the copy is placed at the target, together with the target's gate     (3) the target's index row
    (4) moving --> moved, with the pointer

Every process that reads a `moving` row finishes steps 2 to 4. The target's name follows from the source alone, so all of them use one
place.

A move can also join a shard that its process fills with other events:

    scheduled --(1)--> joining: names the very row at which the copy is to be stored, in a shard that has its index row
    (2) the writer stores the copy with its next transaction, and sends the shard's message     (3) joining --> moved, with the pointer

Only that writer stores the copy there. Any other process that reads a `joining` row looks for the copy; if it is missing, it seals the
shard and looks again, so that the copy is there or never will be, and then moves the event to the place that follows from its source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from ...core.clock import Millis
from ...core.errors import OutcomeUnknown, Problem
from ...engine.effects import Steps, get, load, write
from ...storage.names import EVENTS
from ...storage.ports import Applied, Insert, Merge, Op, Props, Row, WriteRefused
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
from ..late_reasons import WAITS
from ..overlap import asked_props
from ..receipts import RECEIVED, with_receipts
from ..rules import GOING, may_change
from ..shard.gate import Counts, Gate, merge_gate, parse_gate, read_gate
from ..shard.owed import CALLBACK, OWED, with_callbacks
from ..timings import KEEP_FINISHED
from ..work_rows import WORK
from .ingest import file_shard, read_named
from .label_rows import file_labels

ORIGIN = "origin"
"""Property of a copy in another account: the ETag of the row that it was copied from (`mirroring`)."""
CAME = "came"
"""Property of a mirrored event that was moved or redriven here: its former place, so that no copy shows it as alive at both."""
SOURCE = "redrove"
"""Property of a redriven event that is not mirrored: the place where it died."""
FORMER = "former"
"""Property of an event that was moved to a much earlier time: its former place. If the move stopped before its pointer, nothing wakes that
place before retention removes this one; retention then completes the move first, so that the event is not placed here once more."""
MUCH_EARLIER: Millis = KEEP_FINISHED // 2
OWN = frozenset(
    {"state", "target", "target_due", "moving", "goal", "epoch", "flag", "next", "waited", "ended", "late", "by"}
    | {ORIGIN, CAME, SOURCE, FORMER, OWED, CALLBACK, WORK, WAITS}
)
"""Properties that belong to a row's place or due time and not to the event: a copy starts without them."""

WINDOW = ("flex", "shift")
"""Properties of an event that was taken forward into its window. In this order in every row."""


class Done(NamedTuple):
    """The change is stored; `row` is the event at its current place. moved: the change gave it this place. left: the place, now `moved`,
    at which the change was made, if the event has left it."""

    row: Row
    moved: bool = False
    left: Row | None = None


type ChangeResult = Done | Literal["already-firing", "already-final", "missing"]
type Match = Callable[[Row], None]
"""Raises if the event is no longer as the caller read it (`If-Match`)."""


def find(address: Address) -> Steps[Row | None]:
    """Return the event at its current place: follows pointers and finishes an interrupted move."""
    while True:
        row = yield from get(EVENTS, address.shard, address.row)
        if row is None:
            return None
        if row.props["state"] in GOING:
            row = yield from finish_move(address.shard, row)
        pointer = row.props.get("target")
        if not pointer:
            return row
        address = parse_address(str(pointer))


def edit(address: Address, change: Props, match: Match | None = None) -> Steps[ChangeResult]:
    """Merge `change` into the event at its current place, if it may still be changed and `match` does not raise."""
    return (yield from edit_as_found(address, lambda props: as_written(change, props), match))


def as_written(change: Props, props: Mapping[str, Any]) -> Props:
    """Return a change as it is written to a row with these properties."""
    return with_receipts(with_callbacks(change, props), props)


def edit_as_found(address: Address, change_of: Callable[[Props], Props], match: Match | None = None) -> Steps[ChangeResult]:
    """Make a change that follows from the event's present properties. The write is on the ETag of the row that it follows from."""
    unsure: Row | None = None
    in_doubt = False
    while True:
        row = None
        if unsure is not None:
            # A write on this ETag may be stored, or still in flight. It is looked for where it was sent, because the event may have moved
            # since.
            seen = yield from get(EVENTS, unsure.pk, unsure.rk)
            if seen is not None and is_in(change_of(unsure.props), seen.props):
                stands = (yield from find(Address(seen.pk, seen.rk))) or seen
                return Done(stands, left=_left(seen, stands))
            # The same change on the same ETag can be applied once at most, so a repetition is safe. If the ETag has changed, that write is
            # refused.
            row = seen if seen is not None and seen.etag == unsure.etag else None
        if row is None:
            unsure = None
            row = yield from find(address)
        if row is None:
            return "missing"
        if match is not None:
            try:
                match(row)
            except Problem as refused:
                if in_doubt and refused.outcome == "unchanged":
                    raise OutcomeUnknown("the call's write may still be under way") from refused
                raise
        verdict = may_change(row.props)
        if verdict in ("already-firing", "already-final"):
            return verdict
        if verdict != "yes":
            continue
        change = change_of(row.props)
        answer = yield from write(EVENTS, row.pk, Merge(row.rk, {**change, **no_copy(row)}, row.etag))
        if isinstance(answer, Applied):
            return Done(Row(row.pk, row.rk, {**row.props, **change}, answer.etags[0], row.timestamp, row.read_at))
        if not isinstance(answer, WriteRefused):
            unsure, in_doubt = row, True


def no_copy(row: Row) -> Props:
    """Return the property by which a row that is changed here is no longer taken for a copy of the other account's row.

    A process that has not heard of a change of sides may make the change in the account that does not serve. The next pass of the copying
    then sees that the row differs.
    """
    return {ORIGIN: ""} if row.props.get(ORIGIN) else {}


def is_in(change: Props, props: Mapping[str, Any]) -> bool:
    """Return True if the row has exactly this change. A move is recognised by its name, because another process may have finished it."""
    if "moving" in change:
        return props.get("moving") == change["moving"]
    # Another change of other members may have added its receipt.
    return all(props.get(key) == value for key, value in change.items() if key != RECEIVED)


def cancel(address: Address, now: Millis, nonce: str, match: Match | None = None, receipt: Props | None = None) -> Steps[ChangeResult]:
    """Cancel the event. After `Done`, no delivery of it starts. receipt: the request's, as a property of the row."""
    return (yield from edit(address, {"state": "cancelled", "ended": now, "by": nonce, **(receipt or {})}, match))


def cancel_together(rows: Sequence[Row], now: Millis, nonce: str, receipt: Props) -> Steps[bool]:
    """Cancel at most 100 events of one shard, of which `may_change` says yes, as they were just read: all of them or none.

    It equals that many single cancels without anything in between. Returns False if a row has changed, or if no answer came: then cancel
    them one by one.
    """
    ops = (Merge(row.rk, {"state": "cancelled", "ended": now, "by": nonce, **receipt, **no_copy(row)}, row.etag) for row in rows)
    answer = yield from write(EVENTS, rows[0].pk, *ops)
    return isinstance(answer, Applied)


def move(
    address: Address, due: Millis, change: Props, nonce: str, match: Match | None = None, *, asked: bool = False
) -> Steps[ChangeResult]:
    """Give the event another due time, and apply `change`. It fires once, at one of the two times. asked: a user wants it delivered now."""

    def change_of(props: Props) -> Props:
        made = as_written(change, props)
        return start_of_move(due, {**made, **asked_props(props)} if asked else made, nonce)

    return (yield from finished((yield from edit_as_found(address, change_of, match))))


def edit_or_move(address: Address, change: Props, nonce: str, match: Match | None = None) -> Steps[ChangeResult]:
    """Apply `change`, which leaves the due time as it is. An event that becomes larger moves to a shard of its own.

    A shard's bytes are counted when it is filled, and they bound memory. The event keeps the due time that it has when its move begins: one
    that was read earlier could undo a move that was stored since.
    """
    moves = False

    def change_of(props: Props) -> Props:
        nonlocal moves
        moves = int(change.get("size", 0)) > int(props.get("size", 0))
        made = as_written(change, props)
        return start_of_move(int(props["due"]), made, nonce) if moves else made

    started = yield from edit_as_found(address, change_of, match)
    return (yield from finished(started)) if moves else started


def begin_join(address: Address, due: Millis, change: Props, nonce: str, goal: Address, match: Match | None = None) -> Steps[ChangeResult]:
    """Begin to move the event to `goal`, in a shard that this process fills and has filed. After `Done`, store the copy there if the row is
    `is_joining`, and then call `end_join`; whatever comes in between, `finished` leads to the one place of the event.
    """
    return (yield from edit(address, start_of_move(due, change, nonce, goal), match))


def is_joining(row: Row, goal: Address) -> bool:
    """Return True if the row's event is on its way to `goal`."""
    return row.props["state"] == "joining" and row.props["goal"] == goal.text


def end_join(row: Row, copy: Row) -> Steps[ChangeResult]:
    """Point a `joining` row to its copy, which is stored."""
    answer = yield from write(EVENTS, row.pk, Merge(row.rk, {"state": "moved", "target": Address(copy.pk, copy.rk).text}, row.etag))
    return Done(copy, moved=True, left=row) if isinstance(answer, Applied) else (yield from finished(Done(row)))


def start_of_move(due: Millis, change: Props, nonce: str, goal: Address | None = None) -> Props:
    """Return the properties of a row whose event begins to move, with `change`. goal: the row of a shared shard at which it joins."""
    way: Props = {"state": "moving"} if goal is None else {"state": "joining", "goal": goal.text}
    return {**change, **way, "target_due": due, "moving": nonce}


def finished(started: ChangeResult) -> Steps[ChangeResult]:
    """Finish a move that has begun; return the event at its new place."""
    if not isinstance(started, Done):
        return started
    # `find` finishes the event's move.
    found = yield from find(Address(started.row.pk, started.row.rk))
    if found is None:
        return "missing"
    return Done(found, moved=True, left=started.left or _left(started.row, found))


def _left(row: Row, stands: Row) -> Row | None:
    """Return the row if its event, which now stands elsewhere, has moved away from it; a redriven one has ended there before."""
    away = (row.pk, row.rk) != (stands.pk, stands.rk) and (row.props["state"] in GOING or row.props["state"] == "moved")
    return row if away else None


def finish_move(shard: str, row: Row) -> Steps[Row]:
    """Finish the move of a row in a state of `GOING`; return the row as `moved`. Idempotent, for any number of processes at once."""
    while row.props["state"] in GOING:
        target = (yield from _joined(row)) if row.props["state"] == "joining" else None
        if target is None:
            target = yield from _placed(shard, row)
        moved: Props = {"state": "moved", "target": target.text, **no_copy(row)}
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


def _placed(shard: str, row: Row) -> Steps[Address]:
    """Do steps 2 and 3 for a `moving` row, at the place that follows from it."""
    due = int(row.props["target_due"])
    wake = moved_wake(row.props, due)
    copy = copied(row.props, due)
    if place_of(shard) == MIRRORED:
        copy[CAME] = Address(shard, row.rk).text
    if int(row.props["due"]) - due > MUCH_EARLIER:
        copy[FORMER] = Address(shard, row.rk).text
    target = yield from place(shard, f"move:{row.rk}", {row.rk: copy}, wake)
    yield from file_shard(target[row.rk].shard, wake, sent=False)
    # Before the pointer: until then lists show the event here.
    yield from file_labels(target[row.rk].shard, minute_text(wake), (copy,), set())
    return target[row.rk]


def moved_wake(props: Props, due: Millis) -> Millis:
    """Return the time under which a moved event is filed: its due time, but not before the minute of its creation, so that lists by time
    find it."""
    return max(due, int(props.get("created", due)))


def copied(props: Props, due: Millis) -> Props:
    """Return the event's row as it starts at its new place."""
    return {**{key: value for key, value in props.items() if key not in OWN}, "state": "scheduled", "due": due}


def without_window(props: Props) -> Props:
    """Return the event's row without its flexible window: it is due at a newly chosen instant."""
    return {key: value for key, value in props.items() if key not in WINDOW}


def target_shard(source: str, purpose: str, attempt: int) -> str:
    """Return the place that every process which moves the same events out of `source` uses."""
    name = derived_name(source, purpose, str(attempt))
    return shard_key(shard_tenant(source), placed(name, place_of(source)))


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


def redrive(
    source: str, rows: Mapping[str, Row], now: Millis, shut: Callable[[str], Steps[bool]] | None = None
) -> Steps[dict[str, Address] | None]:
    """Redrive dead events of one shard: index row, gate and copies, and only then the pointers; return the address of each copy.

    Never through `moving`, because nothing would wake a finished shard to continue. A crash after the index row leaves a shard that
    finishes empty or fires; a crash after the copies leaves dead rows without a pointer. The copies' owner, or the next redrive, points
    the rows to them (`redriving`).

    shut: steps for a place that turned out to be shut, before the next one is begun; False ends the redrive with None. A process that
    continues in a copy must find that place shut too.
    """
    placed: dict[str, Address] = {}
    attempt = 0
    copies: dict[str, Props] = {
        rk: {**without_window(copied(row.props, now)), "tries": 0, "failed": 0, "free": 0} for rk, row in rows.items()
    }
    for rk, copy in copies.items():
        copy[CAME if place_of(source) == MIRRORED else SOURCE] = Address(source, rk).text
    while len(placed) < len(copies):
        shard = target_shard(source, "redrive", attempt)
        yield from file_shard(shard, now, sent=False)
        yield from file_labels(shard, minute_text(now), list(copies.values()), set())
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
        answer = yield from write(EVENTS, source, Merge(row.rk, {"target": target.text, **no_copy(row)}, row.etag))
        if isinstance(answer, Applied):
            return
        seen = yield from get(EVENTS, source, row.rk)
        if seen is None:
            return
        row = seen
