"""A bounded cache of reads with an age limit, one load at a time per key, and a separate, smaller cache of missing keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from ..core.clock import Clock


class Cached[K: Hashable, V]:
    """A cache of answers of `load`, at most `ttl` seconds old (`missing_ttl` for None), counted from the start of the load.

    Missing keys are cached separately, so that a flood of guesses cannot displace keys in use. Failures are not cached. `drop` also
    discards the result of a load in progress, which may have read the state before the caller's write.
    """

    def __init__(self, load: Callable[[K], Awaitable[V | None]], clock: Clock, *, ttl: float, missing_ttl: float, size: int) -> None:
        self._load, self._clock, self._ttl, self._missing_ttl, self._size = load, clock, ttl, missing_ttl, size
        self._found: dict[K, tuple[float, V]] = {}
        self._missing: dict[K, float] = {}
        self._flights: dict[K, asyncio.Task[V | None]] = {}

    async def get(self, key: K) -> V | None:
        """Return the answer, from memory while it is young enough. Raises the exceptions of `load`."""
        now = self._clock.monotonic()
        kept = self._found.get(key)
        if kept is not None and kept[0] > now:
            return kept[1]
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
            value = await self._load(key)
        except BaseException:
            if self._flights.get(key) is asyncio.current_task():
                del self._flights[key]
            raise
        if self._flights.get(key) is asyncio.current_task():
            del self._flights[key]
            self._keep(key, value, started)
        return value

    def _keep(self, key: K, value: V | None, started: float) -> None:
        self._found.pop(key, None)
        self._missing.pop(key, None)
        if value is None:
            _make_room(self._missing, self._size // 4)
            self._missing[key] = started + self._missing_ttl
        else:
            _make_room(self._found, self._size)
            self._found[key] = (started + self._ttl, value)

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
