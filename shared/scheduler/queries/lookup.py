"""Look-up of events: by id, and by walking the index (unfinished shards) and the ledger (finished ones). Nothing scans all events.

The list requests of a tenant take turns: some read at once, some wait, and more are refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import batched
from typing import NamedTuple

from ...core.clock import Millis
from ...core.errors import StorageError
from ...delivery.channels.answer_heads import AnswerHead
from ...engine.async_runner import AsyncRunner
from ...engine.effects import each_row, load_rows
from ...storage.names import EVENTS, IDS, LEDGER, SHARDS, SWEEPS
from ...storage.ports import MAX_PAGE, Row, RowQuery, Tables, Where
from ...web.problem import too_many
from ..facets.finding import LABEL_ROWS, LISTED, STATE_ROWS, has_digest, in_state, label_digest, partitions, remove_stale, shard_of
from ..keys import (
    END_EVENTS,
    FIRST_EVENT,
    HOME,
    NEWS,
    Address,
    id_partition,
    id_row_key,
    index_number,
    index_partitions,
    index_shard,
    minute_text,
    parse_address,
    parse_server_id,
    place_of,
)
from ..properties.attempts import heads_by_time, places_of, range_of
from ..protocol.changing import find
from ..shard.queued_ids import Queued, QueuedIds
from .event_filter import EventFilter

log = logging.getLogger(__name__)


AT_ONCE = 2
"""List requests of one tenant that read side by side in a process."""
WAITING = 8
"""List requests of one tenant that may wait for them."""
RETRY = 1.0
"""Seconds after which a refused request may be repeated."""


class ListTurns:
    """Bounds what one tenant's lists take of a process. One per process."""

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._present: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait for the tenant's turn to read. Raises 429 if too many of its requests read or wait."""
        if self._present[tenant] >= AT_ONCE + WAITING:
            detail = f"the tenant has {AT_ONCE + WAITING} list requests in progress; wait for their answers"
            raise too_many(RETRY, detail, "list_requests")
        self._present[tenant] += 1
        try:
            async with self._turns.setdefault(tenant, asyncio.Semaphore(AT_ONCE)):
                yield
        finally:
            self._present[tenant] -= 1
            if not self._present[tenant]:
                del self._present[tenant]
                self._turns.pop(tenant, None)


SHARDS_PER_PAGE = 40
"""Most shards that one list request reads. A page may be short and have a cursor."""
PAGE_BYTES = 4 * 1024 * 1024
"""Bytes of events after which a page ends early."""
ROWS_PER_PAGE = 10_000
"""Events that a page looks at, after which it ends early."""
PAGE_SECONDS = 2.0
"""Time after which a page ends early whose filters look into every event: labels, id, last error."""
READS = 32
"""Events of a shard that are read side by side."""
INDEX_PAGE = 100


class ListPosition(NamedTuple):
    """A list's position: phase (index, ledger, labels, or the state whose rows are read), number of the partition, key of the last shard,
    and of its last event."""

    phase: str
    number: int
    key: str
    row: str


INDEX, LEDGER_PHASE, LABEL_PHASE = "i", "l", "labels"
DONE = "~"
"""Stands for an event's row key: the shard is read completely."""
START = ListPosition(INDEX, 0, "", "")


class ShardPart(NamedTuple):
    """Chosen events of a shard, the number of rows looked at, the bytes of those read whole, and the key of the last one, or `DONE`.

    stale: the whole shard was read, and no event is in the wanted state.
    """

    rows: list[Row]
    scanned: int
    size: int
    last: str
    stale: bool = False


class ListPage(NamedTuple):
    """A page of events, and the position of the next one."""

    rows: list[Row]
    next: ListPosition | None


class FoundShard(NamedTuple):
    """A shard that may contain chosen events, its position in the list, and the state row or label row that led to it."""

    position: ListPosition
    shard: str
    state_row: Row | None = None


class CompleteRows(NamedTuple):
    """Rows that lists may rely on. states: returns True if all events have their state rows. labels: returns those of these labels of a
    tenant by which label rows find every event."""

    states: Callable[[], Awaitable[bool]]
    labels: Callable[[str, Iterable[str]], Awaitable[Collection[str]]]


class EventLookup:
    """Reads events. One per process."""

    def __init__(
        self,
        runner: AsyncRunner,
        tables: Tables,
        queued_ids: QueuedIds,
        rows: CompleteRows,
        places: Iterable[str] = (HOME,),
        former: str = "",
    ) -> None:
        """runner: repairs what it reads; its tables may be others. former: prefix of the tables of the account that served before this one.
        Only it knows the ids of its standard events."""
        self._former, self._complete_rows = former, rows
        self._runner, self._tables, self._clock, self._queued_ids = runner, tables, runner.clock, queued_ids
        self._places = frozenset(places)
        self._partitions = index_partitions(self._places)

    async def address(self, tenant: str, event_id: str) -> Address | None:
        """Return the address where the event was first stored, as far as its id shows it."""
        server_made = parse_server_id(tenant, event_id)
        if server_made is not None:
            # A made-up id may name a place that does not exist.
            return server_made if place_of(server_made.shard) in self._places else None
        named = await self._tables.get(IDS, id_partition(tenant, event_id), id_row_key(event_id))
        if named is None and self._former:
            named = await self._tables.get(self._former + IDS, id_partition(tenant, event_id), id_row_key(event_id))
        return parse_address(str(named.props["at"])) if named is not None else None

    async def event(self, tenant: str, event_id: str) -> Row | None:
        """Return the event at its current place, or None."""
        row = await self.named(tenant, event_id)
        return row if row is not None and row.props["id"] == event_id else None

    async def named(self, tenant: str, name: str) -> Row | None:
        """Return the event with this id, or the first event of the fan-out with this id, at its current place."""
        address = await self.address(tenant, name)
        return await self._runner.run(find(address)) if address is not None else None

    async def answers(self, row: Row) -> dict[Millis, AnswerHead]:
        """Return the heads of receivers' answers that were kept for an event, by the times of their attempts."""
        found: dict[Millis, AnswerHead] = {}
        for place in places_of(row.props):
            first, end = range_of(place)
            found |= heads_by_time(await load_rows(self._tables, RowQuery(EVENTS, place.shard, first, end)))
        return found

    def queued(self, tenant: str, event_id: str) -> Queued | None:
        """Parse the id of an event that no table has; return None unless it was given to this tenant and may still be queued."""
        found = self._queued_ids.read(tenant, event_id)
        return found if found is not None and found.may_wait(self._clock.now()) else None

    async def events(self, tenant: str, chosen: EventFilter, limit: int, start: ListPosition) -> ListPage:
        """Return a page of events and the position of the next one; pages may be short."""
        return await self._list(tenant, chosen, limit, start, bare=False)

    async def matching(self, tenant: str, chosen: EventFilter, limit: int, start: ListPosition) -> ListPage:
        """Return the same page, but of the events only the properties that the filter uses."""
        return await self._list(tenant, chosen, limit, start, bare=True)

    async def whole(self, rows: Sequence[Row]) -> list[Row]:
        """Return events of `matching` with all their properties, without those that are gone."""
        return [row for row in await asyncio.gather(*(self._whole(row.pk, row) for row in rows)) if row is not None]

    async def _list(self, tenant: str, chosen: EventFilter, limit: int, start: ListPosition, *, bare: bool) -> ListPage:
        found: list[Row] = []
        here, shards, scanned, size = start, 0, 0, 0
        until = self._clock.monotonic() + PAGE_SECONDS
        # A shard that finishes meanwhile has an index row and a ledger row for a moment.
        visited: set[str] = set()
        async for place, shard, state_row in self._found(tenant, chosen, start):
            after = start.row if place == start._replace(row="") else ""
            if after == DONE or shard in visited:
                continue
            if shards >= SHARDS_PER_PAGE or scanned >= ROWS_PER_PAGE or len(found) >= limit or size > PAGE_BYTES:
                return ListPage(found, here)
            if shards and chosen.searches and self._clock.monotonic() >= until:
                return ListPage(found, here)
            shards += 1
            visited.add(shard)
            first, most, room = after + "!" if after else FIRST_EVENT, limit - len(found), PAGE_BYTES - size
            label = place.key.partition(":")[0] if place.phase == LABEL_PHASE else ""
            part = await self._part(shard, first, chosen, most, room, by_state=state_row is not None and not label, label=label, bare=bare)
            found += part.rows
            scanned += part.scanned
            size += part.size
            if part.stale and state_row is not None and not after:
                await self._drop(state_row)
            here = place._replace(row=part.last)
            if part.last != DONE:
                return ListPage(found, here)
        return ListPage(found, None)

    async def _part(
        self, shard: str, first: str, chosen: EventFilter, most: int, most_bytes: int, *, by_state: bool, label: str, bare: bool
    ) -> ShardPart:
        """Return the chosen events of a shard from the row `first` on: at most `most`, and few more bytes than `most_bytes`.

        by_state: the shard was found by a state row. label: the digest of the label by whose row it was found.
        bare: the events are not read whole.
        """
        # Without a filter nearly every row is shown. With one, or if many are not, bodies are read only of the rows that are.
        # A shard with a state row has few other events that pass, so the store filters by state.
        where = (Where("state", "eq", chosen.state),) if by_state and chosen.state in LISTED else ()
        whole = not bare and chosen == (EventFilter(state=chosen.state) if by_state else EventFilter())
        picked: list[Row] = []
        scanned = size = present = 0
        cursor: str | None = None
        while True:
            page = await self._tables.query(
                RowQuery(
                    EVENTS,
                    shard,
                    first=first,
                    end=END_EVENTS,
                    where=where,
                    cursor=cursor,
                    limit=min(most + 1, MAX_PAGE) if whole else MAX_PAGE,
                    select=None if whole else chosen.properties,
                )
            )
            for row in page.rows:
                shown = chosen.shows(row.props)
                if shown and (len(picked) == most or (picked and size > most_bytes)):
                    return ShardPart(picked if bare else await self._complete(shard, chosen, picked), scanned, size, picked[-1].rk)
                scanned += 1
                present += has_digest(row.props, label) if label else chosen.state is not None and in_state(row.props, chosen.state)
                if shown:
                    picked.append(row)
                if shown or whole:
                    size += int(row.props["size"])
                if chosen.error:
                    # Up to 20 errors of 500 characters each, read of every event.
                    size += len(str(row.props.get("history", "")))
            cursor, whole = page.next, False
            if cursor is None:
                return ShardPart(picked if bare else await self._complete(shard, chosen, picked), scanned, size, DONE, not present)

    async def _complete(self, shard: str, chosen: EventFilter, picked: Sequence[Row]) -> list[Row]:
        """Return the picked rows with all their properties, without those that the filter no longer shows."""
        rows: list[Row | None] = []
        for some in batched(picked, READS):
            rows += await asyncio.gather(*(self._whole(shard, row) for row in some))
        return [row for row in rows if row is not None and chosen.shows(row.props)]

    async def _whole(self, shard: str, row: Row) -> Row | None:
        return row if "body" in row.props else await self._tables.get(EVENTS, shard, row.rk)

    async def _found(self, tenant: str, chosen: EventFilter, start: ListPosition) -> AsyncIterator[FoundShard]:
        """Yield the shards that may contain chosen events, from `start` on: those of the state rows, if there are all of them."""
        if label := await self._label(tenant, chosen, start):
            where = [] if chosen.first is None else [Where("bucket", "ge", minute_text(chosen.first))]
            for number, partition in enumerate(partitions(LABEL_ROWS, tenant)):
                if number < start.number and start.phase == LABEL_PHASE:
                    continue
                begin = max(f"{label}:", start.key if start.phase == LABEL_PHASE and number == start.number else "")
                async for row in self._range(SWEEPS, partition, begin, f"{label};", where):
                    yield FoundShard(ListPosition(LABEL_PHASE, number, row.rk, ""), shard_of(row.rk), row)
            return
        if start.phase != chosen.state and not (chosen.state is not None and start == START and await self._complete_rows.states()):
            async for position, shard in self._shards(tenant, chosen, start):
                yield FoundShard(position, shard)
            return
        assert chosen.state is not None
        where = [] if chosen.first is None else [Where("bucket", "ge", minute_text(chosen.first))]
        if chosen.end is not None:
            where.append(Where("bucket", "le", minute_text(chosen.end)))
        for number, partition in enumerate(partitions(STATE_ROWS, tenant)):
            if number < start.number:
                continue
            begin = max(f"{chosen.state}:", start.key if number == start.number else "")
            async for row in self._range(SWEEPS, partition, begin, f"{chosen.state};", where):
                yield FoundShard(ListPosition(chosen.state, number, row.rk, ""), shard_of(row.rk), row)

    async def _label(self, tenant: str, chosen: EventFilter, start: ListPosition) -> str:
        """Return the digest of the label by whose rows the list goes; '' if it goes another way."""
        if start.phase == LABEL_PHASE:
            return start.key.partition(":")[0]
        if not chosen.labels or start != START:
            return ""
        complete = await self._complete_rows.labels(tenant, [name for name, _ in chosen.labels])
        return next((label_digest(name, value) for name, value in chosen.labels if name in complete), "")

    async def _drop(self, row: Row) -> None:
        """Remove a state row or label row that leads to nothing, if nothing can come any more."""
        try:
            await self._runner.run(remove_stale(row))
        except StorageError as error:
            # The next list meets it again.
            log.debug("A state row could not be removed: %s", error, extra={"action": "state_row_kept", "row": row.rk})

    async def _shards(self, tenant: str, chosen: EventFilter, start: ListPosition) -> AsyncIterator[tuple[ListPosition, str]]:
        """Yield shards that may contain chosen events, from the shard at `start` on: first unfinished shards, then finished ones."""
        first = minute_text(chosen.first) if chosen.first is not None else ""
        last = minute_text(chosen.end) if chosen.end is not None else ""
        if start.phase == INDEX:
            where = [Where("tenant", "eq", tenant)]
            if first:
                where.append(Where("bucket", "ge", first))
            if last:
                where.append(Where("bucket", "le", last))
            for partition in self._partitions:
                if (number := index_number(partition)) < start.number:
                    continue
                begin = start.key if number == start.number else ""
                async for row in self._range(SHARDS, partition, begin, None, where):
                    yield ListPosition(INDEX, number, row.rk, ""), index_shard(row.rk)
        begin = max(first, start.key if start.phase == LEDGER_PHASE else "")
        async for row in self._range(LEDGER, tenant, begin, last + ";" if last else NEWS, ()):
            yield ListPosition(LEDGER_PHASE, 0, row.rk, ""), str(row.props["shard"])

    def _range(self, table: str, partition: str, first: str, end: str | None, where: Sequence[Where]) -> AsyncIterator[Row]:
        return each_row(self._tables, RowQuery(table, partition, first=first, end=end, where=where, limit=INDEX_PAGE))
