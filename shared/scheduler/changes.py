"""What users do to stored events: cancel, edit, reschedule, fire now, redrive."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ..clock import Clock, Millis
from ..ids import Ids
from ..storage.names import IDS
from ..storage.ports import Merge, Props, Row, Tables
from ..web.etag import check_if_match
from ..web.problem import conflict, not_found
from .keys import Address, id_partition, id_row_key, index_key
from .lookup import START, Filter, Lookup
from .owner import send
from .protocol.changing import Changed, Done, Match, cancel, edit, move, redrive
from .protocol.dispatch import ShardMessage, queue_for
from .protocol.effects import Driver
from .rows import etag_of_row
from .rules import DISPATCH_AHEAD, WAKE_EARLY

log = logging.getLogger(__name__)

REDRIVE_PAGE = 1000
REDRIVE_GROUP = 99


class Changes:
    """Verbs on one event, or on many dead ones. One per process."""

    def __init__(self, driver: Driver, tables: Tables, lookup: Lookup, clock: Clock, ids: Ids) -> None:
        self._driver, self._tables, self._lookup, self._clock, self._ids = driver, tables, lookup, clock, ids

    async def cancel(self, tenant: str, event_id: str, headers: Mapping[str, str]) -> None:
        """Cancel; once this returns, no delivery of the event starts. Raises 404, 409, 412."""
        address = await self._address(tenant, event_id)
        answer = await self._driver.drive(cancel(address, self._clock.now(), self._ids.name(), _match(headers)))
        self._done(answer)

    async def edit(self, tenant: str, event_id: str, change: Props, headers: Mapping[str, str]) -> Row:
        """Change what does not move the event. Raises 404, 409, 412."""
        address = await self._address(tenant, event_id)
        return self._done(await self._driver.drive(edit(address, change, _match(headers))))

    async def move(self, tenant: str, event_id: str, due: Millis | None, change: Props, headers: Mapping[str, str]) -> Row:
        """Give the event another due time (None: now). Raises 404, 409, 412."""
        address = await self._address(tenant, event_id)
        found = await self._lookup.event(tenant, event_id)
        if found is None:
            raise not_found("event")
        now = self._clock.now()
        # Filed under no earlier a minute than it came in, so that lists by time find it there.
        when = max(now if due is None else due, int(found.props["created"]))
        row = self._done(await self._driver.drive(move(address, when, change, self._ids.name(), _match(headers))))
        await self._announce(row.pk, int(row.props["due"]))
        await self._shorten(tenant, event_id, row)
        return row

    async def redrive_one(self, tenant: str, event_id: str) -> None:
        """Bring one dead event back. Raises 404, or 409 when it is not dead."""
        row = await self._lookup.event(tenant, event_id)
        if row is None:
            raise not_found("event")
        if row.props["state"] != "dead":
            raise conflict("not-dead", f"the event is {row.props['state']}; only dead events can be redriven")
        await self._redrive(tenant, row.pk, {row.rk: row})

    async def redrive_all(self, tenant: str, chosen: Filter) -> int:
        """Bring back all dead events that match; how many."""
        place, count = START, 0
        while True:
            rows, following = await self._lookup.events(tenant, chosen, REDRIVE_PAGE, place)
            shards: dict[str, dict[str, Row]] = {}
            for row in rows:
                shards.setdefault(row.pk, {})[row.rk] = row
            for shard, dead in shards.items():
                keys = list(dead)
                for at in range(0, len(keys), REDRIVE_GROUP):
                    group = {rk: dead[rk] for rk in keys[at : at + REDRIVE_GROUP]}
                    await self._redrive(tenant, shard, group)
                    count += len(group)
            if following is None:
                return count
            place = following

    async def _redrive(self, tenant: str, shard: str, rows: Mapping[str, Row]) -> None:
        now = self._clock.now()
        placed = await self._driver.drive(redrive(shard, rows, now))
        for target in sorted({address.shard for address in placed.values()}):
            await self._announce(target, now)
        for rk, row in rows.items():
            await self._repoint(tenant, str(row.props["id"]), row, placed[rk])

    async def _address(self, tenant: str, event_id: str) -> Address:
        address = await self._lookup.address(tenant, event_id)
        if address is None:
            raise not_found("event")
        return address

    def _done(self, answer: Changed) -> Row:
        match answer:
            case Done(row):
                return row
            case "missing":
                raise not_found("event")
            case "already-firing":
                raise conflict("already-firing", "the event is being delivered, or may be; it can no longer be changed")
            case "already-final":
                raise conflict("already-final", "the event has come to its end; it can no longer be changed")

    async def _announce(self, shard: str, due: Millis) -> None:
        """Send a new shard's message when it is due before the sweep can be relied on."""
        if due <= self._clock.now() + DISPATCH_AHEAD:
            message = ShardMessage(shard, index_key(shard, due))
            await self._driver.drive(send(queue_for(retries_only=False), message, due - WAKE_EARLY))

    async def _shorten(self, tenant: str, event_id: str, row: Row) -> None:
        """Let a client's id name the new place at once; a shortcut only, for the pointers lead there too."""
        partition = id_partition(tenant, event_id)
        named = await self._tables.get(IDS, partition, id_row_key(event_id)) if "." not in event_id else None
        if named is not None:
            at = Address(row.pk, row.rk).text
            answer = await self._tables.write(IDS, partition, (Merge(named.rk, {"at": at}, named.etag),))
            log.debug("Id row repointed: %s", type(answer).__name__, extra={"action": "id_repointed"})

    async def _repoint(self, tenant: str, event_id: str, row: Row, target: Address) -> None:
        await self._shorten(tenant, event_id, Row(target.shard, target.row, row.props, "", 0, 0))


def _match(headers: Mapping[str, str]) -> Match | None:
    return (lambda row: check_if_match(headers, etag_of_row(row))) if "if-match" in headers else None


def dead_letters(first: Millis | None, end: Millis | None, channel: str | None) -> Filter:
    """The filter of dead letters: dead, and not yet brought back."""

    def wanted(props: Mapping[str, Any]) -> bool:
        return props["state"] == "dead" and not props.get("target")

    return Filter(first, end, channel, wanted)
