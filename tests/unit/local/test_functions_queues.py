"""Queues and the timer of `tocsin dev`."""

from __future__ import annotations

import asyncio

from shared.core.clock import SettableClock, SystemClock
from shared.local.functions import LocalFunctions, ObservedQueues
from shared.local.invocations import ACTS
from shared.storage.memory import MemoryQueues
from shared.storage.names import ALL_QUEUES
from shared.storage.ports import Message
from tests.waiting import eventually, within

HOUR = 3_600_000
QUEUE = next(iter(ACTS))


class SetBackClock(SystemClock):
    """A clock whose sleeps take no time, and that is set back by an hour during the first one."""

    def __init__(self) -> None:
        self.time = 1_800_000_000_000 + 1

    def now(self) -> int:
        return self.time

    async def sleep(self, seconds: float) -> None:
        first = self.time == 1_800_000_000_000 + 1
        self.time += round(seconds * 1000) - first * HOUR
        await asyncio.sleep(0)


class Sweeps:
    """Notes the time of the first sweep, and ends there."""

    def __init__(self, clock: SystemClock | SettableClock) -> None:
        self._clock, self.first = clock, asyncio.get_running_loop().create_future()

    async def sweep(self, *, past_due: bool = False) -> object:
        if not self.first.done():
            self.first.set_result(self._clock.now())
        return await asyncio.Event().wait()


async def nothing(queue: str, message: Message) -> None:
    """Carry out a message."""


async def test_sweeps_go_on_when_the_machines_clock_is_set_back() -> None:
    clock = SetBackClock()
    before, sweeps = clock.now(), Sweeps(clock)
    queues = MemoryQueues(SettableClock())
    await queues.ensure(ALL_QUEUES)
    functions = LocalFunctions(ObservedQueues(queues), nothing, sweeps, clock)
    functions.start()
    first = await within(sweeps.first, "the first sweep")
    await functions.close(0.1)
    assert before - HOUR < first <= before - HOUR + 60_000


class SlowQueues(ObservedQueues):
    """Queues whose answer to one look arrives after the end has begun."""

    def __init__(self, queues: MemoryQueues) -> None:
        super().__init__(queues)
        self.looking, self.answered = asyncio.Event(), asyncio.Event()

    async def receive(self, queue: str, *, limit: int = 32, lease: float = 600.0) -> list[Message]:
        found = await super().receive(queue, limit=limit, lease=lease)
        if found:
            self.looking.set()
            await self.answered.wait()
        return found


async def test_messages_that_arrive_while_it_ends_are_given_back() -> None:
    clock = SettableClock()
    memory = MemoryQueues(clock)
    await memory.ensure(ALL_QUEUES)
    queues, begun = SlowQueues(memory), []

    async def endless(queue: str, message: Message) -> None:
        begun.append(queue)
        await asyncio.Event().wait()

    functions = LocalFunctions(queues, endless, Sweeps(clock), SystemClock())
    functions.start()
    await queues.send(QUEUE, "late")
    await within(queues.looking.wait(), "the look")
    closing = asyncio.create_task(functions.close(0.5))
    await asyncio.sleep(0)
    queues.answered.set()
    await within(closing, "the end")

    async def back() -> bool:
        return len(await memory.receive(QUEUE)) == 1

    # Its lease of thirty seconds has not ended: the clock stands still.
    await eventually(back, "the message is visible")
    assert begun == [QUEUE]
