"""The lease that a process takes on a message of the ingest queue.

The Functions host hides a message that it takes for ten minutes, and no setting changes this. If the process is killed, the message would
stay hidden for the rest of that time. So the process hides the message again for `INGEST_LEASE` seconds before it looks into it, renews
this lease while it works, and deletes the message itself. The host's own delete then finds another receipt or no message, and ignores it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from ...core.clock import Clock
from ...core.errors import StorageError
from ...storage.ports import Message, Queues
from ..timings import INGEST_LEASE, INGEST_LEASE_EVERY, INGEST_LEASE_WAIT, LAST_TRY

log = logging.getLogger(__name__)


async def serve_leased(queues: Queues, clock: Clock, queue: str, message: Message, act: Callable[[Message], Awaitable[None]]) -> None:
    """Run `act` on a message that the host has taken, under a short lease, and delete the message when it succeeds.

    queues: the queues of the account that holds the message. Without a lease, `act` runs all the same: the host's lease holds, or another
    process has the message too, and `act` is safe to repeat. Raises what `act` raises; the message comes back when the lease ends.

    The last of the host's tries stays under the host's lease: only then can the host move a message that fails to the poison queue.
    """
    if not message.receipt or message.dequeue_count >= LAST_TRY:
        await act(message)
        return
    lease = _MessageLease(queues, clock, queue, replace(message))
    try:
        await lease.take()
        await act(message)
    except asyncio.CancelledError:
        await lease.end(deleting=False)
        raise
    except Exception:
        await lease.stop()
        raise
    await lease.end(deleting=True)


class _MessageLease:
    """A short lease on one message."""

    def __init__(self, queues: Queues, clock: Clock, queue: str, message: Message) -> None:
        """message: a copy of its own; its receipt changes with each renewal."""
        self._queues, self._clock, self._queue, self._message = queues, clock, queue, message
        self._requests = asyncio.Lock()
        self._own = self._lost = False
        self._renewing: asyncio.Task[None] | None = None

    async def take(self) -> None:
        """Begin to hold the lease. Waits until storage has answered, but at most `INGEST_LEASE_WAIT` seconds."""
        first = asyncio.create_task(self._renew())
        self._renewing = asyncio.create_task(self._keep(first))
        waiting = asyncio.create_task(self._clock.sleep(INGEST_LEASE_WAIT))
        try:
            await asyncio.wait({first, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    async def stop(self) -> None:
        """Renew no more. A request that is under way is waited for: otherwise the message's receipt would be unknown."""
        async with self._requests:
            if self._renewing is not None:
                self._renewing.cancel()

    async def end(self, *, deleting: bool) -> None:
        """Renew no more, and delete the message or make it visible at once."""
        await self.stop()
        if not self._own:
            return
        try:
            if deleting:
                await self._queues.delete(self._queue, self._message)
            else:
                await self._queues.renew(self._queue, self._message, lease=0.0)
        except StorageError as error:
            log.info("A message of %s comes back when its lease ends: %s", self._queue, error, extra={"action": "ingest_lease_failed"})

    async def _keep(self, first: asyncio.Task[None]) -> None:
        await first
        while not self._lost:
            await self._clock.sleep(INGEST_LEASE_EVERY)
            await self._renew()

    async def _renew(self) -> None:
        async with self._requests:
            try:
                self._own = await self._queues.renew(self._queue, self._message, lease=INGEST_LEASE)
            except StorageError as error:
                # The lease that is held goes on; the next renewal tries again.
                log.info("A message of %s could not be leased: %s", self._queue, error, extra={"action": "ingest_lease_failed"})
                return
        if not self._own:
            self._lost = True
            extra = {"action": "ingest_lease_lost", "id": self._message.id}
            log.debug("Another process has message %s of %s, or it is gone", self._message.id, self._queue, extra=extra)
