"""Limits of a channel or a tenant that all instances share through table `TocsinLimits` (partition {tenant}).

    rate:deliveries[:{channel}]    deliveries per second: instances take blocks of it (`rate_limiter`)
    slots[:{channel}]              deliveries at once: how many each instance holds, and until when

Without a limit none of these rows exists and the table is not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

import orjson

from ...core.clock import Clock
from ...engine.conflicts import CONFLICT, WriteConflict, try_repeatedly
from ...storage.names import LIMITS
from ...storage.ports import Applied, Insert, Merge, Op, Tables
from . import rules
from .rate_limiter import RateLimiter
from .rules import SlotShare

log = logging.getLogger(__name__)

LEAST_PAUSE = 0.5
"""Seconds between two reads of the table for one limit: what became free meanwhile is taken with one write."""
RENEW = 5.0
"""Seconds after which a share in use is renewed."""
TRIES = 5


class Limit(Protocol):
    """One limit on deliveries. Call `start` only while `ready`; each `start` needs an `end`."""

    def ready(self) -> bool:
        """Return True if one more delivery may start now, without asking the table."""

    def start(self) -> None:
        """Count a delivery that starts."""

    def end(self) -> None:
        """Count a delivery that has ended."""

    def shut_for(self) -> float:
        """Return the seconds until the next delivery may start; 0 if unknown."""

    async def refill(self, waiting: int) -> float:
        """Ask the table for `waiting` deliveries; return the seconds after which to ask again. Raises `StorageError`."""


class RateLimit:
    """A limit of deliveries per second."""

    def __init__(self, limiter: RateLimiter, clock: Clock, tenant: str, row: str, rate: float) -> None:
        self._limiter, self._clock, self._tenant, self._row, self.rate = limiter, clock, tenant, row, rate
        self._again = float("-inf")

    def ready(self) -> bool:
        return self._limiter.in_hand(self._tenant, self._row) > 0

    def start(self) -> None:
        self._limiter.spend(self._tenant, self._row)

    def end(self) -> None:
        """Do nothing: a rate is not given back."""

    def shut_for(self) -> float:
        return self._limiter.shut_for(self._tenant, self._row)

    async def refill(self, waiting: int) -> float:
        now = self._clock.monotonic()
        if now >= self._again:
            wait = await self._limiter.fill(self._tenant, self.rate, waiting, self._row)
            if self._limiter.in_hand(self._tenant, self._row) < waiting:
                # Everything that was free is taken.
                self._again = now + max(LEAST_PAUSE, wait)
        return max(LEAST_PAUSE, self._again - now)


class SharedSlots:
    """A limit of deliveries at once: this instance's share, leased for `rules.LEASE` and renewed while it is used."""

    def __init__(self, tables: Tables, clock: Clock, tenant: str, row: str, limit: int, me: str) -> None:
        self._tables, self._clock, self._tenant, self._row, self._me = tables, clock, tenant, row, me
        self.limit = limit
        self.busy = 0
        self._held, self._until, self._asked = 0, 0.0, float("-inf")
        self._lock = asyncio.Lock()
        """Keeps answers in the order of the writes, because lanes of one tenant use one share."""

    @property
    def held(self) -> int:
        """Slots that this instance may use now."""
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
        """Return True if the share is in use and must be renewed."""
        return self.busy > 0 and self._clock.monotonic() - self._asked >= RENEW

    async def refill(self, waiting: int) -> float:
        now = self._clock.monotonic()
        if now - self._asked >= LEAST_PAUSE:
            self._asked = now
            await self.lease(self.busy + waiting)
        return LEAST_PAUSE

    async def lease(self, wanted: int) -> None:
        """Ask for `wanted` slots in all. The result counts from the SEND of the read that it is based on."""
        async with self._lock:
            await self._lease(wanted)

    async def _lease(self, wanted: int) -> None:

        async def attempt() -> WriteConflict | None:
            sent = self._clock.monotonic()
            row = await self._tables.get(LIMITS, self._tenant, self._row)
            # Without a row no instance holds anything, and the store's time is unknown: the first write holds nothing and makes the row.
            if row is None:
                op: Op = Insert(self._row, {"parts": ""})
                await self._tables.write(LIMITS, self._tenant, [op])
                return CONFLICT
            parts = rules.share(_parse(str(row.props["parts"])), self._me, self.limit, self.busy, wanted, row.read_at)
            held = parts[self._me].held if self._me in parts else 0
            # Slots that are given up are not used from now on: other instances may use them as soon as the write is stored.
            self._held = min(self._held, held)
            op = Merge(self._row, {"parts": _text(parts)}, row.etag)
            if isinstance(await self._tables.write(LIMITS, self._tenant, [op]), Applied):
                self._held = held
                # The store's time has whole seconds, so it may have been almost one second later. The rest allows for clocks that drift.
                self._until = sent + rules.LEASE / 1000 - 1.5
                return None
            return CONFLICT

        if isinstance(await try_repeatedly(attempt, TRIES), WriteConflict):
            log.debug("Other processes keep changing %s of %s", self._row, self._tenant, extra={"action": "slots_contended"})


def _parse(text: str) -> dict[str, SlotShare]:
    return {name: SlotShare(*part) for name, part in orjson.loads(text).items()} if text else {}


def _text(parts: Mapping[str, SlotShare]) -> str:
    return orjson.dumps({name: list(part) for name, part in parts.items()}).decode() if parts else ""
