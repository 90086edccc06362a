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
from collections.abc import Callable, Iterator, Sequence
from operator import ge, gt, le, lt, ne
from typing import Any, NamedTuple, assert_never

from ..core.clock import Clock, Millis, to_datetime, to_text
from ..core.errors import Rejected
from . import limits
from .azure import wire
from .ports import (
    ANY,
    MAX_EGT_BYTES,
    MAX_PAGE,
    Applied,
    Delete,
    Insert,
    Merge,
    Message,
    Op,
    Page,
    Props,
    Replace,
    Row,
    Upsert,
    Where,
    WriteRefused,
)
from .server_time import ServerTimeEstimator, time_etag


class _Stored(NamedTuple):
    rk: str
    props: Props
    etag: str
    timestamp: Millis


class _Partition:
    """Rows by their ordered key; the sorted list of keys exists only once a query has asked for order."""

    __slots__ = ("keys", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, _Stored] = {}
        self.keys: list[str] | None = None

    def put(self, key: str, row: _Stored) -> None:
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


def _order(text: str) -> str:
    """Return a string that sorts by code point as the service sorts `text`, by UTF-16 unit."""
    if text.isascii() or max(text) < "\ud800":
        return text
    raw = text.encode("utf-16-be", "surrogatepass")
    return "".join(chr(raw[i] << 8 | raw[i + 1]) for i in range(0, len(raw), 2))


def _plain(value: Any) -> Any:
    """Return the plain value of a StrEnum or IntEnum: a store returns what is on the wire."""
    for kind in (bool, str, int, float):
        if isinstance(value, kind):
            return value if type(value) is kind else kind(value)
    return value


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}


def _holds(where: Sequence[Where]) -> Callable[[Props], bool]:
    """Return the conjunction of `where` as a function. A row without the property, or with one of another type, does not match."""
    tests = []
    for prop, op, value in where:
        limits.check_name(prop)
        limits.check_value(prop, value)
        bound = _plain(value)
        tests.append((prop, op, type(bound), _order(bound) if isinstance(bound, str) else bound))

    def holds(props: Props) -> bool:
        for prop, op, kind, bound in tests:
            have = props.get(prop)
            if type(have) is not kind:
                return False
            if isinstance(have, str):
                have = _order(have)
            if (have != bound) if op == "eq" else not _COMPARE[op](have, bound):
                return False
        return True

    return holds


class MemoryTables:
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
        found = partition.rows.get(_order(rk)) if partition else None
        if found is None:
            return None
        self.transactions["rows_read"] += 1
        return Row(pk, found.rk, dict(found.props), found.etag, found.timestamp, self._read_at())

    async def query(
        self,
        table: str,
        pk: str,
        *,
        first: str = "",
        end: str | None = None,
        where: Sequence[Where] = (),
        select: Sequence[str] | None = None,
        limit: int = MAX_PAGE,
        cursor: str | None = None,
    ) -> Page:
        """One page of the partition, see `ports.Tables.query`. Raises `Rejected`."""
        limits.check_limit(limit)
        limits.check_key("PartitionKey", pk)
        holds = _holds(where) if where else None
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
        at = bisect_left(keys, _order(first)) if first else 0
        stop = len(keys) if end is None else bisect_left(keys, _order(end))
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
        """Apply all of `ops` or none, see `ports.Tables.write`. Raises `Rejected`."""
        plain, bound = limits.check_ops(pk, ops)
        if bound > MAX_EGT_BYTES:
            limits.check_payload(len(wire.batch_body("https://account.table.core.windows.net", table, pk, ops)))
        self.transactions["write"] += 1
        partitions = self._table(table)
        partition = partitions.get(pk) or _Partition()
        sent = self.server_time.elapsed() if self.server_time is not None else 0.0
        now = self._clock.now()
        text = to_text(now)
        # Decide everything first: row keys are distinct, so no operation sees another's effect.
        planned: list[tuple[str, _Stored | None]] = []
        for index, op in enumerate(ops):
            key = _order(op.rk)
            old = partition.rows.get(key)
            props: Props
            match op:
                case Insert():
                    if old is not None:
                        return WriteRefused(index, "exists")
                    props = dict(op.props)
                case Upsert():
                    props = dict(op.props)
                case Merge() | Replace() | Delete():
                    if old is None:
                        return WriteRefused(index, "missing")
                    if op.etag != ANY and op.etag != old.etag:
                        return WriteRefused(index, "changed")
                    if isinstance(op, Delete):
                        planned.append((key, None))
                        continue
                    if isinstance(op, Merge):
                        props = {**old.props, **op.props}
                        limits.check_entity(pk, op.rk, props)
                    else:
                        props = dict(op.props)
                case _:
                    assert_never(op)
            if not plain:
                props = {name: _plain(value) for name, value in props.items()}
            planned.append((key, _Stored(op.rk, props, self._new_etag(text, op.rk), now)))
        for key, row in planned:
            if row is None:
                partition.drop(key)
            else:
                partition.put(key, row)
        if partition.rows:
            partitions[pk] = partition
        else:
            partitions.pop(pk, None)
        self.transactions["rows_written"] += len(ops)
        etags = [row.etag if row is not None else "" for _, row in planned]
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
            for at in range(bisect_left(keys, _order(first)), len(keys)):
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
            meta = {
                "InsertionTime": _http_date(sent.inserted),
                "ExpirationTime": "Fri, 31 Dec 9999 23:59:59 GMT",
                "TimeNextVisible": _http_date(until),
            }
            taken.append(Message(sent.id, sent.receipt, sent.text, sent.dequeue_count, sent.inserted - sent.inserted % 1000, meta))
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


def _http_date(millis: Millis) -> str:
    return to_datetime(millis).strftime("%a, %d %b %Y %H:%M:%S GMT")
