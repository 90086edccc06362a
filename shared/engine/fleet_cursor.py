"""Walks all fleets on each tick of a timer. If there are too many for one tick, the next tick continues after the last visited fleet."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from itertools import islice
from typing import Final

from ..core.clock import Clock
from ..core.errors import StorageError
from ..storage.names import SWEEPS
from ..storage.ports import ANY, Delete, Row, RowQuery, Tables, Upsert
from .row_pace import RowPace

log = logging.getLogger(__name__)

CURSORS: Final = "lease-turns"
FLEETS_PER_PAGE: Final = 200
"""Fleets that are read at a time."""
MAX_FLEETS_PER_TICK: Final = 2000
"""Fleets that one tick visits. The last page may exceed this."""
SECONDS_PER_TICK: Final = 20.0
"""Seconds after which a tick reads no further page. At the pace of `RowPace`, four sweeps over 300 fleets of 150 servers take 15 s."""
MAX_NAMED_FLEETS: Final = 100
"""Fleets that always have gauges of their own, the first by name. It bounds the number of series and of reads."""
MAX_NAMED_ALARMS: Final = 100
"""Further fleets with gauges of their own while they have an alarm, the first by name. It is bounded too, because trouble of storage or of
the network can give all fleets an alarm at once."""
OTHER_FLEETS: Final = "*"
"""Name under which the gauges of all other fleets, and of their tenants, are added up."""
FLEETS_IN_FLIGHT: Final = 8
"""Fleets that are visited at the same time."""

type VisitFleet = Callable[[str], Awaitable[Counter[str]]]
type PrepareVisits = Callable[[dict[str, Row]], Awaitable[VisitFleet]]


def named_fleets(keys: Sequence[str], alarmed: Container[str]) -> list[str]:
    """Return the fleets with gauges of their own. keys: of all fleets, in order of name. alarmed: those with an alarm.

    A fleet that is always named stays so whatever the others do, and one with an alarm is named as soon as it has it: no alert is resolved
    because a series moves.
    """
    further = (key for key in keys[MAX_NAMED_FLEETS:] if key in alarmed)
    return [*keys[:MAX_NAMED_FLEETS], *islice(further, MAX_NAMED_ALARMS)]


class FleetCursor:
    """Visits the fleets of an index. The position is stored, so that any instance continues the walk."""

    def __init__(self, tables: Tables, clock: Clock, table: str, index: str, pace: RowPace | None = None) -> None:
        """table, index: the table and partition that list the fleets by key. pace: each visit waits for it before it begins."""
        self._tables, self._clock, self._table, self._index, self._pace = tables, clock, table, index, pace

    async def visit_next(self, sweep: str, prepare: PrepareVisits) -> Counter[str]:
        """Visit all fleets, or the next ones after the last tick of `sweep`. Return the counts of all visits, and `fleets`, `failed`.

        prepare: gets each page of the index, rows by key in order, and returns the function that visits one of them. A fleet that fails
        does not stop the others. Two instances may visit the same fleets at the same time, so visits must be idempotent. Raises
        `StorageError`.
        """
        until = self._clock.monotonic() + SECONDS_PER_TICK
        counts: Counter[str] = Counter()
        rows, more = await self._page("", None)
        if not more:
            # All fleets fit one page, which is the usual case: the position need not be read.
            return await self._visit(rows, await prepare(rows)) if rows else counts
        row = await self._tables.get(SWEEPS, CURSORS, sweep)
        start = str(row.props["after"]) if row is not None else ""
        after, stop = start, None
        while True:
            rows, more = await self._page(after, stop)
            if rows:
                visit = await prepare(rows)
                counts.update(await self._visit(rows, visit))
                after = next(reversed(rows))
            if not more:
                if stop is not None or not start:
                    after = ""
                    break
                # After the last fleet the walk continues with the first one, up to the fleet where this tick began.
                after, stop = "", start
                continue
            if counts["fleets"] >= MAX_FLEETS_PER_TICK or self._clock.monotonic() >= until:
                break
        await self._store_position(sweep, after, start)
        return counts

    async def _page(self, after: str, stop: str | None) -> tuple[dict[str, Row], bool]:
        # '!' sorts before every character of names, so these are the first key after `after`, and the first key after `stop`.
        first, end = after + "!" if after else "", stop + "!" if stop is not None else "~"
        page = await self._tables.query(RowQuery(self._table, self._index, first=first, end=end, limit=FLEETS_PER_PAGE))
        return {row.rk: row for row in page.rows}, page.next is not None

    async def _visit(self, keys: Iterable[str], visit: VisitFleet) -> Counter[str]:
        slots = asyncio.Semaphore(FLEETS_IN_FLIGHT)

        async def one(key: str) -> Counter[str]:
            async with slots:
                try:
                    if self._pace is not None:
                        await self._pace.admit()
                    return Counter(fleets=1) + await visit(key)
                except StorageError as error:
                    # Storage may throttle one fleet's partition alone.
                    log.warning("Fleet %s could not be visited: %s", key, error, extra={"action": "lease_watch_failed", "fleet": key})
                except Exception:
                    log.exception("The visit of fleet %s failed", key, extra={"action": "lease_watch_failed", "fleet": key})
                return Counter(fleets=1, failed=1)

        counts: Counter[str] = Counter()
        for found in await asyncio.gather(*map(one, keys)):
            counts.update(found)
        return counts

    async def _store_position(self, sweep: str, after: str, before: str) -> None:
        """Store the last visited fleet. While every tick visits all fleets, no row is needed."""
        if after:
            await self._tables.write(SWEEPS, CURSORS, (Upsert(sweep, {"after": after}),))
        elif before:
            await self._tables.write(SWEEPS, CURSORS, (Delete(sweep, ANY),))
