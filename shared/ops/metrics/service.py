"""Reads tables and queues for `/api/metrics`, at most once in three seconds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from prometheus_client import Metric

from ...checkpoints.service.views import TurnFigures as TurnFigures
from ...core.clock import Clock, Millis
from ...core.errors import Problem, Rejected, Unavailable
from ...core.ids import Ids
from ...delivery import circuit_breaker
from ...engine.effects import load_rows
from ...fleets.watch.figures import FleetFigures
from ...maintenance.service.figures import MaintenanceFigures as MaintenanceFigures
from ...scheduler.keys import GATE, index_partitions, index_shard, shard_tenant
from ...scheduler.protocol.dispatch import rounds_of
from ...scheduler.protocol.ingest import counts_of_row
from ...scheduler.protocol.user_ends import NO_ENDS, with_ends
from ...scheduler.queries.end_notes import read_ends
from ...scheduler.queries.stats import count_working
from ...scheduler.queries.totals import Totals
from ...scheduler.rules import may_take
from ...scheduler.shard.gate import Counts, Gate, parse_gate
from ...scheduler.timings import OWNER_SILENT, STUCK_ROUNDS
from ...scheduler.wakes.service import SWEEP_ROW, times_of
from ...storage import Storage
from ...storage.names import ALL_QUEUES, EVENTS, PK_TICKS, POISON_QUEUES, SHARDS, SWEEPS, TENANTS
from ...storage.ports import MAX_PAGE, Row, RowQuery
from ...tenants.cache import Cached
from ...tenants.rows import PK_TENANTS, PREFIX_CHANNEL, of_tenant
from .families import MOST_TENANTS, MetricsSnapshot, TenantFigures, collected, exposition

TTL = 3.0
"""Seconds for which an answer is reused."""
IN_FLIGHT = 32
"""Most concurrent reads."""
MOST_PAGES = 5
"""Most pages of 1000 index rows that are read from each of the 16 partitions, the nearest wake-ups first."""
INDEX_PROPS = ("state", "wake", "tenant", "counts", "rounds")
"""Properties of index rows that figures need."""
MOST_GATES = 1_000
"""Most unfinished shards whose counts are read, the nearest wake-ups first: about a million events."""
MOST_WORKING = 200
"""Most shards whose events are read for the number of those that receivers work on, the nearest wake-ups first."""


class RenderedMetrics(NamedTuple):
    """A snapshot of the metrics, and its Prometheus text."""

    seen: MetricsSnapshot
    text: bytes


class JobFigures(NamedTuple):
    """Functions that read the figures of the jobs beside the scheduler."""

    fleets: Callable[[], Awaitable[list[FleetFigures]]]
    turns: Callable[[], Awaitable[list[TurnFigures]]]
    maintenance: Callable[[], Awaitable[list[MaintenanceFigures]]]


class ProcessFigures(NamedTuple):
    """The figures that a process keeps in memory. longest_stall: see `StallWatch`. started: start of the application. timers: the timers
    that are deployed with it."""

    counters: Sequence[Mapping[str, int]]
    longest_stall: Callable[[], float]
    started: Millis
    timers: Collection[str]


class Metrics:
    """The metrics of the service. One object per process."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        process: ProcessFigures,
        jobs: JobFigures,
        allow_work: Callable[[str], Awaitable[bool]],
    ) -> None:
        """allow_work: returns True if a channel of the tenant allows long work; raises 404."""
        self._allow_work, self._figures, self._jobs = allow_work, process, jobs
        self._storage, self._tables, self._clock, self._ids = storage, storage.tables, clock, ids
        self.totals = Totals(storage.tables)
        """The figures of finished shards."""
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)
        self._process = ""
        self._cache: Cached[str, RenderedMetrics] = Cached(self._render, clock, ttl=TTL, missing_ttl=TTL, size=1)

    async def text(self) -> bytes:
        """Return the Prometheus text, at most three seconds old. Raises `StorageError`."""
        return (await self._cached()).text

    async def families(self) -> list[Metric]:
        """Return the same figures as data. Raises `StorageError`."""
        return collected((await self._cached()).seen)

    async def open_of(self, tenants: Iterable[str]) -> MetricsSnapshot:
        """Return the figures of the tenants' unfinished shards, read now. Raises `StorageError`."""
        seen = MetricsSnapshot(self._clock.now(), tenants={name: TenantFigures() for name in tenants})
        await self._unfinished(seen)
        return seen

    async def _cached(self) -> RenderedMetrics:
        rendered = await self._cache.get("metrics")
        assert rendered is not None
        return rendered

    async def _render(self, key: str) -> RenderedMetrics:
        # Named on the first call: a process that answers no call needs no name.
        self._process = self._process or self._ids.name()
        counted = {what: count for each in self._figures.counters for what, count in each.items()}
        seen = MetricsSnapshot(self._clock.now(), process=self._process, counters=counted, longest_stall=self._figures.longest_stall())
        seen.tenants = {
            row.rk: TenantFigures() for row in await load_rows(self._tables, RowQuery(TENANTS, PK_TENANTS, "", "~", select=("deleting",)))
        }
        (ticks, seen.fleets, seen.turns, seen.maintenance), _, _, _, _ = await asyncio.gather(
            asyncio.gather(
                load_rows(self._tables, RowQuery(SWEEPS, PK_TICKS, "", "~")),
                self._jobs.fleets(),
                self._jobs.turns(),
                self._jobs.maintenance(),
            ),
            self._finished(seen),
            self._open(seen),
            self._blocked(seen),
            self._queues(seen),
        )
        # A timer without a tick counts from the start of this process; timers that are no longer deployed are left out.
        seen.ticks = dict.fromkeys(self._figures.timers, self._figures.started)
        seen.ticks |= {row.rk: int(row.props["at"]) for row in ticks if row.rk in seen.ticks}
        seen.sweeps = times_of(next((row for row in ticks if row.rk == SWEEP_ROW), None))
        return RenderedMetrics(seen, exposition(seen))

    async def _finished(self, seen: MetricsSnapshot) -> None:
        await asyncio.gather(*map(self._fold, seen.tenants))
        for name, total in (await self.totals.all()).items():
            if name in seen.tenants:
                seen.tenants[name].total = total

    async def _fold(self, tenant: str) -> None:
        async with self._in_flight:
            await self.totals.fold(tenant)

    async def _open(self, seen: MetricsSnapshot) -> None:
        await self._working(seen, await self._unfinished(seen))

    async def _unfinished(self, seen: MetricsSnapshot) -> list[Row]:
        """Add the figures of unfinished shards; return the index rows of those with events that retry."""
        (ends, _), found_rows = await asyncio.gather(
            read_ends(self._tables, pages=MOST_PAGES), asyncio.gather(*map(self._filed, index_partitions(self._storage.places)))
        )
        seen.unread = found_rows.count(None)
        rows = [row for found in found_rows for row in found or ()]
        seen.partial = any(found is not None and len(found) >= MOST_PAGES * MAX_PAGE for found in found_rows)
        retrying: list[Row] = []
        seen.shards.update(str(row.props["state"]) for row in rows)
        left = []
        # Many shards of a tenant have the same numbers, which are added up once.
        alike: Counter[tuple[str, Counts]] = Counter()
        for row in rows:
            tally = counts_of_row(row, seen.now)
            if tally is None:
                left.append(row)
            else:
                counts = with_ends(tally, ends.get(index_shard(row.rk), NO_ENDS)) if ends else tally.counts
                alike[str(row.props["tenant"]), counts] += 1
                if counts.retrying:
                    retrying.append(row)
                if counts.dead:
                    seen.with_dead.append(index_shard(row.rk))
        seen.read += alike.total()
        for (name, counts), number in alike.items():
            if (tenant := seen.tenants.get(name)) is not None:
                _add_unfinished(tenant, counts, number)
        seen.partial |= len(left) > MOST_GATES
        nearest = {index_shard(row.rk): row for row in sorted(left, key=lambda row: int(row.props["wake"]))[:MOST_GATES]}
        for (shard, row), found in zip(nearest.items(), await asyncio.gather(*map(self._gate, nearest)), strict=True):
            seen.read += found != "away"
            tenant = seen.tenants.get(shard_tenant(shard))
            # A finished shard is in the totals; the shard of a deleted tenant is left out.
            if found is None or found == "away" or found[0].state == "done" or tenant is None:
                continue
            gate, served = found
            counts = with_ends(gate.tally, ends.get(shard, NO_ENDS))
            _add_unfinished(tenant, counts)
            if counts.retrying:
                retrying.append(row)
            if counts.dead:
                seen.with_dead.append(shard)
            if not served and int(row.props["wake"]) + OWNER_SILENT <= seen.now:
                tenant.overdue += counts.open
                tenant.stuck += counts.open if rounds_of(row) >= STUCK_ROUNDS else 0
        return retrying

    async def _working(self, seen: MetricsSnapshot, rows: list[Row]) -> None:
        """Count the events that receivers work on. rows: the index rows of shards with events that retry.

        Nothing is read of tenants whose channels allow no long work.
        """
        names = {str(row.props["tenant"]) for row in rows} & seen.tenants.keys()
        shown = sorted(names)[:MOST_TENANTS]
        allowed = {name for name, allow in zip(shown, await asyncio.gather(*map(self._allows_work, shown)), strict=True) if allow}
        nearest = sorted((row for row in rows if row.props["tenant"] in allowed), key=lambda row: int(row.props["wake"]))[:MOST_WORKING]
        shards = [index_shard(row.rk) for row in nearest]
        for row, count in zip(nearest, await asyncio.gather(*map(self._works, shards)), strict=True):
            seen.tenants[str(row.props["tenant"])].working += count

    async def _allows_work(self, tenant: str) -> bool:
        async with self._in_flight:
            try:
                return await self._allow_work(tenant)
            except Problem:
                # The tenant was deleted meanwhile.
                return False

    async def _works(self, shard: str) -> int:
        async with self._in_flight:
            try:
                return await count_working(self._tables, shard)
            except Unavailable:
                return 0

    async def _filed(self, partition: str) -> list[Row] | None:
        """Return the nearest index rows of a partition; None if its account does not answer, so that the other accounts still count."""
        rows: list[Row] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            try:
                page = await self._tables.query(RowQuery(SHARDS, partition, select=INDEX_PROPS, cursor=cursor))
            except Unavailable:
                return None
            rows += page.rows
            cursor = page.next
            if cursor is None:
                break
        return rows

    async def _gate(self, shard: str) -> tuple[Gate, bool] | Literal["away"] | None:
        async with self._in_flight:
            try:
                row = await self._tables.get(EVENTS, shard, GATE)
            except Unavailable:
                return "away"
        if row is None:
            return None
        gate = parse_gate(row.props)
        return gate, gate.state == "owned" and not may_take(gate, row.read_at - row.timestamp)

    async def _blocked(self, seen: MetricsSnapshot) -> None:
        shown = sorted(seen.tenants)[:MOST_TENANTS]
        for tenant, rows in zip(shown, await asyncio.gather(*map(self._channels, shown)), strict=True):
            for row in rows:
                state = circuit_breaker.parse(str(row.props.get("breaker", ""))).state
                reason = "paused" if row.props.get("paused") else f"breaker-{state}" if state != "closed" else None
                if reason is not None:
                    seen.blocked.append((tenant, row.rk.removeprefix(PREFIX_CHANNEL), reason))

    async def _channels(self, tenant: str) -> list[Row]:
        async with self._in_flight:
            end = PREFIX_CHANNEL[:-1] + ";"
            return await load_rows(self._tables, RowQuery(TENANTS, of_tenant(tenant), PREFIX_CHANNEL, end, select=("paused", "breaker")))

    async def _queues(self, seen: MetricsSnapshot) -> None:
        names = (*ALL_QUEUES, *POISON_QUEUES)
        for name, length in zip(names, await asyncio.gather(*map(self._length, names)), strict=True):
            if length is not None:
                seen.queues[name] = length

    async def _length(self, queue: str) -> int | None:
        try:
            return await self._storage.queues.length(queue)
        except Rejected as error:
            # A version that deployed fewer queues.
            if "QueueNotFound" in str(error):
                return None
            raise


def _add_unfinished(tenant: TenantFigures, counts: Counts, shards: int = 1) -> None:
    tenant.unfinished.update({name: shards * count for name, count in counts._asdict().items()})
    tenant.unfinished["scheduled"] += shards * (counts.open - counts.retrying)
