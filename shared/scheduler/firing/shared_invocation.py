"""Small shards share an invocation, so that a slot of the queue trigger is not what bounds tenants with few events each.

The first small shard's invocation leads: it stays until the shards that others hand to it are served too. An invocation that hands over its
shard ends at once and gives its slot back. Each shard keeps its own gate, epoch and owner. A lead takes shards for a bounded time, and the
next small shard then leads. So no invocation comes near the platform's time limit, and nothing runs while no invocation does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from ...core.clock import Clock
from ...core.errors import StorageError
from ..timings import LEAD_TAKES_FOR

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
