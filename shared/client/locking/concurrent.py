"""`AsyncLock`: a lock of an `AsyncClient`, renewed by a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from ...core.clock import Clock
from ..sending.concurrent import AsyncPause
from .holding.concurrent import AsyncHolding, AsyncRenewal, AsyncStepsRunner, AsyncWatch
from .rules import LockAttempt


class AsyncLock(AsyncHolding):
    """A lock that `AsyncClient.lock` returns: held from the start of an `async with` block to its end, and renewed meanwhile by a task.

    ::

        async with client.lock("nightly") as lock:
            await write(rows, token=lock.token)

    When the lock is lost, the block is cancelled at its next `await`, as `asyncio.timeout` does it, and the end of the block raises
    `LockLost`. Code that computes for long without an `await` calls `check`. Each block is an attempt of its own. A lock cannot be entered
    twice at a time.
    """

    def __init__(
        self,
        make: Callable[[], LockAttempt],
        run: AsyncStepsRunner,
        on_lost: Callable[[], None] | None,
        clock: Clock,
    ) -> None:
        """make: returns a new attempt. clock: its seconds should advance while the machine sleeps, as those of `SystemClock.steady` do."""
        # `sleep` of the test kit's clock moves it; `idle` does not.
        tasks = _Tasks(getattr(clock, "idle", clock.sleep), on_lost)
        super().__init__(make, run, getattr(clock, "steady", clock.monotonic), tasks)


class _NoGuard:
    """Guards nothing: between two awaits no other task runs."""

    def __init__(self, pause: AsyncPause) -> None:
        self.wait = pause

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def notify_all(self) -> None:
        """Wake nobody: when the lock is lost, the block is cancelled, and its end cancels the tasks."""


class _Tasks:
    """Renews and watches the lock on the event loop, and cancels the block when the lock is lost."""

    def __init__(self, pause: AsyncPause, on_lost: Callable[[], None] | None) -> None:
        self._pause, self._on_lost = pause, on_lost
        self._limit: asyncio.Timeout | None = None
        self._running: list[asyncio.Task[object]] = []

    def new_guard(self) -> _NoGuard:
        return _NoGuard(self._pause)

    async def begin(self, attempt: LockAttempt, renew: AsyncRenewal, watch: AsyncWatch) -> None:
        self._limit = asyncio.timeout(None)
        await self._limit.__aenter__()
        name = f"tocsin lock {attempt.name}"
        self._running = [asyncio.create_task(renew(attempt), name=name), asyncio.create_task(watch(attempt), name=name)]

    def lose(self) -> None:
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time())
        if self._on_lost is not None:
            self._on_lost()

    async def end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> TimeoutError | None:
        assert self._limit is not None
        for task in self._running:
            task.cancel()
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError as over:
            return over
        return None
