"""What protocol generators yield, and the driver that carries it out.

`Write` is resumed with `Applied`, `Refused` or `Lost`. `Lost` means that nobody knows: the write may have been applied, or may be applied
later. `Unavailable` and `Rejected` (certainly not applied; `OutcomeUnknown` once an answer was lost) are thrown into the generator, which
lets them pass: every protocol is safe to abandon between any two effects.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from ..core.clock import Clock, Millis
from ..core.errors import OutcomeUnknown, StorageError, Unavailable
from ..storage.ports import Applied, Op, Queues, Refused, Row, Tables, Where

log = logging.getLogger(__name__)

MAX_LOST = 8
"""Lost answers in a row after which a protocol gives up; its caller reports, a sweep repairs."""


class Lost:
    """The answer to a write was lost."""

    def __repr__(self) -> str:
        return "LOST"


LOST: Final = Lost()


class Get(NamedTuple):
    """Read one row: resumed with `Row | None`."""

    table: str
    pk: str
    rk: str


class Load(NamedTuple):
    """Read all rows with `first` <= key < `end`: resumed with `list[Row]`."""

    table: str
    pk: str
    first: str
    end: str


class Write(NamedTuple):
    """One transaction: resumed with `Applied | Refused | Lost`."""

    table: str
    pk: str
    ops: tuple[Op, ...]


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


type Effect = Get | Load | Write | Send | Sending | Receiving
type Steps[T] = Generator[Effect, Any, T]
type Work[T] = Generator[Effect | Wait, Any, T]
"""The same, which also wait: the loops of a keeper."""
type Written = Applied | Refused | Lost


class Storage(Protocol):
    """What the driver needs."""

    @property
    def tables(self) -> Tables: ...
    @property
    def queues(self) -> Queues: ...


@dataclass(slots=True)
class Driver:
    """Carries out effects on real storage. One per process; holds no state between calls."""

    tables: Tables
    queues: Queues
    clock: Clock

    async def drive[T](self, steps: Steps[T]) -> T:
        """Run `steps` to the end and return its result.

        Raises `Unavailable` when storage stayed out of reach, `OutcomeUnknown` when something was, or may have been, written before.
        """
        lost, doubt = 0, False
        try:
            effect = next(steps)
            while True:
                try:
                    answer: Any
                    if isinstance(effect, Write):
                        try:
                            answer = await self.tables.write(effect.table, effect.pk, effect.ops)
                            lost, doubt = 0, doubt or isinstance(answer, Applied)
                        except OutcomeUnknown as unknown:
                            lost, doubt = lost + 1, True
                            if lost >= MAX_LOST:
                                raise Unavailable(f"answers of table storage keep getting lost: {unknown}") from unknown
                            await self.clock.sleep(0.05 * 2**lost)
                            answer = LOST
                    elif isinstance(effect, Get):
                        answer = await self.tables.get(effect.table, effect.pk, effect.rk)
                    elif isinstance(effect, Load):
                        answer = await load(self.tables, effect.table, effect.pk, effect.first, effect.end)
                    elif isinstance(effect, Send):
                        answer = await self._send(effect)
                    else:
                        raise TypeError(f"not an effect of shards: {effect!r}")
                except StorageError as error:
                    # Something is changed, or may be: nobody may be told that nothing was.
                    unsure = doubt and isinstance(error, Unavailable)
                    effect = steps.throw(OutcomeUnknown(f"half-way: {error}") if unsure else error)
                else:
                    effect = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _send(self, effect: Send) -> bool:
        try:
            await self.queues.send(effect.queue, effect.text, visible_in=max(0.0, (effect.at - self.clock.now()) / 1000))
        except StorageError as error:
            # A message only speeds things up: the index row is still there, and the sweep finds it.
            log.warning("A shard's message could not be sent; the sweep will: %s", error, extra={"action": "message_unsent"})
            return False
        return True


async def load(tables: Tables, table: str, pk: str, first: str, end: str, select: Sequence[str] | None = None) -> list[Row]:
    """All rows of the range, page after page."""
    page = await tables.query(table, pk, first=first, end=end, select=select)
    rows = page.rows
    while page.next is not None:
        page = await tables.query(table, pk, first=first, end=end, select=select, cursor=page.next)
        rows.extend(page.rows)
    return rows


async def is_there(tables: Tables, table: str, partition: str, where: Sequence[Where] = ()) -> bool:
    """Whether the partition has such a row."""
    cursor: str | None = None
    while True:
        page = await tables.query(table, partition, where=where, limit=1, cursor=cursor)
        cursor = page.next
        if page.rows or cursor is None:
            return bool(page.rows)
