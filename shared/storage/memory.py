"""Tables and queues in memory: the twin of the Azure adapters, exact in what callers can observe.

It ships with the product: tests, the simulator and users' own tests run on it. One event loop may use it; no call awaits
inside, so each is atomic. The conformance suite holds it to the same behaviour as Azurite through the real adapter; limits
Azurite does not enforce follow the service's documentation.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence

from ..core.clock import Clock, Millis, to_text
from ..core.errors import Rejected
from . import limits
from .ports import Applied, Message, Op, Page, Row, RowQuery, StoringTables, WriteRefused
from .server_time import ServerTimeEstimator, time_etag
from .twins import StoredRow, check_transaction, holding, order, plan_write, taken_message


class _Partition:
    """Rows by their ordered key; the sorted list of keys exists only once a query has asked for order."""

    __slots__ = ("keys", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, StoredRow] = {}
        self.keys: list[str] | None = None

    def put(self, key: str, row: StoredRow) -> None:
        if self.keys is not None and key not in self.rows:
            if not self.keys or key > self.keys[-1]:
                self.keys.append(key)
            else:
                insort(self.keys, key)
        self.rows[key] = row

    def drop(self, key: str) -> None:
        del self.rows[key]
        if self.keys is not None:
            del self.keys[bisect_left(self.keys, key)]

    def ordered(self) -> list[str]:
        if self.keys is None:
            self.keys = sorted(self.rows)
        return self.keys


class MemoryTables(StoringTables):
    """Tables in memory; implements `ports.Tables`.

    `clock` gives timestamps, and `read_at` cut to whole seconds as the `Date` header is. With `page_rows` a query looks at no
    more rows than that, whether or not they match: pages come short, even empty, with a cursor, as the service may send
    them. `transactions` counts calls and rows under the names the Azure adapter uses. ETags contain the timestamp, as the service's do;
    `server_time` is given those of each write.
    """

    def __init__(self, clock: Clock, *, page_rows: int | None = None, server_time: ServerTimeEstimator | None = None) -> None:
        self._clock, self.server_time = clock, server_time
        self._page_rows = page_rows
        self._tables: dict[str, dict[str, _Partition]] = {}
        self._versions = itertools.count(1)
        self.transactions: Counter[str] = Counter()

    def _table(self, table: str) -> dict[str, _Partition]:
        found = self._tables.get(table)
        if found is None:
            limits.check_table(table)
            raise Rejected(f"TableNotFound: {table}")
        return found

    def _read_at(self) -> Millis:
        now = self._clock.now()
        return now - now % 1000

    async def get(self, table: str, pk: str, rk: str) -> Row | None:
        """The row, or None. Raises `Rejected`."""
        limits.check_key("PartitionKey", pk)
        limits.check_key("RowKey", rk)
        self.transactions["get"] += 1
        partition = self._table(table).get(pk)
        found = partition.rows.get(order(rk)) if partition else None
        if found is None:
            return None
        self.transactions["rows_read"] += 1
        return Row(pk, found.rk, dict(found.props), found.etag, found.timestamp, self._read_at())

    async def query(self, query: RowQuery) -> Page:
        """One page of the partition, see `ports.RowQuery`. Raises `Rejected`."""
        table, pk, first, end, where, select, limit, cursor = query
        limits.check_limit(limit)
        limits.check_key("PartitionKey", pk)
        holds = holding(where) if where else None
        for name in select or ():
            limits.check_name(name)
        self.transactions["query"] += 1
        read_at = self._read_at()
        partition = self._table(table).get(pk)
        if cursor is not None and not cursor.startswith("@"):
            raise limits.bad_cursor()
        if partition is None:
            return Page([], None, read_at)
        keys = partition.ordered()
        at = bisect_left(keys, order(first)) if first else 0
        stop = len(keys) if end is None else bisect_left(keys, order(end))
        if cursor is not None:
            at = max(at, bisect_left(keys, cursor[1:]))
        looked = stop if self._page_rows is None else min(stop, at + self._page_rows)
        rows: list[Row] = []
        stored = partition.rows
        while at < looked and len(rows) < limit:
            found = stored[keys[at]]
            at += 1
            if holds is None or holds(found.props):
                props = found.props
                kept = dict(props) if select is None else {name: props[name] for name in select if name in props}
                rows.append(Row(pk, found.rk, kept, found.etag, found.timestamp, read_at))
        self.transactions["rows_read"] += len(rows)
        return Page(rows, "@" + keys[at] if at < stop else None, read_at)

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        """Apply all of `ops` or none, see `ports.Write`. Raises `Rejected`."""
        plain = check_transaction(table, pk, ops)
        self.transactions["write"] += 1
        partitions = self._table(table)
        partition = partitions.get(pk) or _Partition()
        sent = self.server_time.elapsed() if self.server_time is not None else 0.0
        now = self._clock.now()
        keys = [order(op.rk) for op in ops]
        text, stored = to_text(now), partition.rows
        planned = plan_write(pk, ops, [stored.get(key) for key in keys], lambda rk: self._new_etag(text, rk), now, plain=plain)
        if isinstance(planned, WriteRefused):
            return planned
        for key, row in zip(keys, planned, strict=True):
            if row is None:
                partition.drop(key)
            else:
                partition.put(key, row)
        if partition.rows:
            partitions[pk] = partition
        else:
            partitions.pop(pk, None)
        self.transactions["rows_written"] += len(ops)
        etags = [row.etag if row is not None else "" for row in planned]
        if self.server_time is not None:
            self.server_time.note(sent, self.server_time.elapsed(), etags)
        return Applied(etags)

    def _new_etag(self, at: str, rk: str) -> str:
        """Return the ETag of a row that is written now. at: the time of the write. rk: its row key."""
        return time_etag(at, next(self._versions))

    def peek(self, table: str, first: str = "") -> list[Iterator[Row]]:
        """The rows of each partition in order, from row key `first` on: for code that plays the host.

        Callers must not change them. The read is not counted.
        """
        read_at = self._read_at()

        def rows(pk: str, partition: _Partition) -> Iterator[Row]:
            keys = partition.ordered()
            for at in range(bisect_left(keys, order(first)), len(keys)):
                found = partition.rows[keys[at]]
                yield Row(pk, found.rk, found.props, found.etag, found.timestamp, read_at)

        return [rows(pk, partition) for pk, partition in self._table(table).items()]

    async def ensure(self, tables: Sequence[str]) -> None:
        """Create the tables that are missing. Raises `Rejected` for a bad name."""
        for table in tables:
            limits.check_table(table)
            self._tables.setdefault(table, {})

    async def close(self) -> None:
        """Nothing to release; the rows stay."""


class _Sent:
    """One message; `visible` is when it can be taken next, `receipt` changes with every lease."""

    __slots__ = ("dequeue_count", "id", "inserted", "receipt", "text", "visible")

    def __init__(self, id: str, text: str, inserted: Millis, visible: Millis) -> None:
        self.id, self.text, self.inserted, self.visible = id, text, inserted, visible
        self.receipt, self.dequeue_count = "", 0


class _Queue:
    __slots__ = ("due", "messages")

    def __init__(self) -> None:
        self.messages: dict[str, _Sent] = {}
        self.due: list[tuple[Millis, int, str]] = []


class MemoryQueues:
    """Queues in memory; implements `ports.Queues`. Messages come in the order in which they became visible; callers must not rely on it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[str, _Queue] = {}
        self._numbers = itertools.count(1)
        self.transactions: Counter[str] = Counter()

    def _queue(self, queue: str) -> _Queue:
        found = self._queues.get(queue)
        if found is None:
            limits.check_queue(queue)
            raise Rejected(f"QueueNotFound: {queue}")
        return found

    async def send(self, queue: str, text: str, *, visible_in: float = 0.0) -> None:
        """Put a message, see `ports.Queues.send`. Raises `Rejected` when it is over 48 KiB or the delay over 7 days."""
        limits.check_message(text, visible_in)
        self.transactions["send"] += 1
        found, number, now = self._queue(queue), next(self._numbers), self._clock.now()
        # The service knows whole seconds; rounding up keeps a message from coming early.
        sent = _Sent(f"m{number}", text, now, now + limits.whole_seconds(visible_in) * 1000)
        found.messages[sent.id] = sent
        heapq.heappush(found.due, (sent.visible, number, sent.id))

    async def receive(self, queue: str, *, limit: int = 32, lease: float = 600.0) -> list[Message]:
        """Take visible messages, see `ports.Queues.receive`. Raises `Rejected`."""
        limits.check_receive(limit, lease)
        self.transactions["receive"] += 1
        found, now = self._queue(queue), self._clock.now()
        until = now + limits.whole_seconds(lease) * 1000
        taken: list[Message] = []
        while found.due and found.due[0][0] <= now and len(taken) < limit:
            visible, _, key = heapq.heappop(found.due)
            sent = found.messages.get(key)
            if sent is None or sent.visible != visible:
                continue
            number = next(self._numbers)
            sent.visible, sent.receipt, sent.dequeue_count = until, f"r{number}", sent.dequeue_count + 1
            heapq.heappush(found.due, (until, number, key))
            taken.append(taken_message(sent.id, sent.receipt, sent.text, sent.dequeue_count, sent.inserted, until))
        self.transactions["messages_received"] += len(taken)
        return taken

    async def renew(self, queue: str, message: Message, *, lease: float) -> bool:
        """Hide a taken message again and set its receipt; False when it is gone or was taken by another since. Raises `Rejected`."""
        limits.check_visible_in(lease)
        self.transactions["renew"] += 1
        found = self._queue(queue)
        sent = found.messages.get(message.id)
        if sent is None or sent.receipt != message.receipt:
            return False
        number = next(self._numbers)
        sent.visible, sent.receipt = self._clock.now() + limits.whole_seconds(lease) * 1000, f"r{number}"
        heapq.heappush(found.due, (sent.visible, number, sent.id))
        message.receipt = sent.receipt
        return True

    async def delete(self, queue: str, message: Message) -> bool:
        """Remove a taken message; False when it is gone or was taken by another since. Raises `Rejected`."""
        self.transactions["delete"] += 1
        found = self._queue(queue)
        sent = found.messages.get(message.id)
        if sent is None or sent.receipt != message.receipt:
            return False
        del found.messages[message.id]
        return True

    def next_visible(self, queue: str) -> Millis | None:
        """Return the time at which the next message becomes visible, or None: for code that plays the host."""
        found = self._queue(queue)
        while found.due:
            visible, _, key = found.due[0]
            sent = found.messages.get(key)
            if sent is not None and sent.visible == visible:
                return visible
            heapq.heappop(found.due)
        return None

    async def length(self, queue: str) -> int:
        """Return the number of messages, hidden ones included. Raises `Rejected`."""
        self.transactions["length"] += 1
        return len(self._queue(queue).messages)

    async def ensure(self, queues: Sequence[str]) -> None:
        """Create the queues that are missing. Raises `Rejected` for a bad name."""
        for queue in queues:
            limits.check_queue(queue)
            self._queues.setdefault(queue, _Queue())

    async def close(self) -> None:
        """Nothing to release; the messages stay."""
