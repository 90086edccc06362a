"""The second clock's decisions: who asks for a sweep, and when."""

from __future__ import annotations

from shared.core.clock import Millis
from shared.engine.async_runner import AsyncRunner
from shared.scheduler.wakes.service import ASKED_EVERY, SILENT_FROM, SWEEP_ROW, ask_sweep
from shared.storage.names import PK_TICKS, QUEUE_SWEEPS, SWEEPS
from shared.storage.ports import Upsert
from tests.unit.scheduler.harness import World

LIVES = 40
"""Seconds for which each process lives: less than the time after which a timer is silent."""


async def test_processes_that_live_for_seconds_find_together_that_the_timer_has_never_run(world: World) -> None:
    runner = AsyncRunner(world.tables, world.clock, queues=world.queues)
    asked = list[Millis]()
    began = world.clock.now()
    for _ in range(8):
        since = world.clock.now()
        await world.clock.advance(LIVES)
        if await runner.run(ask_sweep(world.clock.now(), since)):
            asked.append(world.clock.now() - began)
    assert asked and asked[0] <= SILENT_FROM + 2_000 * LIVES
    assert len(await world.queues.receive(QUEUE_SWEEPS)) >= (asked[-1] - asked[0]) // (ASKED_EVERY + 1_000 * LIVES)


async def test_a_sweep_by_a_clock_an_hour_ahead_does_not_hide_that_the_timer_has_stopped(world: World) -> None:
    runner = AsyncRunner(world.tables, world.clock, queues=world.queues)
    ahead = world.clock.now() + 3_600_000
    await world.tables.write(SWEEPS, PK_TICKS, (Upsert(SWEEP_ROW, {"began": ahead, "asked": ahead}),))
    assert await runner.run(ask_sweep(world.clock.now(), world.clock.now()))
    assert len(await world.queues.receive(QUEUE_SWEEPS)) == 1
    assert await runner.run(ask_sweep(world.clock.now(), world.clock.now()))
    assert await world.queues.receive(QUEUE_SWEEPS) == []
