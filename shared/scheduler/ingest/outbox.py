"""Sends events to the ingest queue. Events that arrive together share a message, so the queue takes far fewer messages than events."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ...core.clock import Clock
from ...core.errors import OutcomeUnknown, Rejected, StorageError
from ...storage.names import QUEUE_INGEST
from ...storage.ports import Queues
from ..timings import GROUP_WAIT
from .messages import MESSAGE_ROOM, QueuedEvent, encode_event, group_encoded, sign_message
from .open_shards import DeadlineExceeded, Sink

log = logging.getLogger(__name__)

IN_FLIGHT = 8
"""Messages that are being sent at once."""


class _Pending(NamedTuple):
    entry: bytes
    sink: Sink
    number: int
    until: float


class Outbox:
    """The sending end of the ingest queue. One per process; belongs to one event loop."""

    def __init__(self, queues: Queues, clock: Clock, key: bytes) -> None:
        self.queues, self._clock, self.key = queues, clock, key
        """Where the messages go, and the key that signs them."""
        self._pending: deque[_Pending] = deque()
        self._bytes = 0
        self._filling: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(IN_FLIGHT)

    async def put(self, entries: Sequence[bytes], until: float = math.inf) -> list[StorageError | None]:
        """Send encoded events. For each, return None once it is in the queue, or the error that leaves this uncertain.

        until: time of the monotonic clock at which no further event is sent: those are `DeadlineExceeded`; see `ended_in_time`.
        """
        if not entries:
            return []
        sink = Sink(len(entries))
        for number, entry in enumerate(entries):
            self._pending.append(_Pending(entry, sink, number, until))
            self._bytes += len(entry) + 1
        if self._filling is None:
            self._filling = asyncio.create_task(self._fill())
        return [result if isinstance(result, StorageError) else None for result in await sink.wait(self._clock, until)]

    async def put_back(self, entries: Sequence[QueuedEvent], *, admitted: bool, tries: int, delay: float) -> None:
        """Send events so that they return in `delay` seconds.

        Raises `StorageError`; then the message that they came in must return itself.
        """
        for group in group_encoded(encode_event(entry.tenant, entry.event) for entry in entries):
            await self.queues.send(QUEUE_INGEST, sign_message(self.key, group, admitted=admitted, tries=tries), visible_in=delay)

    async def _fill(self) -> None:
        """Send messages until nothing is pending."""
        try:
            while self._pending:
                if self._bytes < MESSAGE_ROOM:
                    await self._clock.sleep(GROUP_WAIT)
                await self._slots.acquire()
                task = asyncio.create_task(self._send(self._group()))
                self._sending.add(task)
                task.add_done_callback(self._sent)
        finally:
            self._filling = None

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._slots.release()

    def _group(self) -> list[_Pending]:
        group: list[_Pending] = []
        size, now = 0, self._clock.monotonic()
        while self._pending and (not group or size + len(self._pending[0].entry) < MESSAGE_ROOM):
            found = self._pending.popleft()
            if found.until <= now:
                self._bytes -= len(found.entry) + 1
                found.sink.settle(found.number, DeadlineExceeded())
            else:
                group.append(found)
                size += len(found.entry) + 1
        self._bytes -= size
        return group

    async def _send(self, group: list[_Pending]) -> None:
        if not group:
            return
        failure: StorageError | None = None
        try:
            await self.queues.send(QUEUE_INGEST, sign_message(self.key, [each.entry for each in group]))
        except Rejected as error:
            failure = error
        except StorageError as error:
            # A send is repeated when its answer is lost, so even a refusal may follow a message that was stored.
            failure = OutcomeUnknown(f"the ingest queue did not confirm: {error}")
        except Exception as error:
            failure = OutcomeUnknown(f"the outbox failed: {type(error).__name__}")
            log.exception("The outbox raised an unexpected error", extra={"action": "outbox_failed"})
        for each in group:
            each.sink.settle(each.number, failure)
