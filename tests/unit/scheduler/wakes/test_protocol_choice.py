"""The pause between messages that a wake has chosen outlives looks that read the plan before."""

from __future__ import annotations

import pytest

from shared.core.clock import SettableClock
from shared.engine.async_runner import AsyncRunner
from shared.scheduler.wakes.protocol import PK_PLAN, PLAN_ROW, LookTimes, end_look, read_plan
from shared.scheduler.wakes.rules import CLOSE_FOR, GAP_CLOSE, GAP_NONE, PLAN, Plan
from shared.storage.memory import MemoryQueues, MemoryTables
from shared.storage.names import ALL_QUEUES, ALL_TABLES, SWEEPS
from shared.storage.ports import Upsert

from ..harness import START

NOW = START
TIMER = LookTimes(NOW + 900, NOW + 1_000, None, NOW - 60_000)
WARM = TIMER._replace(wake=NOW + 900)
COLD = LookTimes(NOW + 600, NOW + 800, NOW, NOW + 500)


async def world() -> AsyncRunner:
    clock = SettableClock(NOW)
    tables, queues = MemoryTables(clock), MemoryQueues(clock)
    await tables.ensure(ALL_TABLES)
    await queues.ensure(ALL_QUEUES)
    return AsyncRunner(tables, clock, queues=queues)


async def end(runner: AsyncRunner, plan: Plan, times: LookTimes) -> None:
    ended = await runner.run(end_look(plan, [], [], times, None, alone=False))
    assert ended.stored


@pytest.mark.parametrize("other", [TIMER, WARM], ids=["the timer's look", "a wake's look"])
@pytest.mark.parametrize(("close_until", "gap"), [(0, GAP_CLOSE), (NOW + CLOSE_FOR, GAP_NONE)])
async def test_a_look_at_the_same_time_does_not_undo_the_choice_of_a_wake(other: LookTimes, close_until: int, gap: int) -> None:
    runner = await world()
    stored = Plan(NOW - 5_000, NOW - 5_000, seen="cc", close_until=close_until)
    await runner.tables.write(SWEEPS, PK_PLAN, (Upsert(PLAN_ROW, PLAN.encode(stored)),))
    before = await runner.run(read_plan())
    await end(runner, before, COLD)
    assert (await runner.run(read_plan())).gap(NOW + 2_000) == gap
    await end(runner, before, other)
    found = await runner.run(read_plan())
    assert (found.gap(NOW + 2_000), found.looked) == (gap, other.began)


async def test_a_plan_that_is_gone_is_stored_anew() -> None:
    runner = await world()
    await end(runner, Plan(NOW - 5_000, NOW - 5_000), TIMER)
    assert (await runner.run(read_plan())).looked == TIMER.began
