"""The writer: gathers events that arrive together into few transactions, in shards of its own.

It chooses the shard of each event and registers the ids of clients. `shard_filler` writes what waits for a shard; different shards are
written side by side.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import batched
from typing import Final, NamedTuple

from ...core import backoff
from ...core.clock import Millis
from ...core.errors import OutcomeUnknown, StorageError, Unavailable
from ...core.event_loop import EVENTS, LoopTurns
from ...storage.ports import Props, Row
from ..facets.fanouts import MADE
from ..facets.finding import mark_of
from ..keys import Address, server_id
from ..properties.overlap import KEY, OVERLAP, has_line
from ..protocol.changing import find, reuse_id
from ..protocol.ingest import Entry, FreshId, KnownId, known_id, register_id
from ..protocol.mirroring import mirror_event
from ..rows import FANOUT, EventToStore
from ..shard_services import ShardServices
from ..timings import EXPRESS_AHEAD
from .open_shards import AccountRotation, DeadlineExceeded, FillingShard, FillingShards, PendingEntry, Sink, ended_in_time
from .shard_filler import Announcer, ShardFiller

log = logging.getLogger(__name__)

IN_FLIGHT = 16
TRIES = 20
MANY = 1_000
"""Events of which all together are looked at several times before other tasks may run, if they are no more."""
SETTLED_WITHIN = 5.0
"""Seconds from the last result of a call until all of them are gathered."""
NAMED_TOGETHER = 500
"""Events with ids of a batch that are registered before the first of them is stored."""
LONGEST_ROUND_WAIT = 10.0
"""Longest wait in seconds before events whose shard was sealed repeatedly go into another one."""


_SPECIAL: Final = frozenset({"labels", FANOUT, KEY, OVERLAP})
"""Properties of events that need more than a place in a shard: a look-up of labels, further rows, or their turn."""


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


@dataclass(slots=True)
class StoreCall:
    """One call of `Writer.store`. results: by the number of the event; every one but None is final."""

    tenant: str
    events: Sequence[EventToStore]
    posted: bool
    until: float
    results: list[Stored | StorageError | None]


type StoreExpress = Callable[[str, Sequence[EventToStore]], Awaitable[list[Stored | StorageError | None]]]
"""Stores events of a tenant that are delivered by this process. Returns results in the order given; None for each event that it leaves."""


class Writer:
    """Stores events. One per process; belongs to one event loop."""

    def __init__(self, services: ShardServices, fresh: Sequence[str], express: StoreExpress | None) -> None:
        """fresh: the places that take new shards. express: takes the events that this process delivers itself; None: it delivers none."""
        self._lines, self._mirror, self._searchable = services.lines, services.mirror, services.searchable
        self._runner, self._clock, self._ids = runner, clock, ids = services.runner, services.clock, services.ids
        self._express = express
        self.announcer = Announcer(runner, clock)
        """Sends the messages of its shards."""
        rota = AccountRotation(fresh, clock)
        self._fillings = FillingShards(ids, services.settings, rota)
        self._naming: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)
        self._late = set[asyncio.Task[None]]()
        self._filler = ShardFiller(services, rota, self.announcer, self._in_flight, self._fillings.most)

    def leave(self) -> None:
        """Hold no messages any more, because the process is about to end."""
        self.announcer.leave()

    async def close(self) -> None:
        """Send the messages that are held."""
        await self.announcer.close()

    async def store(
        self, tenant: str, events: Sequence[EventToStore], *, posted: bool = False, until: float = math.inf
    ) -> list[Stored | StorageError]:
        """Store events independently: one event's failure does not affect another. Return results in the order given.

        posted: somebody waits for what is due now, such as a caller or the receiver of a callback, so this process delivers it itself.
        until: time of the monotonic clock at which it begins no further event: those are `DeadlineExceeded`; see
        `ended_in_time`.
        """
        if len(events) == 1 and until == math.inf and (result := await self._ordinary(tenant, events[0], posted=posted)) is not None:
            return [result]
        call = StoreCall(tenant, events, posted, until, [None] * len(events))
        missing: StorageError = Unavailable("no shard stayed open for the event; try again")
        if until == math.inf:
            await self._carry_out(call)
        else:
            work = asyncio.create_task(self._carry_out(call))
            # Later than the results of what was begun, so that these are known here.
            if not await ended_in_time(work, self._clock, until + SETTLED_WITHIN):
                self._late.add(work)
                work.add_done_callback(self._late.discard)
                missing = OutcomeUnknown("storage did not confirm the event in time")
        return [result if result is not None else missing for result in call.results]

    async def _ordinary(self, tenant: str, event: EventToStore, *, posted: bool) -> Stored | StorageError | None:
        """Store a lone event that needs only a place in a shard, as most do. Return None if it must be stored by `_carry_out`."""
        now = self._clock.now()
        # An event that is due now may go into a shard of its own.
        if event.id is not None or (posted and event.due <= now + EXPRESS_AHEAD) or not _SPECIAL.isdisjoint(event.props):
            return None
        filling, row = self._fillings.place(tenant, event, now, mirrored=self._mirror.mirrors(event))
        event.props["id"] = name = server_id(filling.opened.shard, row)
        sink = Sink(1)
        self._filler.add(filling, PendingEntry(Entry(row, event.props, event.size), sink, 0))
        [result] = await sink.wait(self._clock)
        return Stored(Address(filling.opened.shard, row), name, result) if isinstance(result, str) else result

    async def _carry_out(self, call: StoreCall) -> None:
        """Store the events of a call. Every result but None is final."""
        tenant, events, results = call.tenant, call.events, call.results
        turns = LoopTurns(MANY)
        if turns.is_over(len(events)):
            await asyncio.sleep(0)
        if labelled := [event for event in events if "labels" in event.props]:
            # Here, because an event may have waited in the ingest queue since before its label was declared.
            searchable = await self._searchable(tenant)
            for event in labelled:
                event.props |= mark_of(event.props["labels"], searchable)
        todo = sorted(range(len(events)), key=[event.due for event in events].__getitem__)
        firsts = await self._fanouts(call) if any([FANOUT in event.props for event in events]) else {}
        if turns.is_over(len(events)):
            await asyncio.sleep(0)
        others = [number for number in todo if number in firsts]
        todo = [number for number in todo if number not in firsts and results[number] is None]
        await self._store_all(call, todo)
        if others:
            # A fan-out whose first event is not stored, or stored by a request of other content, stays without the others.
            for number in others:
                if not isinstance(first := results[firsts[number]], Stored) or not first.same:
                    results[number] = first
            await self._store_all(call, [number for number in others if results[number] is None])

    async def _fanouts(self, call: StoreCall) -> dict[int, int]:
        """Return the number of the first event of its fan-out for each of the other ones, which follow it and are stored after it.

        The first event's result is set if an id of the others is known to be in use: then nothing of the fan-out is stored.
        """
        tenant, events, results = call.tenant, call.events, call.results
        firsts: dict[str, int] = {}
        found: dict[int, int] = {}
        for number, event in enumerate(events):
            # A batch may name an id twice: the other events follow their first one.
            if event.fanout is not None:
                firsts[event.fanout] = number
            elif event.props.get(FANOUT) in firsts:
                found[number] = firsts[str(event.props[FANOUT])]
        # An id that the service gave is in use nowhere else.
        asked = [number for number in found if events[number].reuses is None and not str(events[number].props[FANOUT]).startswith(MADE)]
        try:
            known = await asyncio.gather(*(self._known(tenant, events[number]) for number in asked))
        except StorageError as error:
            results[:] = [error] * len(results)
            return {}
        for number, each in zip(asked, known, strict=True):
            if each is not None and each.hash != events[number].hash:
                results[found[number]] = Stored(Address(each.row.pk, each.row.rk), str(events[number].id), existing=each.row, same=False)
        return found

    async def _known(self, tenant: str, event: EventToStore) -> KnownId | None:
        """Return the event that has this event's id now; None decides nothing. Raises `StorageError`."""
        async with self._in_flight:
            return await self._runner.run(known_id(tenant, str(event.id)))

    async def _store_all(self, call: StoreCall, todo: list[int]) -> None:
        """Store these events, which wait for no others."""
        if any([call.events[number].id is not None for number in todo]):
            todo = await self._firsts(call, todo)
        await self._store(call, todo)

    async def reserve(self, tenant: str, due: Millis, size: int, account: str) -> JoinedPlace:
        """Keep a place for an event of `size` bytes that is moved to `due`, in a filed shard of this account. Raises `StorageError`."""
        event = EventToStore({}, due, size)
        place = JoinedPlace(*self._fillings.place(tenant, event, self._clock.now(), mirrored=False, account=account))
        # Before the event names the place: a process that looks for the event there may seal the shard, and what is sealed must be filed.
        await self._filler.file(place.filling)
        return place

    async def join(self, tenant: str, place: JoinedPlace, props: Props) -> str | None:
        """Store a moved event at its place, with others. Return its ETag; None if the shard took no more. Raises `StorageError`."""
        sink = Sink(1)
        self._filler.add(place.filling, PendingEntry(Entry(place.row, props, int(props.get("size", 0))), sink, 0))
        [result] = await sink.wait(self._clock)
        if isinstance(result, StorageError):
            raise result
        return result

    def release(self, tenant: str, place: JoinedPlace) -> None:
        """Give up a place. If its shard was opened for it, the shard gets its message, as one that is filled does."""
        filling = place.filling
        if filling.task is None and filling.visible is None:
            self._filler.start(filling)

    async def _firsts(self, call: StoreCall, todo: list[int]) -> list[int]:
        """Store the first event of each client id while no other task of this process stores one of that id; return the numbers that are
        left.

        Two tasks at once would each find the other's place still empty, and seal the other's shard, forever.
        """
        tenant, events, results = call.tenant, call.events, call.results
        first: dict[str, int] = {}
        await LoopTurns(MANY).spend(len(todo))
        for number in todo:
            if names := events[number].names:
                first.setdefault(names[0], number)
        waiting = dict(first)
        while waiting:
            free = {name: number for name, number in waiting.items() if (tenant, name) not in self._naming}
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._naming.update(((tenant, name), done) for name in free)
            try:
                await self._store(call, list(free.values()))
            finally:
                for name in free:
                    del self._naming[tenant, name]
                done.set_result(None)
            waiting = {name: number for name, number in waiting.items() if name not in free}
            if others := {self._naming[tenant, name] for name in waiting if (tenant, name) in self._naming}:
                await asyncio.wait(others)
        await LoopTurns(MANY).spend(len(todo))
        for number in todo:
            names = events[number].names
            if names and number != first[names[0]] and not isinstance(result := results[first[names[0]]], Stored):
                results[number] = result
        ended = set(first.values())
        return [number for number in todo if number not in ended and results[number] is None]

    async def _store(self, call: StoreCall, todo: list[int]) -> None:
        events, results = call.events, call.results
        if self._express is not None and call.posted and todo:
            for number, result in zip(todo, await self._express(call.tenant, [events[each] for each in todo]), strict=True):
                results[number] = result
            todo = [number for number in todo if results[number] is None]
        if call.until < math.inf and any(events[number].id is not None for number in todo):
            # The ids of all would otherwise be registered before the first event is stored, and the time may end between.
            for some in batched(todo, NAMED_TOGETHER):
                await self._rounds(call, list(some))
        else:
            await self._rounds(call, todo)

    async def _rounds(self, call: StoreCall, todo: list[int]) -> None:
        events, results = call.events, call.results
        took = 0.0
        for number in range(TRIES if todo else 0):
            if number > 1 and any(events[each].id is not None for each in todo):
                # Another process seems to store the same ids: each finds the other's events missing, and seals the other's shard. At random
                # one of them waits for longer than the other needs.
                await self._clock.sleep(self._ids.chance() * backoff.exponential(took, number, LONGEST_ROUND_WAIT))
            began = self._clock.monotonic()
            if began >= call.until:
                for each in todo:
                    results[each] = DeadlineExceeded()
                break
            if not (todo := await self._round(call, todo)):
                break
            took = self._clock.monotonic() - began

    async def _round(self, call: StoreCall, todo: list[int]) -> list[int]:
        """Place and write events once; return the numbers that must go into another shard."""
        tenant, events, results = call.tenant, call.events, call.results
        now = self._clock.now()
        places, turns = [], LoopTurns(EVENTS)
        for number in todo:
            event = events[number]
            filling, row = self._fillings.place(tenant, event, now, mirrored=self._mirror.mirrors(event))
            places.append((number, filling, row))
            if event.id is None:
                event.props["id"] = server_id(filling.opened.shard, row)
            if turns.is_over():
                await asyncio.sleep(0)
        named = [place for place in places if events[place[0]].id is not None]
        if named:
            async with asyncio.TaskGroup() as naming:
                for number, filling, row in named:
                    naming.create_task(self._name(call, number, filling, row))
                    await turns.spend()
            places = [place for place in places if results[place[0]] is None]
        if any([has_line(events[number].props) for number, *_ in places]):
            # Before they are stored: whoever finds a later event of the key finds the ticket of this one.
            try:
                await self._lines.line_up(tenant, [(events[each].props, Address(into.opened.shard, row)) for each, into, row in places])
            except StorageError as error:
                for number, *_ in places:
                    results[number] = error
                return []
        if not places:
            return []
        sink = Sink(len(places))
        added, turns_between = 0, LoopTurns(MANY)
        for at, (number, filling, row) in enumerate(places):
            if at and filling is not places[at - 1][1]:
                # Between two shards, so that each has all of its events before its first transaction.
                await turns_between.spend(at - added)
                added = at
            event = events[number]
            self._filler.add(filling, PendingEntry(Entry(row, event.props, event.size), sink, at, call.until))
        again, answers = [], await sink.wait(self._clock, call.until)
        while places:
            # From the end, so that shards which nobody keeps are freed in turns too.
            (number, filling, row), result = places.pop(), answers.pop()
            if isinstance(result, str):
                results[number] = Stored(Address(filling.opened.shard, row), str(events[number].props["id"]), result)
            elif result is not None:
                results[number] = result
            else:
                again.append(number)
            if turns.is_over():
                await asyncio.sleep(0)
        return again[::-1]

    async def _name(self, call: StoreCall, number: int, filling: FillingShard, row: str) -> None:
        """Register a client's id for the place; if the id is in use, the result is the event that has it."""
        tenant, event, results = call.tenant, call.events[number], call.results
        assert event.id is not None
        try:
            known: FreshId | KnownId | None = None
            if event.reuses is None and (filling.filed is None or self._mirror.whole):
                # Most likely the id is free. But a repeated request must not list a shard that stays empty, and the second account need not
                # ask the first about events that it has itself.
                known = await self._runner.run(known_id(tenant, event.id))
            if known is None:
                known = await self._register(call, event, filling, row)
            if isinstance(known, KnownId):
                await self._settled(tenant, event, known)
                # It may have moved since: the answer is its current row.
                stands = await self._runner.run(find(Address(known.row.pk, known.row.rk))) or known.row
                results[number] = Stored(Address(stands.pk, stands.rk), event.id, existing=stands, same=known.hash == event.hash)
        except StorageError as error:
            results[number] = error

    async def _register(self, call: StoreCall, event: EventToStore, filling: FillingShard, row: str) -> FreshId | KnownId:
        """Register the event's ids for the place, unless one is in use. Raises `StorageError`."""
        tenant = call.tenant
        # The first account is asked within the time for which this side surely serves, so it cannot store the event in between.
        async with self._mirror.serving(filling.opened.shard) as operation:
            for name in event.names:
                before = await self._mirror.known_before(tenant, event, name)
                if before is not None and not (event.reuses is not None and event.reuses(before.row.props)):
                    return before
            await self._filler.file(filling)
            known: FreshId | KnownId = FreshId()
            for name in event.names:
                async with self._in_flight:
                    if call.until < math.inf and self._clock.monotonic() >= call.until:
                        raise DeadlineExceeded
                    here = Address(filling.opened.shard, row)
                    if event.reuses is not None:
                        known = await self._runner.run(reuse_id(tenant, name, event.hash, here, event.reuses))
                    else:
                        known = await self._runner.run(register_id(tenant, name, event.hash, here))
                    # Before the event is stored anywhere: otherwise a second event with the same id could be made after a failover.
                    await operation.copy_id(tenant, name)
                if isinstance(known, KnownId):
                    break
            return known

    async def _settled(self, tenant: str, event: EventToStore, known: KnownId) -> None:
        """Copy an event that already has the id, before any caller gets it as an answer."""
        async with self._mirror.serving(known.row.pk) as operation:
            for name in event.names:
                await operation.copy_id(tenant, name)
            await operation.copy(partial(mirror_event, Address(known.row.pk, known.row.rk)))

    def term(self, since: Millis | None = None) -> int:
        """Return the epoch under which the second account of a pair accepts an event; see `Mirror.term`. 0 in any other account."""
        return self._mirror.term(since)

    def open_shards(self) -> int:
        """Return the number of open shards, for metrics and tests."""
        return len(self._fillings)
