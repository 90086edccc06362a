"""The numbers of tenants' open events, as one process lets them in: a count of storage, and what was let in since it began.

A count is used for `OPEN_COUNT_FRESH_FOR` seconds. The first request after that counts again, and those that come meanwhile wait for it, so
that nothing is let in that the new number lacks. What is being stored while storage is counted may be counted twice: before such a number
refuses an event, all of that is awaited and storage counted again. Other processes let in events too, which the next count has.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ...core.clock import Clock
from ..timings import OPEN_COUNT_FRESH_FOR, UNSETTLED_WAIT


@dataclass(slots=True)
class _Known:
    """The figures of one tenant in this process."""

    total: int = 0
    at: float = -math.inf
    """Monotonic time at which storage began to count."""
    storing: int = 0
    """Events that are let in and not yet stored, or known not to be."""
    doubled: int = 0
    """Most events that the total has twice."""
    count: asyncio.Future[int] | None = None
    """The count that is under way."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while nothing is being stored."""


class OpenEvents:
    """The numbers of open events, and the decision on further ones. One per process; belongs to one event loop."""

    def __init__(self, count: Callable[[str], Awaitable[int]], clock: Clock) -> None:
        """count: reads the number of a tenant's open events. Raises `StorageError`."""
        self._count, self._clock = count, clock
        self._tenants: dict[str, _Known] = {}

    async def take(self, tenant: str, limit: int, wanted: int, *, whole: bool = False, own: int = 0) -> int:
        """Let in as many of `wanted` events as the limit admits; whole: all or none. Return their number. Raises `StorageError`.

        own: events that the caller was let in with before, and has not begun to store. Call `stored` afterwards.
        """
        known = self._tenants.setdefault(tenant, _Known())
        if self._clock.monotonic() - known.at >= OPEN_COUNT_FRESH_FOR or known.count is not None:
            await self._counted(tenant, known)
        if known.total + wanted > limit and known.doubled > own and known.total - known.doubled < limit:
            if known.storing > own:
                await self._settled(known)
            if known.doubled > own:
                await self._counted(tenant, known)
        while known.count is not None:
            # Another caller has begun it meanwhile.
            await self._counted(tenant, known)
        granted = min(wanted, max(0, limit - known.total))
        if whole and granted < wanted:
            granted = 0
        known.total += granted
        known.storing += granted
        if granted:
            known.settled.clear()
        return granted

    def stored(self, tenant: str, taken: int, unused: int = 0) -> None:
        """Note that events which were let in are stored. unused: number of those that are not: they were refused, or stored before."""
        known = self._tenants[tenant]
        known.total -= unused
        known.storing -= taken
        if not known.storing:
            known.settled.set()

    async def _counted(self, tenant: str, known: _Known) -> None:
        """Count again, or wait for the count that is under way. Raises `StorageError`, for all that wait."""
        if known.count is None:
            known.count = asyncio.ensure_future(self._count_again(tenant, known))
            # Its callers may all be cancelled before it ends.
            known.count.add_done_callback(lambda count: count.cancelled() or count.exception())
        # A caller that is cancelled must not end the count of the others.
        await asyncio.shield(known.count)

    async def _count_again(self, tenant: str, known: _Known) -> int:
        began, doubled = self._clock.monotonic(), known.storing
        try:
            # While it is counted, nothing is let in; `unused` of those that are being stored is taken off here.
            known.total = 0
            counted = await self._count(tenant)
            known.total += counted + doubled
            known.at, known.doubled = began, doubled
            return counted
        except BaseException:
            known.at = -math.inf
            raise
        finally:
            known.count = None

    async def _settled(self, known: _Known) -> None:
        """Wait until everything that was let in is stored, but no longer than `UNSETTLED_WAIT`."""
        if not known.storing:
            return
        ways = (asyncio.ensure_future(known.settled.wait()), asyncio.ensure_future(self._clock.sleep(UNSETTLED_WAIT)))
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
