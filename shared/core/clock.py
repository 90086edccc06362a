"""Time enters Tocsin only here.

Wall time is integer milliseconds since 1970 UTC (`Millis`): exact, comparable, cheap. Ages and waits use the monotonic clock, in float
seconds. `SettableClock` is the twin that tests, the simulator and users' own tests drive.

The offset of this machine's wall clock from the storage service's time is an interval that certainly contains it (`Offset`). A row that
was just written carries the storage service's time of the write. That moment lies between the sending of the write and the receipt of its
answer, both read on the local monotonic clock. So each write bounds the difference between the two clocks: Cristian's algorithm, with the
bounds kept instead of their midpoint, as in Marzullo's. The bounds refer to the monotonic clock, so a step of the wall clock shows at once.
The functions of bounds are pure; their monotonic times are float milliseconds.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Final, NamedTuple, Protocol

type Millis = int
"""Milliseconds since 1970-01-01T00:00:00Z."""

DRIFT: Final = 200e-6
"""Bound on the rate error of a machine's monotonic clock against the storage service's: 200 ppm."""
TOO_WIDE: Final = 2_000.0
"""Widest interval, in milliseconds, that may correct the clock. A wider one comes from slow storage and proves too little."""
RESOLUTION: Final = 1.0
"""Granularity of the times that are compared, in milliseconds."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI = timedelta(milliseconds=1)
_BOOT_TIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def to_millis(moment: datetime) -> Millis:
    """Return the milliseconds of an aware datetime. They are rounded up, so that nothing fires before a due time within a millisecond."""
    return -((_EPOCH - moment) // _MILLI)


def to_datetime(millis: Millis) -> datetime:
    """Return the UTC datetime of `millis`."""
    return _EPOCH + timedelta(milliseconds=millis)


def to_text(millis: Millis) -> str:
    """Return RFC 3339 in UTC with three decimals and `Z`: `2026-11-21T10:21:55.250Z`."""
    second, milli = divmod(millis, 1000)
    return _second_text(second) + _MILLI_TEXTS[milli]


_MILLI_TEXTS: Final = [f"{milli:03d}Z" for milli in range(1000)]


@lru_cache(maxsize=256)
def _second_text(second: int) -> str:
    # strftime omits the leading zeros of years before 1000.
    return to_datetime(second * 1000).isoformat()[:19] + "."


# No Python function around the system's call, which would take longer than the call: each event reads this clock several times.
steady: Callable[[], float] = partial(time.clock_gettime, _BOOT_TIME) if _BOOT_TIME is not None else time.monotonic
"""Return seconds that never step back and that advance while the machine sleeps, if it has such a clock.

Only differences within one boot are meaningful. Callers use it to find out how long the machine was asleep.
"""


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

    monotonic = staticmethod(time.monotonic)
    steady = staticmethod(steady)

    def now(self) -> Millis:
        return time.time_ns() // 1_000_000

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


class ServerTime(NamedTuple):
    """Bounds of `server time - monotonic time` at the monotonic moment `at`. All in milliseconds."""

    low: float
    high: float
    at: float

    @property
    def width(self) -> float:
        """Uncertainty in milliseconds."""
        return self.high - self.low


class Reading(NamedTuple):
    """One reading of the wall clock, in whole milliseconds, between two readings of the monotonic clock.

    The process may be paused between the readings, so their difference is known only to the time that passed.
    """

    before: float
    wall: Millis
    after: float


class Offset(NamedTuple):
    """Bounds of `wall clock - server time` in milliseconds: positive where the wall clock is ahead."""

    low: float
    high: float

    @property
    def contains_zero(self) -> bool:
        """True where the wall clock may be exact."""
        return self.low <= 0.0 <= self.high


def sample(sent: float, received: float, written: Millis) -> ServerTime:
    """Return the bounds that one write proves. `sent` and `received` are monotonic, `written` is the storage service's time of the write.

    Raises `ValueError` where the answer came before the request.
    """
    if received < sent:
        raise ValueError(f"the answer came before the request: {received} < {sent}")
    return ServerTime(written - received - RESOLUTION, written - sent + RESOLUTION, received)


def aged(bounds: ServerTime, at: float) -> ServerTime:
    """Return the bounds as they are at the later moment `at`, widened by the drift since."""
    drift = DRIFT * max(0.0, at - bounds.at)
    return ServerTime(bounds.low - drift, bounds.high + drift, max(at, bounds.at))


def combine(known: ServerTime | None, new: ServerTime) -> ServerTime:
    """Return the bounds that both prove. Where they contradict each other, one clock has stepped: the newer bounds count alone."""
    if known is None:
        return new
    at = max(known.at, new.at)
    one, other = aged(known, at), aged(new, at)
    low, high = max(one.low, other.low), min(one.high, other.high)
    return ServerTime(low, high, at) if low <= high else aged(new, at)


def offset(bounds: ServerTime, reading: Reading) -> Offset:
    """Return the bounds of the wall clock's offset at the reading."""
    return _offset(aged(bounds, reading.after), reading)


def correction(bounds: ServerTime | None, reading: Reading) -> float | None:
    """Return the milliseconds to subtract from the wall clock so that nothing fires early by the storage service's time.

    None where nothing is known: the bounds are missing or too wide. Zero unless the bounds prove that the clock is wrong: where they
    contain zero, nothing is corrected. Otherwise the upper end, which is never early. Slow storage so never stops deliveries.
    """
    return correction_between(bounds, *reading)


def correction_between(bounds: ServerTime | None, before: float, wall: Millis, after: float) -> float | None:
    """Return the `correction` of a reading that is given by its parts."""
    if bounds is None:
        return None
    # `aged` and `_offset` in one step: each delivery asks several times.
    low, high, at = bounds
    drift = DRIFT * max(0.0, after - at)
    low, high = low - drift, high + drift
    if high - low > TOO_WIDE:
        return None
    ahead = wall + RESOLUTION - before - low
    return 0.0 if wall - after - high <= 0.0 <= ahead else ahead


def _offset(now: ServerTime, reading: Reading) -> Offset:
    return Offset(reading.wall - reading.after - now.high, reading.wall + RESOLUTION - reading.before - now.low)
