"""The queue trigger and the timer of one instance of the app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from ...app.application import Application
from ...core.clock import Clock
from ...core.errors import StorageError
from ...scheduler.service import Scheduler
from ...storage.names import QUEUE_RETRIES, QUEUE_SHARDS
from ...storage.ports import Message, Queues


class QueueTrigger:
    """Polls queues as the Functions host does, hands messages to the scheduler, and deletes those that were served."""

    BATCH, THRESHOLD, FIRST, LONGEST = 16, 48, 0.1, 2.0

    def __init__(self, scheduler: Scheduler, queues: Queues, clock: Clock) -> None:
        self._scheduler, self._queues, self._clock = scheduler, queues, clock
        self._running: set[asyncio.Task[None]] = set()
        self._pollers: list[asyncio.Task[None]] = []
        self.served = 0
        self.empty_polls = 0
        self.errors: list[BaseException] = []

    @property
    def busy(self) -> int:
        return len(self._running)

    async def idle(self) -> None:
        """Wait until all received messages are processed."""
        if self._running:
            await asyncio.wait(self._running)

    async def __aenter__(self) -> QueueTrigger:
        self._pollers = [asyncio.create_task(self._poll(queue)) for queue in (QUEUE_SHARDS, QUEUE_RETRIES)]
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._pollers, *self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _poll(self, queue: str) -> None:
        delay = self.FIRST
        while True:
            if len(self._running) > self.THRESHOLD:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                continue
            taken = await self._queues.receive(queue, limit=self.BATCH)
            for message in taken:
                task = asyncio.create_task(self._work(queue, message))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            if taken:
                delay = self.FIRST
                continue
            self.empty_polls += 1
            await self._clock.sleep(delay)
            delay = min(delay * 2, self.LONGEST)

    async def _work(self, queue: str, message: Any) -> None:
        try:
            await self._scheduler.firing.serve(message.text)
        except Exception as error:
            self.errors.append(error)
            raise
        await self._queues.delete(queue, message)
        self.served += 1


class HostTrigger(QueueTrigger):
    """A queue trigger whose failed messages become visible again after half a minute, as `host.json` says."""

    AGAIN: Final = 30.0

    def __init__(self, app: Application, queues: Queues, clock: Clock) -> None:
        super().__init__(app.scheduler, queues, clock)
        self.failed = 0

    async def _work(self, queue: str, message: Message) -> None:
        try:
            await self._scheduler.firing.serve(message.text)
        except StorageError:
            self.failed += 1
            await self._queues.renew(queue, message, lease=self.AGAIN)
        else:
            await self._queues.delete(queue, message)


@asynccontextmanager
async def ticking(app: Application) -> AsyncIterator[None]:
    """Run the sweep's job `scheduler_scan` every 15 s, as production does while shards are under way."""

    async def tick() -> None:
        await asyncio.sleep(0.5)
        while True:
            await app.timers.run_once("scheduler_scan")
            await asyncio.sleep(15.0)

    task = asyncio.create_task(tick())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
