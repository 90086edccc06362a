"""Bounds the number of a tenant's locks, and removes old ones when there are too many."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ..core.clock import Clock
from ..engine.async_runner import AsyncRunner
from ..engine.queries import each_page, load_rows
from ..storage.ports import RowQuery, Tables
from ..tenants.model import MOST_LOCKS, Limits
from ..web.problem import too_many
from . import protocol
from .rows import PARTITIONS, TABLE, WITHOUT_WAITERS, partition_at
from .timings import COUNT_FRESH_FOR, KEPT, LIMIT_RETRY, MOST_COUNTED, REMOVED_AT_ONCE

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _LockCount:
    """A tenant's locks. at: monotonic seconds of the count. count: with those admitted since. nothing_old_until: monotonic seconds before
    which no row is old enough to be removed. one_at_a_time: held while locks are counted, so that simultaneous requests share a count."""

    at: float = -math.inf
    count: int = 0
    nothing_old_until: float = -math.inf
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)


class LockLimit:
    """Admits new locks up to the tenant's limit. Several processes together may admit a few more: each counts once in 30 s."""

    def __init__(self, tables: Tables, runner: AsyncRunner, clock: Clock, limits: Callable[[str], Awaitable[Limits]]) -> None:
        """limits: returns a tenant's limits."""
        self._tables, self._runner, self._clock, self._limits = tables, runner, clock, limits
        self._counts: dict[str, _LockCount] = {}

    async def admit(self, tenant: str) -> None:
        """Count one more lock, or raise 429 if the tenant may not have it. Old locks that nobody holds are removed first."""
        own = (await self._limits(tenant)).locks
        most = MOST_LOCKS if own is None else own
        if tenant not in self._counts and len(self._counts) >= MOST_COUNTED:
            del self._counts[next(iter(self._counts))]
        known = self._counts.setdefault(tenant, _LockCount())
        async with known.one_at_a_time:
            if self._clock.monotonic() - known.at >= COUNT_FRESH_FOR:
                known.count = sum(await asyncio.gather(*(self._count(tenant, number) for number in range(len(PARTITIONS)))))
                known.at = self._clock.monotonic()
            if known.count >= most > 0 and self._clock.monotonic() >= known.nothing_old_until:
                removed = await self._remove_old(tenant)
                known.count -= removed
                if not removed:
                    # All rows were read. A tenant that keeps asking for too many locks must not cause that for each request.
                    known.nothing_old_until = self._clock.monotonic() + COUNT_FRESH_FOR
            if known.count >= most:
                raise too_many(LIMIT_RETRY, f"the tenant may have {most:,} locks; those that are unused for a day are removed", "locks")
            known.count += 1

    def forget(self, tenant: str) -> None:
        """Forget the count of a tenant that ends."""
        self._counts.pop(tenant, None)

    async def _count(self, tenant: str, number: int) -> int:
        found = each_page(self._tables, RowQuery(TABLE, partition_at(tenant, number), end="~", select=("token",)))
        return sum([len(page.rows) async for page in found])

    async def _remove_old(self, tenant: str) -> int:
        removed = sum(await asyncio.gather(*(self._remove_in(partition_at(tenant, number)) for number in range(len(PARTITIONS)))))
        if removed:
            log.info("%d unused locks of %s are removed", removed, tenant, extra={"action": "locks_removed", "tenant": tenant})
        return removed

    async def _remove_in(self, pk: str) -> int:
        # Without the waiters, of which a row may have 30 kB: nobody has waited for a day.
        rows = await load_rows(self._tables, RowQuery(TABLE, pk, "", "~", select=WITHOUT_WAITERS))
        old = [row for row in rows if row.read_at - row.timestamp >= KEPT]
        return await self._runner.run(protocol.remove(pk, old[:REMOVED_AT_ONCE]))
