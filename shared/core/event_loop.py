"""The event loop: turns that long work gives to other tasks, and stalls in which a process serves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

MOST_STEP: Final = 0.020
"""Most seconds of CPU that one step of the event loop takes, on a machine like that of `make bench`, whatever is sent."""
PACE: Final = 8 * 1024
"""Bytes that are read or built before other tasks may run, unless they cost more than most: about a millisecond."""
EVENTS: Final = 50
"""Events, or occurrences of schedules, that are made before other tasks may run: one or two milliseconds."""


class LoopTurns:
    """Lets other tasks run after every `every` bytes, or other pieces, of work."""

    def __init__(self, every: int = PACE) -> None:
        self._every, self._spent = every, 0

    def is_over(self, pieces: int = 1) -> bool:
        """Count pieces of work; return True if the caller must let other tasks run now.

        For loops whose pieces take microseconds, where awaiting `spend` for each would be slow.
        """
        self._spent += pieces
        if self._spent < self._every:
            return False
        self._spent = 0
        return True

    async def spend(self, pieces: int = 1) -> None:
        """Count pieces of work, and let other tasks run if it is time."""
        if self.is_over(pieces):
            await asyncio.sleep(0)


INTERVAL: Final = 0.1
"""Seconds between two looks. A stall is measured from the next look that it delays, so up to this much of it is not counted."""
KEPT: Final = 600.0
"""Seconds for which the longest stall is kept, at least; at most twice as long."""


class StallWatch:
    """The longest stall of a process's event loop in the last ten minutes. One per process."""

    def __init__(self, steady: Callable[[], float]) -> None:
        """steady: returns seconds that never step back."""
        self._steady, self._since = steady, steady()
        self._now = self._before = 0.0

    async def run(self) -> None:
        """Look until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + INTERVAL
            await asyncio.sleep(INTERVAL)
            self.record(loop.time() - due)

    def record(self, seconds: float) -> None:
        """Count a stall."""
        self._turn()
        self._now = max(self._now, seconds)

    @property
    def longest(self) -> float:
        """The longest stall in seconds."""
        self._turn()
        return max(self._now, self._before)

    def _turn(self) -> None:
        """Forget what is older than two spans of `KEPT`."""
        passed = self._steady() - self._since
        if passed >= KEPT:
            self._before, self._now = self._now if passed < 2 * KEPT else 0.0, 0.0
            self._since += passed - passed % KEPT
