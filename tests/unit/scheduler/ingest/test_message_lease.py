"""The lease of a process on a message of the ingest queue: what a kill, a failure and a slow storage leave behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from shared.core.clock import SettableClock
from shared.core.errors import StorageError, Unavailable
from shared.scheduler.ingest.message_lease import serve_leased
from shared.scheduler.timings import INGEST_LEASE, INGEST_LEASE_EVERY, INGEST_LEASE_WAIT, LAST_TRY
from shared.storage.memory import MemoryQueues
from shared.storage.names import QUEUE_INGEST
from shared.storage.ports import Message

HOST_LEASE = 600.0


class FailingQueues(MemoryQueues):
    """Queues whose leases fail as the test sets. silent: seconds until such a request is answered."""

    failure: StorageError | None = None
    silent = 0.0

    async def renew(self, queue: str, message: Message, *, lease: float) -> bool:
        if self.silent:
            await self._clock.sleep(self.silent)
        if self.failure is not None:
            raise self.failure
        return await super().renew(queue, message, lease=lease)


@dataclass
class Desk:
    """A queue with one message, the host that takes it, and the processes that work on it."""

    clock: SettableClock = field(default_factory=SettableClock)
    finish: asyncio.Event = field(default_factory=asyncio.Event)
    served: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queues = FailingQueues(self.clock)

    async def take(self) -> Message | None:
        """The host looks into the queue."""
        found = await self.queues.receive(QUEUE_INGEST, lease=HOST_LEASE)
        return found[0] if found else None

    async def taken(self) -> Message:
        message = await self.take()
        assert message is not None
        return message

    def work(self, message: Message, act: Callable[[Message], Awaitable[None]] | None = None) -> asyncio.Task[None]:
        """An invocation. It ends when `finish` is set."""

        async def store(message: Message) -> None:
            self.served.append(message.text)
            await self.finish.wait()

        return asyncio.create_task(serve_leased(self.queues, self.clock, QUEUE_INGEST, message, act or store))

    def kill(self, work: asyncio.Task[None]) -> None:
        """End the process: it sends nothing any more."""
        self.queues, dead = FailingQueues(self.clock), self.queues
        self.queues._queues = dict(dead._queues)
        self.queues._numbers = dead._numbers
        dead._queues = {}
        work.cancel()

    async def hidden_for(self) -> float:
        """Seconds until the message is visible again."""
        visible = self.queues.next_visible(QUEUE_INGEST)
        assert visible is not None
        return (visible - self.clock.now()) / 1000


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    await desk.queues.ensure([QUEUE_INGEST])
    await desk.queues.send(QUEUE_INGEST, "events")
    yield desk
    desk.finish.set()


@pytest.mark.parametrize("worked", [0.0, 5.0, 29.0, 100.0])
async def test_message_of_a_killed_process_comes_back_within_the_lease(desk: Desk, worked: float) -> None:
    work = desk.work(await desk.taken())
    await desk.clock.advance(worked)
    desk.kill(work)
    await asyncio.gather(work, return_exceptions=True)
    assert await desk.take() is None
    assert INGEST_LEASE - INGEST_LEASE_EVERY <= await desk.hidden_for() <= INGEST_LEASE
    await desk.clock.advance(INGEST_LEASE)
    again = await desk.taken()
    assert (again.text, again.dequeue_count) == ("events", 2)
    desk.finish.set()
    await desk.work(again)
    assert await desk.queues.length(QUEUE_INGEST) == 0


async def test_message_stays_hidden_while_its_process_works_and_goes_when_it_is_done(desk: Desk) -> None:
    message = await desk.taken()
    work = desk.work(message)
    for _ in range(20):
        await desk.clock.advance(INGEST_LEASE / 2)
        assert await desk.take() is None
    desk.finish.set()
    await desk.clock.advance(0)
    await work
    assert desk.served == ["events"] and await desk.queues.length(QUEUE_INGEST) == 0
    # The host ignores this answer to its own delete.
    assert await desk.queues.delete(QUEUE_INGEST, message) is False


async def test_message_that_fails_is_raised_and_comes_back_with_the_lease(desk: Desk) -> None:
    async def fail(message: Message) -> None:
        raise Unavailable("tables are away")

    with pytest.raises(Unavailable):
        await desk.work(await desk.taken(), fail)
    assert await desk.hidden_for() == INGEST_LEASE
    await desk.clock.advance(INGEST_LEASE)
    assert (await desk.taken()).dequeue_count == 2


async def test_message_of_an_invocation_that_is_cancelled_comes_back_at_once(desk: Desk) -> None:
    work = desk.work(await desk.taken())
    await desk.clock.advance(1)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    assert (await desk.taken()).dequeue_count == 2


async def test_last_try_stays_with_the_host_which_then_moves_the_message_to_the_poison_queue(desk: Desk) -> None:
    for _ in range(LAST_TRY - 1):
        await desk.taken()
        await desk.clock.advance(HOST_LEASE)
    message = await desk.taken()
    work = desk.work(message)
    await desk.clock.advance(INGEST_LEASE)
    assert message.dequeue_count == LAST_TRY and await desk.hidden_for() == HOST_LEASE - INGEST_LEASE
    desk.finish.set()
    await work
    assert await desk.queues.delete(QUEUE_INGEST, message) is True


def test_last_try_is_the_one_of_the_host() -> None:
    assert json.loads(Path("host.json").read_text())["extensions"]["queues"]["maxDequeueCount"] == LAST_TRY


async def test_events_are_stored_without_a_lease_that_storage_does_not_give(desk: Desk) -> None:
    desk.queues.failure = Unavailable("the queue is away")
    message = await desk.taken()
    desk.finish.set()
    await desk.work(message)
    assert desk.served == ["events"]
    # It is still the host's to delete.
    assert await desk.queues.delete(QUEUE_INGEST, message) is True


async def test_lease_that_failed_first_is_had_later(desk: Desk) -> None:
    desk.queues.failure = Unavailable("the queue is away")
    work = desk.work(await desk.taken())
    await desk.clock.advance(1)
    desk.queues.failure = None
    await desk.clock.advance(2 * INGEST_LEASE_EVERY)
    assert await desk.hidden_for() <= INGEST_LEASE
    desk.finish.set()
    await work
    assert await desk.queues.length(QUEUE_INGEST) == 0


async def test_events_wait_only_a_moment_for_a_lease_that_is_slow(desk: Desk) -> None:
    desk.queues.silent = 8.0
    work = desk.work(await desk.taken())
    await desk.clock.advance(INGEST_LEASE_WAIT / 2)
    assert desk.served == []
    await desk.clock.advance(INGEST_LEASE_WAIT)
    assert desk.served == ["events"]
    desk.finish.set()
    # The receipt is known only when the answer has come.
    await desk.clock.advance(8)
    await work
    assert await desk.queues.length(QUEUE_INGEST) == 0


async def test_message_that_another_process_has_is_served_and_left_to_it(desk: Desk) -> None:
    first = await desk.taken()
    await desk.clock.advance(HOST_LEASE)
    second = await desk.taken()
    desk.finish.set()
    await desk.work(replace(first))
    assert await desk.queues.length(QUEUE_INGEST) == 1
    await desk.work(second)
    assert desk.served == ["events", "events"] and await desk.queues.length(QUEUE_INGEST) == 0


async def test_invocation_that_is_cancelled_while_it_waits_for_its_lease_renews_nothing_afterwards(desk: Desk) -> None:
    desk.queues.silent = INGEST_LEASE_WAIT / 2
    work = desk.work(await desk.taken())
    await desk.clock.advance(INGEST_LEASE_WAIT / 4)
    work.cancel()
    await desk.clock.advance(INGEST_LEASE_WAIT * 2)
    assert work.cancelled() and desk.served == []
    # At once, and not only when a lease that nobody holds has ended.
    assert (await desk.taken()).dequeue_count == 2
