"""`AsyncLock`: a lock of an `AsyncClient`, renewed by a task."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Protocol, Self

from ...core.clock import Clock
from ...core.errors import TocsinError
from ..errors import LockLost
from ..exchange import CallSteps
from . import rules
from .rules import LockAttempt, LockEnded, LockGrant

log = logging.getLogger(__name__)


class AsyncStepsRunner(Protocol):
    """Runs the steps of calls, as `AsyncClient` does."""

    async def __call__[T](self, steps: CallSteps[T]) -> T: ...


class AsyncLock:
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
        self._make, self._run, self._on_lost = make, run, on_lost
        self._clock: Callable[[], float] = getattr(clock, "steady", clock.monotonic)
        # `sleep` of the test kit's clock moves it; `idle` does not.
        self._sleep: Callable[[float], Awaitable[None]] = getattr(clock, "idle", clock.sleep)
        self._attempt: LockAttempt | None = None
        self._grant: LockGrant | None = None
        self._why = ""
        self._process = 0
        self._limit: asyncio.Timeout | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier grant of this lock. Raises RuntimeError outside the block."""
        return self._held().token

    @property
    def lost(self) -> bool:
        """True as soon as another caller may get the lock, and then until the end of the block."""
        grant = self._held()
        if not self._why and self._process != os.getpid():
            self._why = rules.FORKED
        if not self._why and self._clock() >= grant.ends:
            self._lose("its validity is over, and no renewal has succeeded")
        return bool(self._why)

    @property
    def until(self) -> float:
        """The end of the grant if no renewal succeeds, in seconds of the client's clock; by default `tocsin.core.clock.steady`."""
        return self._held().ends

    def remaining(self) -> float:
        """Return the seconds for which nobody else can get the lock if no renewal succeeds. 0 if it is lost."""
        return 0.0 if self.lost else max(0.0, self._held().ends - self._clock())

    def check(self) -> None:
        """Raise `LockLost` if the lock is lost."""
        if self.lost:
            raise self._lost()

    async def __aenter__(self) -> Self:
        """Wait for the lock. Raises `LockHeld` when the time is over, and the errors of every operation."""
        if self._attempt is not None:
            raise RuntimeError("this lock is in use: make another one with client.lock")
        self._attempt, self._why, self._process = self._make(), "", os.getpid()
        try:
            self._grant = await self._run(rules.acquire(self._attempt, self._clock, random.random))
            self._limit = asyncio.timeout(None)
            await self._limit.__aenter__()
        except BaseException:
            # The attempt may be in the queue, or have a grant whose answer was lost.
            await self._end()
            raise
        name = f"tocsin lock {self._attempt.name}"
        self._tasks = [asyncio.create_task(work, name=name) for work in (self._renew(self._attempt), self._watch())]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._limit is not None
        lost = self._lost() if self.lost else None
        for task in self._tasks:
            task.cancel()
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError as over:
            raise (lost or self._lost()) from over
        finally:
            await self._end()
        if lost is not None and kind is None:
            raise lost

    def _held(self) -> LockGrant:
        if self._grant is None:
            raise RuntimeError("the lock is not held: use it in an async with block")
        return self._grant

    def _lost(self) -> LockLost:
        assert self._attempt is not None
        return LockLost(self._attempt.name, self._held().token, self._why)

    def _lose(self, why: str) -> None:
        self._why = why
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time())
        if self._on_lost is not None:
            self._on_lost()

    async def _watch(self) -> None:
        """Lose the lock when its validity is over, even if a renewal hangs."""
        while not self.lost:
            await self._sleep(self._held().ends - self._clock())

    async def _end(self) -> None:
        """Release the lock. It runs out if this fails."""
        attempt, self._attempt, self._grant = self._attempt, None, None
        assert attempt is not None
        if self._process != os.getpid():
            return
        with contextlib.suppress(TocsinError):
            await self._run(rules.release(attempt))

    async def _renew(self, attempt: LockAttempt) -> None:
        failures = 0
        while not self.lost:
            await self._sleep(rules.renewal_pause(self._held(), failures, self._clock(), random.random()))
            if self.lost:
                return
            found = await self._try_renewal(attempt)
            failures = 0 if isinstance(found, LockGrant) else failures + 1
            if self.lost:
                return
            if isinstance(found, LockGrant):
                self._grant = found
            elif isinstance(found, LockEnded):
                self._lose(found.why)

    async def _try_renewal(self, attempt: LockAttempt) -> LockGrant | LockEnded | None:
        grant = self._held()
        try:
            return await self._run(rules.renew(attempt, grant, self._clock))
        except TocsinError:
            return None
        except Exception:
            # For example, the client is closed. Nobody reads what a task raises. The validity ends, and the block with it.
            log.exception("Lock %s is not renewed", attempt.name, extra={"action": "lock_not_renewed", "lock": attempt.name})
            return None
