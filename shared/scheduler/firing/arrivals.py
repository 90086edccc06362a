"""The events that arrive at a shard of express delivery while its owner serves it."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import NamedTuple

from ...core.clock import Millis
from ...core.errors import OutcomeUnknown, StorageError
from ...storage.ports import Row
from ..keys import event_row, minute_start, server_id, shard_tenant
from ..protocol.ingest import GROUP_BYTES, Entry
from ..rows import EventToStore
from ..timings import EXPRESS_LINGER, EXPRESS_STAY


class Arrival(NamedTuple):
    """An event that waits to be stored."""

    entry: Entry
    result: asyncio.Future[str | StorageError | None]


class ExpressLoad:
    """Totals over shards of express delivery: of all in a process, or of one tenant's."""

    __slots__ = ("bytes", "events", "shards")

    def __init__(self) -> None:
        self.shards = self.events = self.bytes = 0


class Arrivals:
    """The events that arrive at a shard while its owner serves it. They are stored with the owner's next transaction."""

    def __init__(self, shard: str, wake: Millis, most: int, loads: Sequence[ExpressLoad]) -> None:
        """most: number of events that the shard takes. loads: totals that include this shard until `leave`."""
        self.shard, self.wake, self._most, self._loads = shard, wake, most, loads
        self.tenant = shard_tenant(shard)
        self.closed = False
        self.named: EventToStore | None = None
        """The first event, if a client chose its id. Only the first transaction may store it."""
        self.bytes = 0
        self.gap = math.inf
        """Seconds between the tenant's last two events."""
        self._came = 0.0
        """Monotonic time of the last event."""
        self.storing: list[Arrival] = []
        """Events whose transaction is under way."""
        self.pending: deque[Arrival] = deque()
        self.running: Sized = ()
        """The owner's deliveries."""
        self.wake_owner: Callable[[], None] = lambda: None
        """Wakes the owner."""
        self._next = 0
        self._counted = 0
        """Events of this shard in the totals."""
        for load in loads:
            load.shards += 1

    @property
    def opened_here(self) -> bool:
        """True if this process has opened the shard (express delivery)."""
        return self._most > 0

    @property
    def in_flight(self) -> int:
        """Events that are not delivered yet."""
        return len(self.pending) + len(self.storing) + len(self.running)

    def recount(self) -> None:
        """Bring the totals up to date. Called after each change of `pending`, `storing` and `running`."""
        if self._loads:
            self._count(self.in_flight)

    def leave(self) -> None:
        """Take the shard out of the totals, because it is not served any more."""
        self._count(0)
        for load in self._loads:
            load.shards -= 1
            load.bytes -= self.bytes
        self._loads = ()

    def _count(self, events: int) -> None:
        more, self._counted = events - self._counted, events
        if more:
            for load in self._loads:
                load.events += more

    @property
    def lingers(self) -> bool:
        """True if the next event is so near that its transaction can settle the last one."""
        return self.gap < EXPRESS_LINGER and not self.closed

    def stays(self, now: float) -> bool:
        """Return True if the owner is to wait for the tenant's next event. now: monotonic time."""
        return self.gap < EXPRESS_STAY and not self.closed and now - self._came < EXPRESS_STAY

    def accepts(self, event: EventToStore, now: Millis) -> bool:
        """Return True if the event belongs into this shard and fits."""
        return not self.closed and self._next < self._most and minute_start(max(event.due, now)) == minute_start(self.wake)

    def join(self, event: EventToStore, now: float, gap: float) -> tuple[str, asyncio.Future[str | StorageError | None]]:
        """Add an event; return its row key and the future ETag: None if it is not stored and never will be.

        now: monotonic time. gap: seconds since the tenant's last event.
        """
        self._came, self.gap = now, gap
        row = event_row(self._next)
        self._next += 1
        self.bytes += event.size
        for load in self._loads:
            load.bytes += event.size
        if event.id is None:
            event.props["id"] = server_id(self.shard, row)
        result: asyncio.Future[str | StorageError | None] = asyncio.get_running_loop().create_future()
        self.pending.append(Arrival(Entry(row, event.props, event.size), result))
        self.recount()
        self.wake_owner()
        return row, result

    def leave_out_named(self) -> None:
        """Send the first event, whose id is in use, the usual way."""
        _tell(self.pending.popleft(), None)
        self.recount()

    def take(self, room: int) -> list[Entry]:
        """Choose the events of the next transaction, at most `room`, and return them."""
        size = 0
        while self.pending and len(self.storing) < room and (not self.storing or size + self.pending[0].entry.size <= GROUP_BYTES):
            self.storing.append(self.pending.popleft())
            size += self.storing[-1].entry.size
        return self.entries

    @property
    def entries(self) -> list[Entry]:
        """The events of the transaction under way."""
        return [each.entry for each in self.storing]

    def settle(self, rows: Mapping[str, Row]) -> None:
        """Tell the callers of the last transaction's events whether they are stored."""
        for each in self.storing:
            row = rows.get(each.entry.row)
            _tell(each, row.etag if row is not None else None)
        self.storing = []
        self.recount()

    def fail(self, error: BaseException) -> None:
        """Tell the callers that the last transaction failed. Events that are certainly not stored go the usual way."""
        unsure = not isinstance(error, StorageError) or isinstance(error, OutcomeUnknown)
        failure = error if isinstance(error, StorageError) else OutcomeUnknown(f"express delivery failed: {type(error).__name__}")
        for each in self.storing:
            _tell(each, failure if unsure else None)
        self.storing = []
        self.recount()

    def close(self) -> None:
        """Take no more events, and send those that wait the usual way."""
        self.closed = True
        while self.pending:
            _tell(self.pending.popleft(), None)
        self.recount()


def _tell(arrival: Arrival, result: str | StorageError | None) -> None:
    if not arrival.result.done():
        arrival.result.set_result(result)


def no_arrivals(shard: str) -> Arrivals:
    """Return closed arrivals without entries, for a shard that this process did not open."""
    none = Arrivals(shard, 0, 0, ())
    none.close()
    return none
