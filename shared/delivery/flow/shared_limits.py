"""Limits of a channel or a tenant that all instances share through table `TocsinLimits` (partition {tenant}).

    rate:deliveries[:{channel}]    deliveries a second: blocks of it are taken as `tenants.limits` says
    slots[:{channel}]              deliveries at once: who holds how many, and until when

Where no limit is set, nothing of this is made and the table is not asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

import orjson

from ...core.clock import Clock
from ...storage.names import LIMITS
from ...storage.ports import Applied, Insert, Merge, Op, Tables
from . import rules
from .rate_limiter import RateLimiter
from .rules import SlotShare

log = logging.getLogger(__name__)

LEAST_PAUSE = 0.5
"""Seconds between two looks at the table for one limit: what came free meanwhile is taken with one write."""
RENEW = 5.0
"""Seconds after which a part in use is renewed."""
TRIES = 5


class Limit(Protocol):
    """One bound on deliveries. `start` only while `ready`; each `start` has its `end`."""

    def ready(self) -> bool:
        """Whether one more may start now, without asking the table."""

    def start(self) -> None:
        """A delivery starts."""

    def end(self) -> None:
        """It has ended."""

    def shut_for(self) -> float:
        """Seconds until the next one may start, as far as is known; 0 when that is not known."""

    async def refill(self, waiting: int) -> float:
        """Ask the table on behalf of so many; seconds after which to ask again. Raises `StorageError`."""


class RateLimit:
    """Deliveries a second."""

    def __init__(self, limiter: RateLimiter, clock: Clock, tenant: str, row: str, rate: float) -> None:
        self._limiter, self._clock, self._tenant, self._row, self.rate = limiter, clock, tenant, row, rate
        self._again = float("-inf")

    def ready(self) -> bool:
        return self._limiter.in_hand(self._tenant, self._row) > 0

    def start(self) -> None:
        self._limiter.spend(self._tenant, self._row)

    def end(self) -> None:
        """Nothing comes back."""

    def shut_for(self) -> float:
        return self._limiter.shut_for(self._tenant, self._row)

    async def refill(self, waiting: int) -> float:
        now = self._clock.monotonic()
        if now >= self._again:
            wait = await self._limiter.fill(self._tenant, self.rate, waiting, self._row)
            if self._limiter.in_hand(self._tenant, self._row) < waiting:
                # All there was is taken.
                self._again = now + max(LEAST_PAUSE, wait)
        return max(LEAST_PAUSE, self._again - now)


class SharedSlots:
    """Deliveries at once: this instance's part, leased for `rules.LEASE` and renewed while it is used."""

    def __init__(self, tables: Tables, clock: Clock, tenant: str, row: str, limit: int, me: str) -> None:
        self._tables, self._clock, self._tenant, self._row, self._me = tables, clock, tenant, row, me
        self.limit = limit
        self.busy = 0
        self._held, self._until, self._asked = 0, 0.0, float("-inf")
        self._lock = asyncio.Lock()
        """Answers in the order of the writes: lanes of one tenant share a part."""

    @property
    def held(self) -> int:
        """Slots this instance may use now."""
        return min(self._held, self.limit) if self._clock.monotonic() < self._until else 0

    def ready(self) -> bool:
        return self.busy < self.held

    def start(self) -> None:
        self.busy += 1

    def end(self) -> None:
        self.busy -= 1

    def shut_for(self) -> float:
        return 0.0

    def stale(self) -> bool:
        """Whether the part is in use and must be renewed."""
        return self.busy > 0 and self._clock.monotonic() - self._asked >= RENEW

    async def refill(self, waiting: int) -> float:
        now = self._clock.monotonic()
        if now - self._asked >= LEAST_PAUSE:
            self._asked = now
            await self.lease(self.busy + waiting)
        return LEAST_PAUSE

    async def lease(self, wanted: int) -> None:
        """Ask for so many slots in all; what is got counts from the send of the read that it rests on."""
        async with self._lock:
            await self._lease(wanted)

    async def _lease(self, wanted: int) -> None:
        for _ in range(TRIES):
            sent = self._clock.monotonic()
            row = await self._tables.get(LIMITS, self._tenant, self._row)
            # Without a row nobody holds anything, and the store's time is not known: the first write holds nothing, and makes one.
            if row is None:
                op: Op = Insert(self._row, {"parts": ""})
                await self._tables.write(LIMITS, self._tenant, [op])
                continue
            parts = rules.share(_parse(str(row.props["parts"])), self._me, self.limit, self.busy, wanted, row.read_at)
            held = parts[self._me].held if self._me in parts else 0
            # What is given up is not used from now on: as soon as the write is in, others may use it.
            self._held = min(self._held, held)
            op = Merge(self._row, {"parts": _text(parts)}, row.etag)
            if isinstance(await self._tables.write(LIMITS, self._tenant, [op]), Applied):
                self._held = held
                # The store tells whole seconds: its time may have been almost one more than it said. The rest is for clocks that drift.
                self._until = sent + rules.LEASE / 1000 - 1.5
                return
        log.debug("Others keep changing %s of %s", self._row, self._tenant, extra={"action": "slots_contended"})


def _parse(text: str) -> dict[str, SlotShare]:
    return {name: SlotShare(*part) for name, part in orjson.loads(text).items()} if text else {}


def _text(parts: Mapping[str, SlotShare]) -> str:
    return orjson.dumps({name: list(part) for name, part in parts.items()}).decode() if parts else ""
