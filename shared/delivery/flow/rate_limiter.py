"""Rates of a tenant, shared by all instances through table `TocsinLimits`: events in, deliveries out.

One row per rate (partition {tenant}; `rate:events` for `events_per_second`, others for deliveries: docs/flow-control.md) holds `tat`, the
theoretical arrival time of the generic cell rate algorithm (ITU-T I.371), in microseconds of wall time: events taken push it on by 1/rate
each, and it may run at most one second ahead of now. So a tenant that rests may use one second's worth at once, and no window's edge lets
through twice as much.

An instance takes a block of events with one conditional write, about what it needed in the second before, and spends it from memory
for at most a second. The rate over all instances is exceeded at most by the blocks in their hands: one each.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import NamedTuple

from ...core.clock import Clock
from ...storage.names import LIMITS
from ...storage.ports import Applied, Insert, Merge, Tables

ROW = "rate:events"
BURST = 1.0
"""Seconds of the rate that may be used at once."""
TOLERANCE = 5.0
"""Seconds that clocks of instances may differ. A row further ahead than that and a burst was written by a wrong clock, or for a slower
rate, and is ignored; else one such write could close a tenant's door for hours."""
TRIES = 6
"""Conditional writes tried when other instances take their blocks at the same time."""
_MAX_SHARES = 10_000


class RateGrant(NamedTuple):
    """How many of the events asked for may go in now; for the rest, after how many seconds to ask again."""

    granted: int
    retry_after: float


class Reservation(NamedTuple):
    """A block: its size, the row's new `tat` in microseconds, and the seconds until one more event would fit."""

    size: int
    tat: int
    wait: float


def reserve(tat: int, now: int, rate: float, need: int, want: int) -> Reservation:
    """Take `need` or fewer events if `want` or fewer fit; times in microseconds, rate in events a second.

    What is taken is as near to `want` as fits, and 0 when not one fits. Pure.
    """
    step = 1e6 / rate
    ahead = max(BURST * 1e6, step)
    start = max(tat, now) if tat <= now + ahead + TOLERANCE * 1e6 else now
    # The hair's breadth keeps a whole number of steps from being cut by rounding.
    room = int((now + ahead - start) / step + 1e-6)
    size = max(0, min(room, max(need, want)))
    after = start + math.ceil(size * step)
    wait = max(0.0, (after + step - now - ahead) / 1e6)
    return Reservation(size, after, wait)


@dataclass(slots=True)
class _Share:
    """What this instance holds of one rate."""

    left: int = 0
    until: float = 0.0
    """Monotonic: when what is left lapses."""
    full_until: float = 0.0
    """Monotonic: before this, nobody gets anything, and the store need not be asked."""
    asked: int = 0
    """Events asked for since `since`."""
    since: float = 0.0
    pace: float = 0.0
    """Events a second asked for in the second before `since`."""
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
        """Grant up to `count` events at `rate` a second (None: no limit). Raises `StorageError`.

        A request of one event that gets `granted` 0 is a 429 with `Retry-After`; a batch takes its first `granted` events.
        """
        if rate is None or count <= 0:
            return RateGrant(max(0, count), 0.0)
        share = self._share(tenant, row)
        got = self._spend(share, count)
        if got == count:
            return RateGrant(count, 0.0)
        async with share.lock:
            # Who waited for the lock may find a fresh block in it.
            got += self._spend(share, count - got, asking=False)
            if got < count and self._clock.monotonic() >= share.full_until:
                await self._reserve(tenant, row, rate, share, count - got)
                got += self._spend(share, count - got, asking=False)
            wait = max(share.full_until - self._clock.monotonic(), 0.001)
        return RateGrant(got, 0.0 if got == count else wait)

    async def fill(self, tenant: str, rate: float, need: int, row: str) -> float:
        """See that at least one of `need` events is in hand; seconds after which to ask again, 0 if one is. Raises `StorageError`."""
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
        """Events that may go at once, without asking the store."""
        share = self._shares.get((tenant, row))
        return share.left if share is not None and self._clock.monotonic() < share.until else 0

    def spend(self, tenant: str, row: str) -> None:
        """One of those in hand goes."""
        share = self._shares[tenant, row]
        self._ask(share, 1)
        share.left -= 1

    def shut_for(self, tenant: str, row: str) -> float:
        """Seconds until the next event may go, as far as this instance knows."""
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
        """Note what is asked for: next time, about a second of it is reserved."""
        now = self._clock.monotonic()
        if (elapsed := now - share.since) >= 1.0:
            share.pace = share.asked / elapsed
            share.asked, share.since = 0, now
        share.asked += count

    async def _reserve(self, tenant: str, key: str, rate: float, share: _Share, need: int) -> None:
        # No more than a second's need: what is reserved and not spent is lost to all.
        want = math.ceil(max(share.pace, share.asked))
        for _ in range(TRIES):
            if share.etag is None:
                row = await self._tables.get(LIMITS, tenant, key)
                share.tat, share.etag = (int(row.props["tat"]), row.etag) if row is not None else (0, "")
            block = reserve(share.tat, self._clock.now() * 1000, rate, need, want)
            if block.size == 0:
                # An old tag may hide a newer row, but never one with more room: nothing is ever given back.
                share.full_until = self._clock.monotonic() + block.wait
                share.left = 0
                return
            etag, share.etag = share.etag, None
            op = Merge(key, {"tat": block.tat}, etag) if etag else Insert(key, {"tat": block.tat})
            # A lost answer is raised; then nothing was taken into hand, and at worst a block is wasted.
            written = await self._tables.write(LIMITS, tenant, [op])
            if isinstance(written, Applied):
                share.tat, share.etag = block.tat, written.etags[0]
                share.left, share.until = block.size, self._clock.monotonic() + 1.0
                share.full_until = self._clock.monotonic() + block.wait if block.size < need else 0.0
                return
        # Too many at once at this row: they all took blocks, so the rate is in use.
        share.full_until = self._clock.monotonic() + 0.1
