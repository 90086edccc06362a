"""Time enters Tocsin only here.

Wall time is integer milliseconds since 1970 UTC (`Millis`): exact, comparable, cheap. Ages and waits use the monotonic clock,
in float seconds. `SettableClock` is the twin that tests, the simulator and users' own tests drive.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol

type Millis = int
"""Milliseconds since 1970-01-01T00:00:00Z."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI = timedelta(milliseconds=1)


def to_millis(moment: datetime) -> Millis:
    """Return the milliseconds of an aware datetime. They are rounded up, so that nothing fires before a due time within a millisecond."""
    return -((_EPOCH - moment) // _MILLI)


def to_datetime(millis: Millis) -> datetime:
    """Return the UTC datetime of `millis`."""
    return _EPOCH + timedelta(milliseconds=millis)


def to_text(millis: Millis) -> str:
    """Return RFC 3339 in UTC with three decimals and `Z`: `2026-11-21T10:21:55.250Z`."""
    return f"{_second_text(millis // 1000)}{millis % 1000:03d}Z"


@lru_cache(maxsize=256)
def _second_text(second: int) -> str:
    # strftime omits the leading zeros of years before 1000.
    return to_datetime(second * 1000).isoformat()[:19] + "."


def steady() -> float:
    """Return seconds that never step back and that advance while the machine sleeps, if it has such a clock.

    Only differences within one boot are meaningful. Callers use it to find out how long the machine was asleep.
    """
    return time.clock_gettime(_STEADY) if _STEADY is not None else time.monotonic()


_STEADY: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """The port through which code reads time and waits."""

    def now(self) -> Millis:
        """Return the wall time."""

    def monotonic(self) -> float:
        """Return seconds that never step back. Only differences are meaningful."""

    async def sleep(self, seconds: float) -> None:
        """Wait for at least `seconds` of monotonic time."""


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Millis:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    steady = staticmethod(steady)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class SettableClock:
    """A clock that moves only when `advance` is called. Sleepers wake in the order of their times.

    `advance(seconds)` moves the clock. It wakes each sleeper at its own instant and lets the woken tasks run before it goes on.
    """

    def __init__(self, start: Millis = 1_800_000_000_000) -> None:
        self._start, self._elapsed = start, 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> Millis:
        return self._start + int(self._elapsed * 1000 + 1e-6)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), future))
        await future

    def next_wake(self) -> float | None:
        """Return the seconds until the earliest sleeper is due, or None when there is no sleeper."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return max(0.0, self._sleepers[0][0] - self._elapsed) if self._sleepers else None

    async def advance(self, seconds: float, *, settle: int = 50) -> None:
        """Move on by `seconds`. After each wake-up the event loop turns `settle` times, so that woken tasks can act."""
        target = self._elapsed + seconds
        for _ in range(settle):
            await asyncio.sleep(0)
        while (step := self.next_wake()) is not None and self._elapsed + step <= target + 1e-9:
            at, _, future = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, at)
            if not future.done():
                future.set_result(None)
            for _ in range(settle):
                await asyncio.sleep(0)
        self._elapsed = max(self._elapsed, target)
