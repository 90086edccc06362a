"""Turns in the lanes of a process: none is forgotten, no lane takes all, and no limit is exceeded while parts change hands."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.core.clock import SettableClock
from shared.delivery.flow.lane import Lane
from shared.delivery.flow.lanes import Lanes
from shared.delivery.flow.shared_limits import SharedSlots
from shared.storage import memory_storage
from shared.storage.names import LIMITS
from shared.storage.ports import TableRequest, Tables, WrappedTables, Write

START = 1_800_000_000_000


class Slow(WrappedTables):
    """Tables whose writes are in at once, and answered later."""

    def __init__(self, tables: Tables, clock: SettableClock) -> None:
        super().__init__(tables)
        self._clock = clock

    async def perform(self, request: TableRequest) -> Any:
        answer = await self.inner.perform(request)
        if isinstance(request, Write):
            await self._clock.sleep(0.2)
        return answer


class Process:
    """Lanes, and deliveries of a given length."""

    def __init__(self, channel: int = 4) -> None:
        self.clock = SettableClock(START)
        self.tables = memory_storage(self.clock).tables
        self.lanes = Lanes(self.clock, 100, 100, channel)
        self.begun: list[str] = []

    def slots(self, limit: int, me: str = "me", row: str = "slots") -> SharedSlots:
        return SharedSlots(Slow(self.tables, self.clock), self.clock, "t", row, limit, me)

    def deliver(self, lane: Lane, takes: float) -> asyncio.Task[None]:
        async def work() -> None:
            async with self.lanes.slot(lane, backlog=False):
                self.begun.append(lane.name)
                await self.clock.sleep(takes)

        return asyncio.ensure_future(work())

    async def pass_by(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            await self.clock.advance(0.05, settle=20)


@pytest.fixture
async def process() -> Process:
    made = Process()
    await made.tables.ensure([LIMITS])
    return made


async def test_a_newcomer_gets_the_turn_while_those_before_it_are_cancelled(process: Process) -> None:
    lane = process.lanes.lane("t", "one")
    lane.window = 1
    first, second = process.deliver(lane, 1), process.deliver(lane, 1)
    await process.pass_by(0.1)
    # In one instant: the delivery ends, another comes, and who waits gives up, which is known of but not counted yet.
    first.cancel()
    third = process.deliver(lane, 1)
    second.cancel()
    await process.pass_by(3)
    assert third.done() and process.begun == ["one", "one"]
    await process.lanes.close()


async def test_those_in_line_go_on_when_their_limits_are_lifted(process: Process) -> None:
    lane = process.lanes.lane("t", "one")
    other, mine = process.slots(1, "another"), process.slots(1)
    taking = asyncio.ensure_future(other.lease(1))
    await process.pass_by(1)
    assert taking.done() and other.held == 1
    lane.limits = (mine,)
    waiting = process.deliver(lane, 1)
    await process.pass_by(2)
    assert process.begun == []
    lane.limits = ()
    await process.pass_by(5)
    assert waiting.done()
    await process.lanes.close()


async def test_a_request_during_a_give_back_gets_the_part_again(process: Process) -> None:
    lane = process.lanes.lane("t", "one")
    lane.limits = (process.slots(1),)
    for late in range(16):
        # The part is given back some time after the last delivery: come at each instant of that.
        done = process.deliver(lane, 0.1)
        while not done.done():
            await process.pass_by(0.05)
        await process.pass_by(0.05 * late)
        again = [process.deliver(lane, 0.1) for _ in range(2)]
        await process.pass_by(4)
        assert all(task.done() for task in again), late
    await process.lanes.close()


async def test_a_part_that_becomes_smaller_is_not_used_while_the_answer_is_under_way(process: Process) -> None:
    mine, other = process.slots(4), process.slots(4, "another")
    asked = asyncio.ensure_future(mine.lease(4))
    await process.pass_by(1)
    assert asked.done() and mine.held == 4
    mine.start()
    wants = asyncio.ensure_future(other.lease(4))
    await process.pass_by(1)
    # Renewed while another wants as much: down to an even part, which is in the table before the answer is here.
    renewal = asyncio.ensure_future(mine.lease(4))
    await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    while mine.ready():
        mine.start()
    await process.pass_by(1)
    await asyncio.gather(wants, renewal)
    more = asyncio.ensure_future(other.lease(4))
    await process.pass_by(1)
    assert more.done() and other.held > 0
    assert mine.busy + other.held <= 4


async def test_a_limit_of_the_tenant_goes_to_its_lanes_in_turn(process: Process) -> None:
    long, short = process.lanes.lane("t", "long"), process.lanes.lane("t", "short")
    long.limits = short.limits = (process.slots(1),)
    tasks = [process.deliver(long, 0.5) for _ in range(30)]
    await process.pass_by(2)
    tasks += [process.deliver(short, 0.5) for _ in range(3)]
    before = len(process.begun)
    await process.pass_by(6)
    assert process.begun[before:].count("short") == 3, process.begun
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await process.lanes.close()


async def test_closing_leaves_no_task_behind(process: Process) -> None:
    lane = process.lanes.lane("t", "one")
    lane.limits = (process.slots(2),)
    tasks = [process.deliver(lane, 0.3) for _ in range(2)]
    await process.pass_by(2)
    assert all(task.done() for task in tasks)
    process.deliver(lane, 0.01)
    await process.pass_by(0.1)
    await process.lanes.close()
    left = [task for task in asyncio.all_tasks() if "Lanes." in str(task.get_coro())]
    assert left == []
