"""Ports of the storage: the operations on tables and queues.

One adapter speaks to Azure (`azure`), and an in-memory twin (`memory`) stands in for it. The suite in tests/conformance holds
both to the same behaviour.

A write answers a value: `Applied`, or `WriteRefused` with the position of the first operation that did not hold. It raises
`OutcomeUnknown` when the answer was lost (the write may be applied, now or later), `Unavailable` when it certainly was not
applied and the bounded retries are used up, `Rejected` when it can never be applied. Adapters retry reads freely, and writes
only where nothing can have been applied (429, connection refused): an ambiguous write is never sent again behind the back of
the protocol that issued it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, overload

from ..core.clock import Millis

type Value = str | int | float | bool
"""The types of a property. Integers are stored as Edm.Int64 whatever their size; times are stored as integer milliseconds."""

type Props = dict[str, Value]

ANY = "*"
"""The ETag that matches every existing row."""

MAX_EGT_ROWS = 100
MAX_EGT_BYTES = 4 * 1024 * 1024
MAX_ENTITY_BYTES = 1024 * 1024
MAX_STRING_UNITS = 32 * 1024
"""UTF-16 units in one string property (64 KiB)."""
MAX_PAGE = 1000
MAX_MESSAGE_BYTES = 48 * 1024
"""Raw bytes of one queue message; 64 KiB once base64-encoded."""


@dataclass(slots=True)
class Row:
    """One stored entity as read. `timestamp` is the service's last-write time; `read_at` the answer's `Date` (1 s steps)."""

    pk: str
    rk: str
    props: Props
    etag: str
    timestamp: Millis
    read_at: Millis


class Insert(NamedTuple):
    """Create; refused with `exists`."""

    rk: str
    props: Props


class Merge(NamedTuple):
    """Set the given properties, keep the others; refused with `missing` or `changed`."""

    rk: str
    props: Props
    etag: str


class Replace(NamedTuple):
    """Set exactly the given properties; refused with `missing` or `changed`."""

    rk: str
    props: Props
    etag: str


class Upsert(NamedTuple):
    """Create or replace, whatever is there."""

    rk: str
    props: Props


class Delete(NamedTuple):
    """Remove; refused with `missing` or `changed`."""

    rk: str
    etag: str


type Op = Insert | Merge | Replace | Upsert | Delete

type RefusalReason = Literal["exists", "missing", "changed"]


class Applied(NamedTuple):
    """All operations were applied, at once. `etags` by position ('' for a delete)."""

    etags: list[str]


class WriteRefused(NamedTuple):
    """Nothing was applied: the operation at position `at` is the first whose condition did not hold."""

    at: int
    reason: RefusalReason


class Page(NamedTuple):
    """Rows in key order, the cursor of the next page or None, and the answer's `Date`."""

    rows: list[Row]
    next: str | None
    read_at: Millis


class Where(NamedTuple):
    """A condition on a property that the store evaluates. Rows without the property do not match.

    Compare a property with the type it is stored as: what other types give differs between stores. Strings compare by UTF-16
    unit.
    """

    prop: str
    op: Literal["eq", "ne", "lt", "le", "gt", "ge"]
    value: Value


class Get(NamedTuple):
    """Read one row: answered with `Row | None`."""

    table: str
    pk: str
    rk: str


class RowQuery(NamedTuple):
    """Read one page of a partition, `first` <= row key < `end`: answered with `Page`. A page may be short, even empty, with `next` set.

    where: conditions that rows meet. select: the properties to read; None for all. cursor: `next` of the page before.
    """

    table: str
    pk: str
    first: str = ""
    end: str | None = None
    where: Sequence[Where] = ()
    select: Sequence[str] | None = None
    limit: int = MAX_PAGE
    cursor: str | None = None


class Write(NamedTuple):
    """Apply all of `ops` (1 to 100, distinct row keys) in one transaction, or none: answered with `Applied | WriteRefused`."""

    table: str
    pk: str
    ops: Sequence[Op]


type TableRequest = Get | RowQuery | Write


class Tables(ABC):
    """Rows in named tables; every request works within one partition.

    A class that changes, counts or delays requests implements `perform` alone: see `WrappedTables`.
    """

    @overload
    def perform(self, request: Get) -> Coroutine[Any, Any, Row | None]: ...
    @overload
    def perform(self, request: RowQuery) -> Coroutine[Any, Any, Page]: ...
    @overload
    def perform(self, request: Write) -> Coroutine[Any, Any, Applied | WriteRefused]: ...
    @abstractmethod
    def perform(self, request: Any) -> Coroutine[Any, Any, Any]:
        """Carry out one request and return its answer."""

    def get(self, table: str, pk: str, rk: str) -> Coroutine[Any, Any, Row | None]:
        """Return the row, or None."""
        return self.perform(Get(table, pk, rk))

    def query(self, query: RowQuery) -> Coroutine[Any, Any, Page]:
        """Return one page."""
        return self.perform(query)

    def write(self, table: str, pk: str, ops: Sequence[Op]) -> Coroutine[Any, Any, Applied | WriteRefused]:
        """Apply all of `ops`, or none."""
        return self.perform(Write(table, pk, ops))

    @abstractmethod
    async def ensure(self, tables: Sequence[str]) -> None:
        """Create the tables that are missing."""

    @abstractmethod
    async def close(self) -> None:
        """Release connections."""


class StoringTables(Tables):
    """Tables that carry requests out themselves: one method a request, called without a wrapper's cost."""

    def perform(self, request: TableRequest) -> Coroutine[Any, Any, Any]:
        """See `Tables`."""
        if isinstance(request, Write):
            return self.write(request.table, request.pk, request.ops)
        if isinstance(request, Get):
            return self.get(request.table, request.pk, request.rk)
        return self.query(request)

    @abstractmethod
    async def get(self, table: str, pk: str, rk: str) -> Row | None: ...

    @abstractmethod
    async def query(self, query: RowQuery) -> Page: ...

    @abstractmethod
    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused: ...


class WrappedTables(Tables):
    """Tables that hand each request on to others. A subclass acts before, after or instead."""

    def __init__(self, inner: Tables) -> None:
        self.inner = inner

    async def perform(self, request: TableRequest) -> Any:
        """See `Tables`."""
        return await self.inner.perform(request)

    async def ensure(self, tables: Sequence[str]) -> None:
        """See `Tables`."""
        await self.inner.ensure(tables)

    async def close(self) -> None:
        """See `Tables`."""
        await self.inner.close()


@dataclass(slots=True)
class Message:
    """A message taken from a queue; hidden from others until its lease ends."""

    id: str
    receipt: str
    text: str
    dequeue_count: int
    inserted: Millis
    meta: dict[str, str] = field(default_factory=dict)


class Queues(Protocol):
    """Named queues: at least once, in no order. Text travels base64-encoded."""

    async def send(self, queue: str, text: str, *, visible_in: float = 0.0) -> None:
        """Put a message that never expires, visible after `visible_in` seconds (0 to 7 days)."""

    async def receive(self, queue: str, *, limit: int = 32, lease: float = 600.0) -> list[Message]:
        """Take up to `limit` (32) visible messages, hidden for `lease` seconds."""

    async def renew(self, queue: str, message: Message, *, lease: float) -> bool:
        """Hide a message that was taken for `lease` seconds from now (0: not at all) and set its new receipt; False when its
        lease was lost."""

    async def delete(self, queue: str, message: Message) -> bool:
        """Remove a message that was taken; False when its lease was lost."""

    async def length(self, queue: str) -> int:
        """About how many messages there are, hidden ones included."""

    async def ensure(self, queues: Sequence[str]) -> None:
        """Create the queues that are missing."""

    async def close(self) -> None:
        """Release connections."""
