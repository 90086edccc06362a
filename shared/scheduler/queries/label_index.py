"""Searchable labels that can be looked up by label rows, and the pass that files the rows of events stored before the declaration.

A label that a tenant declares searchable is marked on the events stored from then on, as soon as every process knows of it. A pass over the
tenant's shards, unfinished and finished, files the rows of the others. It is bounded, and its progress is a row, so any sweep continues it:

    TocsinSweeps, label-progress      {tenant}      the declarations that the pass is for, when it began, how far it is
    TocsinSweeps, ticks               label_rows    `wanted`: a pass is not complete; `since`: time of the last failover, or 0

Until the pass is complete, lists by the label look into every event. A pass that began before a failover of a mirrored pair is repeated,
because copies have no label rows before an owner takes them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ...core.clock import Clock, Millis
from ...engine.async_runner import AsyncRunner
from ...engine.effects import load_rows
from ...engine.row_codec import RowCodec
from ...engine.sweeps import following, page_with_rows
from ...storage.names import EVENTS, LEDGER, PK_TICKS, SHARDS, SWEEPS
from ...storage.ports import ANY, Applied, Insert, Merge, Props, Replace, Row, RowQuery, Tables, Upsert, Where
from ..facets.finding import LABEL_ROWS, MARK, digests_of, file_rows
from ..keys import END_EVENTS, FIRST_EVENT, GATE, HOME, NEWS, Address, index_number, index_partitions, index_shard, minute_text
from ..protocol.changing import find
from ..rules import GOING
from ..shard.gate import parse_gate

log = logging.getLogger(__name__)

LABELS_ROW: Final = "label_rows"
"""Row beside the ticks. Without it no tenant has declared a label."""
PK_PROGRESS: Final = "label-progress"
KNOWN_AFTER: Millis = 300_000
"""Time after a declaration by which every process marks the events that it stores, those under way included. After a failover, the time by
which every event is copied or stored on the side that serves."""
RUN_FOR: Final = 20.0
"""Seconds that one run may take; the next one continues."""
FRESH_FOR: Final = 30.0
"""Seconds for which a process believes what it knows of a tenant's pass."""
PAGE: Final = 100
IN_FLIGHT: Final = 8
INDEX, ENDED = "index", "ledger"
_USED: Final = ("labels", "state", "target", MARK)


@dataclass(frozen=True, slots=True)
class LabelProgress:
    """The stored progress of a tenant's pass. declared: the declarations that it is for. began: when it began, 0 if it has not.

    phase, place, key: the next row to read; place is an index partition.
    """

    declared: str = ""
    done: bool = False
    began: Millis = 0
    fresh: bool = False
    """The tenant is new: it has no events from before the declarations."""
    phase: str = INDEX
    place: str = ""
    key: str = ""


PROGRESS: Final = RowCodec(LabelProgress)


class LabelIndex:
    """Says by which labels a tenant's events are found, and carries the passes on. One per process."""

    def __init__(
        self,
        runner: AsyncRunner,
        tables: Tables,
        clock: Clock,
        declared: Callable[[str], Awaitable[Mapping[str, Millis]]],
        places: Iterable[str] = (HOME,),
    ) -> None:
        """declared: returns when a tenant declared each of its searchable labels."""
        self._runner, self._tables, self._clock, self._declared = runner, tables, clock, declared
        self._partitions = index_partitions(places)
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)
        self._marker: Row | None = None
        self._known: dict[str, tuple[float, str]] = {}
        """The declarations of each tenant whose pass is known to be complete, and the monotonic time of that look."""

    async def searchable(self, tenant: str) -> Collection[str]:
        """Return the names of the labels with which events are to be marked. Raises `StorageError`."""
        return (await self._declared(tenant)).keys()

    async def complete(self, tenant: str, names: Iterable[str]) -> frozenset[str]:
        """Return those of `names` by which label rows find every event of the tenant. Raises `StorageError`."""
        declared = await self._declared(tenant)
        wanted = frozenset(name for name in names if name in declared)
        if not wanted:
            return wanted
        text, now = _text(declared), self._clock.monotonic()
        known = self._known.get(tenant)
        if known is not None and known[1] == text and now - known[0] < FRESH_FOR:
            return wanted
        row = await self._tables.get(SWEEPS, PK_PROGRESS, tenant)
        if row is None or row.props["declared"] != text:
            await self.begin(tenant)
            return frozenset()
        marker = await self._tables.get(SWEEPS, PK_TICKS, LABELS_ROW)
        if not _is_complete(PROGRESS.decode(row.props), marker):
            if marker is None or not marker.props["wanted"]:
                # The process that stored the declaration ended before it could say so.
                await self._call()
            return frozenset()
        self._known[tenant] = now, text
        return wanted

    async def begin(self, tenant: str, *, fresh: bool = False) -> None:
        """Let the sweeps make a pass for what the tenant has declared now. fresh: the tenant is new. Raises `StorageError`."""
        self._known.pop(tenant, None)
        progress = LabelProgress(_text(await self._declared(tenant)), done=fresh, began=self._clock.now() if fresh else 0, fresh=fresh)
        await self._tables.write(SWEEPS, PK_PROGRESS, (Upsert(tenant, PROGRESS.encode(progress)),))
        await self._call()

    async def _call(self) -> None:
        """Let the next sweep look for passes that are not complete. Raises `StorageError`; the next list repeats it."""
        if not isinstance(await self._tables.write(SWEEPS, PK_TICKS, (Merge(LABELS_ROW, {"wanted": True}, ANY),)), Applied):
            await self._tables.write(SWEEPS, PK_TICKS, (Insert(LABELS_ROW, labels_wanted()),))

    def watch(self, ticks: Sequence[Row]) -> None:
        """Look at the rows of the timers' ticks as the sweep has read them, before it runs its jobs."""
        self._marker = next((row for row in ticks if row.rk == LABELS_ROW), None)

    async def run_once(self, now: Millis) -> Counter[str]:
        """Do a part of the passes that are not complete; return counts. Raises `StorageError`; the next run continues."""
        counts: Counter[str] = Counter()
        marker, self._marker = self._marker, None
        if marker is None or not marker.props["wanted"]:
            return counts
        until, waiting = self._clock.monotonic() + RUN_FOR, 0
        for row in await load_rows(self._tables, RowQuery(SWEEPS, PK_PROGRESS, "", "~")):
            progress = PROGRESS.decode(row.props)
            if _is_complete(progress, marker):
                continue
            if self._clock.monotonic() >= until or now < _earliest(progress, marker):
                waiting += 1
                continue
            waiting += not await self._tenant(row, progress, now, until, counts, marker)
        if not waiting:
            # On its ETag: a declaration that came meanwhile keeps it.
            await self._tables.write(SWEEPS, PK_TICKS, (Merge(LABELS_ROW, {"wanted": False}, marker.etag),))
        return counts

    async def _tenant(self, row: Row, progress: LabelProgress, now: Millis, until: float, counts: Counter[str], marker: Row) -> bool:
        """Carry a tenant's pass on; return True if it is complete."""
        tenant, declared = row.rk, await self._declared(row.rk)
        if _text(declared) != progress.declared:
            if declared:
                await self.begin(tenant)
            else:
                # The tenant was deleted, or searches by no label any more.
                ended = LabelProgress(done=True, began=now)
                await self._tables.write(SWEEPS, PK_PROGRESS, (Replace(tenant, PROGRESS.encode(ended), row.etag),))
            return not declared
        if progress.done or progress.began < _earliest(progress, marker):
            progress = LabelProgress(progress.declared, began=now)
        step: LabelProgress | None = progress
        while step is not None and self._clock.monotonic() < until:
            progress, step = step, await self._page(tenant, step, frozenset(declared), counts)
        reached = replace(progress, done=True) if step is None else step
        stored = await self._tables.write(SWEEPS, PK_PROGRESS, (Replace(tenant, PROGRESS.encode(reached), row.etag),))
        if isinstance(stored, Applied) and reached.done:
            extra = {"action": "labels_complete", "tenant": tenant, "count": counts["filed"]}
            log.info("All events of %s have the rows of their searchable labels; %d were added last", tenant, counts["filed"], extra=extra)
        return isinstance(stored, Applied) and reached.done

    async def _page(self, tenant: str, at: LabelProgress, names: Collection[str], counts: Counter[str]) -> LabelProgress | None:
        """Do one page; return where to go on, None at the end."""
        if at.phase == ENDED:
            page = await page_with_rows(self._tables, RowQuery(LEDGER, tenant, first=at.key, end=NEWS, select=("shard",), limit=PAGE))
            await asyncio.gather(*(self._shard(str(row.props["shard"]), row.rk.partition(":")[0], names, counts) for row in page.rows))
            place = following([tenant], page)
            return replace(at, key=place.key) if place is not None else None
        # A list of accounts may have grown, never shrunk.
        left = [each for each in self._partitions if not at.place or index_number(each) >= index_number(at.place)]
        begin = at.key if left[0] == at.place else ""
        page = await page_with_rows(
            self._tables, RowQuery(SHARDS, left[0], first=begin, where=(Where("tenant", "eq", tenant),), limit=PAGE)
        )
        await asyncio.gather(*(self._shard(index_shard(row.rk), str(row.props["bucket"]), names, counts) for row in page.rows))
        place = following(left, page)
        return replace(at, place=place.partition, key=place.key) if place is not None else replace(at, phase=ENDED, place="", key="")

    async def _shard(self, shard: str, bucket: str, names: Collection[str], counts: Counter[str]) -> None:
        """File the rows of a shard's events, and of those that moved from here: the copy of an event without a mark has none."""
        async with self._in_flight:
            digests = set[str]()
            for row in await load_rows(self._tables, RowQuery(EVENTS, shard, FIRST_EVENT, END_EVENTS, select=_USED)):
                found = digests_of(row.props, names)
                if not found:
                    continue
                if row.props["state"] in GOING or row.props.get("target"):
                    await self._follow(shard, row, found)
                digests |= found
            if digests:
                await self._runner.run(file_rows(LABEL_ROWS, shard, bucket, digests))
        counts["shards"] += 1
        counts["filed"] += len(digests)

    async def _follow(self, shard: str, row: Row, digests: Collection[str]) -> None:
        """File the label rows of an event where it lives now."""
        found = await self._runner.run(find(Address(shard, row.rk)))
        if found is None or found.pk == shard:
            return
        gate = await self._tables.get(EVENTS, found.pk, GATE)
        bucket = parse_gate(gate.props).bucket if gate is not None else ""
        await self._runner.run(file_rows(LABEL_ROWS, found.pk, bucket or minute_text(int(found.props["due"])), digests))


def labels_wanted(since: Millis = 0) -> Props:
    """Return the properties of the row that asks for passes. since: time of a failover, after which every pass is made again."""
    return {"wanted": True, "since": since}


def _earliest(progress: LabelProgress, marker: Row | None) -> Millis:
    """Return the earliest time at which a pass for these declarations may begin: by then no process stores events without their mark."""
    since = int(marker.props["since"]) if marker is not None else 0
    known = _last(progress.declared) + (0 if progress.fresh else KNOWN_AFTER)
    return max(known, since + KNOWN_AFTER if since else 0)


def _is_complete(progress: LabelProgress, marker: Row | None) -> bool:
    return progress.done and (not progress.declared or progress.began >= _earliest(progress, marker))


def _last(declared: str) -> Millis:
    return max((int(each.partition("=")[2]) for each in declared.split(",") if each), default=0)


def _text(declared: Mapping[str, Millis]) -> str:
    return ",".join(f"{name}={declared[name]}" for name in sorted(declared))
