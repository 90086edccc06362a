"""The functions host in virtual time. It serves queues and runs timers as Azure Functions does, and moves the clock from one instant
at which something happens to the next. It waits in real time only for the user's own code.
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
from ..local.invocations import ACTS, invoke
from ..scheduler.keys import MINUTE, minute_of
from ..scheduler.protocol.dispatch import decide
from ..scheduler.timings import DISPATCH_AHEAD, OCCURRENCES_AHEAD
from ..storage.memory import MemoryQueues, MemoryTables
from ..storage.names import QUEUE_SWEEPS, SCHEDULES, SHARDS
from ..storage.ports import Message

SCAN: Millis = 15_000
"""Time between two runs of the job that dispatches due events, while shards are under way, in milliseconds."""
MAX_TICK_GAP: Millis = 24 * 3600 * 1000
"""Longest time between two runs of a timer that has nothing to do, in milliseconds."""
MAX_LOOP_TURNS = 1_000_000
"""Turns of the event loop without a pause after which a task counts as spinning."""
QUIET_TURNS = 20
"""Turns of the event loop in which no task can run, after which no chain of callbacks (each turn runs one link) will wake one."""


class VirtualHost:
    """The functions host of one application on storage in memory. It belongs to one event loop.

    wait_for_handlers: awaited when every task waits. It returns True if the user's code has run meanwhile, in real time.
    """

    def __init__(
        self,
        app: Application,
        clock: SettableClock,
        tables: MemoryTables,
        queues: MemoryQueues,
        wait_for_handlers: Callable[[], Awaitable[bool]],
    ) -> None:
        self._app, self._clock, self._tables, self._queues = app, clock, tables, queues
        self._wait_for_handlers = wait_for_handlers
        self._context: Context = copy_context()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticking: set[str] = set()
        self._ticked: dict[str, Millis] = dict.fromkeys(PERIODS, clock.now())
        self._turn = asyncio.Lock()
        self._driven: set[asyncio.Task[Any]] = set()
        self.problems: list[BaseException] = []
        """Exceptions of invocations, in their order. The next step raises the first."""

    def spawn[T](self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task of the application. It does not inherit the caller's context variables."""
        return asyncio.get_running_loop().create_task(work, context=self._context.copy())

    async def run(self, until: float) -> None:
        """Run the host until the clock's monotonic time is `until`, including everything that happens at that instant."""
        while not await self._step(until):
            pass

    async def drive[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`. The clock moves as far as the work needs."""
        task = self.spawn(work)
        self._driven.add(task)
        try:
            while not task.done():
                await self._step(None, task)
        finally:
            self._driven.discard(task)
            task.cancel()
        return task.result()

    async def close(self) -> None:
        """Cancel the tasks that still run."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _step(self, until: float | None, task: asyncio.Task[Any] | None = None) -> bool:
        """Do everything that can be done now, then move the clock to the next instant.

        Returns True once `task` is done, or if the clock is at `until` and nothing is left to do.
        """
        async with self._turn:
            await self._quiet(task)
            if self.problems:
                raise self.problems.pop(0)
            if task is not None and task.done():
                return True
            if await self._serve() or self._tick():
                return False
            if any(other.done() for other in self._driven):
                # Whoever waits for it goes on at this instant.
                return False
            left = None if until is None else until - self._clock.monotonic()
            if left is not None and left <= 1e-9:
                return True
            wait = self._wait()
            if left is not None:
                wait = left if wait is None else min(wait, left)
            if wait is None:
                raise RuntimeError("deadlock: every task waits, and no timer, message or sleep will wake one")
            await self._clock.advance(wait, settle=0)
            return False

    async def _quiet(self, task: asyncio.Task[Any] | None) -> None:
        """Run the event loop until every task waits for the clock, or for a task that does."""
        # Other loops, such as uvloop's, do not show what is ready.
        ready: Any = getattr(asyncio.get_running_loop(), "_ready", None)
        while task is None or not task.done():
            quiet = 0
            for _ in range(MAX_LOOP_TURNS):
                await asyncio.sleep(0)
                if task is not None and task.done():
                    return
                if ready is not None:
                    if not ready:
                        break
                    continue
                quiet = 0 if _can_any_task_run() else quiet + 1
                if quiet == QUIET_TURNS:
                    break
            else:
                raise RuntimeError(f"a task spins: it did not wait in {MAX_LOOP_TURNS:,} turns of the event loop")
            if not await self._wait_for_handlers():
                return

    async def _serve(self) -> bool:
        """Start the queue functions for all visible messages. Returns True if there were any."""
        started = False
        now = self._clock.now()
        for queue in (QUEUE_SWEEPS, *ACTS):
            visible = self._queues.next_visible(queue)
            if visible is not None and visible <= now:
                for message in await self._queues.receive(queue):
                    started = True
                    self._start(self._invoke(queue, message))
        return started

    async def _invoke(self, queue: str, message: Message) -> None:
        await invoke(self._app, queue, message)
        await self._queues.delete(queue, message)

    def _tick(self) -> bool:
        """Start the timers that are due. Returns True if there were any."""
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
        """Return the next run of the timer: on the grid of its period, but not before it has something to do."""
        dispatches = name == "scheduler_scan"
        period = SCAN if dispatches else round(PERIODS[name] * 1000)
        last = self._ticked[name]
        at = last + max(period, MAX_TICK_GAP)
        if dispatches and (useful := self._first_useful_scan(now)) is not None:
            at = min(at, max(useful, last + 1))
        return -(-at // period) * period

    def _first_useful_scan(self, now: Millis) -> Millis | None:
        """Return the first run of the scan that finds something to do, or None if nothing is stored that will be due."""
        found = [at for rows in self._tables.peek(SHARDS) if (at := _first(rows, now)) is not None]
        for rows in self._tables.peek(SCHEDULES, "n:"):
            row = next(rows, None)
            if row is not None and row.rk.startswith("n:"):
                found.append(max(now, _minute(row.rk[2:]) - OCCURRENCES_AHEAD))
        return min(found, default=None)

    def _wait(self) -> float | None:
        """Return the seconds to the next instant at which something happens, or None."""
        now = self._clock.now()
        waits = [] if (step := self._clock.next_wake()) is None else [step]
        visible = [at for queue in ACTS if (at := self._queues.next_visible(queue)) is not None]
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


def _can_any_task_run() -> bool:
    """Return True if a task of the running loop, other than the present one, waits for nothing but its turn."""
    present = asyncio.current_task()
    for task in asyncio.all_tasks():
        waiter: Any = getattr(task, "_fut_waiter", None)
        if task is not present and (waiter is None or waiter.done()):
            return True
    return False


_start_of = lru_cache(maxsize=4096)(minute_of)


def _minute(key: str) -> Millis:
    """Return the start of the minute that a row key begins with, `yyyymmddHHMM`."""
    return _start_of(key[:12])


def _first(rows: Iterator[Any], now: Millis) -> Millis | None:
    """Return the first scan from `now` on at which an index row of a partition needs work. `rows` are in the order of their minutes."""
    ticks: Sequence[Millis] = range(-(-now // SCAN) * SCAN, now + DISPATCH_AHEAD + 2 * MINUTE, SCAN)
    found: Millis | None = None
    for row in rows:
        near = _minute(row.rk) - DISPATCH_AHEAD
        if near > ticks[-1] or (found is not None and near > found):
            return near if found is None else min(found, near)
        asking = next((at for at in ticks if decide(row, at).do != "nothing"), ticks[-1])
        found = asking if found is None else min(found, asking)
    return found
