"""An event loop on virtual time: it never waits, and sets the time to that of the next timer. A program runs the same way every time.

Runs work on virtual time, and ends the tasks that it has started.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, Final

from ...core.clock import Millis

START: Final[Millis] = 1_800_000_000_000
"""A whole minute: the time at which a run begins."""

MOST_TURNS = 400_000
"""Turns of the loop at one virtual instant after which the program counts as stuck."""


class Stuck(Exception):
    """Raised when all tasks wait and no timer is set, or when the program runs on without time passing."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs what is ready until nothing is, then sets the time to the next timer's."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._turns = 0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            while timers and timers[0].cancelled():
                heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]
            if not timers:
                raise Stuck("all tasks wait, and no timer is set")
            self.now = max(self.now, timers[0].when())
            self._turns = 0
            while timers and timers[0].when() <= self.now:
                timer = heapq.heappop(timers)
                timer._scheduled = False  # type: ignore[attr-defined]
                ready.append(timer)
        self._turns += 1
        if self._turns > MOST_TURNS:
            raise Stuck(f"the program spins at {self.now:.3f} s")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
        handle = None

    def _write_to_self(self) -> None:
        """No task sleeps in a system call, so none must be woken."""

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        # Finalizers of abandoned generators come this way; there is only one thread.
        return self.call_soon(callback, *args, context=context)


class LoopClock:
    """The clock of all instances, and of storage."""

    def __init__(self, loop: VirtualLoop, start: Millis = START) -> None:
        self._loop, self._start = loop, start

    def now(self) -> Millis:
        return self._start + int(self._loop.now * 1000 + 1e-6)

    def monotonic(self) -> float:
        return self._loop.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


def run_to_end(loop: VirtualLoop, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` without its log lines, cancel the tasks that it leaves, and close the loop. Raises what `work` raises."""
    asyncio.set_event_loop(None)
    with _quietly():
        try:
            loop.run_until_complete(work)
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(1.0))
            loop.close()


@contextmanager
def _quietly() -> Iterator[None]:
    """Switch off the app's logs, which would fill a disk in hours of virtual time, and the garbage collector."""
    # The package is `tocsin` in the wheel, and `shared` in the repository.
    logger = logging.getLogger(__name__.partition(".")[0])
    level, enabled = logger.level, gc.isenabled()
    logger.setLevel(logging.CRITICAL + 1)
    gc.disable()
    try:
        yield
    finally:
        logger.setLevel(level)
        if enabled:
            gc.enable()
