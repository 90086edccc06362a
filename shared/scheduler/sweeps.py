"""Sweeps over the index: dispatch what is due, repair what nobody serves, remove what has been kept long enough.

Each is idempotent and starts from what is stored: a silent, late or doubled timer does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable

from ..clock import Clock, Millis
from ..errors import StorageError
from ..storage.names import EVENTS, IDS, LEDGER, SHARDS
from ..storage.ports import ANY, Applied, Delete, Merge, Refused, Row, Tables, Where
from . import rules
from .keys import END_EVENTS, FIRST_EVENT, GATE, INDEX_PARTITIONS, id_partition, id_row_key, minute_text, parse_address
from .ledger import KEEP
from .protocol.dispatch import dispatch
from .protocol.effects import Driver, load

log = logging.getLogger(__name__)

IN_FLIGHT = 32
DELETES = 100
KEEP_LINKED: Millis = 86_400_000
"""How much longer a shard is kept, at a time, while an event that began there lives on elsewhere."""


RETAIN_FOR = 120.0
RETAIN_PAGE = 8
"""Shards removed side by side."""


def _asks(row: Row, now: Millis) -> bool:
    props = row.props
    return rules.nudge(str(props["state"]), int(props["wake"]), int(props.get("resent", 0)), now).do != "nothing"


class Sweeps:
    """What the timers run. One per process."""

    def __init__(self, driver: Driver, tables: Tables, clock: Clock) -> None:
        self._driver, self._tables, self._clock = driver, tables, clock
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)

    async def dispatch(self, now: Millis) -> Counter[str]:
        """Send the messages of all shards whose wake-up is near, and of those past it that nobody serves. Counts by what was done."""
        counts: Counter[str] = Counter()
        # Minutes sort as text does; the next minute's start bounds what is near.
        end = minute_text(now + rules.DISPATCH_AHEAD + 60_000)
        found = await asyncio.gather(*(self._partition(partition, end, now) for partition in INDEX_PARTITIONS))
        for each in found:
            counts.update(each)
        if counts["resent"]:
            extra = {"action": "shards_resent", "count": counts["resent"]}
            log.warning("%d shards past their time had no owner", counts["resent"], extra=extra)
        return counts

    async def _partition(self, partition: str, end: str, now: Millis) -> Counter[str]:
        counts: Counter[str] = Counter()
        cursor: str | None = None
        while True:
            page = await self._tables.query(SHARDS, partition, end=end, cursor=cursor)
            counts["seen"] += len(page.rows)
            due = [row for row in page.rows if _asks(row, now)]
            counts.update(await asyncio.gather(*(self._one(row, now) for row in due)))
            counts["overdue"] += sum(int(row.props["wake"]) + rules.OWNER_SILENT <= now for row in page.rows)
            cursor = page.next
            if cursor is None:
                return counts

    async def _one(self, row: Row, now: Millis) -> str:
        async with self._in_flight:
            try:
                return await self._driver.drive(dispatch(row, now))
            except StorageError as error:
                # One row must not keep the others waiting; the next sweep looks at it again.
                log.warning("An index row could not be dispatched: %s", error, extra={"action": "dispatch_failed", "row": row.rk})
                return "failed"

    async def retain(self, tenants: Iterable[str], now: Millis) -> Counter[str]:
        """Remove finished shards whose time is over, for at most `RETAIN_FOR` seconds; the next run goes on. Counts by what was done."""
        counts: Counter[str] = Counter()
        until = self._clock.monotonic() + RETAIN_FOR
        # Kept at least this long after its bucket: what is younger need not be read.
        end = minute_text(now - KEEP)
        for tenant in tenants:
            cursor: str | None = None
            while self._clock.monotonic() < until:
                over = (Where("keep", "le", now),)
                page = await self._tables.query(LEDGER, tenant, end=end, where=over, limit=RETAIN_PAGE, cursor=cursor)
                counts.update(await asyncio.gather(*(self._removed(tenant, row, now) for row in page.rows)))
                cursor = page.next
                if cursor is None:
                    break
        return counts

    async def _removed(self, tenant: str, entry: Row, now: Millis) -> str:
        try:
            return await self._remove(tenant, entry, now)
        except StorageError as error:
            log.warning("A shard could not be removed; the next run will try: %s", error, extra={"action": "retention_failed"})
            return "failed"

    async def _remove(self, tenant: str, entry: Row, now: Millis) -> str:
        """Id rows, events, gate, and the ledger row last, so that a crash leaves it to be found."""
        shard = str(entry.props["shard"])
        rows = await load(self._tables, EVENTS, shard, FIRST_EVENT, END_EVENTS)
        if await self._linked(rows):
            # An address given out long ago must resolve as long as its event lives.
            await self._tables.write(LEDGER, tenant, (Merge(entry.rk, {"keep": now + KEEP_LINKED}, entry.etag),))
            return "kept"
        for row in rows:
            await self._free_id(tenant, row)
        for at in range(0, len(rows), DELETES):
            # On their ETags: a dead row that is redriven at this moment is kept, and the shard with it.
            deletes = tuple(Delete(row.rk, row.etag) for row in rows[at : at + DELETES])
            if not isinstance(await self._tables.write(EVENTS, shard, deletes), Applied):
                return "kept"
        await self._tables.write(EVENTS, shard, (Delete(GATE, ANY),))
        await self._tables.write(LEDGER, tenant, (Delete(entry.rk, ANY),))
        return "removed"

    async def _linked(self, rows: Iterable[Row]) -> bool:
        """Whether an event of these has moved on to a place that is still there."""
        for row in rows:
            if "target" in row.props:
                place = parse_address(str(row.props["target"]))
                if await self._tables.get(EVENTS, place.shard, place.row) is not None:
                    return True
        return False

    async def _free_id(self, tenant: str, row: Row) -> None:
        event_id = str(row.props["id"])
        if "." in event_id:
            return
        partition = id_partition(tenant, event_id)
        named = await self._tables.get(IDS, partition, id_row_key(event_id))
        if named is not None and named.props["at"] == f"{row.pk}/{row.rk}":
            answer = await self._tables.write(IDS, partition, (Delete(named.rk, named.etag),))
            if isinstance(answer, Refused):
                log.debug("An id was taken again while it was freed", extra={"action": "id_kept"})
