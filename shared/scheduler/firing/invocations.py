"""Invocations of the queue's functions, and the shards that each of them serves: small shards share one, and a burst is spread over
processes.

The first small shard's invocation leads: it stays until the shards that others hand to it are served too. An invocation that hands over its
shard ends at once and gives its slot back. Each shard keeps its own gate, epoch and owner. A lead takes shards for a bounded time, and the
next small shard then leads. So no invocation comes near the platform's time limit, and nothing runs while no invocation does.

A process that has enough of them holds the message of a further one for a moment, and sends it again for another process. That is a new
message, so it does not count as a failure of the old one. If the process ends in between, the index asks for the shard, as it does after
any lost message; if both messages arrive, the gate has one owner.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ...core.clock import Clock
from ...core.errors import StorageError
from ..protocol.dispatch import ShardMessage, send
from ..rules import held_within, leaves_to_others, seems_alone
from ..shard_services import ShardServices
from ..timings import BURST_TOGETHER, BURST_WATCHED_FOR, LEAD_TAKES_FOR

SMALL_SHARD = 64 * 1024
"""Bytes of events up to which a shard is small."""
MOST_SHARDS = 1_000
"""Most small shards that are served side by side. Further ones keep their slots, so that the platform sees work and adds instances."""
TENANT_SHARE = 0.5
"""One tenant's largest part of `MOST_SHARDS`, and of the bytes: a tenant whose receivers are slow does not fill them."""


class SmallShard(NamedTuple):
    """A small shard that is to be served."""

    tenant: str
    size: int
    """Bytes of its events."""
    serve: Callable[[], Awaitable[None]]
    failed: Callable[[Exception], Awaitable[None]]
    """Takes care of the shard after `serve` has raised, because the host no longer has its message. Raises nothing."""


class _Group:
    """The shards that were handed to one lead."""

    def __init__(self, until: float) -> None:
        """until: monotonic time from which the lead takes no further shard."""
        self.until = until
        self.tasks: dict[asyncio.Task[None], None] = {}
        self.defect: Exception | None = None
        """An error that storage is not the cause of."""


class SharedInvocation:
    """The small shards of one process. Belongs to one event loop."""

    def __init__(self, clock: Clock, limit: int) -> None:
        """limit: most bytes of small shards in work."""
        self._clock, self._limit = clock, limit
        self._bytes: Counter[str] = Counter()
        self._tenants: Counter[str] = Counter()
        self._group: _Group | None = None
        """The shards that were handed to the present lead; None if the next small shard leads."""

    def admits(self, tenant: str, size: int) -> bool:
        """Return True if a shard of `size` bytes can be served beside the others now."""
        if size > SMALL_SHARD or self._bytes.total() + size > self._limit or self._bytes[tenant] + size > self._limit * TENANT_SHARE:
            return False
        return self._tenants.total() < MOST_SHARDS and self._tenants[tenant] < MOST_SHARDS * TENANT_SHARE

    async def serve(self, shard: SmallShard) -> None:
        """Serve a shard that `admits` let in: hand it to the lead and return, or lead.

        A lead raises the failure of its own shard if it has no others, so that the host repeats its message; and a defect in any of them,
        so that the host counts it.
        """
        self._enter(shard)
        group = self._group
        if group is not None and self._clock.monotonic() < group.until:
            task = asyncio.create_task(self._handed_over(shard, group))
            # A callback, because a task that is cancelled before it begins runs none of its code.
            task.add_done_callback(partial(self._ended, shard, group))
            group.tasks[task] = None
            return
        self._group = group = _Group(self._clock.monotonic() + LEAD_TAKES_FOR)
        try:
            try:
                await shard.serve()
            except Exception as error:
                if not group.tasks:
                    raise
                await self._take_care(shard, error, group)
            finally:
                self._leave(shard)
            while group.tasks:
                await asyncio.wait(group.tasks)
            if group.defect is not None:
                raise group.defect
        finally:
            if self._group is group:
                self._group = None
            # There are some left only if this invocation is cancelled: nothing may run without one.
            for task in group.tasks:
                task.cancel()

    def _ended(self, shard: SmallShard, group: _Group, task: asyncio.Task[None]) -> None:
        self._leave(shard)
        del group.tasks[task]

    async def _handed_over(self, shard: SmallShard, group: _Group) -> None:
        try:
            await shard.serve()
        except Exception as error:
            await self._take_care(shard, error, group)

    @staticmethod
    async def _take_care(shard: SmallShard, error: Exception, group: _Group) -> None:
        if not isinstance(error, StorageError):
            group.defect = error
        await shard.failed(error)

    def _enter(self, shard: SmallShard) -> None:
        self._tenants[shard.tenant] += 1
        self._bytes[shard.tenant] += shard.size

    def _leave(self, shard: SmallShard) -> None:
        self._bytes[shard.tenant] -= shard.size
        self._tenants[shard.tenant] -= 1
        if not self._tenants[shard.tenant]:
            del self._tenants[shard.tenant], self._bytes[shard.tenant]


class Bursts:
    """The full shards that one process serves, and the messages that it has passed on. Belongs to one event loop."""

    def __init__(self, services: ShardServices) -> None:
        self._runner, self._clock, self._ids, self._counters = services.runner, services.clock, services.ids, services.counters
        self._name = ""
        """Name of this process in the messages that it passes on."""
        self._wakes: Counter[int] = Counter()
        """Full shards in work, by wake-up."""
        self._passed = self._returned = 0
        """Messages that this process has passed on since `_since`, and those that came back to it."""
        self._since = 0.0
        """Monotonic time at which the first of them was passed on."""
        self._others = False
        """Another process has passed on a message since then."""

    async def leave(self, message: ShardMessage) -> bool:
        """Pass the message of a full shard on if this process has enough of them. Return False if it is to serve the shard."""
        self._note(message)
        if not self._leaves(message):
            return False
        await self._clock.sleep(self._ids.chance() * held_within(message.wake - self._clock.now()))
        if not self._leaves(message):
            return False
        self._name = self._name or self._ids.name()
        if not self._passed:
            self._since = self._clock.monotonic()
        self._passed += 1
        try:
            passed_on = replace(message, passed=message.passed + 1, sender=self._name, load=self._wakes.total())
            sent = await self._runner.run(send(passed_on, self._clock.now()))
        except StorageError:
            sent = False
        self._counters["shards_passed_on"] += sent
        # A message whose answer is lost may be there twice: whoever gets the second finds the shard taken.
        return sent

    @contextmanager
    def serving(self, message: ShardMessage) -> Iterator[None]:
        """Count a full shard while it is in work."""
        self._wakes[message.wake] += 1
        try:
            yield
        finally:
            self._wakes[message.wake] -= 1
            if not self._wakes[message.wake]:
                del self._wakes[message.wake]

    def _leaves(self, message: ShardMessage) -> bool:
        beside = sum(count for wake, count in self._wakes.items() if abs(wake - message.wake) < BURST_TOGETHER)
        alone = bool(self._passed) and not self._others and seems_alone(self._passed, self._returned, self._watched)
        early = message.wake - self._clock.now()
        return leaves_to_others(beside, self._wakes.total(), message.passed, message.load, early, alone=alone)

    @property
    def _watched(self) -> float:
        """Seconds since the first message was passed on."""
        return self._clock.monotonic() - self._since

    def _note(self, message: ShardMessage) -> None:
        """Learn from a message whether other processes take what this one leaves."""
        if self._passed and self._watched > BURST_WATCHED_FOR:
            self._passed, self._returned, self._others = 0, 0, False
        if message.passed:
            own = message.sender == self._name
            self._returned += own
            self._others = self._others or not own
