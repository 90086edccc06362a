"""Sweeps over large tables, in the timers of several instances.

`RowPace` spreads their reads over time. `Postponement` leaves fleets out while storage refuses requests. `FleetCursor` visits the fleets of
an index: if there are too many for one tick, the next tick continues after the last visited fleet. Passes over several partitions go on
at a `PassPlace`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple
from zlib import crc32

from ..core.clock import Clock, Millis
from ..core.errors import StorageError
from ..core.pressure import PressureGauge
from ..storage.names import SWEEPS
from ..storage.ports import ANY, Delete, Get, Page, Row, RowQuery, TableRequest, Tables, Upsert, WrappedTables

log = logging.getLogger(__name__)

ROWS_PER_SECOND: Final = 12_000.0
"""Rows that the sweeps of a process read in a second, on average over the time in which they wait.

Azure serves 20,000 entities a second of an account. Four sweeps with 8 visits each would read far more: 32 fleets of 150 servers are 4,800
rows in a few milliseconds. With this and `BURST`, the busiest second has 12,000 + 3,000 + 4,800 rows. 300 fleets of 150 servers are 45,000
rows, so one sweep alone takes less than 4 s.
"""
BURST: Final = 3_000.0
"""Rows that are read without a wait, after a pause. Small installations never wait."""
LONGEST_WAIT: Final = 2.0
"""Seconds that a visit waits at most, so that background visits, which count but do not wait, cannot stop the sweeps."""
MAX_POSTPONED: Final = 4
"""While storage refuses requests, a sweep visits each fleet in one of this number of runs on average, or in more of them."""
SCAN_PERIOD: Final = 15.0
"""Seconds between runs of the sweeps of the job `lease_scan` while they have work."""
RUNS_A_SWEEP: Final = 4
"""Runs of such a sweep in a minute. Only the first of them is certain to take place: messages plan the others, and storage may refuse the
messages too."""
CURSORS: Final = "lease-turns"
"""Partition of the positions of sweeps over fleets."""
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


class RowPace:
    """Counts rows, and lets sweeps wait until they may read more. One per process; for one event loop."""

    def __init__(self, clock: Clock, rate: float = ROWS_PER_SECOND, burst: float = BURST) -> None:
        """rate: rows a second. burst: rows without a wait."""
        self._clock, self._rate, self._burst = clock, rate, burst
        self._left, self._at = burst, clock.monotonic()

    def count(self, rows: int) -> None:
        """Count rows that were read."""
        now = self._clock.monotonic()
        left = min(self._burst, self._left + self._rate * (now - self._at)) - rows
        self._left, self._at = max(left, -self._rate * LONGEST_WAIT), now

    async def admit(self) -> None:
        """Wait until the rows that were read before this call are paid for, at most `LONGEST_WAIT`."""
        self.count(0)
        if self._left < 0:
            await self._clock.sleep(-self._left / self._rate)


class CountedTables(WrappedTables):
    """Tables whose reads count for a pace. They never wait themselves: a visit that has begun reads to its end."""

    def __init__(self, tables: Tables, pace: RowPace) -> None:
        super().__init__(tables)
        self.pace = pace

    async def perform(self, request: TableRequest) -> Any:
        """See `Tables`."""
        if isinstance(request, Get):
            self.pace.count(1)
        answer = await self.inner.perform(request)
        if isinstance(answer, Page):
            self.pace.count(len(answer.rows))
        return answer


def postponed_fleets(keys: Iterable[str], stretch: float, period: float, now: Millis, *, sure: int = 1) -> set[str]:
    """Return the fleets that this run of a sweep leaves out because storage refuses requests.

    stretch: factor on intervals, 1 or more; each fleet is visited in about one of so many runs (1, 2 or 4), and others in each run, so that
    neither the pressure nor its end makes a wave. period: seconds between runs. now: wall time. sure: only each run of this number is
    certain to take place. The turns shift by one at each of those, so that they reach all fleets if the runs in between are missing.
    """
    every = 1 if stretch < 1.5 else 2 if stretch < 3.0 else MAX_POSTPONED
    turn = int((now + period * 500) // (period * 1000))
    if sure > 1:
        turn -= turn // sure
    return {key for key in keys if (crc32(key.encode()) + turn) % every} if every > 1 else set()


class Postponement:
    """Decides for one sweep of this process. Without a gauge, it postpones nothing."""

    def __init__(self, pressure: PressureGauge | None, period: float, *, sure: int = 1, most: float = MAX_POSTPONED) -> None:
        """pressure: of the requests of this process to storage. most: the largest factor on the time between two visits to a fleet. period,
        sure: see `postponed_fleets`."""
        self._pressure, self._period, self._sure, self._most = pressure, period, sure, most

    @property
    def stretch(self) -> float:
        """The factor on the time between two visits, 1 to `most`."""
        return min(self._pressure.stretch, self._most) if self._pressure is not None else 1.0

    def of(self, keys: Iterable[str], now: Millis) -> set[str]:
        """Return those of the fleets that a run at `now`, wall time, leaves out."""
        return postponed_fleets(keys, self.stretch, self._period, now, sure=self._sure)


class PassPlace(NamedTuple):
    """The next row to read: its partition, and the first possible key."""

    partition: str
    key: str


async def page_with_rows(tables: Tables, query: RowQuery) -> Page:
    """Return a page of a query that has rows, or the last one: the key of a row says where a pass goes on. Raises `StorageError`."""
    page = await tables.query(query)
    while not page.rows and page.next is not None:
        page = await tables.query(query._replace(cursor=page.next))
    return page


def following(left: Sequence[str], page: Page) -> PassPlace | None:
    """Return where the pass goes on after a `page_with_rows` of the partition `left[0]`; None at the end of the last partition."""
    if page.next is not None:
        return PassPlace(left[0], page.rows[-1].rk + "!")
    return PassPlace(left[1], "") if len(left) > 1 else None


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
