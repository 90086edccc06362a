"""Storage accounts with limits, as an instance sees them: requests take time and CPU, and too many of them are refused with 503.

A refusal is answered as by the adapter: reads and messages are tried again after a random pause, a write raises `OutcomeUnknown`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from ...core import backoff
from ...core.clock import Clock
from ...core.errors import OutcomeUnknown, Unavailable
from ...storage.azure.transport import TransportPolicy
from ...storage.blocking import run_through
from ...storage.memory import MemoryQueues, MemoryTables
from ...storage.ports import Applied, Message, RowQuery, TableRequest, WrappedTables, Write, WriteRefused
from ...storage.server_time import ServerTimeEstimator
from .cpu import Charges, VirtualProcessor

POLICY: Final = TransportPolicy()


@dataclass(frozen=True, slots=True)
class StorageLimits:
    """The limits that Azure publishes for table and queue storage: entities and messages a second, and the seconds that a request takes."""

    account: float = 20_000
    partition: float = 2_000
    queue: float = 2_000
    least: float = 0.005
    most: float = 0.020


class RateBucket:
    """A limit per second. What was not used in the last second may be used at once."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: float) -> None:
        self._rate = self._left = rate
        self._at = 0.0

    def has(self, amount: float, now: float) -> bool:
        """Return True if there is room for `amount`."""
        self._left = min(self._rate, self._left + (now - self._at) * self._rate)
        self._at = now
        return self._left >= amount

    def take(self, amount: float) -> None:
        """Use `amount`, for which `has` has returned True."""
        self._left -= amount


class LimitedAccount:
    """One storage account: its rows, and the load of each second. Every row that is read or written counts as one entity."""

    def __init__(self, clock: Clock, limits: StorageLimits, processor: VirtualProcessor | None = None, row: float = 0.0) -> None:
        """processor, row: of an emulator, its process and the CPU that a row costs it."""
        self.processor, self.row = processor, row
        self.tables, self.queues, self.limits = MemoryTables(clock), MemoryQueues(clock), limits
        self.entities: Counter[int] = Counter()
        """Entities in each second of virtual time."""
        self.refused: Counter[str] = Counter()
        """Requests that were refused, by the limit."""
        self._whole = RateBucket(limits.account)
        self._parts: dict[tuple[str, str], RateBucket] = {}

    def admits(self, kind: str, name: str, amount: int) -> bool:
        """Return True if a request for `amount` rows of a partition, or messages of a queue, is served. kind: the table, or `queue`."""
        now = asyncio.get_running_loop().time()
        part = self._parts.get((kind, name))
        if part is None:
            part = self._parts[kind, name] = RateBucket(self.limits.queue if kind == "queue" else self.limits.partition)
        if not part.has(amount, now):
            self.refused["queue" if kind == "queue" else "partition"] += 1
            return False
        if not self._whole.has(amount, now):
            self.refused["account"] += 1
            return False
        part.take(amount)
        self._whole.take(amount)
        self.entities[int(now)] += amount
        return True


class AccountConnection:
    """The connection of an instance to an account."""

    def __init__(self, account: LimitedAccount, processor: VirtualProcessor, charges: Charges, clock: Clock, chance: Random) -> None:
        self.account, self._processor, self._charges, self._clock, self._chance = account, processor, charges, clock, chance

    async def once[T](self, kind: str, name: str, ask: Callable[[], T], rows: int | None = None) -> T | None:
        """Send a request. Return the answer, or None if the account refuses it. rows: those that it writes; None: those of the page."""
        charges, limits = self._charges, self.account.limits
        written = charges.row * (rows or 0)
        # An emulator that shares the machine answers one request after the other, and most of what its rows cost an instance comes with
        # the answers.
        late = written if self.account.processor is not None else 0.0
        await self._processor.use(charges.request + written - late)
        way = self._chance.uniform(limits.least, limits.most) / 2
        await asyncio.sleep(way)
        answer: T | None = None
        reads = rows is None
        if rows is not None:
            if self.account.admits(kind, name, rows):
                answer = ask()
        else:
            # A read changes nothing, so its page gives the number of rows.
            answer = ask()
            rows = len(answer.rows)  # type: ignore[attr-defined]
            if not self.account.admits(kind, name, max(1, rows)):
                answer = None
        if answer is not None and self.account.processor is not None:
            await self.account.processor.use(self.account.row * rows)
        await asyncio.sleep(way)
        if reads and answer is not None:
            late = charges.row * rows
        await self._processor.use(late)
        return answer

    async def repeated[T](self, kind: str, name: str, ask: Callable[[], T], rows: int | None = None) -> T:
        """Send a request that may be repeated. Raises `Unavailable` after as many tries as the adapter makes."""
        for attempt in range(POLICY.attempts):
            if (answer := await self.once(kind, name, ask, rows)) is not None:
                return answer
            if attempt + 1 < POLICY.attempts:
                await self._clock.sleep(self._chance.random() * backoff.exponential(POLICY.base, attempt, POLICY.cap))
        raise Unavailable("503")


class LimitedTables(WrappedTables):
    """`ports.Tables` of one account for one instance."""

    def __init__(self, connection: AccountConnection, clock: Clock) -> None:
        super().__init__(connection.account.tables)
        self._connection = connection
        self.server_time = ServerTimeEstimator(clock)

    async def perform(self, request: TableRequest) -> Any:
        if isinstance(request, Write):
            return await self._write(request)
        table, pk = request.table, request.pk
        if isinstance(request, RowQuery):
            return await self._connection.repeated(table, pk, lambda: run_through(self.inner.perform(request)))
        found = await self._connection.repeated(table, pk, lambda: (run_through(self.inner.perform(request)),), 1)
        return found[0]

    async def _write(self, request: Write) -> Applied | WriteRefused:
        sent = self.server_time.elapsed()
        answer = await self._connection.once(request.table, request.pk, lambda: run_through(self.inner.perform(request)), len(request.ops))
        if answer is None:
            raise OutcomeUnknown("503")
        if isinstance(answer, Applied):
            self.server_time.note(sent, self.server_time.elapsed(), answer.etags)
        return answer

    async def close(self) -> None:
        """Do nothing."""


class LimitedQueues:
    """`ports.Queues` of the home account for one instance, and for the host that polls beside it."""

    def __init__(self, connection: AccountConnection) -> None:
        self._connection, self._inner = connection, connection.account.queues

    async def send(self, queue: str, text: str, *, visible_in: float = 0.0) -> None:
        await self._connection.repeated("queue", queue, lambda: (run_through(self._inner.send(queue, text, visible_in=visible_in)),), 1)

    async def receive(self, queue: str, *, limit: int = 32, lease: float = 600.0) -> list[Message]:
        # Messages are taken by the answer: they are not asked for again, and an empty queue costs nothing worth counting.
        limits = self._connection.account.limits
        await asyncio.sleep(limits.most)
        return await self._inner.receive(queue, limit=limit, lease=lease)

    async def renew(self, queue: str, message: Message, *, lease: float) -> bool:
        done = await self._connection.repeated("queue", queue, lambda: (run_through(self._inner.renew(queue, message, lease=lease)),), 1)
        return done[0]

    async def delete(self, queue: str, message: Message) -> bool:
        done = await self._connection.repeated("queue", queue, lambda: (run_through(self._inner.delete(queue, message)),), 1)
        return done[0]

    async def length(self, queue: str) -> int:
        return await self._inner.length(queue)

    async def ensure(self, queues: Sequence[str]) -> None:
        await self._inner.ensure(queues)

    async def close(self) -> None:
        """Do nothing."""
