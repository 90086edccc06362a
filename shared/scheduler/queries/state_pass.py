"""The pass that files the state rows of copied events, after an account of a mirrored pair has taken over.

A copy of a shard has no state rows before an owner takes it. So a failover and a failback store a row that asks for a pass over the gates
of unfinished shards and over the ledger, and lists read every shard until the pass is complete. The sweep carries the pass on, page by
page; its progress is one row beside the timers' ticks, which the sweep reads in any case. Without the row there is nothing to file:
whoever stores a dead or retrying event files its state row before.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ...core.clock import Clock, Millis
from ...engine.async_runner import AsyncRunner
from ...engine.effects import load_rows
from ...engine.row_codec import RowCodec
from ...engine.sweeps import following, page_with_rows
from ...storage.names import EVENTS, LEDGER, PK_TICKS, SHARDS, SWEEPS, TENANTS
from ...storage.ports import Applied, Props, Replace, Row, RowQuery, Tables, Where
from ...tenants.rows import PK_TENANTS
from ..facets.finding import STATE_ROWS, ListedState, file_rows
from ..keys import GATE, HOME, NEWS, index_number, index_partitions, index_shard
from ..shard.gate import parse_gate

log = logging.getLogger(__name__)

STATES_ROW: Final = "state_rows"
"""Row beside the ticks. Without it no pass is needed."""
RUN_FOR: Final = 20.0
"""Seconds that one run may take; the next one continues."""
FRESH_FOR: Final = 30.0
"""Seconds for which a process believes that the pass is complete."""
IN_FLIGHT: Final = 32
PAGE: Final = 500
INDEX, ENDED = "index", "ledger"


@dataclass(frozen=True, slots=True)
class StatePassProgress:
    """The stored progress. phase, place, key: the next row to read; place is an index partition, or a tenant."""

    done: bool = False
    phase: str = INDEX
    place: str = ""
    key: str = ""

    def props(self) -> Props:
        """Return the properties of the row."""
        return _PROGRESS.encode(self)


_PROGRESS: Final = RowCodec(StatePassProgress)


class StatePass:
    """Carries the pass on, and says whether it is complete. One per process."""

    def __init__(self, runner: AsyncRunner, tables: Tables, clock: Clock, places: Iterable[str] = (HOME,)) -> None:
        self._runner, self._tables, self._clock = runner, tables, clock
        self._partitions = index_partitions(places)
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)
        self._row: Row | None = None
        """The row as the sweep has read it; None if no pass is wanted, and once a run has used its ETag."""
        self._known: float | None = None
        """Monotonic time at which the pass was known to be complete."""

    async def complete(self) -> bool:
        """Return True if every dead or retrying event has its state row; False may be `FRESH_FOR` seconds late. Raises `StorageError`."""
        if self._known is None or self._clock.monotonic() - self._known >= FRESH_FOR:
            at = self._clock.monotonic()
            row = await self._tables.get(SWEEPS, PK_TICKS, STATES_ROW)
            self._known = at if row is None or row.props["done"] else None
        return self._known is not None

    def watch(self, ticks: Sequence[Row]) -> None:
        """Look at the rows of the timers' ticks as the sweep has read them, before it runs its jobs."""
        self._row = next((row for row in ticks if row.rk == STATES_ROW and not row.props["done"]), None)

    async def run_once(self, now: Millis) -> Counter[str]:
        """Do a part of the pass, if it is not complete; return counts. Raises `StorageError`; the next run continues."""
        counts: Counter[str] = Counter()
        row, self._row = self._row, None
        if row is None:
            return counts
        until = self._clock.monotonic() + RUN_FOR
        step = await self._page(_PROGRESS.decode(row.props), counts)
        while step is not None and self._clock.monotonic() < until:
            step = await self._page(step, counts)
        reached = StatePassProgress(done=True) if step is None else step
        # On its ETag: another process may have stored its progress, or another failover may have begun the pass anew.
        stored = await self._tables.write(SWEEPS, PK_TICKS, (Replace(STATES_ROW, reached.props(), row.etag),))
        if isinstance(stored, Applied) and reached.done:
            extra = {"action": "state_rows_complete", "count": counts["filed"]}
            log.info("All dead and retrying events have their state rows; %d were added last", counts["filed"], extra=extra)
        return counts

    async def _page(self, at: StatePassProgress, counts: Counter[str]) -> StatePassProgress | None:
        """Do one page; return where to go on, None at the end."""
        if at.phase == INDEX:
            return await self._index_page(at, counts)
        return await self._ledger_page(at, counts)

    async def _index_page(self, at: StatePassProgress, counts: Counter[str]) -> StatePassProgress:
        # A list of accounts may have grown, never shrunk.
        left = [each for each in self._partitions if not at.place or index_number(each) >= index_number(at.place)]
        begin = at.key if left[0] == at.place else ""
        page = await page_with_rows(self._tables, RowQuery(SHARDS, left[0], first=begin, limit=PAGE))
        await asyncio.gather(*(self._unfinished(row, counts) for row in page.rows))
        place = following(left, page)
        return replace(at, place=place.partition, key=place.key) if place is not None else replace(at, phase=ENDED, place="", key="")

    async def _unfinished(self, row: Row, counts: Counter[str]) -> None:
        """File the states of an unfinished shard by its gate's counts. Its owner files those that come later."""
        shard = index_shard(row.rk)
        async with self._in_flight:
            found = await self._tables.get(EVENTS, shard, GATE)
            if found is None:
                return
            gate = parse_gate(found.props)
            kinds: tuple[tuple[ListedState, int], ...] = (("dead", gate.counts.dead), ("retrying", gate.counts.retrying))
            states = [state for state, count in kinds if count]
            await self._runner.run(file_rows(STATE_ROWS, shard, gate.bucket or str(row.props["bucket"]), states))
        counts["filed"] += len(states)

    async def _ledger_page(self, at: StatePassProgress, counts: Counter[str]) -> StatePassProgress | None:
        tenants = sorted(row.rk for row in await load_rows(self._tables, RowQuery(TENANTS, PK_TENANTS, "", "~", select=("deleting",))))
        left = [tenant for tenant in tenants if tenant >= at.place]
        if not left:
            return None
        begin, dead = at.key if left[0] == at.place else "", (Where("dead", "gt", 0),)
        page = await page_with_rows(
            self._tables, RowQuery(LEDGER, left[0], first=begin, end=NEWS, where=dead, select=("shard",), limit=PAGE)
        )

        async def file(row: Row) -> None:
            async with self._in_flight:
                await self._runner.run(file_rows(STATE_ROWS, str(row.props["shard"]), row.rk.partition(":")[0], ("dead",)))

        await asyncio.gather(*map(file, page.rows))
        counts["filed"] += len(page.rows)
        place = following(left, page)
        return replace(at, place=place.partition, key=place.key) if place is not None else None
