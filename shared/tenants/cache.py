"""A bounded cache of reads with an age limit, one load at a time per key, and a separate, smaller cache of missing keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NamedTuple

from ..core.clock import Clock


class _Found[V](NamedTuple):
    """An answer. until: monotonic time until which it is used. read_at: monotonic time at which its load began."""

    until: float
    value: V
    read_at: float


class Cached[K: Hashable, V]:
    """A cache of answers of `load`, at most `ttl` seconds old (`missing_ttl` for None), counted from the start of the load.

    Missing keys are cached separately, so that a flood of guesses cannot displace keys in use. Failures are not cached. `drop` also
    discards the result of a load in progress, which may have read the state before the caller's write.
    """

    def __init__(
        self,
        load: Callable[[K], Awaitable[V | None]],
        clock: Clock,
        *,
        ttl: float,
        missing_ttl: float,
        size: int,
        still: Callable[[V, float], Awaitable[float | None]] | None = None,
    ) -> None:
        """still: is asked about an answer that is too old, with the monotonic time at which its load began. It returns the monotonic time
        until which the answer is used further, or None if it must be loaded again."""
        self._load, self._clock, self._ttl, self._missing_ttl, self._size = load, clock, ttl, missing_ttl, size
        self._still = still
        self._found: dict[K, _Found[V]] = {}
        self._missing: dict[K, float] = {}
        self._flights: dict[K, asyncio.Task[V | None]] = {}

    async def get(self, key: K) -> V | None:
        """Return the answer, from memory while it is young enough. Raises the exceptions of `load`."""
        now = self._clock.monotonic()
        kept = self._found.get(key)
        if kept is not None and kept.until > now:
            return kept.value
        if self._missing.get(key, now) > now:
            return None
        flight = self._flights.get(key)
        if flight is None:
            # In a separate task: when one caller is cancelled, the others still get the answer.
            flight = asyncio.ensure_future(self._fetch(key, now))
            self._flights[key] = flight
            flight.add_done_callback(_look)
        return await asyncio.shield(flight)

    def drop(self, key: K) -> None:
        """Forget the answer for `key`."""
        self._found.pop(key, None)
        self._missing.pop(key, None)
        self._flights.pop(key, None)

    async def _fetch(self, key: K, started: float) -> V | None:
        try:
            value, until, read_at = await self._confirm_or_load(key, started)
        except BaseException:
            if self._flights.get(key) is asyncio.current_task():
                del self._flights[key]
            raise
        if self._flights.get(key) is asyncio.current_task():
            del self._flights[key]
            self._keep(key, value, until, read_at)
        return value

    async def _confirm_or_load(self, key: K, started: float) -> tuple[V | None, float, float]:
        """Return the answer, the time until which it is used if there is one, and the time at which its load began."""
        kept = self._found.get(key)
        if kept is not None and self._still is not None:
            until = await self._still(kept.value, kept.read_at)
            if until is not None:
                return kept.value, until, kept.read_at
            started = self._clock.monotonic()
        return await self._load(key), started + self._ttl, started

    def _keep(self, key: K, value: V | None, until: float, read_at: float) -> None:
        self._found.pop(key, None)
        self._missing.pop(key, None)
        if value is None:
            _make_room(self._missing, self._size // 4)
            self._missing[key] = read_at + self._missing_ttl
        else:
            _make_room(self._found, self._size)
            self._found[key] = _Found(until, value, read_at)

    def __len__(self) -> int:
        return len(self._found) + len(self._missing)


def _look(flight: asyncio.Task[object]) -> None:
    # All callers may have been cancelled; reading the failure keeps asyncio from reporting it as never retrieved.
    if not flight.cancelled():
        flight.exception()


def _make_room(kept: dict[Any, Any], size: int) -> None:
    # The first entry is the oldest: entries are appended, and all have the same age limit.
    while len(kept) >= max(1, size):
        del kept[next(iter(kept))]
