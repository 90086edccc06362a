"""A meter of the event loop: the CPU time of the thread for each step that a task does between two turns of the loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

REPEATS = 5
REFERENCE = 0.004
"""Seconds of CPU that `_work` takes on the machine for which `MOST_STEP` is meant."""


@dataclass
class Steps:
    """The steps that were measured."""

    count: int = 0
    longest: float = 0.0
    """Seconds of CPU of the longest step."""
    task: str = ""
    """The callback of that step."""


@contextmanager
def metered() -> Iterator[Steps]:
    """Measure the steps of all event loops of this thread: the callbacks that loops run, one by one.

    The time is that of the thread, so what other programs do changes it little. Collections of garbage belong to no step: they are off.
    """
    steps, run = Steps(), asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        took = time.thread_time() - began
        steps.count += 1
        if took > steps.longest:
            steps.longest, steps.task = took, repr(handle)[:300]

    gc.collect()
    gc.disable()
    asyncio.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        gc.enable()


async def longest_step(work: Callable[[], Awaitable[object]], limit: float) -> Steps:
    """Do the work until no step of it takes longer than `limit` seconds, `REPEATS` times at most; return the steps of the best time.

    The first time fills caches, and any time may be disturbed. What is slow by itself is slow each time.
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


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds of CPU that the work takes at best."""
    found = []
    for _ in range(REPEATS):
        began = time.thread_time()
        work()
        found.append(time.thread_time() - began)
    return min(found)


@cache
def slowness() -> float:
    """Return how many times slower than the reference this machine is now; at least 1."""
    return max(1.0, seconds_of(_work) / REFERENCE)


def _work() -> int:
    found: dict[str, int] = {}
    for number in range(20_000):
        found[str(number)] = number
    return len(found)
