"""One process of the app: a clock of its own, its tasks, and its death."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any

from shared.core.clock import Millis

if TYPE_CHECKING:
    from ..history import World

CURRENT: ContextVar[Instance | None] = ContextVar("instance", default=None)
"""The instance a task belongs to; tasks inherit it."""


def make_task(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **given: Any) -> asyncio.Task[Any]:
    """The loop's task factory: a task made inside an instance dies with it."""
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **given)
    context = given.get("context")
    owner = context.get(CURRENT) if context is not None else CURRENT.get()
    if owner is not None:
        owner.adopt(task)
    return task


class InstanceClock:
    """The clocks of one machine: wall time off by a constant, monotonic time running fast or slow. Sleeps stretch over pauses."""

    def __init__(self, instance: Instance, skew: Millis, drift: float) -> None:
        self._instance, self.skew, self._pace = instance, skew, 1.0 + drift
        self._loop = instance.world.loop
        self._start = instance.world.start

    def now(self) -> Millis:
        return self._start + self.skew + int(self._loop.now * 1000 + 1e-6)

    def monotonic(self) -> float:
        return self._loop.now * self._pace

    def steady(self) -> float:
        """The time that bounds of storage's time refer to: its rate error is within their allowance, unlike that of `monotonic`."""
        return self._loop.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds) / self._pace)
        await self._instance.ready()


class Instance:
    """A running process. `crash` ends it at once: its tasks never act again."""

    def __init__(self, world: World, name: str, *, faulty: bool = True) -> None:
        self.world, self.name, self.faulty = world, name, faulty
        self.alive = True
        self.leaving = False
        self.paused_until = 0.0
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._context = copy_context()
        self._context.run(CURRENT.set, self)
        profile, random = world.profile, world.random
        skew = random.randint(-profile.skew, profile.skew) if faulty and profile.skew else 0
        drift = random.uniform(-profile.drift, profile.drift) if faulty and profile.drift else 0.0
        self.clock = InstanceClock(self, skew, drift)
        self.app = world.application(self)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Remember a task; in a dead process nothing starts."""
        if not self.alive:
            task.cancel()
        self._tasks[task] = None
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def spawn[T](self, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something inside this process."""
        return self.world.loop.create_task(coro, context=self._context)

    async def ready(self) -> None:
        """Returns while the process runs: later if it stands still, never if it is dead."""
        if not self.alive:
            raise asyncio.CancelledError
        # A pause may have grown while it was slept through.
        while (left := self.paused_until - self.world.loop.now) > 0:  # noqa: ASYNC110
            await asyncio.sleep(left)

    def pause(self, seconds: float) -> None:
        """Stand still: nothing wakes, no answer is read, while time goes on."""
        self.world.note(self, "pauses", f"{seconds:.1f} s")
        self.world.counts["pauses"] += 1
        self.paused_until = max(self.paused_until, self.world.loop.now + seconds)

    def crash(self) -> None:
        """Die now."""
        if not self.alive:
            return
        self.alive = False
        for task in list(self._tasks):
            task.cancel()
        self.world.host.died(self)

    @property
    def unfinished(self) -> list[asyncio.Task[Any]]:
        """Tasks that have not ended."""
        return list(self._tasks)
