"""The end of a process: waits that it cuts short, and tasks that it gives a last moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from ..core.clock import Clock

LOOK_EVERY: Final = 0.25
"""Seconds after which a wait sees that the process is about to end."""


async def pause(clock: Clock, seconds: float, leaving: Callable[[], bool]) -> None:
    """Wait, but not longer than the process stays."""
    until = clock.monotonic() + seconds
    while not leaving() and (left := until - clock.monotonic()) > 0:
        await clock.sleep(min(left, LOOK_EVERY))


async def end_within(tasks: Iterable[asyncio.Task[Any]], seconds: float) -> None:
    """Let the tasks end by themselves for some seconds of real time, and cancel the others. Nobody reads their errors."""
    found = list(tasks)
    if found:
        await asyncio.wait(found, timeout=seconds)
    for task in found:
        task.cancel()
    await asyncio.gather(*found, return_exceptions=True)
