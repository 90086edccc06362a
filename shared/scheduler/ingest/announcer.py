"""The messages of shards that a writer has opened: while many shards are announced, those that wake at about the same time share one.

A message costs three requests to a queue, at eleven times the price of a table's, and an execution. So while a process announces many
shards a second, it holds each for `HELD_FOR` and sends one message for those that become visible in the same period. A message is a hint:
if the process ends meanwhile, the index asks for the shards, as it does after a lost message.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from ...core.clock import Clock, Millis
from ...engine import leaving
from ...engine.async_runner import AsyncRunner
from ..protocol.dispatch import MOST_TOGETHER, ShardMessage, announce_together
from ..timings import ANNOUNCE_TOGETHER, HELD_FOR

log = logging.getLogger(__name__)

MANY = 8
"""Announcements within the last second from which they are held: a lone shard's message is sent at once."""


class Announcer:
    """Sends the messages of a writer's shards. Belongs to one event loop."""

    def __init__(self, runner: AsyncRunner, clock: Clock) -> None:
        self._runner, self._clock = runner, clock
        self._recent: deque[Millis] = deque(maxlen=MANY)
        self._held: dict[Millis, list[tuple[Millis, ShardMessage]]] = {}
        """By the period in which they are to become visible."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving = False

    def leave(self) -> None:
        """Hold nothing any more, because the process is about to end."""
        self._leaving = True

    async def close(self) -> None:
        """Send what is held."""
        self.leave()
        await asyncio.gather(*(self._send(self._held.pop(period)) for period in list(self._held)))
        for task in self._tasks:
            task.cancel()

    async def announce(self, message: ShardMessage, at: Millis) -> None:
        """Let the message become visible at `at`, or up to `ANNOUNCE_TOGETHER` before."""
        now = self._clock.now()
        self._recent.append(now)
        many = len(self._recent) == MANY and now - self._recent[0] <= 1_000
        # What is due sooner cannot wait, and full shards go to different processes.
        if message.wake or not many or self._leaving or at < now + 2 * round(1000 * HELD_FOR):
            await self._send([(at, message)])
            return
        period = at // ANNOUNCE_TOGETHER
        held = self._held.setdefault(period, [])
        held.append((at, message))
        if len(held) == MOST_TOGETHER:
            await self._send(self._held.pop(period))
        elif len(held) == 1:
            task = asyncio.create_task(self._later(period, held))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _later(self, period: Millis, held: list[tuple[Millis, ShardMessage]]) -> None:
        await leaving.pause(self._clock, HELD_FOR, lambda: self._leaving)
        if self._held.get(period) is held:
            await self._send(self._held.pop(period))

    async def _send(self, held: list[tuple[Millis, ShardMessage]]) -> None:
        at = min(visible for visible, _ in held)
        if not await self._runner.run(announce_together([message for _, message in held], at)):
            log.info("%d shards wait for the sweep", len(held), extra={"action": "announce_unsent", "count": len(held)})
