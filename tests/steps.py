"""A meter of the event loop: the CPU time of the thread for each step that a task does between two turns of the loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

REPEATS = 4


@dataclass
class Steps:
    """The steps that were measured. longest: seconds of CPU of the longest one, and its task."""

    count: int = 0
    longest: float = 0.0
    task: str = ""
    turn: float = 0.0
    """Seconds of CPU of the longest turn of the loop, in which it runs all callbacks that are ready."""


@contextmanager
def metered() -> Iterator[Steps]:
    """Measure the steps of all event loops of this thread: the callbacks that loops run, one by one.

    The time is that of the thread, so a loaded machine does not change it much. A collection of garbage belongs to no step: it is off.
    """
    steps, run, turn = Steps(), asyncio.Handle._run, asyncio.BaseEventLoop._run_once

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        took = time.thread_time() - began
        steps.count += 1
        if took > steps.longest:
            steps.longest, steps.task = took, repr(handle)[:300]

    def turned(loop: asyncio.BaseEventLoop) -> None:
        began = time.thread_time()
        turn(loop)
        steps.turn = max(steps.turn, time.thread_time() - began)

    gc.collect()
    gc.disable()
    asyncio.Handle._run = timed  # type: ignore[method-assign]
    asyncio.BaseEventLoop._run_once = turned  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        asyncio.BaseEventLoop._run_once = turn  # type: ignore[method-assign]
        gc.enable()


async def longest_step(work: Callable[[], Awaitable[object]], limit: float) -> Steps:
    """Do the work up to `REPEATS` times, until no step of it takes longer than `limit`; return the steps of the best time.

    The first time may import, compile and fill caches, and any time may be disturbed by other programs; what is slow by itself is slow each
    time.
    """
    best: Steps | None = None
    for _ in range(REPEATS):
        with metered() as steps:
            # A task of its own, so that its first step is one too.
            await asyncio.ensure_future(work())
        if best is None or steps.longest < best.longest:
            best = steps
        if best.longest <= limit:
            break
    assert best is not None
    return best
