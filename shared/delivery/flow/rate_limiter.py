"""Rates of a tenant, shared by all instances through table `TocsinLimits`: events accepted, deliveries sent.

One row per rate (partition {tenant}; `rate:events` for `events_per_second`, others for deliveries) holds `tat`, the
theoretical arrival time of the generic cell rate algorithm (ITU-T I.371), in microseconds of wall time. Each event advances it by 1/rate,
and it may be at most one second ahead of now. So a tenant that rested may use one second's worth at once, and no border of a time window
lets twice as much through.

An instance takes a block of events with one conditional write, about as much as it needed in the second before, and spends it from memory
for at most a second. The rate over all instances is exceeded by at most the blocks that they hold: one each.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import NamedTuple

from ...core.clock import Clock
from ...engine.conflicts import CONFLICT, WriteConflict, try_repeatedly
from ...storage.names import LIMITS
from ...storage.ports import Applied, Insert, Merge, Tables

ROW = "rate:events"
BURST = 1.0
"""Seconds of the rate that may be used at once."""
TOLERANCE = 5.0
"""Seconds that clocks of instances may differ. A row further ahead than that plus a burst was written by a wrong clock, or for a slower
rate, and is ignored; otherwise one such write could block a tenant for hours."""
TRIES = 6
"""Conditional writes that are tried when other instances take blocks at the same time."""
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

        if await try_repeatedly(attempt, TRIES) is None:
            return
        # Too many instances write this row: all of them took blocks, so the rate is used.
        share.full_until = self._clock.monotonic() + 0.1
