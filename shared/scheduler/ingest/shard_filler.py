"""Writes the events that wait for a shard: group by group, with its index row before them and its message after them.

All that arrive while a transaction is under way go into the next one (group commit). One transaction is in flight per shard.

While many shards are announced, those that wake at about the same time share one message. A message costs three requests to a queue, at
eleven times the price of a table's, and an execution. So while a process announces many shards a second, it holds each for `HELD_FOR` and
sends one message for those that become visible in the same period. A message is a hint: if the process ends meanwhile, the index asks for
the shards, as it does after a lost message.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

from ...core.clock import Clock, Millis
from ...core.errors import OutcomeUnknown, Rejected, StorageError, Unavailable
from ...engine import leaving
from ...engine.async_runner import AsyncRunner
from ...engine.effects import Steps
from ..keys import index_partition, place_of
from ..protocol.dispatch import MOST_TOGETHER, ShardMessage, announce_together
from ..protocol.ingest import GROUP_BYTES, Entry, ShardFiling, append, drop_counts, file_shard, file_shards, note_counts, note_sent
from ..protocol.mirroring import Way, append_copy, mirror
from ..rules import shared_wake, visible_at
from ..shard_services import ShardServices
from ..timings import ANNOUNCE_TOGETHER, DISPATCH_AHEAD, ENOUGH_EVENTS, GROUP_WAIT, HELD_FOR, MANY_EVENTS, NOTE_FROM, URGENT_FILL_TIME
from .open_shards import AccountRotation, DeadlineExceeded, FillingShard, PendingEntry

log = logging.getLogger(__name__)


MANY = 8
"""Announcements within the last second from which they are held: a lone shard's message is sent at once."""


class Announcer:
    """Sends the messages of a writer's shards. Belongs to one event loop."""

    def __init__(self, runner: AsyncRunner, clock: Clock) -> None:
        self._runner, self._clock = runner, clock
        self._recent: deque[Millis] = deque(maxlen=MANY)
        self._held: dict[Millis, list[tuple[Millis, ShardMessage]]] = {}
        """By the period in which they are to become visible."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving = False

    def leave(self) -> None:
        """Hold nothing any more, because the process is about to end."""
        self._leaving = True

    async def close(self) -> None:
        """Send what is held."""
        self.leave()
        await asyncio.gather(*(self._send(self._held.pop(period)) for period in list(self._held)))
        for task in self._tasks:
            task.cancel()

    async def announce(self, message: ShardMessage, at: Millis) -> None:
        """Let the message become visible at `at`, or up to `ANNOUNCE_TOGETHER` before."""
        now = self._clock.now()
        self._recent.append(now)
        many = len(self._recent) == MANY and now - self._recent[0] <= 1_000
        # What is due sooner cannot wait, and full shards go to different processes.
        if message.wake or not many or self._leaving or at < now + 2 * round(1000 * HELD_FOR):
            await self._send([(at, message)])
            return
        period = at // ANNOUNCE_TOGETHER
        held = self._held.setdefault(period, [])
        held.append((at, message))
        if len(held) == MOST_TOGETHER:
            await self._send(self._held.pop(period))
        elif len(held) == 1:
            task = asyncio.create_task(self._later(period, held))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _later(self, period: Millis, held: list[tuple[Millis, ShardMessage]]) -> None:
        await leaving.pause(self._clock, HELD_FOR, lambda: self._leaving)
        if self._held.get(period) is held:
            await self._send(self._held.pop(period))

    async def _send(self, held: list[tuple[Millis, ShardMessage]]) -> None:
        at = min(visible for visible, _ in held)
        if not await self._runner.run(announce_together([message for _, message in held], at)):
            log.info("%d shards wait for the sweep", len(held), extra={"action": "announce_unsent", "count": len(held)})


GROUP = 99
"""Events in one transaction; the gate is the hundredth row."""
FILED_TOGETHER = 100
"""Most shards that one transaction files."""


class FilingGroup:
    """Shards of one index partition that wait to be filed together."""

    def __init__(self) -> None:
        self.shards: list[FillingShard] = []
        self.task: asyncio.Task[None]


class ShardFiller:
    """Fills the open shards of one writer. Belongs to one event loop."""

    def __init__(
        self,
        services: ShardServices,
        rota: AccountRotation,
        announcer: Announcer,
        in_flight: asyncio.Semaphore,
        most: int,
    ) -> None:
        """rota: learns which accounts do not answer. in_flight: bounds the writer's requests. most: events of a full shard."""
        self._runner, self._clock, self._mirror, self._wakes = services.runner, services.clock, services.mirror, services.wakes
        self._rota, self._announcer, self._in_flight, self._most = rota, announcer, in_flight, most
        self._gathering: dict[str, FilingGroup] = {}
        """By index partition."""

    def add(self, filling: FillingShard, pending: PendingEntry) -> None:
        """Write an entry to the shard, with others that come at the same time."""
        filling.pending.append(pending)
        if filling.task is None:
            self.start(filling)

    def start(self, filling: FillingShard) -> None:
        """Write what waits for the shard, and send its message."""
        filling.task = asyncio.create_task(self._fill(filling))

    async def file(self, filling: FillingShard) -> None:
        """Write the index row: from then on no sweep can overlook what is stored in the shard."""
        if filling.filed is None:
            filling.filed = asyncio.create_task(self._filed(filling))
        try:
            await asyncio.shield(filling.filed)
        except StorageError as error:
            # Otherwise other events due in this minute would get this failure long after storage has come back.
            filling.closed = True
            if isinstance(error, Unavailable):
                self._rota.avoid(place_of(filling.opened.shard))
            raise

    async def _filed(self, filling: FillingShard) -> None:
        if self._in_flight.locked() and not filling.mirrored:
            # One batch may open thousands of shards.
            await self._file_with_others(filling)
        else:
            async with self._in_flight:
                await self._runner.run(self._file(filling))
        opened = filling.opened
        await self._wakes.ask(visible_at(opened.wake), sent=self._is_near(opened.wake))

    async def _file_with_others(self, filling: FillingShard) -> None:
        """Write the index row together with others that wait for a turn."""
        partition = index_partition(filling.opened.shard)
        group = self._gathering.get(partition)
        if group is None or len(group.shards) == FILED_TOGETHER:
            group = self._gathering[partition] = FilingGroup()
            group.task = asyncio.create_task(self._file_group(partition, group))
        group.shards.append(filling)
        await asyncio.shield(group.task)

    async def _file_group(self, partition: str, group: FilingGroup) -> None:
        async with self._in_flight:
            if self._gathering.get(partition) is group:
                del self._gathering[partition]
            opened = [each.opened for each in group.shards]
            filings = [ShardFiling(each.shard, each.wake, self._is_near(each.wake)) for each in opened]
            etags = await self._runner.run(file_shards(filings))
        for each, etag in zip(group.shards, etags, strict=True):
            each.index = etag

    def _is_near(self, wake: Millis, events: int = 0) -> bool:
        """Return True if the writer sends the message of a shard itself, because a look may come too late for it."""
        horizons = self._wakes.horizons
        return wake <= self._clock.now() + (horizons.full if events >= MANY_EVENTS else horizons.alone)

    def _file(self, filling: FillingShard) -> Steps[None]:
        opened = filling.opened
        filling.index = yield from file_shard(opened.shard, opened.wake, sent=self._is_near(opened.wake))
        yield from self._mirror.file_copy(opened.shard, opened.wake)

    async def _fill(self, filling: FillingShard) -> None:
        """Write pending events group by group until none is left."""
        started = self._clock.monotonic()
        try:
            await self.file(filling)
            if filling.noted:
                await self._unnote(filling)
            while filling.pending:
                if len(filling.pending) < ENOUGH_EVENTS and not filling.closed:
                    await self._clock.sleep(GROUP_WAIT)
                await self._write(filling)
                if filling.visible is None and not (self._urgent(filling) and self._clock.monotonic() - started <= URGENT_FILL_TIME):
                    await self._announce(filling, filling.opened.next_number)
                elif filling.outgrown(self._clock.now()):
                    await self._announce(filling, self._most)
            if filling.visible is None:
                await self._announce(filling, filling.opened.next_number)
        except Exception as error:
            filling.closed = True
            failure = self._failure_for(filling, error)
            if failure is not None and failure is not error:
                log.exception("A writer raised an unexpected error", extra={"action": "writer_failed"})
            while filling.pending:
                pending = filling.pending.popleft()
                pending.sink.settle(pending.number, failure)
        finally:
            filling.task = None
            if filling.pending:
                self.start(filling)
            else:
                self._note_later(filling)

    def _note_later(self, filling: FillingShard) -> None:
        """Note the number of events of a shard once no more come, unless its message is sent soon: then only its gate knows."""
        held = filling.opened.held
        far = filling.opened.wake > self._clock.now() + DISPATCH_AHEAD
        if filling.index and far and filling.noting is None and held is not None and held.gate.counts.accepted >= NOTE_FROM:
            filling.noting = asyncio.create_task(self._note(filling))

    async def _note(self, filling: FillingShard) -> None:
        opened = filling.opened
        try:
            while True:
                before = opened.next_number
                await self._clock.sleep(filling.pause)
                if opened.next_number == before and filling.task is None:
                    break
            if opened.held is None or opened.lost or filling.closed or opened.wake <= self._clock.now() + DISPATCH_AHEAD:
                return
            filling.pause *= 2
            # From here on the next group takes the counts off again, before it is written.
            filling.noted, etag = True, filling.index
            filling.index = await self._runner.run(note_counts(opened, opened.held.gate.tally, etag))
        except StorageError as error:
            filling.index = ""
            log.debug("The counts of a shard were not noted: %s", error, extra={"action": "counts_unnoted"})
        finally:
            filling.noting = None

    async def _unnote(self, filling: FillingShard) -> None:
        """Take the counts off the index row."""
        if filling.noting is not None:
            await asyncio.wait((filling.noting,))
        filling.index = await self._runner.run(drop_counts(filling.opened))
        filling.noted = False

    def _urgent(self, filling: FillingShard) -> bool:
        """Return True if an owner is to come as soon as the message is sent."""
        return visible_at(filling.opened.wake, filling.opened.next_number) <= self._clock.now()

    def _in_time(self, group: Sequence[PendingEntry]) -> list[PendingEntry]:
        """Return the entries that are still to be written."""
        if all([each.until == math.inf for each in group]):
            return [*group]
        now = self._clock.monotonic()
        for each in group:
            if each.until <= now:
                each.sink.settle(each.number, DeadlineExceeded())
        return [each for each in group if each.until > now]

    async def _write(self, filling: FillingShard) -> None:
        group: list[PendingEntry] = []
        size = 0
        while filling.pending and len(group) < GROUP and (not group or size + filling.pending[0].entry.size <= GROUP_BYTES):
            group.append(filling.pending.popleft())
            size += group[-1].entry.size
        try:
            stored: dict[str, str] = {}
            if not filling.opened.lost:
                async with self._in_flight:
                    if group := self._in_time(group):
                        stored = await self._append(filling, [each.entry for each in group])
        except Rejected as error:
            # One event that storage refuses must not fail the others of its group.
            log.warning("Storage refused a group of %d events: %s", len(group), error, extra={"action": "group_refused"})
            for each in group:
                each.sink.settle(each.number, await self._alone(filling, each) if len(group) > 1 else error)
            return
        except Exception as error:
            failure = self._failure_for(filling, error)
            for each in group:
                each.sink.settle(each.number, failure)
            raise
        for each in group:
            each.sink.settle(each.number, stored.get(each.entry.row))

    async def _append(self, filling: FillingShard, entries: Sequence[Entry]) -> dict[str, str]:
        """Store a group and its copy; return the ETags of the rows that are stored for good."""
        opened = filling.opened
        async with self._mirror.serving(opened.shard) as operation:
            stored = (await self._runner.run(append(opened, entries))).stored
            if stored:
                await operation.copy(partial(self._copy, filling, entries, stored))
        return stored

    @staticmethod
    def _copy(filling: FillingShard, entries: Sequence[Entry], stored: Mapping[str, str], way: Way) -> Steps[bool]:
        opened = filling.opened
        if opened.held is not None and not filling.closed and len(stored) == len(entries):
            filling.copy = yield from append_copy(opened.shard, way, opened.held, filling.copy, entries, stored)
            if filling.copy is not None:
                return True
        # An owner, or a copy of the whole shard, came between: this writer no longer knows the ETag of the copy's gate.
        filling.closed = True
        return (yield from mirror(opened.shard, way, frozenset(stored)))

    def _failure_for(self, filling: FillingShard, error: Exception) -> StorageError | None:
        """Return the failure for the waiting callers, or None to try another shard: nothing was written and another account is left."""
        if isinstance(error, Unavailable) and self._rota.avoid(place_of(filling.opened.shard)):
            log.warning("An account gets no new shards for a while: %s", error, extra={"action": "account_avoided"})
            return None
        return error if isinstance(error, StorageError) else OutcomeUnknown(f"the writer failed: {type(error).__name__}")

    async def _alone(self, filling: FillingShard, pending: PendingEntry) -> str | StorageError | None:
        """Write one entry in a transaction of its own and return its result."""
        if filling.opened.lost:
            return None
        try:
            async with self._in_flight:
                return (await self._append(filling, [pending.entry])).get(pending.entry.row)
        except StorageError as error:
            return error

    async def _announce(self, filling: FillingShard, events: int) -> None:
        """Send the message of a shard that wakes before a look is certain to come; the looks send the other messages.

        events: the number of events that the owner must load and claim in time.
        """
        opened = filling.opened
        filling.visible, filling.announced = max(visible_at(opened.wake, events), self._clock.now()), events
        if self._is_near(opened.wake, events):
            await self._announcer.announce(ShardMessage(opened.shard, opened.index, wake=shared_wake(opened.wake, events)), filling.visible)
            if not self._is_near(opened.wake) and filling.index:
                # The index row still asks for a message.
                filling.index = await self._runner.run(note_sent(opened, filling.index))
