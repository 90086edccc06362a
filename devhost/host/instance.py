"""One process of the Functions host: the listeners and timers of some functions, and the worker process that runs them.

The devhost is one process. A host that ends, because storage refuses connections or because its machine fails, is played by its parts: its
listeners and timers stop without a word to storage, and its worker process is killed.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from devhost.flex import FlexRules, RefusalRules, RefusedTries
from devhost.host.queues import LEASE, QueueFunctions, Refused, is_refused
from devhost.host.settings import QueueOptions
from devhost.host.timers import ScheduleMonitor, TimerFunctions
from devhost.worker.model import FunctionInfo, InvocationResult, Trace, TypedValue
from devhost.worker.pool import WorkerPool

log = logging.getLogger("devhost.groups")

PROBE_TIMEOUT = 5.0
"""Seconds after which an endpoint that does not answer a connection counts as one that does not refuse it."""
LOOKS = 13
"""Looks at the account with the lease of the timers within the time after which its refusals end the host."""


@dataclass(frozen=True)
class HostParts:
    """The objects and rules that every instance gets. Times in seconds."""

    pool: WorkerPool
    queues: QueueOptions
    refusals: RefusalRules | None
    flex: FlexRules | None
    lease_account: tuple[str, int] | None
    """Address of the account with the lease of the timers; None: it never refuses."""
    monitor: ScheduleMonitor = field(default_factory=ScheduleMonitor)


class HostInstance:
    """One process of the host; an `Invoker`. Ends once, and never starts again."""

    def __init__(self, name: str, functions: list[FunctionInfo], parts: HostParts, failed: Callable[["HostInstance", str], None]) -> None:
        """name: name of its worker process. failed: called at most once, when storage ends the host, with the reason."""
        self.name, self._parts, self._failed = name, parts, failed
        self.running = 0
        self.idle_since = time.monotonic()
        flex, refusals = parts.flex, parts.refusals
        refused = Refused(refusals.ends, self._fail) if refusals is not None else None
        lease, stuck = (flex.hidden, flex.stuck) if flex is not None else (LEASE, 0.0)
        self.queues = QueueFunctions(self, functions, parts.queues, lease=lease, refused=refused, stuck=stuck)
        self.timers = TimerFunctions(self, functions, monitor=parts.monitor)
        self._lease: asyncio.Task[None] | None = None
        self.ended = False

    @property
    def idle_for(self) -> float:
        """Seconds since the last invocation has ended, or since the start."""
        return time.monotonic() - self.idle_since

    async def invoke(
        self, function: FunctionInfo, data: TypedValue, metadata: dict[str, TypedValue] | None = None, trace: Trace | None = None
    ) -> InvocationResult:
        """See `Invoker`. Raises CancelledError once the host has ended: it must not start a worker process."""
        if self.ended:
            raise asyncio.CancelledError
        self.running += 1
        try:
            return await self._parts.pool.invoke(function, data, metadata, trace, process=self.name)
        finally:
            self.running -= 1
            self.idle_since = time.monotonic()

    async def start(self, *, worker: bool, again: bool = False) -> None:
        """Start listeners and timers. worker: start the worker process too, before them; otherwise its first call does. again: this host
        follows one that storage has ended, so it waits for the account with the lease of its timers. Raises AppIndexError."""
        rules = self._parts.refusals
        refused = bool(self.timers.timers) and rules is not None and await self._lease_refused()
        if refused and again and rules is not None:
            await asyncio.sleep(rules.start)
        if worker:
            await self._parts.pool.ready(self.name)
        self.idle_since = time.monotonic()
        if self.ended:
            return
        self.queues.start()
        if not refused:
            self.timers.start()
        if self.timers.timers and rules is not None:
            self._lease = asyncio.create_task(self._hold_lease(rules, started=not refused))

    async def _hold_lease(self, rules: RefusalRules, *, started: bool) -> None:
        """Watch the account with the lease of the timers. Without the lease, start the timers once the account is back."""
        while not started:
            await asyncio.sleep(rules.timers)
            if started := not await self._lease_refused():
                self.timers.start()
        tries = RefusedTries(rules.ends)
        while True:
            await asyncio.sleep(rules.ends / LOOKS)
            if not await self._lease_refused():
                tries.answered()
            elif tries.refused(time.monotonic()):
                self._fail("the lease of the timers: the account AzureWebJobsStorage refuses connections")
                return

    async def _lease_refused(self) -> bool:
        if self._parts.lease_account is None:
            return False
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                _, writer = await asyncio.open_connection(*self._parts.lease_account)
        except OSError as error:  # TimeoutError too: it does not refuse
            return is_refused(error)
        writer.close()
        return False

    def _fail(self, reason: str) -> None:
        if not self.ended:
            self._failed(self, reason)

    async def drain(self) -> None:
        """Take no more messages and ticks. What runs goes on."""
        self.timers.stop_ticking()
        await self.queues.stop_polling()

    async def settled(self) -> None:
        """Wait until what runs has ended and its messages are settled. Call this after `drain`."""
        await asyncio.gather(self.timers.close(), *(listener.settled() for listener in self.queues.listeners))
        while self.running:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def cut(self) -> list[str]:
        """End as a host that is killed; return the names of the functions that were running."""
        self.ended = True
        await self._stop_lease()
        names = self._parts.pool.end(self.name)
        await asyncio.gather(self.queues.cut(), self.timers.cut())
        return names

    async def close(self) -> None:
        """End after the worker process has ended: messages of finished invocations are settled first."""
        self.ended = True
        await self._stop_lease()
        await asyncio.gather(self.timers.close(), self.queues.close())

    async def _stop_lease(self) -> None:
        if self._lease is not None and self._lease is not asyncio.current_task():
            self._lease.cancel()
            await asyncio.gather(self._lease, return_exceptions=True)
