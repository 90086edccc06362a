"""The tasks in which one owner's deliveries to one channel run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ...core.clock import Clock, Millis
from ...delivery.flow.lane import Lane
from ...storage.ports import Row

SPARE = 8
"""Tasks beyond the deliveries that a channel may have in flight, so that one waits in line whenever a delivery ends."""


class _Held(NamedTuple):
    """A due event that waits for a task, and the time since which it does."""

    row: Row
    since: Millis


class LaneWorkers:
    """Runs deliveries in no more tasks than the channel can use. Further due events are held, and a task that is free takes the next one.

    deliver: attempts one delivery, of an event that was held since the given time (None: that was not held); raises nothing but
    cancellation. running: gets the task of each event that has one. waiting: gets the row keys of held events, for which nothing has been
    started.
    """

    def __init__(
        self,
        lane: Lane,
        owner: object,
        clock: Clock,
        deliver: Callable[[Row, Lane, Millis | None], Awaitable[None]],
        running: dict[str, asyncio.Task[None] | Lane],
        waiting: set[str],
    ) -> None:
        self._lane, self._owner, self._clock, self._deliver = lane, owner, clock, deliver
        self._running, self._waiting = running, waiting
        self._held: dict[str, _Held] = {}
        self._tasks = 0

    def begin(self, row: Row) -> None:
        """Attempt the delivery of a due event, or hold it until a task is free."""
        lane = self._lane
        if self._tasks < lane.most + SPARE:
            self._start(row, None)
            return
        if not lane.waiting:
            lane.waits_since = self._clock.monotonic()
        lane.held += 1
        self._held[row.rk] = _Held(row, self._clock.now())
        self._waiting.add(row.rk)

    def drop(self, row_key: str) -> None:
        """Forget an event if it is held."""
        if self._held.pop(row_key, None) is not None:
            self._lane.held -= 1
            self._waiting.discard(row_key)

    def _start(self, row: Row, since: Millis | None) -> None:
        self._tasks += 1
        self._running[row.rk] = task = asyncio.create_task(self._work(row, since))
        # A callback and not the task itself, because a task that is cancelled before it begins runs none of its code.
        task.add_done_callback(self._ended)

    async def _work(self, row: Row, since: Millis | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        while True:
            await self._deliver(row, self._lane, since)
            following = self._next()
            if following is None:
                return
            self._lane.leave(self._owner)
            row, since = following
            self._running[row.rk] = task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._lane.leave(self._owner)
        self._tasks -= 1
        if (following := self._next()) is not None:
            self._start(*following)

    def _next(self) -> _Held | None:
        for row_key, held in self._held.items():
            self.drop(row_key)
            return held
        return None
