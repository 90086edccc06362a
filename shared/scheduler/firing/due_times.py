"""The due times of an owner's claimed events: one timer for all of them, and no task for an event that waits."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from ...core.clock import Clock, Millis
from ..timings import CLAIM_AHEAD

AT_ONCE = 32
"""Events that start in one turn of the event loop. The first requests of a large herd leave before the last events have started."""


class DueTimes[T]:
    """Starts each event at its time, never before it. Belongs to one event loop.

    start: starts an event; it must not wait. Events of one instant start in the order in which they were added.
    """

    def __init__(self, clock: Clock, start: Callable[[T], None]) -> None:
        self._clock, self._start = clock, start
        self._heap: list[tuple[Millis, int, T]] = []
        self._added = 0
        self._timer: asyncio.Task[None] | None = None
        self._sleeps_until: Millis | None = None
        """The time for which the timer sleeps; None while it starts events."""

    def add(self, at: Millis, event: T) -> None:
        """Start the event at `at`, or in the loop's next turn if that has passed."""
        self._added += 1
        heapq.heappush(self._heap, (at, self._added, event))
        if self._timer is None or self._timer.done():
            self._timer = asyncio.create_task(self._run())
        elif self._sleeps_until is not None and at < self._sleeps_until:
            self._timer.cancel()
            self._sleeps_until = None
            self._timer = asyncio.create_task(self._run())

    def close(self) -> None:
        """Start nothing more."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    async def _run(self) -> None:
        heap = self._heap
        while heap:
            now = self._clock.now()
            if heap[0][0] > now:
                self._sleeps_until = heap[0][0]
                # A long wait is cut: the clock may have been corrected meanwhile.
                await self._clock.sleep(min(heap[0][0] - now, CLAIM_AHEAD) / 1000)
                self._sleeps_until = None
                continue
            for _ in range(AT_ONCE):
                if not heap or heap[0][0] > now:
                    break
                self._start(heapq.heappop(heap)[2])
            await asyncio.sleep(0)
