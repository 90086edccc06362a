"""Two looks that work at the same time, each with a plan that it has read before the other one has stored its own."""

from __future__ import annotations

import pytest

from shared.core.clock import Millis, SettableClock
from shared.engine.async_runner import AsyncRunner
from shared.scheduler.timings import DAY, MINUTE
from shared.scheduler.wakes.protocol import PK_PLAN, PLAN_ROW, LookEnd, LookTimes, end_look, read_plan, store_plan
from shared.scheduler.wakes.rules import GAP, GAP_CLOSE, GAP_NONE, MOST_COLD, PLAN, Plan
from shared.storage.memory import MemoryQueues, MemoryTables
from shared.storage.names import ALL_QUEUES, ALL_TABLES, SWEEPS
from shared.storage.ports import ANY, Delete, Merge, Upsert
from tests.unit.scheduler.harness import START

COLD = "c" * MOST_COLD
"""The next wake that meets a process that has just started is one too many."""


class Storage:
    """The plan's row and the queue."""

    def __init__(self) -> None:
        self.clock = SettableClock(START)
        self.tables, self.queues = MemoryTables(self.clock), MemoryQueues(self.clock)
        self.runner = AsyncRunner(self.tables, self.clock, queues=self.queues)

    async def put(self, plan: Plan) -> None:
        await self.tables.ensure(ALL_TABLES)
        await self.queues.ensure(ALL_QUEUES)
        await self.runner.run(store_plan(Upsert(PLAN_ROW, PLAN.encode(plan))))

    async def plan(self) -> Plan:
        return await self.runner.run(read_plan())

    async def end(self, read: Plan, wake: Millis | None, *, cold: bool = False, unstored: Plan | None = None) -> LookEnd:
        """End a look. wake: time of the wake that looks. cold: its process has started for it."""
        now = self.clock.now()
        times = LookTimes(now - 1_000, now, wake, started=now if cold else 0)
        return await self.runner.run(end_look(read, (), (), times, None, alone=False, unstored=unstored or Plan()))


@pytest.fixture
async def storage() -> Storage:
    storage = Storage()
    await storage.put(Plan(looked=START - MINUTE, woke=START - 10_000, wakes=(START - 500,), seen=COLD))
    return storage


@pytest.mark.parametrize("gap", [GAP, GAP_CLOSE])
async def test_a_shorter_pause_stays_when_a_look_ends_that_does_not_know_of_it(storage: Storage, gap: Millis) -> None:
    if gap == GAP_CLOSE:
        await storage.put((await storage.plan())._replace(close_until=START + DAY))
    read = await storage.plan()
    assert read.gap(START) == gap
    await storage.end(read, START - 500, cold=True)
    chosen = (await storage.plan()).gap(START)
    assert chosen == (GAP_CLOSE if gap == GAP else GAP_NONE)
    for wake in (None, START - 500):
        await storage.end(read, wake)
        assert (await storage.plan()).gap(START) == chosen


async def test_the_timers_look_does_not_take_back_that_a_wake_has_come(storage: Storage) -> None:
    read = await storage.plan()
    await storage.end(read, START - 500)
    await storage.end(read, None)
    assert (await storage.plan()).woke == START


async def test_the_wakes_of_the_last_look_are_named(storage: Storage) -> None:
    read = await storage.plan()
    await storage.end(read, None)
    last = await storage.end(read, None)
    assert last.sent and set(last.sent) <= set((await storage.plan()).wakes)


@pytest.mark.parametrize("unreadable", [{"close_until": "soon"}, {"wakes": "1,x"}, {"looked": 1.5, "seen": 3}])
async def test_a_plan_that_cannot_be_read_is_replaced(storage: Storage, unreadable: dict[str, object]) -> None:
    await storage.tables.write(SWEEPS, PK_PLAN, (Merge(PLAN_ROW, unreadable, ANY),))  # type: ignore[arg-type]
    end = await storage.end(await storage.plan(), None)
    assert end.stored and await storage.plan() == end.plan


async def test_a_plan_that_was_removed_meanwhile_is_stored_whole(storage: Storage) -> None:
    read = await storage.plan()
    await storage.tables.write(SWEEPS, PK_PLAN, (Delete(PLAN_ROW, ANY),))
    end = await storage.end(read, START - 500)
    assert end.stored and await storage.plan() == end.plan


async def test_what_a_look_could_not_store_is_stored_by_the_next_one(storage: Storage) -> None:
    read = await storage.plan()
    unstored = read._replace(wakes=(START + MINUTE,), woke=START, close_until=START + DAY)
    await storage.end(read, None, unstored=unstored)
    plan = await storage.plan()
    assert (plan.woke, plan.close_until, START + MINUTE in plan.wakes) == (START, START + DAY, True)
