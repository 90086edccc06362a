"""The host in virtual time: serves queues and ticks timers as Azure Functions does, and jumps from one instant at which something happens
to the next. Nothing here waits for real time but for a user's own code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextvars import Context, copy_context
from functools import lru_cache
from typing import Any

from ..app.application import Application
from ..app.timers import PERIODS
from ..core.clock import Millis, SettableClock
from ..scheduler.keys import MINUTE, minute_of
from ..scheduler.protocol.dispatch import asks
from ..scheduler.queue_functions import QUEUE_FUNCTIONS, Act
from ..scheduler.timings import DISPATCH_AHEAD
from ..storage.memory import MemoryQueues, MemoryTables
from ..storage.names import ALL_QUEUES, SCHEDULES, SHARDS
from ..storage.ports import Message

SCAN: Millis = 15_000
"""Period of the timer that hands out what is due."""
IDLE: Millis = 24 * 3600 * 1000
"""A timer that has nothing to do ticks at least so often."""
MOST_TURNS = 1_000_000
"""Turns of the loop without a pause after which some task is taken to spin."""


class Host:
    """Plays the host of one application on storage in memory. Belongs to one event loop."""

    def __init__(self, app: Application, clock: SettableClock, tables: MemoryTables, queues: MemoryQueues) -> None:
        self._app, self._clock, self._tables, self._queues = app, clock, tables, queues
        self._acts: dict[str, Act] = {queue: act for _, queue, act in QUEUE_FUNCTIONS if queue in ALL_QUEUES}
        self._context: Context = copy_context()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticking: set[str] = set()
        self._ticked: dict[str, Millis] = dict.fromkeys(PERIODS, clock.now())
        self._turn = asyncio.Lock()
        self.others: Callable[[], Awaitable[bool]] = _nobody
        """Awaited when all is quiet: whether code that is not the application's has gone on meanwhile, in real time."""
        self.problems: list[BaseException] = []
        """What invocations raised, in their order; the next step raises it."""

    def spawn[T](self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task of the application's own: it inherits nothing from whoever asked for it."""
        return asyncio.get_running_loop().create_task(work, context=self._context.copy())

    async def run(self, until: float) -> None:
        """Be the host until the clock's monotonic time is `until`, all that happens at that instant included."""
        while not await self._step(until):
            pass

    async def drive[T](self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, for which the clock moves as far as need be."""
        task = self.spawn(work)
        try:
            while not task.done():
                await self._step(None, task)
        finally:
            task.cancel()
        return task.result()

    async def close(self) -> None:
        """Cut off what still runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _step(self, until: float | None, task: asyncio.Task[Any] | None = None) -> bool:
        """Let all that can happen now happen, then move to the next instant. True at `until`, where nothing more happens, or once `task`
        is done."""
        async with self._turn:
            await self._quiet(task)
            if self.problems:
                raise self.problems.pop(0)
            if task is not None and task.done():
                return True
            if await self._serve() or self._tick():
                return False
            left = None if until is None else until - self._clock.monotonic()
            if left is not None and left <= 1e-9:
                return True
            wait = self._wait()
            if left is not None:
                wait = left if wait is None else min(wait, left)
            if wait is None:
                raise RuntimeError("everybody waits, and nothing will ever wake them")
            await self._clock.advance(wait, settle=0)
            return False

    async def _quiet(self, task: asyncio.Task[Any] | None) -> None:
        """Turn the loop until every task waits: for the clock, or for one that does."""
        ready: Any = getattr(asyncio.get_running_loop(), "_ready", None)
        while task is None or not task.done():
            for turn in range(MOST_TURNS):
                await asyncio.sleep(0)
                # Loops that do not show what is ready get turns enough for any chain of wake-ups there is.
                if not ready if ready is not None else turn > 100:
                    break
                if task is not None and task.done():
                    return
            else:
                raise RuntimeError("a task spins: it never waits")
            if not await self.others():
                return

    async def _serve(self) -> bool:
        """Start the queue functions for all messages that are visible."""
        started = False
        now = self._clock.now()
        for queue, act in self._acts.items():
            visible = self._queues.next_visible(queue)
            if visible is not None and visible <= now:
                for message in await self._queues.receive(queue):
                    started = True
                    self._start(self._invoke(queue, act, message))
        return started

    async def _invoke(self, queue: str, act: Act, message: Message) -> None:
        await act(self._app.scheduler, message)
        await self._queues.delete(queue, message)

    def _tick(self) -> bool:
        """Start the timers whose tick has come."""
        now = self._clock.now()
        due = [name for name in PERIODS if name not in self._ticking and self._next_tick(name, now) <= now]
        for name in due:
            self._ticked[name] = now
            self._ticking.add(name)
            self._start(self._timer(name))
        return bool(due)

    async def _timer(self, name: str) -> None:
        try:
            await self._app.timers.run_once(name)
        finally:
            self._ticking.discard(name)

    def _next_tick(self, name: str, now: Millis) -> Millis:
        """When the timer ticks next: on its period's grid, but not before there is something for it to do."""
        period = round(PERIODS[name] * 1000)
        last = self._ticked[name]
        at = last + max(period, IDLE)
        if name == "scheduler_scan" and (wanted := self._wanted(now)) is not None:
            at = min(at, max(wanted, last + 1))
        return -(-at // period) * period

    def _wanted(self, now: Millis) -> Millis | None:
        """The first tick of the scan at which it finds something to do; None when nothing is stored that would ever be due."""
        found = [at for rows in self._tables.peek(SHARDS) if (at := _first(rows, now)) is not None]
        for rows in self._tables.peek(SCHEDULES, "n:"):
            row = next(rows, None)
            if row is not None and row.rk.startswith("n:"):
                found.append(max(now, _minute(row.rk[2:]) - DISPATCH_AHEAD))
        return min(found, default=None)

    def _wait(self) -> float | None:
        """Seconds to the next instant at which something happens, or None."""
        now = self._clock.now()
        waits = [] if (step := self._clock.next_wake()) is None else [step]
        visible = [at for queue in self._acts if (at := self._queues.next_visible(queue)) is not None]
        ticks = [self._next_tick(name, now) for name in PERIODS if name not in self._ticking]
        waits += [max(at - now, 1) / 1000 for at in visible + ticks]
        return min(waits, default=None)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        async def watched() -> None:
            try:
                await work
            except Exception as error:
                self.problems.append(error)

        task = self.spawn(watched())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _nobody() -> bool:
    return False


_start_of = lru_cache(maxsize=4096)(minute_of)


def _minute(key: str) -> Millis:
    """The start of the minute that a row key begins with, `yyyymmddHHMM`."""
    return _start_of(key[:12])


def _first(rows: Iterator[Any], now: Millis) -> Millis | None:
    """The first tick from `now` on at which one of a partition's index rows asks for anything. They come in the order of their minutes."""
    ticks: Sequence[Millis] = range(-(-now // SCAN) * SCAN, now + DISPATCH_AHEAD + 2 * MINUTE, SCAN)
    found: Millis | None = None
    for row in rows:
        near = _minute(row.rk) - DISPATCH_AHEAD
        if near > ticks[-1] or (found is not None and near > found):
            return near if found is None else min(found, near)
        asking = next((at for at in ticks if asks(row, at).do != "nothing"), ticks[-1])
        found = asking if found is None else min(found, asking)
    return found
