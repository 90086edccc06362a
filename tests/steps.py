"""A meter of the event loop: the CPU time of the thread for each step that a task does between two turns of the loop."""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

REPEATS = 8
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
    """Do the work until no step of it takes longer than `limit` seconds of the reference machine, `REPEATS` times at most.

    Returns the steps of the best time, as they would be on that machine. The first time fills caches, and any time may be disturbed. What
    is slow by itself is slow each time.
    """
    best: Steps | None = None
    for _ in range(REPEATS):
        with metered() as steps:
            # A task of its own, so that its first step is one too.
            await asyncio.ensure_future(work())
        assert steps.count, "only steps of asyncio's own loop can be measured: give the test the mark `metered`"
        if steps.longest > limit:
            steps.longest /= slowness()
        if best is None or steps.longest < best.longest:
            best = steps
        if best.longest <= limit:
            break
    assert best is not None
    return best


def seconds_of(work: Callable[[], object], limit: float) -> float:
    """Return the seconds of CPU that the work takes at best on the reference machine. It is repeated while they are above `limit`."""
    best = math.inf
    for _ in range(REPEATS):
        took = _thread_seconds(work)
        best = min(best, took if took <= limit else took / slowness())
        if best <= limit:
            break
    return best


def slowness() -> float:
    """Return how many times slower than the reference this machine is at this moment, at best; at least 1."""
    return max(1.0, min(_thread_seconds(_work) for _ in range(3)) / REFERENCE)


def _thread_seconds(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def _work() -> int:
    found: dict[str, int] = {}
    for number in range(20_000):
        found[str(number)] = number
    return len(found)
