"""Changes that users make to stored events: cancel, edit, reschedule, fire now, redrive."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import NamedTuple

from ...core.clock import Millis
from ...core.errors import OutcomeUnknown, Problem, StorageError
from ...core.packing import packs
from ...delivery.channels.content import CONTENT_TYPE
from ...delivery.channels.event_target import EVENT_TARGET
from ...engine.effects import Steps
from ...storage.names import IDS
from ...storage.ports import Merge, Props, Row
from ...web.arrivals import Arrivals
from ...web.etag import check_if_match
from ...web.problem import conflict, not_found
from ..facets import FACETS
from ..facets.fanouts import id_names
from ..facets.finding import LABEL_ROWS, MARK, digests_of, file_rows
from ..ingest.admission import Ingest
from ..ingest.writer import JoinedPlace, Writer
from ..keys import MIRRORED, Address, id_partition, id_row_key, index_key, minute_text, parse_address, place_of, shard_tenant
from ..model import EventPatch
from ..properties.receipts import MEMBERS, Received
from ..protocol.changing import (
    WINDOW,
    ChangeResult,
    Done,
    Match,
    begin_join,
    cancel,
    edit_or_move,
    end_join,
    find,
    finished,
    is_joining,
    move,
    redrive,
)
from ..protocol.dispatch import ShardMessage, send
from ..protocol.mirroring import mirror, mirror_event, note_on_side
from ..protocol.moving import copied, moved_wake
from ..protocol.owning import note_of
from ..queries.end_notes import EndNotes
from ..queries.event_filter import EventFilter
from ..queries.lookup import START, EventLookup, ListPosition
from ..rows import COLLAPSE, etag_of_row, withdrawn
from ..rules import may_change, visible_at
from ..shard.queued_ids import Queued
from ..shard_services import ShardServices
from ..timings import EXPRESS_AHEAD, REDRIVE_FOR, SERVED_WITHIN, WAKE_EARLY

log = logging.getLogger(__name__)

REDRIVE_PAGE = 1000
REDRIVE_GROUP = 99
REDRIVE_BYTES = 3 * 1024 * 1024

FIRING = "the event is being delivered or is about to be; if this attempt fails, the event can be changed while its state is `retrying`"
FLAGGED = "an instance that was to deliver the event disappeared and may still deliver it; the event cannot be changed until it has ended"
"""Details of 409 `already-firing`."""
MISFIT = (
    "Another request has changed the channel, the payload or the target meanwhile, which must fit together. Read the event again, and "
    "repeat the change if it is still wanted."
)
_CHECKED_TOGETHER = frozenset({"channel", "size", EVENT_TARGET, CONTENT_TYPE})
"""The properties of an event that limit each other: its channel, the size of its payload and target, its target, and its payload's type."""


class ChangeRequest(NamedTuple):
    """A request to change one or several events of a tenant."""

    tenant: str
    headers: Mapping[str, str] = {}
    """`If-Match` says which version of an event may be changed."""
    by: Received | None = None
    """Its receipt. Without `If-Match`, a later request overtakes it. None: this process makes the change of its own accord, now."""
    seen: Row | None = None
    """The event as it was just read."""
    nonce: str = ""
    """Stored as `by` in an event that it cancels, so that the caller can recognise its own cancel later. '' for any."""
    patch: EventPatch | None = None
    body: bytes | None = None
    """The new payload as sent; None if the patch has none."""


class Changes:
    """Changes of one event, and redrives of many. One per process."""

    def __init__(
        self,
        services: ShardServices,
        lookup: EventLookup,
        ingest: Ingest,
        writer: Writer,
        arrivals: Arrivals,
        notes: EndNotes,
        serve_now: Callable[[ShardMessage], bool],
    ) -> None:
        """arrivals: numbers the requests of this process. serve_now: serves a shard in this process; False if its message must do it."""
        self.runner, self._tables, self._clock, self._ids = services.runner, services.tables, services.clock, services.ids
        self._wakes, self._lines, self._mirror, self._searchable = services.wakes, services.lines, services.mirror, services.searchable
        self.lookup, self._ingest, self._writer, self._arrivals, self._serve_now = lookup, ingest, writer, arrivals, serve_now
        self.notes = notes
        """Takes the ends of events that these changes make."""

    def received(self, members: frozenset[str] | None = None) -> Received:
        """Return the receipt of a request of this process itself, which changes these members; None for all of them."""
        return Received(self._arrivals.next(), MEMBERS if members is None else members)

    async def cancel(self, request: ChangeRequest, event_id: str, *, unclaimed: bool = False) -> None:
        """Cancel the event; no delivery starts after this returns. No later request overtakes it. Raises 404, 409, 412.

        unclaimed: only an event that no owner has ever claimed; also one that waits for a retry, or whose claim was given back, is 409.
        """
        tenant, match = request.tenant, condition(event_id, request.headers, unclaimed)
        mark, receipt = request.nonce or self._ids.name(), (request.by or self.received()).noted()
        while True:
            address = await self.lookup.address(tenant, event_id)
            if address is not None:
                answer = await self._carry(address, cancel(address, self._clock.now(), mark, match, receipt))
                if answer != "missing":
                    ended = await self._done(tenant, event_id, answer)
                    self.notes.ended(ended)
                    await self._lines.left(ended)
                    return
            waiting = self.lookup.queued(tenant, event_id)
            if waiting is None:
                raise not_found("event")
            if await self._withdraw(waiting, request.headers):
                return

    async def _withdraw(self, waiting: Queued, headers: Mapping[str, str]) -> bool:
        """Store a cancelled event under the id of one that is still in the ingest queue; return False if the event was stored first.

        The consumer that later takes the event out of the queue finds its id in use.
        """
        check_if_match(headers, waiting.etag)
        gone = withdrawn(waiting.id, waiting.created, waiting.due, self._clock.now(), self._ids.name())
        [stored] = await self._writer.store(waiting.tenant, [gone])
        if isinstance(stored, StorageError):
            raise stored
        return stored.existing is None

    async def patch(self, request: ChangeRequest, event_id: str) -> Row:
        """Make the change of a patch to the event as it was just read. Raises 404, 409, 412, 413, 422, 503."""
        if request.seen is None or request.seen.props["id"] != event_id or request.patch is None:
            raise not_found("event")
        due, change = await self._ingest.patch(request.tenant, request.patch, request.body, request.seen.props)
        return await self.put(request, event_id, due, change)

    async def put(self, request: ChangeRequest, event_id: str, due: Millis | None, change: Props) -> Row:
        """Change the event as it was just read; `due` also moves it, None does not. Raises 404, 409, 412, 503."""
        if due is not None:
            return await self.move(request, event_id, due, change)
        change, match = self._checked(request, event_id, change)
        async with self._in_line(request.seen, None, change):
            address = await self._address(request.tenant, event_id)
            steps = edit_or_move(address, change, self._ids.name(), match)
            return await self._placed(request.tenant, event_id, await self._carry(address, steps))

    def _checked(self, request: ChangeRequest, event_id: str, change: Props) -> tuple[Props, Match]:
        """Return the change with its receipt, and the check of the event.

        The event as it was just read is checked at once: only if the change is most likely to be made, a place is kept for it, in a line
        and in a shard that may be opened.
        """
        by = request.by or self.received()
        change = {**change, **by.noted()}
        match = fitting(condition(event_id, request.headers, by=by), request.seen, change)
        if request.seen is not None:
            match(request.seen)
        return change, match

    @asynccontextmanager
    async def _in_line(self, seen: Row | None, due: Millis | None, change: Props) -> AsyncIterator[None]:
        """Give an event with an ordering key its new place in the line before it is changed, and take its former place afterwards."""
        leaves = seen is not None and await self._lines.moving(seen, due, change)
        yield
        if leaves and seen is not None:
            await self._lines.left(seen)

    async def fire(self, request: ChangeRequest, event_id: str) -> Row:
        """Have the event delivered now. Raises 404, 409, 412, 503."""
        # As the event is by then, whatever was read of it before.
        return await self.move(request._replace(seen=None), event_id, None, {})

    async def move(self, request: ChangeRequest, event_id: str, due: Millis | None, change: Props) -> Row:
        """Give the event another due time (None: now). Raises 404, 409, 412, 503. If it was not read before, it gets a shard of its own."""
        change, match = self._checked(request, event_id, change)
        async with self._in_line(request.seen, due, change):
            return await self._move(request, event_id, due, change, match)

    async def _move(self, request: ChangeRequest, event_id: str, due: Millis | None, change: Props, match: Match) -> Row:
        tenant, seen = request.tenant, request.seen
        address = await self._address(tenant, event_id)
        when = self._clock.now() if due is None else due
        if due is None:
            # An event that is to fire now loses its flexible window.
            change = {**change, **dict.fromkeys(WINDOW, 0)}
        elif due < (now := self._clock.now()):
            # It is late from now on, and not since the time that was past when it was chosen.
            change = {**change, "since": now}
        if seen is not None and self._joins(seen, when):
            # In the event's own account: no account's shards need another one to be served.
            place = await self._writer.reserve(tenant, when, int(change.get("size", seen.props["size"])), place_of(address.shard))
            begin = begin_join(address, when, change, self._ids.name(), place.address, match)
            return await self._placed(tenant, event_id, await self._join(tenant, when, place, begin), announced=place.address.shard)
        steps = move(address, when, change, self._ids.name(), match, asked=due is None)
        return await self._placed(tenant, event_id, await self._carry(address, steps))

    def _joins(self, seen: Row, due: Millis) -> bool:
        """Return True if an event that is moved to `due` shares a shard with others. Those that are due at once do not wait for others."""
        return may_change(seen.props) == "yes" and due > self._clock.now() + WAKE_EARLY and place_of(seen.pk) != MIRRORED

    async def _join(self, tenant: str, due: Millis, place: JoinedPlace, begin: Steps[ChangeResult]) -> ChangeResult:
        """Move the event to a place in a shard that this process fills with others of its minute. begin: the steps of `begin_join`."""
        etag: str | None = None
        try:
            answer = await self.runner.run(begin)
            if isinstance(answer, Done):
                row = answer.row
                copy = copied(row.props, due, FACETS)
                if is_joining(row, place.address):
                    etag = await self._writer.join(tenant, place, copy)
                if etag is not None:
                    answer = await self.runner.run(end_join(row, Row(*place.address, copy, etag, row.timestamp, row.read_at)))
                else:
                    answer = await self.runner.run(finished(answer))
        finally:
            if etag is None:
                self._writer.release(tenant, place)
        return answer

    async def _placed(self, tenant: str, event_id: str, answer: ChangeResult, announced: str = "") -> Row:
        """Return the changed event. If the change moved it, announce its shard and point a client's id there.

        announced: a shard whose message the writer sends.
        """
        row = await self._done(tenant, event_id, answer)
        if isinstance(answer, Done) and answer.left is not None:
            self.notes.ended(answer.left, "moved")
        if isinstance(answer, Done) and answer.moved:
            await self._label(tenant, row)
            if row.pk != announced:
                await self._announce(row.pk, moved_wake(row.props, int(row.props["due"])))
            await self._shorten(tenant, row.props, Address(row.pk, row.rk))
        return row

    async def _label(self, tenant: str, row: Row) -> None:
        """File the label rows of a moved event that was stored before its tenant declared the label: its copy has none."""
        if "labels" not in row.props or MARK in row.props:
            return
        if digests := digests_of(row.props, await self._searchable(tenant)):
            await self.runner.run(file_rows(LABEL_ROWS, row.pk, minute_text(moved_wake(row.props, int(row.props["due"]))), digests))

    async def redrive_one(self, request: ChangeRequest, event_id: str) -> None:
        """Redrive one dead event. Raises 404, or 409 if it is not dead."""
        tenant = request.tenant
        row = await self.lookup.event(tenant, event_id)
        if row is None:
            raise self.absent(tenant, event_id)
        if row.props["state"] != "dead":
            raise conflict("not-dead", f"the event is {row.props['state']}; only dead events can be redriven")
        if not await self._redrive(tenant, row.pk, {row.rk: row}):
            raise self.absent(tenant, event_id)

    async def redrive_all(self, tenant: str, chosen: EventFilter) -> int:
        """Redrive the dead events that match; return their number. After `REDRIVE_FOR` seconds the rest is left to another call."""
        now, until = self._clock.now(), self._clock.monotonic() + REDRIVE_FOR
        # Copies are due from now on: without this bound, events that die again at once would be found again.
        chosen = replace(chosen, end=now if chosen.end is None else min(now, chosen.end))
        place: ListPosition | None = START
        count = 0
        while place is not None and self._clock.monotonic() < until:
            rows, place = await self.lookup.events(tenant, chosen, REDRIVE_PAGE, place)
            count += len(await self.redrive_found(tenant, rows))
        return count

    async def redrive_found(self, tenant: str, rows: Iterable[Row]) -> set[str]:
        """Redrive dead events as they were just read; return the ids of those that were redriven."""
        done = set[str]()
        for group in _groups(rows):
            some = {row.rk: row for row in group if await self._has_its_id(tenant, row)}
            done |= await self._redrive(tenant, group[0].pk, some)
        return done

    async def _has_its_id(self, tenant: str, row: Row) -> bool:
        """Return False for a dead event whose id a later event with `collapse` has taken over: it must not come back beside that one."""
        if COLLAPSE not in row.props:
            return True
        found = await self.lookup.event(tenant, str(row.props["id"]))
        return found is not None and (found.pk, found.rk) == (row.pk, row.rk)

    async def _redrive(self, tenant: str, shard: str, rows: Mapping[str, Row]) -> set[str]:
        """Redrive dead events of one shard; return the ids of those that were redriven. Retention may have removed the others."""
        if not rows:
            return set()
        now = self._clock.now()
        placed = await self._redriven(shard, rows, now)
        for target in sorted({address.shard for address in placed.values()}):
            await self._announce(target, now)
        for rk, address in placed.items():
            await self._shorten(tenant, rows[rk].props, address)
        return {str(rows[rk].props["id"]) for rk in placed}

    async def _carry(self, address: Address, steps: Steps[ChangeResult]) -> ChangeResult:
        """Apply a change to an event, and to its copy, its end included."""
        return await self._mirror.carry(address, steps, lambda answer: answer != "missing")

    async def settled(self, tenant: str, event_id: str) -> None:
        """Copy a mirrored event that another request has stored or changed, before a caller gets it as the answer."""
        if self._mirror.paired and (address := await self.lookup.address(tenant, event_id)) is not None:
            async with self._mirror.serving(address.shard) as operation:
                await operation.copy(partial(mirror_event, address))

    async def _redriven(self, shard: str, rows: Mapping[str, Row], now: Millis) -> dict[str, Address]:
        async with self._mirror.serving(shard) as operation:
            way, firsts = operation.way, []
            if way is not None:
                # An event that was redriven before, and not copied then, is found by its first place.
                firsts = [await self.lookup.address(shard_tenant(shard), str(row.props["id"])) for row in rows.values()]
            await self._mirror.before_redrive(shard)
            keep = operation.keep if place_of(shard) == MIRRORED else None
            placed = await self.runner.run(redrive(shard, rows, now, self._ids.name(), keep))
            if way is not None and placed is not None:
                await operation.copy(partial(mirror, shard, only=frozenset(rows)))
                for first in firsts:
                    if first is not None and first.shard != shard:
                        await operation.copy(partial(mirror_event, first))
                # The copy's pointers are read: they are there now.
                await self.runner.run(note_on_side(way.copy, shard))
            await self.runner.run(note_of(shard))
        if placed is None:
            raise OutcomeUnknown("the other account has taken over during the change")
        return placed

    async def _address(self, tenant: str, event_id: str) -> Address:
        address = await self.lookup.address(tenant, event_id)
        if address is None:
            raise self.absent(tenant, event_id)
        return address

    def absent(self, tenant: str, event_id: str) -> Problem:
        """Return the problem for an event that no table has: 409 while it is in the ingest queue, otherwise 404."""
        if self.lookup.queued(tenant, event_id) is None:
            return not_found("event")
        detail = "the event is still in the ingest queue; it can only be cancelled until it is stored"
        return Problem(409, "still-queued", detail, headers={"retry-after": "1"})

    async def _done(self, tenant: str, event_id: str, answer: ChangeResult) -> Row:
        match answer:
            case Done(row):
                return row
            case "missing":
                raise self.absent(tenant, event_id)
            case "already-firing":
                raise conflict("already-firing", FLAGGED if await self._flagged(tenant, event_id) else FIRING)
            case "already-final":
                raise conflict("already-final", "the event has ended and can no longer be changed")

    async def _flagged(self, tenant: str, event_id: str) -> bool:
        """Return True if a disappeared owner may still deliver the event: then a failed attempt does not make it changeable again."""
        row = await self.lookup.event(tenant, event_id)
        return row is not None and bool(row.props.get("flag"))

    async def _announce(self, shard: str, wake: Millis) -> None:
        """Send a new shard's message if the shard wakes before a look is certain to come, and serve it here if it wakes now."""
        now, message = self._clock.now(), ShardMessage(shard, index_key(shard, wake))
        near = wake <= now + self._wakes.horizons.alone
        await self._wakes.ask(visible_at(wake), sent=near)
        if near:
            served = wake <= now + EXPRESS_AHEAD and place_of(shard) != MIRRORED and self._serve_now(message)
            try:
                # The message is then only for the case that this process ends.
                await self.runner.run(send(message, now + SERVED_WITHIN if served else visible_at(wake)))
            except StorageError as error:
                log.info("Shard %s waits for the sweep: %s", shard, error, extra={"action": "announce_unsent"})

    async def _shorten(self, tenant: str, props: Props, place: Address) -> None:
        """Point the ids that name an event at its new place at once. Only a shortcut, because the pointers lead there too."""
        try:
            for name in id_names(props):
                partition = id_partition(tenant, name)
                named = await self._tables.get(IDS, partition, id_row_key(name))
                if named is not None and (name == props["id"] or await self._leads_to(named, str(props["id"]))):
                    await self._tables.write(IDS, partition, (Merge(named.rk, {"at": place.text}, named.etag),))
        except StorageError as error:
            log.info("An id still names its old place, which points on to the new one: %s", error, extra={"action": "id_not_repointed"})

    async def _leads_to(self, named: Row, event_id: str) -> bool:
        """Return False for the id of a fan-out that another fan-out has taken over."""
        found = await self.runner.run(find(parse_address(str(named.props["at"]))))
        return found is not None and found.props["id"] == event_id


def condition(event_id: str, headers: Mapping[str, str], unclaimed: bool = False, by: Received | None = None) -> Match:
    """Return a check that refuses a row of another event (an id made up from a shard's name), or one that `If-Match` does not allow.

    unclaimed: refuse also one that an owner has claimed at any time. by: the request. Unless `If-Match` names what it may replace, it is
    refused once it is too old, and if a later one has changed the same members.
    """
    names_row = headers.get("if-match", "*").strip() != "*"

    def match(row: Row) -> None:
        if row.props["id"] != event_id:
            raise not_found("event")
        check_if_match(headers, etag_of_row(row))
        if unclaimed and "epoch" in row.props:
            raise conflict("already-firing", FIRING)
        if by is not None and not names_row and may_change(row.props) == "yes":
            by.check(row.props)

    return match


def fitting(match: Match, seen: Row | None, change: Props) -> Match:
    """Return the check with a further one: a new channel, payload or target was checked together with what `seen` has of the others.

    Otherwise two requests that each fit the former event could together make one that its channel never takes.
    """
    if seen is None or _CHECKED_TOGETHER.isdisjoint(change):
        return match
    former, others = seen.props, _CHECKED_TOGETHER - change.keys()
    if "chunks" not in change:
        # The payload stays, and another target alone has changed the size.
        others |= {"size", "body"} if CONTENT_TYPE in change else {"size"}

    def matches(row: Row) -> None:
        match(row)
        if any((row.props.get(name) or "") != (former.get(name) or "") for name in others):
            raise conflict("changed-meanwhile", MISFIT)

    return matches


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Group the rows by shard, each group small enough for one transaction."""

    def weight(row: Row) -> int:
        return int(row.props["size"]) + len(str(row.props.get("history", "")))

    for _, some in groupby(rows, lambda row: row.pk):
        yield from packs(some, weight, REDRIVE_BYTES, REDRIVE_GROUP)


def members_of(patch: EventPatch) -> frozenset[str]:
    """Return the members of an event that a patch changes, as receipts name them."""
    return frozenset("due" if name == "delay" else name for name in patch.model_fields_set)


def dead_letters(first: Millis | None, end: Millis | None, channel: str | None) -> EventFilter:
    """Return the filter of dead letters: dead events that were not redriven."""

    return EventFilter(first, end, channel, state="dead")
