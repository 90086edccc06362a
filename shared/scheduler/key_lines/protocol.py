"""The line of an ordering key in storage (`rules`).

    TocsinLimits, key:{00..3f}     {line}                  the turns, and the rate; absent while no turn is given. That of a schedule that
                                                           skips stays, with its last busy span and its count of skipped occurrences
                                   {line}:{ticket}         one row for each event that waits; `at`: where the event is, or was

A ticket is inserted before its event is stored, and removed in the transaction that ends its turn. Every change of turns is one
transaction on the ETag of the line's row, based on one read of the row and the first tickets. So of two owners that ask at once, one is
refused, reads again, and finds the other's turn.

An owner ends a turn only after it has stored what became of the event. If it does not come to that, whoever is kept waiting looks at the
event itself, and removes the turn or the ticket of one that has ended, or moved to another time.

A skipped occurrence is settled first; then its ticket is removed in the transaction that counts it. The line keeps the last
span in which an event was due and had not ended, so an occurrence that became due in it is skipped whenever its owner looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...core.clock import Millis
from ...delivery.channels.model import KeyLimits
from ...engine.effects import Steps, get, load_first, write
from ...storage.names import IDS, LIMITS
from ...storage.ports import ANY, Applied, Delete, Insert, Merge, Op, Row, Upsert, WriteRefused
from ..keys import Address, id_partition, id_row_key, parse_address, shard_tenant
from ..properties.overlap import SKIPPED, overlap_of
from ..protocol.changing import find
from ..rules import FINAL
from .rules import (
    NO_SKIPS,
    NOT_BUSY,
    TURN_LASTS,
    YOUNG,
    Asker,
    BusySpan,
    KeyLine,
    LineState,
    Turn,
    TurnQuestion,
    busy_span,
    grant,
    line_of_event,
    parse_line,
    ticket_of,
)

FIRST_TICKETS = 60
"""Tickets that are read: more than a run."""
LOOKS = 30
"""Most stale tickets that one question removes."""


def line_up(line: KeyLine, tickets: Mapping[str, Address]) -> Steps[None]:
    """Store tickets of one line. One that exists leads to the new place then: an earlier request may not have stored its event."""
    rows = [Upsert(line.ticket_row(ticket), {"at": address.text}) for ticket, address in tickets.items()]
    for first in range(0, len(rows), 99):
        while not isinstance((yield from write(LIMITS, line.partition, *rows[first : first + 99])), Applied):
            pass


class TurnAnswer(NamedTuple):
    """The answer to an owner that asks for turns. following: shards whose events are entitled to a turn."""

    granted: dict[str, Millis]
    following: tuple[str, ...] = ()
    again: Millis | None = None
    outdated: bool = False
    behind: str = ""
    """The id of an event that is ahead; '' if none is."""
    skipped: Mapping[str, str] = NO_SKIPS
    """Tickets of the asker's occurrences that are to be skipped, and the id of an event ahead of each; '' if it has ended since."""


class SeenLine(NamedTuple):
    """A line as read: its row, its first tickets, and whether these are all."""

    row: Row | None
    state: LineState
    tickets: dict[str, Row]
    whole: bool


def read_line(line: KeyLine) -> Steps[SeenLine]:
    """Read a line's row and first tickets, as one query gives them."""
    rows = yield from load_first(LIMITS, line.partition, line.name, line.end, FIRST_TICKETS)
    own = rows[0] if rows and rows[0].rk == line.name else None
    skip = len(line.name) + 1
    tickets = {row.rk[skip:]: row for row in rows if row is not own}
    return SeenLine(own, parse_line(own.props) if own is not None else LineState(), tickets, len(rows) < FIRST_TICKETS)


def exchange(question: TurnQuestion, now: Millis) -> Steps[TurnAnswer]:
    """End turns of the asker, and ask for others."""
    line, limits, wanted, ended = question.line, question.limits, question.wanted, question.ended
    gone = {ticket for ticket, place in ended.items() if place is None}
    stays = {ticket: place for ticket, place in ended.items() if place is not None}
    known: set[str] = set()
    for _ in range(LOOKS):
        seen = yield from read_line(line)
        waiting = [ticket for ticket in {**seen.tickets, **stays} if ticket not in gone]
        before = seen.state.with_end(question.busy, question.skipped & seen.tickets.keys())
        found = grant(before, waiting, question, now)
        if found.outdated:
            return TurnAnswer({}, outdated=True)
        missing = {**stays, **{ticket: place for ticket, place in wanted.items() if ticket not in found.granted}}
        ops = ticket_ops(line, seen, gone, {ticket: missing[ticket] for ticket in missing.keys() - known})
        if (op := line_op(line, seen, found.line, now)) is None and ops and seen.row is not None:
            # On the row's ETag: nobody ends a turn between the read and this write, and misses a ticket.
            op = Merge(line.name, found.line.props(), seen.row.etag)
        own = () if op is None else (op,)
        if own or ops:
            answer = yield from write(LIMITS, line.partition, *own, *ops)
            if isinstance(answer, WriteRefused) and answer.at >= len(own) and isinstance(refused := ops[answer.at - len(own)], Insert):
                # A ticket behind those that were read.
                known.add(refused.rk[len(line.name) + 1 :])
            if not isinstance(answer, Applied):
                continue
        if found.behind and (yield from _clear_stale(line, seen, found.behind, limits, now)):
            continue
        shards = [parse_address(str(seen.tickets[ticket].props["at"])).shard for ticket in found.following if ticket in seen.tickets]
        behind = found.behind[0].partition(":")[2] if found.behind else ""
        # Only tickets that were read: the removal of a ticket counts a skipped occurrence, once.
        skips = {ticket: ahead.partition(":")[2] for ticket, ahead in found.skipped.items() if ticket in seen.tickets}
        return TurnAnswer(found.granted, tuple(dict.fromkeys(shards)), found.again, behind=behind, skipped=skips)
    return TurnAnswer({}, again=now + 1_000)


def ticket_ops(line: KeyLine, seen: SeenLine, gone: set[str], missing: Mapping[str, Address]) -> list[Op]:
    """Return the operations that remove tickets, and insert those that were not among the read ones and sort before their end."""
    last = max(seen.tickets, default="")
    ops: list[Op] = [Delete(line.ticket_row(ticket), seen.tickets[ticket].etag) for ticket in sorted(gone & seen.tickets.keys())]
    inserts = sorted(ticket for ticket in missing if ticket not in seen.tickets and (seen.whole or ticket < last))
    return ops + [Insert(line.ticket_row(ticket), {"at": missing[ticket].text}) for ticket in inserts[: 99 - len(ops)]]


def line_op(line: KeyLine, seen: SeenLine, after: LineState, now: Millis) -> Op | None:
    """Return the change of the line's row, on the ETag as read; None if it stays."""
    if not after.turns and after.free <= now and not (after.busy or after.skips):
        return None if seen.row is None else Delete(line.name, seen.row.etag)
    if seen.row is None:
        return Insert(line.name, after.props())
    return None if after == seen.state else Merge(line.name, after.props(), seen.row.etag)


def _clear_stale(line: KeyLine, seen: SeenLine, tickets: Sequence[str], limits: KeyLimits, now: Millis) -> Steps[bool]:
    """Remove the first of these tickets that is stale, with its turn; return True if there was one, or the line has changed."""
    turns = {turn.ticket: turn for turn in seen.state.turns}
    for ticket in tickets[:3]:
        row, turn = seen.tickets.get(ticket), turns.get(ticket)
        stale = yield from find_stale(line, ticket, row, turn, limits, now)
        ops: list[Op] = []
        after = seen.state.with_end(stale.busy, (ticket,) if stale.skipped and row is not None else ())
        if stale.turn:
            after = after._replace(turns=tuple(each for each in after.turns if each.ticket != ticket))
        if after != seen.state and (own := line_op(line, seen, after, now)) is not None:
            ops.append(own)
        if stale.ticket and row is not None:
            ops.append(Delete(row.rk, row.etag))
        if ops:
            yield from write(LIMITS, line.partition, *ops)
            return True
    return False


class StaleTicket(NamedTuple):
    """Marks of an event whose ticket, or whose turn, no longer counts."""

    ticket: bool
    turn: bool
    busy: BusySpan = NOT_BUSY
    """The time from the due time of the event to its end, for a schedule that skips."""
    skipped: bool = False
    """The event was skipped."""


def find_stale(line: KeyLine, ticket: str, row: Row | None, turn: Turn | None, limits: KeyLimits, now: Millis) -> Steps[StaleTicket]:
    """Look at the event itself."""
    place = parse_address(str(row.props["at"]) if row is not None else turn.address if turn is not None else "/")
    event_id = ticket.partition(":")[2]
    event = yield from find(place)
    if (event is None or event.props["id"] != event_id) and "." not in event_id and row is not None:
        # Of two requests with this id, the other one may have stored the event.
        named = yield from get(IDS, id_partition(shard_tenant(place.shard), event_id), id_row_key(event_id))
        event = (yield from find(parse_address(str(named.props["at"])))) if named is not None else None
    old = row is not None and row.read_at - row.timestamp >= YOUNG
    turn_over = turn is not None and now - turn.at >= TURN_LASTS
    if event is None or event.props["id"] != event_id:
        return StaleTicket(old, turn_over)
    props = event.props
    if props["state"] in FINAL:
        # A claim cannot follow, and an attempt has ended.
        # Only one of its tickets counts it: a change that was refused may have left another.
        skipped = bool(props.get(SKIPPED)) and ticket_of(props, limits) == ticket
        counts = (overlap := overlap_of(props)) is not None and overlap.notes_ends and not props.get(SKIPPED)
        return StaleTicket(ticket=True, turn=turn is not None, busy=busy_span(props) if counts else NOT_BUSY, skipped=skipped)
    elsewhere = line_of_event(shard_tenant(event.pk), props) != line
    if props["state"] == "firing" and not elsewhere:
        return StaleTicket(ticket=False, turn=False)
    return StaleTicket(old and (elsewhere or ticket_of(props, limits) != ticket), turn_over)


def end_ticket(line: KeyLine, ticket: str, limits: KeyLimits, now: Millis, busy: BusySpan = NOT_BUSY) -> Steps[TurnAnswer]:
    """Remove the ticket of an event that was cancelled, moved or completed; the answer says who follows. busy: see `exchange`."""
    if busy:
        return (yield from exchange(TurnQuestion(line, Asker(), limits, {}, ended={ticket: None}, busy=busy), now))
    yield from write(LIMITS, line.partition, Delete(line.ticket_row(ticket), ANY))
    return (yield from exchange(TurnQuestion(line, Asker(), limits, {}), now))


def forget_skips(line: KeyLine) -> Steps[None]:
    """Reset the figures of a schedule that skips."""
    while (own := (yield from read_line(line)).row) is not None and own.props.get("skips"):
        yield from write(LIMITS, line.partition, Merge(own.rk, {"skips": 0, "last_skip": 0}, own.etag))
