"""Runs work on virtual time, and ends the tasks that it has started."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from .loop import VirtualLoop


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
