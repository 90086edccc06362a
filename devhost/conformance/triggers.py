"""Plays the host for the scheduler of this process: queue triggers and timers, as host.json sets them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Self

from shared.app.application import Application
from shared.app.timers import PERIODS
from shared.core.errors import TocsinError
from shared.scheduler.queue_functions import QUEUE_FUNCTIONS, Act
from shared.storage.ports import Message, Queues

BATCH, THRESHOLD = 16, 48
FIRST_WAIT, LONGEST_WAIT = 0.1, 2.0
AFTER_FAILURE = 30.0
"""Seconds for which a message is hidden after its function failed."""
_TIMERS = ("scheduler_scan", "stale_scan")


class Triggers:
    """Serves the scheduler's queues and runs its timers as long as the context lasts."""

    def __init__(self, app: Application, queues: Queues) -> None:
        self._app, self._queues = app, queues
        self._running: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self.failed: Counter[str] = Counter()
        """Failed functions and polls, by name and exception."""
        self.bugs: list[str] = []
        """Failures that no fault of storage explains."""

    async def __aenter__(self) -> Self:
        self._loops = [asyncio.create_task(self._poll(name, queue, act)) for name, queue, act in QUEUE_FUNCTIONS]
        self._loops += [asyncio.create_task(self._tick(timer)) for timer in _TIMERS]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._app.leave()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        if self._running:
            await asyncio.wait(self._running, timeout=10.0)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _note(self, name: str, error: Exception) -> None:
        self.failed[f"{name}: {type(error).__name__}"] += 1
        if not isinstance(error, TocsinError):
            self.bugs.append(f"{name}: {type(error).__name__}: {error}")

    async def _poll(self, name: str, queue: str, act: Act) -> None:
        wait = FIRST_WAIT
        while True:
            if len(self._running) > THRESHOLD:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                continue
            taken: list[Message] = []
            try:
                taken = await self._queues.receive(queue, limit=BATCH)
            except TocsinError as error:
                self._note(f"poll of {queue}", error)
            for message in taken:
                task = asyncio.create_task(self._serve(name, queue, act, message))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            if taken:
                wait = FIRST_WAIT
                continue
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)

    async def _serve(self, name: str, queue: str, act: Act, message: Message) -> None:
        try:
            await act(self._app.scheduler, message, True)
            await self._queues.delete(queue, message)
        except Exception as error:
            self._note(name, error)
            with contextlib.suppress(TocsinError):
                await self._queues.renew(queue, message, lease=AFTER_FAILURE)

    async def _tick(self, timer: str) -> None:
        await asyncio.sleep(0.5)
        while True:
            try:
                await self._app.timers.run_once(timer)
            except Exception as error:
                self._note(timer, error)
            await asyncio.sleep(PERIODS[timer])
