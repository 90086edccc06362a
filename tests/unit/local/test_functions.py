"""The timer of a local service goes on, whatever a sweep raises; a message that fails comes back, and ends in the poison queue."""

from __future__ import annotations

import asyncio

import pytest

from shared.app.timers import SweepFailed
from shared.core.clock import SettableClock
from shared.core.errors import Unavailable
from shared.local.functions import MOST_TRIES, RETRY_AFTER, LocalFunctions, ObservedQueues, QueueFunction
from shared.storage.memory import MemoryQueues
from shared.storage.names import ALL_QUEUES, POISON_QUEUES, QUEUE_INGEST
from shared.storage.ports import Message
from tests.waiting import eventually


class Sweeps:
    """Counts its sweeps, each of which fails in another way."""

    def __init__(self) -> None:
        self.past_due: list[bool] = []

    async def sweep(self, *, past_due: bool = False) -> object:
        self.past_due.append(past_due)
        raise (SweepFailed("a part failed"), Unavailable("no storage"), KeyError("a fault"))[len(self.past_due) % 3]


async def test_the_timer_sweeps_each_minute_whatever_a_sweep_raises(caplog: pytest.LogCaptureFixture) -> None:
    clock, sweeps = SettableClock(), Sweeps()
    queues = ObservedQueues(MemoryQueues(clock))
    await queues.ensure([*ALL_QUEUES, *POISON_QUEUES])

    async def nothing(queue: str, message: Message) -> None:
        raise AssertionError(f"{queue} has no message")

    functions = LocalFunctions(queues, nothing, sweeps, clock)
    functions.start()
    for minute in range(1, 7):
        await clock.advance(60)
        await eventually(lambda done=minute: len(sweeps.past_due) == done, "the sweep")
    await functions.close(0)
    assert sweeps.past_due == [False] * 6


async def test_a_message_that_always_fails_is_tried_five_times_and_ends_in_the_poison_queue() -> None:
    clock, tries = SettableClock(), 0
    queues = ObservedQueues(MemoryQueues(clock))
    await queues.ensure([*ALL_QUEUES, *POISON_QUEUES])

    async def fail(queue: str, message: Message) -> None:
        nonlocal tries
        tries += 1
        raise RuntimeError("it fails")

    function = QueueFunction(QUEUE_INGEST, queues, fail)
    running = asyncio.create_task(function.run())
    await queues.send(QUEUE_INGEST, "bad")

    async def poisoned() -> bool:
        await clock.advance(RETRY_AFTER / 2)
        return await queues.length(f"{QUEUE_INGEST}-poison") == 1

    await eventually(poisoned, "the message in the poison queue")
    assert tries == MOST_TRIES and await queues.length(QUEUE_INGEST) == 0
    function.stop()
    await running


async def test_a_message_under_way_at_the_end_is_given_back_at_once() -> None:
    clock, begun = SettableClock(), asyncio.Event()
    queues = ObservedQueues(MemoryQueues(clock))
    await queues.ensure([QUEUE_INGEST])

    async def hang(queue: str, message: Message) -> None:
        begun.set()
        await asyncio.Event().wait()

    function = QueueFunction(QUEUE_INGEST, queues, hang)
    running = asyncio.create_task(function.run())
    await queues.send(QUEUE_INGEST, "long")
    await begun.wait()
    function.stop()
    await running
    await function.end(0)
    [message] = await queues.receive(QUEUE_INGEST)
    assert (message.text, message.dequeue_count) == ("long", 2)
