"""From a shard's message to its owner: what `fire_shard` and `fire_retry` do."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..channels.ports import Delivery, Sender, Target, Verdict
from ..clock import Clock
from ..errors import StorageError
from ..ids import Ids
from ..settings import Settings
from ..storage.ports import Row
from ..tenants.model import Retry
from ..tenants.store import TenantDirectory
from . import rules
from .keys import shard_tenant
from .ledger import entry_for
from .owner import Owner
from .protocol import owning
from .protocol.dispatch import ShardMessage, parse_message, send
from .protocol.effects import Driver
from .protocol.gate import read_gate
from .rows import policy_of

log = logging.getLogger(__name__)

_DEFAULT_RETRY = Retry()
POISON_DELAY = 60_000
"""Milliseconds before a shard whose message went to the poison queue is tried again."""


class Budget:
    """Bytes of loaded shards in flight. One shard always fits, however large."""

    def __init__(self, limit: int) -> None:
        self._limit, self._used = limit, 0
        self._room = asyncio.Condition()

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Wait for `size` bytes of room and hold them."""
        await self.acquire(size)
        try:
            yield
        finally:
            await self.release(size)

    async def acquire(self, size: int) -> None:
        async with self._room:
            await self._room.wait_for(lambda: self._used == 0 or self._used + size <= self._limit)
            self._used += size

    async def release(self, size: int) -> None:
        async with self._room:
            self._used -= size
            self._room.notify_all()


class Firing:
    """Takes shards and serves them. One per process; belongs to one event loop."""

    def __init__(
        self,
        driver: Driver,
        clock: Clock,
        ids: Ids,
        settings: Settings,
        directory: TenantDirectory,
        senders: Mapping[str, Sender],
        counters: Counter[str],
    ) -> None:
        self._driver, self._clock, self._ids, self._directory = driver, clock, ids, directory
        self._senders, self._counters = senders, counters
        self._budget = Budget(settings.fire_bytes)
        self._all = asyncio.Semaphore(settings.deliver_concurrency)
        self._per_target = settings.target_concurrency
        self._per_tenant = settings.tenant_concurrency
        self._bounds: dict[tuple[str, str], asyncio.Semaphore] = {}
        self.leaving = False
        """Set when the process is about to end: owners start nothing new and let go."""

    async def serve(self, text: str, *, retries: bool = False) -> None:
        """Serve the shard a message speaks of, as far as it can be served now."""
        message = parse_message(text)
        row = await self._driver.drive(read_gate(message.shard))
        async with self._budget.hold(int(row.props["bytes"]) if row else 0):
            await self._serve(message, row, retries)

    async def _serve(self, message: ShardMessage, seen: Row | None, retries: bool) -> None:
        owner = f"o{self._ids.name()}"
        taken_at = self._clock.monotonic()
        taken = await self._driver.drive(owning.take(message.shard, message.index, owner, seen))
        if taken == "gone":
            return
        if taken == "done":
            await self._driver.drive(owning.tidy(message.shard, message.index, lambda rows: entry_for(rows, self._clock.now())))
            return
        if isinstance(taken, owning.Busy):
            # Served by another owner that was alive a moment ago. Looked at again when it would be overdue; not dropped.
            self._counters["shards_busy"] += 1
            await self._driver.drive(send(message, self._clock.now() + taken.wait + 1_000, retries_only=retries))
            return
        self._counters["shards_taken"] += 1
        tenant = shard_tenant(message.shard)
        policy = await self._policies(tenant)
        owner_at_work = Owner(
            taken,
            driver=self._driver,
            clock=self._clock,
            ids=self._ids,
            policy=policy,
            target=lambda channel: self._directory.target(tenant, channel),
            send=self._send,
            slot=self._slot,
            taken_at=taken_at,
            leaving=lambda: self.leaving,
        )
        await owner_at_work.run()
        if owner_at_work.lost_shard:
            self._counters["shards_lost"] += 1

    async def _policies(self, tenant: str) -> Callable[[Mapping[str, Any]], rules.RetryPolicy]:
        settings = await self._directory.tenant(tenant)
        retry = settings.retry if settings is not None else _DEFAULT_RETRY
        return lambda props: policy_of(retry, props.get("retry"))

    @asynccontextmanager
    async def _slot(self, target: Target) -> AsyncIterator[None]:
        """Bounded concurrency: first the target's own bound, so that a slow one does not hold the process's slots while it queues."""
        channel = self._bound((target.tenant, target.name), self._per_target)
        tenant = self._bound((target.tenant, ""), self._per_tenant)
        async with channel, tenant, self._all:
            yield

    def _bound(self, key: tuple[str, str], limit: int) -> asyncio.Semaphore:
        """The semaphore of a channel, or of a tenant (name '')."""
        found = self._bounds.get(key)
        if found is None:
            found = self._bounds[key] = asyncio.Semaphore(limit)
        return found

    async def _send(self, target: Target, delivery: Delivery) -> Verdict:
        verdict = await self._senders[target.spec.type].send(target, delivery)
        self._counters[f"deliveries_{verdict.outcome}"] += 1
        return verdict

    async def poisoned(self, text: str, *, retries: bool) -> None:
        """A shard's message failed five times: say so, and have the shard tried again after a while. The index still holds it."""
        try:
            message = parse_message(text)
        except ValueError:
            log.error("A message that names no shard was dropped", extra={"action": "poison_dropped", "text": text[:200]})
            return
        log.error("Serving shard %s failed again and again", message.shard, extra={"action": "poison_redispatched", "shard": message.shard})
        self._counters["poisoned"] += 1
        if not await self._driver.drive(send(message, self._clock.now() + POISON_DELAY, retries_only=retries)):
            raise StorageError("the message could not be sent again")

