"""The effects that protocol generators yield, and a typed helper for each.

A protocol calls the helpers, so that the type checker knows each answer: `row = yield from get(TABLE, pk, rk)`. A runner carries the
effects out: `AsyncRunner` on an event loop, `ThreadRunner` on a thread; the model checker and the simulator have runners of their own.

`Get` and `Write` are requests of the Tables port. `Write` is resumed with `Applied`, `WriteRefused` or `Lost`. `Lost` means that the
outcome is unknown: the write may have been applied, or may be applied later. `Unavailable` and `Rejected` (certainly not applied;
`OutcomeUnknown` once an answer was lost) are thrown into the generator, which lets them pass: every protocol is safe to abandon between
any two effects.

Reads of a partition that may take several pages. Each raises `StorageError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import Any, Final, NamedTuple

from ..core.clock import Millis
from ..storage.ports import MAX_PAGE, Applied, Op, Page, Row, RowQuery, Tables, WriteRefused
from ..storage.ports import Get as Get
from ..storage.ports import Write as Write
from .validity import ReceivedAt, SentAt

MAX_LOST = 8
"""Lost answers in a row after which a protocol gives up; its caller reports, a sweep repairs."""


class Lost:
    """The answer to a write was lost."""

    def __repr__(self) -> str:
        return "LOST"


LOST: Final = Lost()


class Load(NamedTuple):
    """Read all rows with `first` <= key < `end`: resumed with `list[Row]`."""

    table: str
    pk: str
    first: str
    end: str


class LoadFirst(NamedTuple):
    """Read the first rows with `first` <= key < `end`, at most `most`: resumed with `list[Row]`."""

    table: str
    pk: str
    first: str
    end: str
    most: int


class Send(NamedTuple):
    """Send a message, visible from `at` on: resumed with True, or False when the queue did not take it."""

    queue: str
    text: str
    at: Millis


class Sending(NamedTuple):
    """Resumed with `SentAt`: yielded right before a write."""


class Receiving(NamedTuple):
    """Resumed with `ReceivedAt`: yielded right after a read."""


class Wait(NamedTuple):
    """Resumed when the steady clock has come to `until` (seconds, finite), or earlier, when something has come in."""

    until: float


SENDING: Final = Sending()
RECEIVING: Final = Receiving()

type Effect = Get | Load | LoadFirst | Write | Send | Sending | Receiving
type Steps[T] = Generator[Effect, Any, T]
type Work[T] = Generator[Effect | Wait, Any, T]
"""The same, which also wait: the loops of a keeper."""
type Written = Applied | WriteRefused | Lost

# The helpers keep no local variable while they are suspended: the model checker tells states apart by the locals of all frames.


def get(table: str, pk: str, rk: str) -> Steps[Row | None]:
    """Read one row; None when it is missing."""
    row: Row | None = yield Get(table, pk, rk)
    return row


def load(table: str, pk: str, first: str, end: str) -> Steps[list[Row]]:
    """Read all rows with `first` <= key < `end`."""
    rows: list[Row] = yield Load(table, pk, first, end)
    return rows


def load_first(table: str, pk: str, first: str, end: str, most: int) -> Steps[list[Row]]:
    """Read the first rows with `first` <= key < `end`, at most `most`."""
    rows: list[Row] = yield LoadFirst(table, pk, first, end, most)
    return rows


def write(table: str, pk: str, *ops: Op) -> Steps[Written]:
    """Write all operations in one transaction of the partition `pk`."""
    answer: Written = yield Write(table, pk, ops)
    return answer


def send(queue: str, text: str, at: Millis) -> Steps[bool]:
    """Send a message that is visible from wall time `at` on; False when the queue did not take it."""
    taken: bool = yield Send(queue, text, at)
    return taken


def sending() -> Steps[SentAt]:
    """Return the moment before the write that follows."""
    moment: SentAt = yield SENDING
    return moment


def receiving() -> Steps[ReceivedAt]:
    """Return the moment after the read that came before."""
    moment: ReceivedAt = yield RECEIVING
    return moment


def wait(until: float) -> Work[None]:
    """Wait until the steady clock shows `until` (seconds, finite), or until something has come in."""
    yield Wait(until)


async def each_page(tables: Tables, query: RowQuery) -> AsyncIterator[Page]:
    """Yield all pages of a query; each is asked for when the one before it has been used.

    Read all pages: use `first_rows`, or `Tables.query` itself, to stop early.
    """
    while True:
        page = await tables.query(query)
        yield page
        if page.next is None:
            return
        query = query._replace(cursor=page.next)


async def each_row(tables: Tables, query: RowQuery) -> AsyncIterator[Row]:
    """Yield all rows of a query, page after page."""
    async for page in each_page(tables, query):
        for row in page.rows:
            yield row


async def load_rows(tables: Tables, query: RowQuery) -> list[Row]:
    """Return all rows of a query."""
    return [row async for page in each_page(tables, query) for row in page.rows]


async def first_rows(tables: Tables, query: RowQuery, most: int) -> tuple[list[Row], bool]:
    """Return the first rows, at most `most`, and True if there may be more. A page may be short, even empty, without being the last."""
    found: list[Row] = []
    while True:
        page = await tables.query(query._replace(limit=min(MAX_PAGE, most - len(found))))
        found += page.rows
        if page.next is None or len(found) >= most:
            return found, page.next is not None
        query = query._replace(cursor=page.next)


async def has_rows(tables: Tables, query: RowQuery) -> bool:
    """Return True if the query has a row."""
    found, _ = await first_rows(tables, query, 1)
    return bool(found)
