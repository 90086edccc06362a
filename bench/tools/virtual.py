"""Runs a story on virtual time, and ends what it has started."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.simulation.history import quietly
from tests.simulation.world.loop import VirtualLoop


def run_to_end(loop: VirtualLoop, story: Coroutine[Any, Any, None]) -> None:
    """Run a story without its log lines, cancel the tasks that it leaves, and close the loop. Raises what the story raises."""
    asyncio.set_event_loop(None)
    with quietly(99):
        try:
            loop.run_until_complete(story)
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(1.0))
            loop.close()
