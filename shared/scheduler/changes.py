"""What users do to stored events: cancel, edit, reschedule, fire now, redrive."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

from ..core.clock import Clock, Millis
from ..core.errors import OutcomeUnknown, Problem, StorageError
from ..core.ids import Ids
from ..core.packing import packs
from ..engine.async_runner import AsyncRunner
from ..engine.effects import Steps
from ..storage.names import IDS
from ..storage.ports import Merge, Props, Row, Tables
from ..web.etag import check_if_match
from ..web.problem import conflict, not_found
from .ingest.queued_ids import Queued
from .ingest.writer import Writer
from .keys import MIRRORED, Address, id_partition, id_row_key, index_key, place_of, shard_tenant
from .mirror.pair import Mirror
from .protocol.changing import WINDOW, Changed, Done, Match, cancel, edit, move, moved_wake, redrive
from .protocol.dispatch import ShardMessage, send
from .protocol.mirroring import again, mirror, mirror_event
from .queries.lookup import START, Filter, Lookup, Place
from .rows import etag_of_row, withdrawn
from .timings import DISPATCH_AHEAD, REDRIVE_FOR, WAKE_EARLY

log = logging.getLogger(__name__)

REDRIVE_PAGE = 1000
REDRIVE_GROUP = 99
REDRIVE_BYTES = 3 * 1024 * 1024

FIRING = "the event is being delivered, or about to be; if this attempt fails, it can be changed or cancelled while its state is `retrying`"
FLAGGED = "an instance was lost that was to deliver the event, and may do so yet: until it has come to its end it can no longer be changed"
"""Details of 409 `already-firing`."""


class Changes:
    """Verbs on one event, or on many dead ones. One per process."""

    def __init__(
        self, runner: AsyncRunner, tables: Tables, lookup: Lookup, writer: Writer, clock: Clock, ids: Ids, mirror: Mirror | None = None
    ) -> None:
        self._mirror = mirror
        self._runner, self._tables, self._lookup, self._writer, self._clock, self._ids = runner, tables, lookup, writer, clock, ids

    async def cancel(self, tenant: str, event_id: str, headers: Mapping[str, str], *, nonce: str = "") -> None:
        """Cancel; once this returns, no delivery of the event starts. Raises 404, 409, 412.

        `nonce`: stays in the row as `by`, so that a caller can tell its own cancel later.
        """
        by = nonce or self._ids.name()
        while True:
            address = await self._lookup.address(tenant, event_id)
            if address is not None:
                answer = await self._carry(address, cancel(address, self._clock.now(), by, _match(event_id, headers)))
                if answer != "missing":
                    await self._done(tenant, event_id, answer)
                    return
            waiting = self._lookup.queued(tenant, event_id)
            if waiting is None:
                raise not_found("event")
            if await self._withdraw(waiting, headers):
                return

    async def _withdraw(self, waiting: Queued, headers: Mapping[str, str]) -> bool:
        """Take the place of an event that is still in the ingest queue, as cancelled; False when the event got there first.

        Whoever takes it out of the queue later finds its id in use.
        """
        check_if_match(headers, waiting.etag)
        gone = withdrawn(waiting.id, waiting.created, waiting.due, self._clock.now(), self._ids.name())
        [stored] = await self._writer.store(waiting.tenant, [gone])
        if isinstance(stored, StorageError):
            raise stored
        return stored.existing is None

    async def edit(self, tenant: str, event_id: str, change: Props, headers: Mapping[str, str]) -> Row:
        """Change what does not reschedule the event. Raises 404, 409, 412."""
        address = await self._address(tenant, event_id)
        if "size" in change:
            found = await self._event(tenant, event_id)
            if int(change["size"]) > int(found.props["size"]):
                # A shard's bytes were counted when it was filled, and memory is held by them: what grows goes into one of its own.
                return await self.move(tenant, event_id, int(found.props["due"]), change, headers)
        return await self._done(tenant, event_id, await self._carry(address, edit(address, change, _match(event_id, headers))))

    async def move(self, tenant: str, event_id: str, due: Millis | None, change: Props, headers: Mapping[str, str]) -> Row:
        """Give the event another due time (None: now). Raises 404, 409, 412."""
        address = await self._address(tenant, event_id)
        when = self._clock.now() if due is None else due
        if due is None:
            # Now is now: what window it had is left behind.
            change = {**change, **dict.fromkeys(WINDOW, 0)}
        moved = await self._carry(address, move(address, when, change, self._ids.name(), _match(event_id, headers)))
        row = await self._done(tenant, event_id, moved)
        await self._announce(row.pk, moved_wake(row.props, int(row.props["due"])))
        await self._shorten(tenant, event_id, Address(row.pk, row.rk))
        return row

    async def redrive_one(self, tenant: str, event_id: str) -> None:
        """Bring one dead event back. Raises 404, or 409 when it is not dead."""
        row = await self._event(tenant, event_id)
        if row.props["state"] != "dead":
            raise conflict("not-dead", f"the event is {row.props['state']}; only dead events can be redriven")
        await self._redrive(tenant, row.pk, {row.rk: row})

    async def redrive_all(self, tenant: str, chosen: Filter) -> int:
        """Bring back the dead events that match; how many. After `REDRIVE_FOR` seconds the rest is left to another call."""
        now, until = self._clock.now(), self._clock.monotonic() + REDRIVE_FOR
        # Copies are due from now on: without this bound, those that die again at once would be found again.
        chosen = replace(chosen, end=now if chosen.end is None else min(now, chosen.end))
        place: Place | None = START
        count = 0
        while place is not None and self._clock.monotonic() < until:
            rows, place = await self._lookup.events(tenant, chosen, REDRIVE_PAGE, place)
            for group in _groups(rows):
                await self._redrive(tenant, group[0].pk, {row.rk: row for row in group})
                count += len(group)
        return count

    async def _redrive(self, tenant: str, shard: str, rows: Mapping[str, Row]) -> None:
        now = self._clock.now()
        placed = await self._redriven(shard, rows, now)
        for target in sorted({address.shard for address in placed.values()}):
            await self._announce(target, now)
        for rk, row in rows.items():
            await self._shorten(tenant, str(row.props["id"]), placed[rk])

    async def _carry(self, address: Address, steps: Steps[Changed]) -> Changed:
        """Carry out a change of an event; of a mirrored one the copy has it too before anybody is told, of its end as well."""
        if self._mirror is None or place_of(address.shard) != MIRRORED:
            return await self._runner.run(steps)
        async with self._mirror.serving() as way:
            answer = await self._runner.run(steps)
            if way is not None and answer != "missing":
                await self._mirror.copied(mirror_event(address, way))
        return answer

    async def _redriven(self, shard: str, rows: Mapping[str, Row], now: Millis) -> dict[str, Address]:
        if self._mirror is None or place_of(shard) != MIRRORED:
            placed = await self._runner.run(redrive(shard, rows, now))
        else:
            async with self._mirror.serving() as way:
                # What was brought back before, and not copied then, is found by its first place.
                firsts = [await self._lookup.address(shard_tenant(shard), str(row.props["id"])) for row in rows.values()]
                await self._runner.run(again(shard))
                shut = partial(mirror, way=way) if way is not None else None
                placed = await self._runner.run(redrive(shard, rows, now, shut))
                if way is not None and placed is not None:
                    await self._mirror.copied(mirror(shard, way, frozenset(rows)))
                    for first in firsts:
                        if first is not None and first.shard != shard:
                            await self._mirror.copied(mirror_event(first, way))
        if placed is None:
            raise OutcomeUnknown("the other account has taken over meanwhile")
        return placed

    async def _event(self, tenant: str, event_id: str) -> Row:
        row = await self._lookup.event(tenant, event_id)
        if row is None:
            raise self.absent(tenant, event_id)
        return row

    async def _address(self, tenant: str, event_id: str) -> Address:
        address = await self._lookup.address(tenant, event_id)
        if address is None:
            raise self.absent(tenant, event_id)
        return address

    def absent(self, tenant: str, event_id: str) -> Problem:
        """What to say of an event that no table has: 409 while it is in the ingest queue, else 404."""
        if self._lookup.queued(tenant, event_id) is None:
            return not_found("event")
        detail = "the event is still in the ingest queue; until it is stored it can only be cancelled"
        return Problem(409, "still-queued", detail, headers={"retry-after": "1"})

    async def _done(self, tenant: str, event_id: str, answer: Changed) -> Row:
        match answer:
            case Done(row):
                return row
            case "missing":
                raise self.absent(tenant, event_id)
            case "already-firing":
                raise conflict("already-firing", FLAGGED if await self._flagged(tenant, event_id) else FIRING)
            case "already-final":
                raise conflict("already-final", "the event has come to its end; it can no longer be changed")

    async def _flagged(self, tenant: str, event_id: str) -> bool:
        """Whether a lost owner may still deliver the event: then no attempt that fails opens it to changes again."""
        row = await self._lookup.event(tenant, event_id)
        return row is not None and bool(row.props.get("flag"))

    async def _announce(self, shard: str, wake: Millis) -> None:
        """Send a new shard's message when it is due before the sweep can be relied on."""
        if wake <= self._clock.now() + DISPATCH_AHEAD:
            try:
                await self._runner.run(send(ShardMessage(shard, index_key(shard, wake)), wake - WAKE_EARLY))
            except StorageError as error:
                log.info("Shard %s waits for the sweep: %s", shard, error, extra={"action": "announce_unsent"})

    async def _shorten(self, tenant: str, event_id: str, place: Address) -> None:
        """Let a client's id name the new place at once; a shortcut only, for the pointers lead there too."""
        if "." in event_id:
            return
        partition = id_partition(tenant, event_id)
        try:
            named = await self._tables.get(IDS, partition, id_row_key(event_id))
            if named is not None:
                await self._tables.write(IDS, partition, (Merge(named.rk, {"at": place.text}, named.etag),))
        except StorageError as error:
            log.info("An id goes on naming its old place, which points on: %s", error, extra={"action": "id_not_repointed"})


def _match(event_id: str, headers: Mapping[str, str]) -> Match:
    """Refuses a row that is not the event asked for (an address made up from a shard's name), or not as `If-Match` wants it."""

    def match(row: Row) -> None:
        if row.props["id"] != event_id:
            raise not_found("event")
        check_if_match(headers, etag_of_row(row))

    return match


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows of one shard each, few and small enough for one transaction."""

    def weight(row: Row) -> int:
        return int(row.props["size"]) + len(str(row.props.get("history", "")))

    for _, some in groupby(rows, lambda row: row.pk):
        yield from packs(some, weight, REDRIVE_BYTES, REDRIVE_GROUP)


def dead_letters(first: Millis | None, end: Millis | None, channel: str | None) -> Filter:
    """The filter of dead letters: dead, and not yet brought back."""

    def wanted(props: Mapping[str, Any]) -> bool:
        return props["state"] == "dead" and not props.get("target")

    return Filter(first, end, channel, wanted)
