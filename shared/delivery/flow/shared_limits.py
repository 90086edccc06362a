"""Limits of a channel or a tenant that all instances share through table `TocsinLimits` (partition {tenant}).

    rate:events                    events per second that a tenant lets in: instances take blocks of it (`RateLimiter`)
    rate:deliveries[:{channel}]    deliveries per second, likewise
    slots[:{channel}]              deliveries at once: how many each instance holds, and until when

Without a limit none of these rows exists and the table is not read.

The row of a rate holds `tat`, the theoretical arrival time of the generic cell rate algorithm (ITU-T I.371), in microseconds of wall time.
Each event advances it by 1/rate, and it may be at most one second ahead of now. So a tenant that rested may use one second's worth at once,
and no border of a time window lets twice as much through.

An instance takes a block of events with one conditional write, about as much as it needed in the second before, and spends it from memory
for at most a second. The rate over all instances is exceeded by at most the blocks that they hold: one each.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import orjson

from ...core.clock import Clock
from ...engine.conflicts import CONFLICT, WriteConflict, try_repeatedly
from ...storage.names import LIMITS
from ...storage.ports import Applied, Insert, Merge, Op, Tables
from . import rules
from .rules import SlotShare

log = logging.getLogger(__name__)

ROW = "rate:events"
BURST = 1.0
"""Seconds of the rate that may be used at once."""
TOLERANCE = 5.0
"""Seconds that clocks of instances may differ. A row further ahead than that plus a burst was written by a wrong clock, or for a slower
rate, and is ignored; otherwise one such write could block a tenant for hours."""
RATE_TRIES = 6
"""Conditional writes that are tried when other instances take blocks at the same time."""
SLOT_TRIES = 5
"""The same for shares of slots."""
LEAST_PAUSE = 0.5
"""Seconds between two reads of the table for one limit: what became free meanwhile is taken with one write."""
RENEW = 5.0
"""Seconds after which a share of slots in use is renewed."""
_MAX_SHARES = 10_000


class RateGrant(NamedTuple):
    """The number of events that may go now; and the seconds after which to ask again for the rest."""

    granted: int
    retry_after: float


class Reservation(NamedTuple):
    """A block: its size, the row's new `tat` in microseconds, and the seconds until one more event would fit."""

    size: int
    tat: int
    wait: float


def reserve(tat: int, now: int, rate: float, need: int, want: int) -> Reservation:
    """Reserve as near to `want` events as fit, but at least `need` if they fit; 0 if none fits. Pure.

    Times in microseconds, rate in events per second.
    """
    step = 1e6 / rate
    ahead = max(BURST * 1e6, step)
    start = max(tat, now) if tat <= now + ahead + TOLERANCE * 1e6 else now
    # The small constant keeps rounding from cutting a whole number of steps.
    room = int((now + ahead - start) / step + 1e-6)
    size = max(0, min(room, max(need, want)))
    after = start + math.ceil(size * step)
    wait = max(0.0, (after + step - now - ahead) / 1e6)
    return Reservation(size, after, wait)


def most_at_once(rate: float) -> int:
    """Return the number of events that `RateLimiter.take_all` grants together at most."""
    return max(1, int(rate * TOLERANCE))


def reserve_all(tat: int, now: int, rate: float, need: int) -> Reservation:
    """Reserve `need` events if one fits, else none. Pure. Units as in `reserve`."""
    one = reserve(tat, now, rate, 1, 1)
    return one._replace(size=need, tat=one.tat + math.ceil((need - 1) * 1e6 / rate)) if one.size else one


@dataclass(slots=True)
class _Share:
    """This instance's share of one rate."""

    left: int = 0
    until: float = 0.0
    """Monotonic time at which the rest of the block lapses."""
    full_until: float = 0.0
    """Monotonic time before which no event fits, so the store need not be asked."""
    asked: int = 0
    """Events requested since `since`."""
    since: float = 0.0
    pace: float = 0.0
    """Events per second requested in the second before `since`."""
    tat: int = 0
    etag: str | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class RateLimiter:
    """Grants events of tenants. One per process; belongs to one event loop. `row` names the rate within the tenant."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables, self._clock = tables, clock
        self._shares: dict[tuple[str, str], _Share] = {}

    def _share(self, tenant: str, row: str) -> _Share:
        share = self._shares.get((tenant, row))
        if share is None:
            while len(self._shares) >= _MAX_SHARES:
                del self._shares[next(iter(self._shares))]
            share = self._shares[tenant, row] = _Share(since=self._clock.monotonic())
        return share

    async def take(self, tenant: str, rate: float | None, count: int = 1, row: str = ROW) -> RateGrant:
        """Grant up to `count` events at `rate` per second (None: no limit). Raises `StorageError`.

        A request of one event with `granted` 0 is a 429 with `Retry-After`; a batch takes its first `granted` events.
        """
        if rate is None or count <= 0:
            return RateGrant(max(0, count), 0.0)
        share = self._share(tenant, row)
        got = self._spend(share, count)
        if got == count:
            return RateGrant(count, 0.0)
        async with share.lock:
            # A task that waited for the lock may find a new block in the share.
            got += self._spend(share, count - got, asking=False)
            if got < count and self._clock.monotonic() >= share.full_until:
                await self._reserve(tenant, row, rate, share, count - got)
                got += self._spend(share, count - got, asking=False)
            wait = max(share.full_until - self._clock.monotonic(), 0.001)
        return RateGrant(got, 0.0 if got == count else wait)

    async def take_all(self, tenant: str, rate: float | None, count: int, row: str = ROW) -> float:
        """Grant `count` events at `rate` per second, or none of them; return 0, or the seconds after which to ask again.

        They are granted as soon as one of them would be: the others use the rate of the next seconds, so that no rate is too slow for them.
        count: at most `most_at_once(rate)`. Raises `StorageError`.
        """
        if rate is None:
            return 0.0
        share = self._share(tenant, row)
        self._ask(share, count)
        async with share.lock:
            left = self.in_hand(tenant, row)
            if left < count and self._clock.monotonic() >= share.full_until:
                await self._reserve(tenant, row, rate, share, count - left, kept=left)
                left = self.in_hand(tenant, row)
            if left < count:
                return max(share.full_until - self._clock.monotonic(), 0.001)
            share.left -= count
        return 0.0

    async def fill(self, tenant: str, rate: float, need: int, row: str) -> float:
        """Try to hold at least one of `need` events; return the seconds after which to ask again, 0 if one is held.

        Raises `StorageError`.
        """
        share = self._share(tenant, row)
        async with share.lock:
            if self.in_hand(tenant, row):
                return 0.0
            if self._clock.monotonic() >= share.full_until:
                await self._reserve(tenant, row, rate, share, need)
                if self.in_hand(tenant, row):
                    return 0.0
            return max(share.full_until - self._clock.monotonic(), 0.001)

    def in_hand(self, tenant: str, row: str) -> int:
        """Return the number of events that may go at once, without asking the store."""
        share = self._shares.get((tenant, row))
        return share.left if share is not None and self._clock.monotonic() < share.until else 0

    def spend(self, tenant: str, row: str) -> None:
        """Spend one of the held events."""
        share = self._shares[tenant, row]
        self._ask(share, 1)
        share.left -= 1

    def shut_for(self, tenant: str, row: str) -> float:
        """Return the seconds until the next event may go, as far as this instance knows."""
        share = self._shares.get((tenant, row))
        if share is None or self.in_hand(tenant, row):
            return 0.0
        return max(0.0, share.full_until - self._clock.monotonic())

    def _spend(self, share: _Share, count: int, *, asking: bool = True) -> int:
        if asking:
            self._ask(share, count)
        if self._clock.monotonic() >= share.until:
            return 0
        got = min(count, share.left)
        share.left -= got
        return got

    def _ask(self, share: _Share, count: int) -> None:
        """Note a request, so that the next reservation covers about a second of requests."""
        now = self._clock.monotonic()
        if (elapsed := now - share.since) >= 1.0:
            share.pace = share.asked / elapsed
            share.asked, share.since = 0, now
        share.asked += count

    async def _reserve(self, tenant: str, key: str, rate: float, share: _Share, need: int, kept: int | None = None) -> None:
        """Take a block. kept: events of the last block that stay in the share; then `need` events are taken, or none."""
        # At most a second's need: events that are reserved and not spent are lost to all instances.
        want = math.ceil(max(share.pace, share.asked))

        async def attempt() -> WriteConflict | None:
            if share.etag is None:
                row = await self._tables.get(LIMITS, tenant, key)
                share.tat, share.etag = (int(row.props["tat"]), row.etag) if row is not None else (0, "")
            now = self._clock.now() * 1000
            block = reserve(share.tat, now, rate, need, want) if kept is None else reserve_all(share.tat, now, rate, need)
            if block.size == 0:
                # An old ETag may hide a newer row, but never one with more room: events are never given back.
                share.full_until = self._clock.monotonic() + block.wait
                share.left = kept or 0
                return None
            etag, share.etag = share.etag, None
            op = Merge(key, {"tat": block.tat}, etag) if etag else Insert(key, {"tat": block.tat})
            # A lost answer is raised; then no event was taken, and at worst a block is wasted.
            written = await self._tables.write(LIMITS, tenant, [op])
            if isinstance(written, Applied):
                share.tat, share.etag = block.tat, written.etags[0]
                share.left, share.until = block.size + (kept or 0), self._clock.monotonic() + 1.0
                share.full_until = self._clock.monotonic() + block.wait if block.size < need else 0.0
                return None
            return CONFLICT

        if await try_repeatedly(attempt, RATE_TRIES) is None:
            return
        # Too many instances write this row: all of them took blocks, so the rate is used.
        share.full_until = self._clock.monotonic() + 0.1


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

        if isinstance(await try_repeatedly(attempt, SLOT_TRIES), WriteConflict):
            log.debug("Other processes keep changing %s of %s", self._row, self._tenant, extra={"action": "slots_contended"})


def _parse(text: str) -> dict[str, SlotShare]:
    return {name: SlotShare(*part) for name, part in orjson.loads(text).items()} if text else {}


def _text(parts: Mapping[str, SlotShare]) -> str:
    return orjson.dumps({name: list(part) for name, part in parts.items()}).decode() if parts else ""
