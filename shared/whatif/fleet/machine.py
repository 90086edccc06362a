"""A machine of a twin, which can stand still. Its requests to storage wait meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...engine.async_runner import AsyncRunner
from ...engine.effects import Wait, Work
from ...storage.ports import TableRequest, Tables, WrappedTables
from ..twin.loop import LoopClock

_AFTER = 1e-6
"""Seconds by which a wait is longer, so that rounding does not end it early."""


class TwinMachine:
    """One machine of a fleet."""

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self.frozen_until = 0.0
        """Seconds of the clock until which it stands still."""

    @property
    def frozen(self) -> bool:
        """True while it stands still."""
        return self._clock.monotonic() < self.frozen_until

    def freeze(self, seconds: float) -> None:
        """Stand still from now on."""
        self.frozen_until = max(self.frozen_until, self._clock.monotonic() + seconds)

    async def thawed(self) -> None:
        """Wait while it stands still."""
        while (left := self.frozen_until - self._clock.monotonic()) > 0:  # noqa: ASYNC110  frozen again meanwhile
            await asyncio.sleep(left + _AFTER)


class NodePlace(NamedTuple):
    """The node that a program of a twin is on. seed: of the program's random numbers."""

    fleet: str
    node: str
    clock: LoopClock
    machine: TwinMachine
    seed: str


class MachineTables(WrappedTables):
    """Table storage as a machine sees it: nothing is sent, and no answer is read, while it stands still."""

    def __init__(self, inner: Tables, machine: TwinMachine) -> None:
        super().__init__(inner)
        self._machine = machine

    async def perform(self, request: TableRequest) -> Any:
        """See `ports.Tables`."""
        await self._machine.thawed()
        answer = await self.inner.perform(request)
        await self._machine.thawed()
        return answer

    async def ensure(self, tables: Sequence[str]) -> None:
        """See `ports.Tables`."""

    async def close(self) -> None:
        """Do nothing."""


class LoopRunner(AsyncRunner):
    """Carries out the effects of a keeper's loop on the event loop; `ThreadRunner` does so on a thread."""

    def __init__(self, tables: Tables, clock: LoopClock, machine: TwinMachine) -> None:
        super().__init__(tables, clock)
        self._steady, self._machine = clock, machine
        self._bell = asyncio.Event()

    def wake(self) -> None:
        """End the wait that is under way, or else the next one."""
        self._bell.set()

    async def run_loop[T](self, work: Work[T]) -> T:
        """Run a loop that waits, to its end."""
        return await self.run(work)  # type: ignore[arg-type]

    async def _perform(self, effect: Any) -> Any:
        if not isinstance(effect, Wait):
            return await super()._perform(effect)
        left = effect.until - self._steady.monotonic()
        if left > 0 and not self._bell.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left + _AFTER):
                    await self._bell.wait()
        self._bell.clear()
        await self._machine.thawed()
        return None
