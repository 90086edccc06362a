"""The writer: gathers events that arrive together into few transactions, in shards of its own.

All single requests that arrive while a shard's transaction is under way go into the next one (group commit). One transaction is in
flight per shard; different shards are written side by side.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from ...core import backoff
from ...core.clock import Clock, Millis
from ...core.errors import OutcomeUnknown, Rejected, StorageError, Unavailable
from ...core.ids import Ids
from ...core.settings import Settings
from ...engine.async_runner import AsyncRunner
from ...engine.effects import Steps
from ...storage.ports import Props, Row
from ..keys import HOME, MIRRORED, Address, place_of, server_id
from ..mirror.pair import Mirror
from ..protocol.changing import find
from ..protocol.dispatch import ShardMessage
from ..protocol.ingest import GROUP_BYTES, Entry, FreshId, KnownId, append, drop_counts, file_shard, known_id, note_counts, register_id
from ..protocol.mirroring import SECOND, Way, append_copy, mirror, mirror_event, mirror_id, on_side
from ..rows import EventToStore
from ..rules import visible_at
from ..timings import DISPATCH_AHEAD, ENOUGH_EVENTS, GROUP_WAIT, NOTE_FROM, URGENT_FILL_TIME
from .account_rotation import AccountRotation
from .announcer import Announcer
from .open_shards import FillingShard, FillingShards, PendingEntry, Sink

log = logging.getLogger(__name__)

GROUP = 99
"""Events in one transaction; the gate is the hundredth row."""

IN_FLIGHT = 16
TRIES = 20
LONGEST_ROUND_WAIT = 10.0
"""Longest wait in seconds before events whose shard was sealed repeatedly go into another one."""


class Stored(NamedTuple):
    """A stored event. existing: its row if the id was in use before; same: that row has the same content."""

    address: Address
    id: str
    etag: str = ""
    existing: Row | None = None
    same: bool = True


class JoinedPlace(NamedTuple):
    """A place in an open shard that is kept for an event which is about to be moved there."""

    filling: FillingShard
    row: str

    @property
    def address(self) -> Address:
        return Address(self.filling.opened.shard, self.row)


type StoreExpress = Callable[[str, Sequence[EventToStore]], Awaitable[list[Stored | StorageError | None]]]
"""Stores events of a tenant that are delivered by this process. Returns results in the order given; None for each event that it leaves."""


class Writer:
    """Stores events. One per process; belongs to one event loop."""

    def __init__(
        self,
        runner: AsyncRunner,
        clock: Clock,
        ids: Ids,
        settings: Settings,
        fresh: Sequence[str] = (HOME,),
        mirror: Mirror | None = None,
        express: StoreExpress | None = None,
    ) -> None:
        """fresh: the places that take new shards. mirror: for mirrored events, if there is a second account. express: takes the events that
        this process delivers itself.
        """
        self._express = express
        self._mirror = mirror
        self._runner, self._clock, self._ids = runner, clock, ids
        self.announcer = Announcer(runner, clock)
        """Sends the messages of its shards."""
        self._rota = AccountRotation(fresh, clock)
        self._fillings = FillingShards(ids, settings, self._rota)
        self._naming: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)

    async def store(self, tenant: str, events: Sequence[EventToStore], *, posted: bool = False) -> list[Stored | StorageError]:
        """Store events independently: one event's failure does not affect another. Return results in the order given.

        posted: a caller waits for the answer, so this process delivers the events itself that are due now.
        """
        results: list[Stored | StorageError | None] = [None] * len(events)
        todo = sorted(range(len(events)), key=lambda number: events[number].due)
        if any(event.id is not None for event in events):
            todo = await self._firsts(tenant, events, todo, results, posted)
        await self._store(tenant, events, todo, results, posted)
        unstored = Unavailable("no shard stayed open for the event; try again")
        return [result if result is not None else unstored for result in results]

    async def reserve(self, tenant: str, due: Millis, size: int, account: str) -> JoinedPlace:
        """Keep a place for an event of `size` bytes that is moved to `due`, in a filed shard of this account. Raises `StorageError`."""
        event = EventToStore({}, due, size)
        place = JoinedPlace(*self._fillings.place(tenant, event, self._clock.now(), mirrored=False, account=account))
        # Before the event names the place: a process that looks for the event there may seal the shard, and what is sealed must be filed.
        await self._filed(place.filling)
        return place

    async def join(self, tenant: str, place: JoinedPlace, props: Props) -> str | None:
        """Store a moved event at its place, with others. Return its ETag; None if the shard took no more. Raises `StorageError`."""
        sink = Sink(1)
        self._add(tenant, place.filling, PendingEntry(Entry(place.row, props, int(props.get("size", 0))), sink, 0))
        [result] = await sink.wait()
        if isinstance(result, StorageError):
            raise result
        return result

    def release(self, tenant: str, place: JoinedPlace) -> None:
        """Give up a place. If its shard was opened for it, the shard gets its message, as one that is filled does."""
        filling = place.filling
        if filling.task is None and filling.visible is None:
            filling.task = asyncio.create_task(self._fill(tenant, filling))

    async def _firsts(
        self, tenant: str, events: Sequence[EventToStore], todo: list[int], results: list[Stored | StorageError | None], posted: bool
    ) -> list[int]:
        """Store the first event of each client id while no other task of this process stores one of that id; return the numbers that are
        left.

        Two tasks at once would each find the other's place still empty, and seal the other's shard, forever.
        """
        first: dict[str, int] = {}
        for number in todo:
            if (name := events[number].id) is not None:
                first.setdefault(name, number)
        waiting = dict(first)
        while waiting:
            free = {name: number for name, number in waiting.items() if (tenant, name) not in self._naming}
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._naming.update(((tenant, name), done) for name in free)
            try:
                await self._store(tenant, events, list(free.values()), results, posted)
            finally:
                for name in free:
                    del self._naming[tenant, name]
                done.set_result(None)
            waiting = {name: number for name, number in waiting.items() if name not in free}
            if others := {self._naming[tenant, name] for name in waiting if (tenant, name) in self._naming}:
                await asyncio.wait(others)
        for number in todo:
            name = events[number].id
            if name is not None and number != first[name] and not isinstance(result := results[first[name]], Stored):
                results[number] = result
        ended = set(first.values())
        return [number for number in todo if number not in ended and results[number] is None]

    async def _store(
        self, tenant: str, events: Sequence[EventToStore], todo: list[int], results: list[Stored | StorageError | None], posted: bool
    ) -> None:
        if self._express is not None and posted and todo:
            for number, result in zip(todo, await self._express(tenant, [events[each] for each in todo]), strict=True):
                results[number] = result
            todo = [number for number in todo if results[number] is None]
        took = 0.0
        for number in range(TRIES):
            if not todo:
                break
            if number > 1 and any(events[each].id is not None for each in todo):
                # Another process seems to store the same ids: each finds the other's events missing, and seals the other's shard. At random
                # one of them waits for longer than the other needs.
                await self._clock.sleep(self._ids.chance() * backoff.exponential(took, number, LONGEST_ROUND_WAIT))
            began = self._clock.monotonic()
            todo = await self._round(tenant, events, todo, results)
            took = self._clock.monotonic() - began

    async def _round(
        self, tenant: str, events: Sequence[EventToStore], todo: list[int], results: list[Stored | StorageError | None]
    ) -> list[int]:
        """Place and write events once; return the numbers that must go into another shard."""
        now = self._clock.now()
        places = []
        for number in todo:
            mirrored = self._mirror is not None and (self._mirror.whole or events[number].durability == "mirrored")
            places.append((number, *self._fillings.place(tenant, events[number], now, mirrored=mirrored)))
        named = [place for place in places if events[place[0]].id is not None]
        if named:
            await asyncio.gather(*(self._name(tenant, events[number], filling, row, number, results) for number, filling, row in named))
            places = [place for place in places if results[place[0]] is None]
        if not places:
            return []
        sink = Sink(len(places))
        for at, (number, filling, row) in enumerate(places):
            event = events[number]
            if event.id is None:
                event.props["id"] = server_id(filling.opened.shard, row)
            self._add(tenant, filling, PendingEntry(Entry(row, event.props, event.size), sink, at))
        again = []
        for (number, filling, row), result in zip(places, await sink.wait(), strict=True):
            if isinstance(result, str):
                results[number] = Stored(Address(filling.opened.shard, row), str(events[number].props["id"]), result)
            elif result is not None:
                results[number] = result
            else:
                again.append(number)
        return again

    def _add(self, tenant: str, filling: FillingShard, pending: PendingEntry) -> None:
        filling.pending.append(pending)
        if filling.task is None:
            filling.task = asyncio.create_task(self._fill(tenant, filling))

    async def _name(
        self, tenant: str, event: EventToStore, filling: FillingShard, row: str, number: int, results: list[Stored | StorageError | None]
    ) -> None:
        """Register a client's id for the place; if the id is in use, the result is the event that has it."""
        assert event.id is not None
        try:
            known: FreshId | KnownId | None = None
            if filling.filed is None or (self._mirror is not None and self._mirror.whole):
                # Most likely the id is free. But a repeated request must not list a shard that stays empty, and the second account need not
                # ask the first about events that it has itself.
                known = await self._runner.run(known_id(tenant, event.id))
            if known is None:
                known = await self._register(tenant, event, filling, row)
            if isinstance(known, KnownId):
                await self._settled(tenant, event.id, known)
                # It may have moved since: the answer is its current row.
                stands = await self._runner.run(find(Address(known.row.pk, known.row.rk))) or known.row
                results[number] = Stored(Address(stands.pk, stands.rk), event.id, existing=stands, same=known.hash == event.hash)
        except StorageError as error:
            results[number] = error

    async def _register(self, tenant: str, event: EventToStore, filling: FillingShard, row: str) -> FreshId | KnownId:
        """Register a client's id for the place, unless it is in use. Raises `StorageError`."""
        assert event.id is not None
        # The first account is asked within the time for which this side surely serves, so it cannot store the event in between.
        async with self._serving(filling.opened.shard) as way:
            before = await self._mirror.known_before(tenant, event) if self._mirror is not None else None
            if before is not None:
                return before
            await self._filed(filling)
            async with self._in_flight:
                known = await self._runner.run(register_id(tenant, event.id, event.hash, Address(filling.opened.shard, row)))
                if way is not None and self._mirror is not None:
                    # Before the event is stored anywhere: otherwise a second event with the same id could be made after a failover.
                    await self._mirror.copied(mirror_id(tenant, event.id, way))
            return known

    @asynccontextmanager
    async def _serving(self, shard: str) -> AsyncIterator[Way | None]:
        """Permit writing to the shard and acknowledging it. Yields the way to copy a mirrored shard; None for others."""
        if self._mirror is None or place_of(shard) != MIRRORED:
            yield None
            return
        async with self._mirror.serving() as way:
            yield way

    async def _settled(self, tenant: str, event_id: str, known: KnownId) -> None:
        """Copy an event that already has the id, before any caller gets it as an answer."""
        async with self._serving(known.row.pk) as way:
            if way is not None and self._mirror is not None:
                await self._mirror.copied(mirror_id(tenant, event_id, way))
                await self._mirror.copied(mirror_event(Address(known.row.pk, known.row.rk), way))

    async def _filed(self, filling: FillingShard) -> None:
        """Write the index row: from then on no sweep can overlook what is stored in the shard."""
        if filling.filed is None:
            filling.filed = asyncio.create_task(self._runner.run(self._file(filling)))
        try:
            await asyncio.shield(filling.filed)
        except StorageError as error:
            # Otherwise other events due in this minute would get this failure long after storage has come back.
            filling.closed = True
            if isinstance(error, Unavailable):
                self._rota.avoid(place_of(filling.opened.shard))
            raise

    def _file(self, filling: FillingShard) -> Steps[None]:
        opened = filling.opened
        near = opened.wake <= self._clock.now() + DISPATCH_AHEAD
        filling.index = yield from file_shard(opened.shard, opened.wake, sent=near)
        if filling.mirrored and self._mirror is not None and not self._mirror.whole:
            yield from on_side(SECOND, file_shard(opened.shard, opened.wake, sent=False))

    async def _fill(self, tenant: str, filling: FillingShard) -> None:
        """Write pending events group by group until none is left."""
        started = self._clock.monotonic()
        try:
            await self._filed(filling)
            if filling.noted:
                await self._unnote(filling)
            while filling.pending:
                if len(filling.pending) < ENOUGH_EVENTS and not filling.closed:
                    await self._clock.sleep(GROUP_WAIT)
                await self._write(filling)
                if filling.visible is None and not (self._urgent(filling) and self._clock.monotonic() - started <= URGENT_FILL_TIME):
                    await self._announce(filling, filling.opened.next_number)
                elif filling.outgrown(self._clock.now()):
                    await self._announce(filling, self._fillings.most)
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
                filling.task = asyncio.create_task(self._fill(tenant, filling))
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
            filling.index = await self._runner.run(note_counts(opened, opened.held.gate.counts, etag))
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

    async def _write(self, filling: FillingShard) -> None:
        group: list[PendingEntry] = []
        size = 0
        while filling.pending and len(group) < GROUP and (not group or size + filling.pending[0].entry.size <= GROUP_BYTES):
            group.append(filling.pending.popleft())
            size += group[-1].entry.size
        try:
            if filling.opened.lost:
                stored: dict[str, str] = {}
            else:
                async with self._in_flight:
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
        async with self._serving(opened.shard) as way:
            stored = (await self._runner.run(append(opened, entries))).stored
            if way is not None and stored and self._mirror is not None:
                await self._mirror.copied(self._copy(filling, way, entries, stored))
        return stored

    @staticmethod
    def _copy(filling: FillingShard, way: Way, entries: Sequence[Entry], stored: Mapping[str, str]) -> Steps[bool]:
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
        """Send the message of a shard that wakes before the sweep is certain to run; the sweep sends the other messages.

        events: the number of events that the owner must load and claim in time.
        """
        opened = filling.opened
        filling.visible, filling.announced = max(visible_at(opened.wake, events), self._clock.now()), events
        if opened.wake <= self._clock.now() + DISPATCH_AHEAD:
            await self.announcer.announce(ShardMessage(opened.shard, opened.index), filling.visible)

    def term(self, since: Millis | None = None) -> int:
        """Return the epoch under which the second account of a pair accepts an event; see `Mirror.term`. 0 in any other account."""
        return self._mirror.term(since) if self._mirror is not None else 0

    def open_shards(self) -> int:
        """Return the number of open shards, for metrics and tests."""
        return len(self._fillings)
