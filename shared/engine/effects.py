"""The effects that protocol generators yield, and a typed helper for each.

A protocol calls the helpers, so that the type checker knows each answer: `row = yield from get(TABLE, pk, rk)`. A runner carries the
effects out: `AsyncRunner` on an event loop, `ThreadRunner` on a thread; the model checker and the simulator have runners of their own.

`Get` and `Write` are requests of the Tables port. `Write` is resumed with `Applied`, `WriteRefused` or `Lost`. `Lost` means that the
outcome is unknown: the write may have been applied, or may be applied later. `Unavailable` and `Rejected` (certainly not applied;
`OutcomeUnknown` once an answer was lost) are thrown into the generator, which lets them pass: every protocol is safe to abandon between
any two effects.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, NamedTuple

from ..core.clock import Millis
from ..storage.ports import Applied, Op, Row, WriteRefused
from ..storage.ports import Get as Get
from ..storage.ports import Write as Write
from .moments import ReceivedAt, SentAt

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
