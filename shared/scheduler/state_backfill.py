"""State rows for what versions without them have stored: a pass over the gates of unfinished shards and over the ledger.

Lists rely on state rows only after a whole pass that began when no former version wrote any more. Until then they read every shard. The
sweep carries the pass on, page by page; its progress is one row beside the timers' ticks, which the sweep reads in any case. Every tick of
this version carries its time twice: one that does not was written by a former version, which may be at work again after a roll-back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..core.clock import Clock, Millis
from ..engine.async_runner import AsyncRunner
from ..engine.queries import load_rows
from ..engine.row_codec import RowCodec
from ..engine.stored_passes import following, page_with_rows
from ..storage.names import EVENTS, LEDGER, PK_TICKS, SHARDS, SWEEPS, TENANTS
from ..storage.ports import Applied, Insert, Op, Props, Replace, Row, Tables, Where
from ..tenants.rows import PK_TENANTS
from .keys import GATE, HOME, NEWS, index_number, index_partitions, index_shard
from .protocol.state_rows import ListedState, file_states
from .shard.gate import parse_gate

log = logging.getLogger(__name__)

PROGRESS_ROW: Final = "state_rows"
"""Row beside the ticks. Without it a pass begins at once."""
TICKED: Final = "scheduler_scan"
"""The job of each sweep, whose tick shows the version."""
TWICE: Final = "listed"
"""Property of a tick: its time once more. Former versions do not write it."""
FORMER_ENDS_WITHIN: Millis = 900_000
"""Time after the last sweep of a former version by which its other processes have ended too."""
RUN_FOR: Final = 20.0
"""Seconds that one run may take; the next one continues."""
FRESH_FOR: Final = 30.0
"""Seconds for which a process believes that the pass is complete."""
IN_FLIGHT: Final = 32
PAGE: Final = 500
INDEX, ENDED = "index", "ledger"


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """The stored progress. since: time of the last sweep of a former version, 0 if none is known. phase, place, key: the next row to read:
    place is an index partition, or a tenant.
    """

    done: bool = False
    since: Millis = 0
    phase: str = INDEX
    place: str = ""
    key: str = ""

    def props(self) -> Props:
        """Return the properties of the row."""
        return _PROGRESS.encode(self)


_PROGRESS: Final = RowCodec(BackfillProgress)


class StateBackfill:
    """Carries the pass on, and says whether it is complete. One per process."""

    def __init__(self, runner: AsyncRunner, tables: Tables, clock: Clock, places: Iterable[str] = (HOME,)) -> None:
        self._runner, self._tables, self._clock = runner, tables, clock
        self._partitions = index_partitions(places)
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)
        self._row: Row | None = None
        self._former = self._wanted = False
        self._known: float | None = None
        """Monotonic time at which the pass was known to be complete."""

    async def complete(self) -> bool:
        """Return True if every dead or retrying event has its state row; False may be `FRESH_FOR` seconds late. Raises `StorageError`."""
        if self._known is None or self._clock.monotonic() - self._known >= FRESH_FOR:
            at = self._clock.monotonic()
            row = await self._tables.get(SWEEPS, PK_TICKS, PROGRESS_ROW)
            self._known = at if row is not None and row.props["done"] else None
        return self._known is not None

    def watch(self, ticks: Sequence[Row]) -> None:
        """Look at the rows of the timers' ticks as the sweep has read them, before it runs its jobs."""
        rows = {row.rk: row for row in ticks}
        self._row, tick = rows.get(PROGRESS_ROW), rows.get(TICKED)
        self._former = tick is not None and tick.props.get(TWICE) != tick.props["at"]
        self._wanted = self._former or self._row is None or not self._row.props["done"]

    async def run_once(self, now: Millis) -> Counter[str]:
        """Do a part of the pass, if it is not complete; return counts. Raises `StorageError`; the next run continues."""
        counts: Counter[str] = Counter()
        if not self._wanted:
            return counts
        # Only once for each look at the ticks: the row's ETag is used up.
        self._wanted = False
        progress = _PROGRESS.decode(self._row.props) if self._row is not None else BackfillProgress()
        if self._former:
            await self._store(BackfillProgress(since=now))
            return counts
        if now < progress.since + FORMER_ENDS_WITHIN:
            return counts
        until = self._clock.monotonic() + RUN_FOR
        step = await self._page(progress, counts)
        while step is not None and self._clock.monotonic() < until:
            step = await self._page(step, counts)
        if await self._store(BackfillProgress(done=True, since=progress.since) if step is None else step) and step is None:
            extra = {"action": "state_rows_complete", "count": counts["filed"]}
            log.info("All dead and retrying events have their state rows; %d were added last", counts["filed"], extra=extra)
        return counts

    async def _store(self, progress: BackfillProgress) -> bool:
        """Store the progress, unless another process has."""
        props = progress.props()
        op: Op = Insert(PROGRESS_ROW, props) if self._row is None else Replace(PROGRESS_ROW, props, self._row.etag)
        return isinstance(await self._tables.write(SWEEPS, PK_TICKS, (op,)), Applied)

    async def _page(self, at: BackfillProgress, counts: Counter[str]) -> BackfillProgress | None:
        """Do one page; return where to go on, None at the end."""
        if at.phase == INDEX:
            return await self._index_page(at, counts)
        return await self._ledger_page(at, counts)

    async def _index_page(self, at: BackfillProgress, counts: Counter[str]) -> BackfillProgress:
        # A list of accounts may have grown, never shrunk.
        left = [each for each in self._partitions if not at.place or index_number(each) >= index_number(at.place)]
        begin = at.key if left[0] == at.place else ""
        page = await page_with_rows(self._tables, SHARDS, left[0], first=begin, limit=PAGE)
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
            await self._runner.run(file_states(shard, states, gate.bucket or str(row.props["bucket"])))
        counts["filed"] += len(states)

    async def _ledger_page(self, at: BackfillProgress, counts: Counter[str]) -> BackfillProgress | None:
        tenants = sorted(row.rk for row in await load_rows(self._tables, TENANTS, PK_TENANTS, "", "~", ("deleting",)))
        left = [tenant for tenant in tenants if tenant >= at.place]
        if not left:
            return None
        begin, dead = at.key if left[0] == at.place else "", (Where("dead", "gt", 0),)
        page = await page_with_rows(self._tables, LEDGER, left[0], first=begin, end=NEWS, where=dead, select=("shard",), limit=PAGE)

        async def file(row: Row) -> None:
            async with self._in_flight:
                await self._runner.run(file_states(str(row.props["shard"]), ("dead",), row.rk.partition(":")[0]))

        await asyncio.gather(*map(file, page.rows))
        counts["filed"] += len(page.rows)
        place = following(left, page)
        return replace(at, place=place.partition, key=place.key) if place is not None else None
