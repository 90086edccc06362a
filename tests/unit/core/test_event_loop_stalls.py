"""The longest stall of the event loop: it is seen, and forgotten after ten to twenty minutes."""

from __future__ import annotations

import asyncio
import time

from shared.core.clock import SettableClock
from shared.core.event_loop import INTERVAL, KEPT, StallWatch
from tests.waiting import eventually


async def test_a_step_that_keeps_the_loop_is_seen() -> None:
    watch = StallWatch(time.monotonic)
    task = asyncio.create_task(watch.run())

    async def seen() -> bool:
        # In place of a long step. It must delay the next look, which is at most an interval away.
        time.sleep(3 * INTERVAL)
        return watch.longest > INTERVAL

    await eventually(seen, "the stall")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_stall_is_kept_for_ten_minutes_and_forgotten_within_twenty() -> None:
    clock = SettableClock()
    watch = StallWatch(clock.monotonic)
    watch.record(0.5)
    watch.record(0.2)
    await clock.advance(KEPT - 1)
    assert watch.longest == 0.5
    watch.record(0.3)
    await clock.advance(2)
    assert watch.longest == 0.5
    await clock.advance(KEPT)
    assert watch.longest == 0.0
    watch.record(0.1)
    await clock.advance(5 * KEPT)
    assert watch.longest == 0.0
