"""Which fleets a tick looks at: all of them as a rule; of very many as many as it can, and the next tick goes on from there."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from ..core.clock import Clock
from ..core.errors import StorageError
from ..storage.names import SWEEPS
from ..storage.ports import ANY, Delete, Tables, Upsert

log = logging.getLogger(__name__)

CURSORS: Final = "lease-turns"
PAGE: Final = 200
"""Fleets that are taken up at a time."""
MOST: Final = 2000
"""Fleets that one tick looks at."""
RUN_FOR: Final = 10.0
"""Seconds after which a tick takes up no further page."""
MOST_FLEETS: Final = 100
"""Fleets told apart, the first by name: a bound on series and reads."""
REST: Final = "*"
"""What the others are called together, and their tenants."""
IN_FLIGHT: Final = 8
"""Fleets that are looked at side by side."""

type Visit = Callable[[str], Awaitable[Counter[str]]]
type Prepare = Callable[[list[str]], Awaitable[Visit]]


class FleetCursor:
    """One per process; holds no state between ticks."""

    def __init__(self, tables: Tables, clock: Clock, table: str, index: str) -> None:
        """table, index: where fleets are listed by key."""
        self._tables, self._clock, self._table, self._index = tables, clock, table, index

    async def go(self, duty: str, prepare: Prepare) -> Counter[str]:
        """Visit fleets, from where the last tick of `duty` stopped. `prepare` is given each page of keys, in order, and answers what to do
        with one of them. Counts of all visits, and `fleets`, `failed`; one failing fleet does not stop the next.

        Two instances at once visit the same fleets: visits are idempotent.
        """
        row = await self._tables.get(SWEEPS, CURSORS, duty)
        start = str(row.props["after"]) if row is not None else ""
        until = self._clock.monotonic() + RUN_FOR
        counts: Counter[str] = Counter()
        after, stop = start, None
        while True:
            keys, more = await self._page(after, stop)
            if keys:
                visit = await prepare(keys)
                counts.update(await self._visit(keys, visit))
                after = keys[-1]
            if not more:
                if stop is not None or not start:
                    after = ""
                    break
                # Behind the last fleet comes the first one, up to where this tick began.
                after, stop = "", start
                continue
            if counts["fleets"] >= MOST or self._clock.monotonic() >= until:
                break
        await self._remember(duty, after, start)
        return counts

    async def _page(self, after: str, stop: str | None) -> tuple[list[str], bool]:
        # '!' sorts before all that names may hold, so this is the first key beyond `after`, and the first beyond `stop`.
        first, end = after + "!" if after else "", stop + "!" if stop is not None else "~"
        page = await self._tables.query(self._table, self._index, first=first, end=end, limit=PAGE)
        return [row.rk for row in page.rows], page.next is not None

    async def _visit(self, keys: Iterable[str], visit: Visit) -> Counter[str]:
        slots = asyncio.Semaphore(IN_FLIGHT)

        async def one(key: str) -> Counter[str]:
            async with slots:
                try:
                    return Counter(fleets=1) + await visit(key)
                except StorageError as error:
                    # One fleet's partition may be throttled while the others' are not.
                    log.warning("Fleet %s could not be looked at: %s", key, error, extra={"action": "lease_watch_failed", "fleet": key})
                except Exception:
                    log.exception("The look at fleet %s failed", key, extra={"action": "lease_watch_failed", "fleet": key})
                return Counter(fleets=1, failed=1)

        counts: Counter[str] = Counter()
        for found in await asyncio.gather(*map(one, keys)):
            counts.update(found)
        return counts

    async def _remember(self, duty: str, after: str, before: str) -> None:
        """While every tick comes round to all fleets there is nothing to remember."""
        if after:
            await self._tables.write(SWEEPS, CURSORS, (Upsert(duty, {"after": after}),))
        elif before:
            await self._tables.write(SWEEPS, CURSORS, (Delete(duty, ANY),))
