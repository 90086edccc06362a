"""Cancel, edit, move and redrive: the changes that users make to a stored event.

Each changes only the event row, on its ETag. A claim carries the row's ETag too, so exactly one of the two succeeds.

A move copies and then points; it never deletes and inserts (`moving`).

A move can also join a shard that its process fills with other events:

    scheduled --(1)--> joining: names the very row at which the copy is to be stored, in a shard that has its index row
    (2) the writer stores the copy with its next transaction, and sends the shard's message     (3) joining --> moved, with the pointer

Only that writer stores the copy there. Any other process that reads a `joining` row looks for the copy; if it is missing, it seals the
shard and looks again, so that the copy is there or never will be, and then moves the event to the place that follows from its source.

Ids that are used again: an event with `collapse` takes the id of one that has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ...core.clock import Millis
from ...core.errors import OutcomeUnknown, Problem
from ...engine.effects import Steps, get, load, write
from ...storage.names import EVENTS, IDS
from ...storage.ports import Applied, Merge, Props, Row, WriteRefused
from ..facets import FACETS
from ..keys import END_EVENTS, FIRST_EVENT, Address, id_partition, id_row_key, minute_text, parse_address
from ..points import Filing
from ..properties.overlap import asked_props
from ..properties.receipts import RECEIVED, with_receipts
from ..rules import GOING, is_over, may_change
from .ingest import FreshId, KnownId, file_shard, register_id
from .moving import REDRIVE, SOURCE, copied, finish_move, place_at, point, redrive_purpose, target_shard

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
            row = yield from finish_move(address.shard, row, FACETS)
        pointer = row.props.get("target")
        if not pointer:
            return row
        address = parse_address(str(pointer))


def edit(address: Address, change: Props, match: Match | None = None) -> Steps[ChangeResult]:
    """Merge `change` into the event at its current place, if it may still be changed and `match` does not raise."""
    return (yield from edit_as_found(address, lambda props: as_written(change, props), match))


def as_written(change: Props, props: Mapping[str, Any]) -> Props:
    """Return a change as it is written to a row with these properties."""
    return with_receipts(FACETS.written(change, props), props)


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
        answer = yield from write(EVENTS, row.pk, Merge(row.rk, {**change, **FACETS.touched(row.props)}, row.etag))
        if isinstance(answer, Applied):
            return Done(Row(row.pk, row.rk, {**row.props, **change}, answer.etags[0], row.timestamp, row.read_at))
        if not isinstance(answer, WriteRefused):
            unsure, in_doubt = row, True


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
    change: Props = {"state": "cancelled", "ended": now, "by": nonce, **receipt}
    ops = (Merge(row.rk, {**as_written(change, row.props), **FACETS.touched(row.props)}, row.etag) for row in rows)
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


def without_window(props: Props) -> Props:
    """Return the event's row without its flexible window: it is due at a newly chosen instant."""
    return {key: value for key, value in props.items() if key not in WINDOW}


def redrive(
    source: str, rows: Mapping[str, Row], now: Millis, nonce: str, keep: Callable[[str], Steps[bool]] | None = None
) -> Steps[dict[str, Address] | None]:
    """Redrive dead events of one shard: marks, then index row, gate and copies, and only then the pointers; return the address of each
    copy. Events whose rows have been removed meanwhile are left out.

    Never through `moving`, because nothing would wake a finished shard to continue. A crash after the index row leaves a shard that
    finishes empty or fires; a crash after the copies leaves dead rows without a pointer. The copies' owner, or the next redrive, points
    the rows to them (`moving`).

    keep: steps after which a mirrored shard's other account has what is stored of it, or gets it before it serves; False ends the redrive
    with None. A process that continues there must find the marks, and must find a place shut that was shut here.
    """
    if keep is not None:
        # A mark that was read before the other account served, and before this one served again, may not be the row's any more.
        rows = yield from _dead(source, rows)
    dead = yield from mark(source, rows, nonce)
    if keep is not None and not (yield from keep(source)):
        return None
    placed = {rk: parse_address(str(row.props["target"])) for rk, row in dead.items() if row.props.get("target")}
    groups: dict[str, dict[str, Row]] = {}
    for rk, row in dead.items():
        if rk not in placed:
            groups.setdefault(redrive_purpose(row.props), {})[rk] = row
    for purpose, group in groups.items():
        found = yield from _place_copies(source, purpose, group, now, keep)
        if found is None:
            return None
        placed |= found
    for rk, row in dead.items():
        yield from point(source, row, placed[rk], FACETS)
    return placed


def mark(source: str, rows: Mapping[str, Row], nonce: str) -> Steps[dict[str, Row]]:
    """Give dead rows of one shard the mark from which the place of each copy follows, at most 100 in one transaction; return the rows as
    they are then, without those that were removed.

    Nothing is placed before its row has a mark, and no mark is changed: so all processes that redrive an event use one place, and none
    looks at the places of the shard's earlier redrives.
    """
    dead = dict(rows)
    while fresh := [row for row in dead.values() if REDRIVE not in row.props and not row.props.get("target")]:
        changes: list[Props] = [{REDRIVE: nonce, **FACETS.touched(row.props)} for row in fresh]
        ops = (Merge(row.rk, change, row.etag) for row, change in zip(fresh, changes, strict=True))
        answer = yield from write(EVENTS, source, *ops)
        if isinstance(answer, Applied):
            for row, change, etag in zip(fresh, changes, answer.etags, strict=True):
                dead[row.rk] = Row(row.pk, row.rk, {**row.props, **change}, etag, row.timestamp, row.read_at)
        else:
            # Another process may have marked some of them, or the answer was lost.
            dead = yield from _dead(source, dead)
    return dead


def _dead(source: str, wanted: Collection[str]) -> Steps[dict[str, Row]]:
    """Return those rows of a shard, as they are now, that are dead."""
    rows = yield from load(EVENTS, source, FIRST_EVENT, END_EVENTS)
    return {row.rk: row for row in rows if row.rk in wanted and row.props["state"] == "dead"}


def _place_copies(
    source: str, purpose: str, rows: Mapping[str, Row], now: Millis, keep: Callable[[str], Steps[bool]] | None
) -> Steps[dict[str, Address] | None]:
    """File and store the copies of dead events with one mark; the parameters and the result are those of `redrive`."""
    placed: dict[str, Address] = {}
    attempt = 0
    copies: dict[str, Props] = {
        rk: {**without_window(copied(row.props, now, FACETS)), "tries": 0, "failed": 0, "free": 0} for rk, row in rows.items()
    }
    for rk, copy in copies.items():
        former = Address(source, rk)
        copy |= FACETS.came_from(former) or {SOURCE: former.text}
    while len(placed) < len(copies):
        shard = target_shard(source, purpose, attempt)
        yield from file_shard(shard, now, sent=False)
        yield from FACETS.before_store(Filing(shard, minute_text(now), {}), list(copies.values()))
        yield from place_at(shard, {rk: props for rk, props in copies.items() if rk not in placed}, placed, now)
        attempt += 1
        if len(placed) < len(copies) and keep is not None and not (yield from keep(shard)):
            return None
    return placed


BEFORE = "before"
"""Property of a row of ids: the place of the ended event from which the id was taken over last. Absent: it never was."""


def reuse_id(
    tenant: str, event_id: str, body_hash: str, here: Address, may_take: Callable[[Props], bool] = is_over
) -> Steps[FreshId | KnownId]:
    """Do what `register_id` does; if the id names an event that has ended, let it name `here` instead.

    may_take: returns True if the id may be taken over from an event with these properties. An event that has taken the id over may never
    be stored. Then the ended event before it is asked for once more, because its receipt is later than those of some requests.

    The id row is merged on the ETag under which it named the ended event, so that of several callers one gets the id.
    """

    def standing(named: Row) -> Steps[Row | None]:
        if not named.props.get(BEFORE):
            return None
        before = yield from find(parse_address(str(named.props[BEFORE])))
        return before if before is not None and not may_take(before.props) else None

    while True:
        known = yield from register_id(tenant, event_id, body_hash, here, standing)
        if isinstance(known, FreshId):
            return known
        named = yield from get(IDS, id_partition(tenant, event_id), id_row_key(event_id))
        if named is None:
            continue
        current = yield from find(parse_address(str(named.props["at"])))
        if current is None and (before := (yield from standing(named))) is not None:
            return KnownId(before, known.hash)
        if current is None:
            continue
        if not may_take(current.props):
            return KnownId(current, known.hash)
        change: Props = {"at": here.text, "hash": body_hash, BEFORE: Address(current.pk, current.rk).text}
        answer = yield from write(IDS, named.pk, Merge(named.rk, change, named.etag))
        if isinstance(answer, Applied):
            return FreshId()
