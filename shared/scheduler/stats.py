"""How a tenant's events stand: from the gates of unfinished shards and the ledger of the last day. Never from process memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from ..clock import Clock, Millis
from ..storage.names import EVENTS, LEDGER, SHARDS
from ..storage.ports import Row, Tables, Where
from . import ledger
from .keys import GATE, INDEX_PARTITIONS, index_shard, minute_text
from .protocol.effects import load
from .protocol.gate import COUNTS, Counts, parse_gate
from .rules import OWNER_SILENT, may_take

IN_FLIGHT = 32
OPEN_TTL = 5.0
"""Seconds a count of open events is used again when checking a tenant's limit."""


class Stats:
    """Figures per tenant. One per process."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables, self._clock = tables, clock
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)
        self._open: dict[str, tuple[float, int]] = {}

    async def _unfinished(self, tenant: str) -> list[Row]:
        where = (Where("tenant", "eq", tenant),)

        async def partition(name: str) -> list[Row]:
            rows: list[Row] = []
            cursor: str | None = None
            while True:
                page = await self._tables.query(SHARDS, name, where=where, cursor=cursor)
                rows += page.rows
                cursor = page.next
                if cursor is None:
                    return rows

        return [row for rows in await asyncio.gather(*map(partition, INDEX_PARTITIONS)) for row in rows]

    async def _gate(self, shard: str) -> tuple[Counts, bool]:
        """The shard's counts, and whether an owner serves it."""
        async with self._in_flight:
            row = await self._tables.get(EVENTS, shard, GATE)
        if row is None:
            return Counts(), False
        gate = parse_gate(row.props)
        return gate.counts, gate.state == "owned" and not may_take(gate, row.read_at - row.timestamp)

    async def open_events(self, tenant: str) -> int:
        """About how many events of the tenant are open: at most 5 s old."""
        known = self._open.get(tenant)
        if known is not None and self._clock.monotonic() - known[0] < OPEN_TTL:
            return known[1]
        gates = await asyncio.gather(*(self._gate(index_shard(row.rk)) for row in await self._unfinished(tenant)))
        total = sum(counts.open for counts, _ in gates)
        self._open[tenant] = (self._clock.monotonic(), total)
        return total

    def admitted(self, tenant: str, count: int) -> None:
        """Count events just let in, until the next look."""
        at, total = self._open.get(tenant, (0.0, 0))
        self._open[tenant] = (at, total + count)

    async def of(self, tenant: str, now: Millis) -> dict[str, Any]:
        """The answer of `GET /stats`."""
        unfinished = {index_shard(row.rk): row for row in await self._unfinished(tenant)}
        gates = dict(zip(unfinished, await asyncio.gather(*map(self._gate, unfinished)), strict=True))
        # Read last, so that nothing is missed; what finishes meanwhile is in the index and in the ledger, and counts once.
        entries = await load(self._tables, LEDGER, tenant, minute_text(now - ledger.DAY), "~")
        for row in entries:
            gates.pop(str(row.props["shard"]), None)
        # An owner that stays through its minute does not refile: what it serves is not overdue.
        overdue = sum(
            counts.open
            for shard, (counts, served) in gates.items()
            if not served and int(unfinished[shard].props["wake"]) + OWNER_SILENT <= now
        )
        totals: Counter[str] = Counter()
        channels: dict[str, ledger.Histogram] = {}
        longest: dict[str, Millis] = {}
        for counts, _ in gates.values():
            totals.update(counts._asdict())
        for row in entries:
            totals.update({name: int(row.props[name]) for name in COUNTS})
            for channel, histogram in (found := ledger.late_of(row.props))[0].items():
                ledger.add(channels.setdefault(channel, {}), histogram)
                longest[channel] = max(longest.get(channel, 0), found[1][channel])
        every: ledger.Histogram = {}
        for histogram in channels.values():
            ledger.add(every, histogram)
        return {
            "open": sum(counts.open for counts, _ in gates.values()),
            "overdue": overdue,
            **{name: totals[name] for name in ("delivered", "dead", "lapsed", "cancelled")},
            "late_ms": _late(every, max(longest.values(), default=None)),
            "channels": {
                name: {"delivered": sum(histogram.values()), "late_ms": _late(histogram, longest[name])}
                for name, histogram in sorted(channels.items())
            },
        }


def _late(histogram: ledger.Histogram, longest: Millis | None) -> dict[str, Millis | None]:
    # A bucket's bound may lie beyond the greatest lateness seen.
    p50, p99 = (ledger.quantile(histogram, share) for share in (0.5, 0.99))
    if longest is not None and p50 is not None and p99 is not None:
        p50, p99 = min(p50, longest), min(p99, longest)
    return {"p50": p50, "p99": p99, "max": longest}
