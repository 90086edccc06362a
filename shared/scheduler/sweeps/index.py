"""Sweeps over the index: dispatch shards that are due, repair shards without an owner, remove shards whose retention is over.

Each sweep is idempotent and starts from stored state: a silent, late or doubled timer does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from itertools import batched, groupby
from typing import Any, NamedTuple

from ...core.clock import Millis
from ...core.errors import StorageError
from ...core.pressure import PressureGauge
from ...engine.async_runner import AsyncRunner
from ...engine.budget import Budget
from ...engine.effects import Steps, each_page, load_rows
from ...storage.names import EVENTS, IDS, LEDGER, SHARDS
from ...storage.ports import ANY, Applied, Delete, Merge, Row, RowQuery, Where, WriteRefused
from .. import timings
from ..facets import FACETS
from ..facets.fanouts import id_names
from ..keys import (
    END_EVENTS,
    FIRST_EVENT,
    GATE,
    HOME,
    NEWS,
    Address,
    BesideId,
    id_partition,
    id_row_key,
    index_partitions,
    index_shard,
    minute_text,
    nothing_beside,
    parse_address,
)
from ..mirror.unmirrored import Mirror
from ..points import Filing
from ..properties.attempts import ANSWERS, END_ANSWERS, FIRST_ANSWER
from ..protocol.changing import find
from ..protocol.dispatch import (
    MOST_TOGETHER,
    ShardMessage,
    decide,
    dispatch,
    dispatch_in_time,
    events_to_load,
    hand_out,
    mark_sent,
    rounds_of,
    send,
    send_together,
    unserved_events,
)
from ..protocol.ingest import counts_of_row
from ..protocol.mirroring import on_side
from ..protocol.moving import FORMER
from ..queries.totals import Totals
from ..rules import FINAL, tally, visible_at
from ..shard.gate import Counts
from ..timings import KEEP_DEAD, KEEP_FINISHED, KEEP_LINKED, RETENTION_RUN_FOR
from ..wakes.service import Horizons, held_before
from . import backlog

log = logging.getLogger(__name__)

IN_FLIGHT = 32
"""Index rows that are dispatched at the same time."""
DELETES = 100
"""Rows that one write removes: the most that a batch may have."""
RETAIN_PAGE = 64
"""Finished shards of a tenant that are read at a time, and most shards that are removed side by side."""
RETAIN_EVENTS = 4 * 990
"""Most events of the shards that are removed side by side: their rows are in memory, and twice as many take all of an account's limit. A
larger shard is removed alone."""
RETAIN_TENANTS = 16
"""Tenants whose finished shards are looked for side by side."""
RECALL = 5_000
"""Most shards that are woken at once when a channel is resumed."""
BACKLOG_ROWS = 5_000
"""Most overdue index rows of one partition that a sweep keeps in memory: far more than it can hand out."""
_RETAINED = ("shard", "accepted", "dead")
"""The properties of a finished shard that its removal needs."""


class IndexLook(NamedTuple):
    """The findings of a look. messages: times at which messages of the shards' queue become visible, sent or not. unsent: message times of
    the shards whose message is left to a later look. near: shards that wake within the time for which wakes are planned, or that woke in
    the last minute."""

    counts: Counter[str]
    messages: list[Millis]
    unsent: list[Millis]
    near: list[str]


def _horizon(row: Row, now: Millis, horizons: Horizons) -> Millis:
    """Return how far ahead a shard's message is sent: that of a full one starts the instances which its events need."""
    noted = counts_of_row(row, now)
    return horizons.full if noted is not None and noted.counts.open >= timings.MANY_EVENTS else horizons.together


def _earlier(row: Row, horizons: Horizons) -> Millis:
    """Return the time by which a shard's message comes earlier than usual. The owner of a retry would not wait for it."""
    return 0 if row.props.get("retries") else horizons.earlier


def _period(row: Row) -> int:
    """Return the number of the period in which small shards share a message."""
    return visible_at(int(row.props["wake"])) // timings.ANNOUNCE_TOGETHER


def _parts(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Return rows, which are in the order of their wake-ups, in parts of at most `MOST_TOGETHER`.

    The shards of a period stay together if they fit into a part, because each part sends a message of its own for them.
    """
    part: list[Row] = []
    for _, alike in groupby(rows, _period):
        for some in batched(alike, MOST_TOGETHER):
            if len(part) + len(some) > MOST_TOGETHER:
                yield part
                part = []
            part += some
    if part:
        yield part


class Sweeps:
    """The sweeps that the timers run. One per process."""

    def __init__(
        self,
        runner: AsyncRunner,
        backlog_per_second: int,
        mirror: Mirror,
        places: Iterable[str] = (HOME,),
        pressure: PressureGauge | None = None,
        beside: BesideId = nothing_beside,
    ) -> None:
        """pressure: of the requests of this process to storage. beside: names the rows that end with events, beside those of their ids."""
        self._mirror, self._pressure, self._beside = mirror, pressure, beside
        self._runner, self._tables, self._clock = runner, runner.tables, runner.clock
        self._partitions = index_partitions(places)
        self._alone = len(self._partitions) == len(index_partitions(HOME))
        self._rate = backlog_per_second
        self._totals = Totals(runner.tables)
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)

    async def dispatch(self, now: Millis) -> Counter[str]:
        """Send the messages of all shards that wake soon, and of those past their wake-up without an owner. Return counts by result.

        Shards late by more than `BACKLOG_AFTER` come after all others, and only at the set rate.
        """
        return (await self.look(now, Horizons(), timings.DISPATCH_AHEAD)).counts

    async def look(self, now: Millis, horizons: Horizons, far: Millis) -> IndexLook:
        """Do what `dispatch` does, as far ahead as `horizons` say, and return what was found of the shards that wake within `far`."""
        counts: Counter[str] = Counter()
        seen = IndexLook(counts, [], [], [])
        late: list[Row] = []
        # Minutes sort as text does; the start of the next minute bounds the range.
        end = minute_text(now + far + timings.MINUTE)
        found = await asyncio.gather(*(self._place(each, end, now, late, horizons, seen) for each in self._by_place()))
        for each in found:
            counts.update(each)
        if counts["failed"] and not self._alone:
            self._tell_unread(found)
        counts.update(await self._drain(late, now))
        if counts["resent"]:
            extra = {"action": "shards_resent", "count": counts["resent"]}
            log.warning("%d shards were past their wake-up and had no owner; their messages were sent again", counts["resent"], extra=extra)
        return seen

    def _by_place(self) -> list[list[str]]:
        """Return the index partitions of each place."""
        places: dict[str, list[str]] = {}
        for partition in self._partitions:
            places.setdefault(partition[0], []).append(partition)
        return list(places.values())

    async def _place(
        self, partitions: Sequence[str], end: str, now: Millis, late: list[Row], horizons: Horizons, seen: IndexLook
    ) -> Counter[str]:
        """Dispatch the shards of one place in the order of their wake-ups: those that are due first have the least time.

        An account that does not answer must not delay the shards of the others.
        """
        counts: Counter[str] = Counter()
        punctual: list[Row] = []
        unread: StorageError | None = None
        for read in await asyncio.gather(*(self._read(each, end, now, late, punctual) for each in partitions), return_exceptions=True):
            if isinstance(read, StorageError):
                log.debug("The index of place %s could not be read: %s", partitions[0][0], read, extra={"action": "partition_unread"})
                counts.update({"failed": 1, "unread": 1})
                unread = read
            elif isinstance(read, BaseException):
                raise read
            else:
                counts.update(read)
        punctual.sort(key=lambda row: int(row.props["wake"]))
        due = [row for row in punctual if decide(row, now, ahead=_horizon(row, now, horizons)).do != "nothing"]
        if len(due) > MOST_TOGETHER:
            horizons = horizons._replace(held=0)
        for some in _parts(due):
            counts.update(await self._dispatch_some(some, now, horizons))
        wanted = {id(row) for row in due}
        for row in punctual:
            at = visible_at(int(row.props["wake"])) - _earlier(row, horizons)
            if not row.props.get("retries"):
                seen.messages.append(at)
                if -timings.MINUTE <= int(row.props["wake"]) - now <= timings.DISPATCH_AHEAD:
                    seen.near.append(index_shard(row.rk))
            if row.props["state"] != "sent" and id(row) not in wanted:
                seen.unsent.append(at)
        if unread is not None and self._alone:
            raise unread
        return counts

    async def _dispatch_some(self, rows: Sequence[Row], now: Millis, horizons: Horizons) -> Counter[str]:
        """Carry out the decisions about some rows, in their order. Small shards of the same two seconds share a message."""
        if not horizons.shares:
            return Counter(await asyncio.gather(*(self._one(row, dispatch_in_time(row, now)) for row in rows)))
        sends = [row for row in rows if decide(row, now).do == "send"]
        sizes = await asyncio.gather(*(self._one(row, events_to_load(row)) for row in sends))
        together: dict[tuple[bool, int], list[tuple[Millis, Row]]] = {}
        steps: list[Awaitable[str | Counter[str]]] = []
        for row, size in zip(sends, sizes, strict=True):
            if isinstance(size, int) and size < timings.MANY_EVENTS:
                at = visible_at(int(row.props["wake"]), size)
                together.setdefault((bool(row.props.get("retries")), _period(row)), []).append((at, row))
            elif isinstance(size, int):
                steps.append(self._one(row, dispatch(row, now, size, _earlier(row, horizons))))
        steps += [self._together(group, horizons) for group in together.values()]
        sent = {id(row) for row in sends}
        steps += [self._one(row, dispatch(row, now)) for row in rows if id(row) not in sent]
        counts = Counter(size for size in sizes if isinstance(size, str))
        for done in await asyncio.gather(*steps):
            counts.update([done] if isinstance(done, str) else done)
        return counts

    async def _together(self, group: Sequence[tuple[Millis, Row]], horizons: Horizons) -> Counter[str]:
        """Send one message for several shards, as early as the first needs it, and mark them."""
        rows, at = [row for _, row in group], min(at for at, _ in group)
        if horizons.held:
            await self._clock.sleep(held_before(at, self._clock.now(), horizons.held) / 1000)
        if await self._one(rows[0], send_together(rows, at, _earlier(rows[0], horizons))) is not True:
            return Counter({"nothing": len(rows)})
        return Counter(await asyncio.gather(*(self._one(row, mark_sent(row)) for row in rows)))

    @staticmethod
    def nothing_found() -> IndexLook:
        """Return what a look finds in an empty index."""
        return IndexLook(Counter(), [], [], [])

    def _tell_unread(self, found: Sequence[Counter[str]]) -> None:
        """Log one line for each place that has an unreadable index."""
        for place in [partitions[0][0] for partitions, counts in zip(self._by_place(), found, strict=True) if counts["unread"]]:
            extra = {"action": "place_unread", "place": place}
            log.warning("The index of place %s could not be read; its shards wait for the next sweep", place, extra=extra)

    async def _read(self, partition: str, end: str, now: Millis, late: list[Row], punctual: list[Row]) -> Counter[str]:
        """Read a partition page by page; add its rows to `late` and `punctual`."""
        counts: Counter[str] = Counter()
        kept = 0
        async for page in each_page(self._tables, RowQuery(SHARDS, partition, end=end)):
            counts["seen"] += len(page.rows)
            overdue = [row for row in page.rows if backlog.is_late(row, now)][: BACKLOG_ROWS - kept]
            late += overdue
            kept += len(overdue)
            punctual += [row for row in page.rows if not backlog.is_late(row, now)]
            counts["overdue"] += sum(int(row.props["wake"]) + timings.OWNER_SILENT <= now for row in page.rows)
            # Their owners, or their messages, may be lost at any moment: while there are such shards, the job runs again within seconds.
            counts["under_way"] += sum(int(row.props["wake"]) <= now for row in page.rows)
        return counts

    async def _drain(self, late: list[Row], now: Millis) -> Counter[str]:
        """Hand out as many shards of the backlog as the set rate allows. Return counts by result."""
        counts: Counter[str] = Counter()
        pace = backlog.BacklogDrain((row.props for row in late), now, self._rate)
        waiting = backlog.in_turn(row for row in late if decide(row, now).do != "nothing")
        for some in batched(waiting, IN_FLIGHT):
            if pace.full or counts["unsent"]:
                break
            rows = [row for row in some if pace.admits(str(row.props["tenant"]))]
            sizes = await asyncio.gather(*(self._one(row, unserved_events(row)) for row in rows))
            steps = []
            for row, size in zip(rows, sizes, strict=True):
                tenant = str(row.props["tenant"])
                counts["failed"] += size == "failed"
                if isinstance(size, int) and pace.admits(tenant):
                    steps.append(self._one(row, hand_out(row, pace.place(tenant, size), backlog.counted_events(size))))
            counts.update(await asyncio.gather(*steps))
        if waiting:
            left = len(waiting) - counts["backlog"]
            extra = {"action": "backlog_draining", "count": counts["backlog"], "left": left}
            log.info("%d shards of the backlog were handed out; %d still wait", counts["backlog"], left, extra=extra)
        return counts

    async def _one[T](self, row: Row, steps: Steps[T]) -> T | str:
        async with self._in_flight:
            try:
                done = await self._runner.run(steps)
            except StorageError as error:
                # One row must not delay the others; the next sweep tries it again.
                log.warning("An index row could not be dispatched: %s", error, extra={"action": "dispatch_failed", "row": row.rk})
                return "failed"
        rounds = rounds_of(row) + (row.props["state"] == "sent")
        if done in ("resent", "backlog") and rounds >= timings.STUCK_ROUNDS:
            extra = {"action": "shard_stuck", "shard": index_shard(row.rk), "rounds": rounds}
            log.error("Shard %s is stuck: %d messages were sent and no owner has served it", index_shard(row.rk), rounds, extra=extra)
        return done

    async def recall(self, tenant: str) -> int:
        """Wake the tenant's shards that rest for held events or retries, without waiting for their wake-ups. Return their number.

        A shard that has nothing to do yet rests again. Shards beyond `RECALL` wake at their own time.
        """
        where = (Where("tenant", "eq", tenant), Where("retries", "eq", True))
        woken = 0
        for partition in self._partitions:
            cursor: str | None = None
            while woken < RECALL:
                page = await self._tables.query(RowQuery(SHARDS, partition, where=where, limit=min(1000, RECALL - woken), cursor=cursor))
                now = self._clock.now()
                steps = [send(ShardMessage(index_shard(row.rk), row.rk), now, retries_only=True) for row in page.rows]
                await asyncio.gather(*(self._one(row, each) for row, each in zip(page.rows, steps, strict=True)))
                woken += len(page.rows)
                cursor = page.next
                if cursor is None:
                    break
        return woken

    async def retain(self, tenants: Iterable[str], now: Millis, run_for: float = RETENTION_RUN_FOR) -> Counter[str]:
        """Remove expired finished shards for at most `run_for` seconds; the next run continues. Return counts by result; `cut`: tenants and
        shards that the time was too short for.

        While storage refuses requests, it pauses after each page, in proportion to the time that the page took.
        """
        counts: Counter[str] = Counter()
        until, room, names = self._clock.monotonic() + run_for, Budget(RETAIN_EVENTS), list(tenants)
        # Each run begins with another tenant, so that none is always the one that is left.
        first = now // timings.MINUTE % max(1, len(names))
        waiting = iter(names[first:] + names[:first])

        async def lane() -> None:
            try:
                for tenant in waiting:
                    await self._retain_of(tenant, now, until, room, counts)
            finally:
                # After a failure, the other lanes begin with no further tenant.
                deque(waiting, maxlen=0)

        for ended in await asyncio.gather(*(lane() for _ in range(RETAIN_TENANTS)), return_exceptions=True):
            if ended is not None:
                raise ended
        return counts

    async def _retain_of(self, tenant: str, now: Millis, until: float, room: Budget, counts: Counter[str]) -> None:
        """Remove expired shards of a tenant until the end of the run. until: its monotonic time."""
        try:
            await self._totals.fold(tenant)
        except StorageError as error:
            log.warning("Totals of %s were not updated; the next run tries again: %s", tenant, error, extra={"action": "fold_failed"})
        # A shard is kept at least this long after its bucket, so younger rows need not be read.
        end, over = minute_text(now - KEEP_FINISHED), (Where("keep", "le", now),)
        cursor: str | None = None
        while (began := self._clock.monotonic()) < until:
            query = RowQuery(LEDGER, tenant, end=end, where=over, select=_RETAINED, limit=RETAIN_PAGE, cursor=cursor)
            page = await self._tables.query(query)
            counts.update(await asyncio.gather(*(self._removed(tenant, row, now, until, room) for row in page.rows)))
            cursor = page.next
            if cursor is None:
                return
            if self._pressure is not None and (slower := self._pressure.stretch - 1.0) > 0:
                ended = self._clock.monotonic()
                await self._clock.sleep(max(0.0, min(slower * (ended - began), until - ended)))
        counts["cut"] += 1

    async def _removed(self, tenant: str, entry: Row, now: Millis, until: float, room: Budget) -> str:
        # By its size, but at most `RETAIN_PAGE` of them side by side.
        async with room.hold(max(int(entry.props["accepted"]), RETAIN_EVENTS // RETAIN_PAGE)):
            if self._clock.monotonic() >= until:
                return "cut"
            try:
                return await self._remove(tenant, entry, now)
            except StorageError as error:
                log.warning("A shard could not be removed; the next run will try again: %s", error, extra={"action": "retention_failed"})
                return "failed"

    async def _remove(self, tenant: str, entry: Row, now: Millis) -> str:
        """Remove id rows, events, the gate, and the ledger row last, so that the next run finds the shard after a crash."""
        shard = str(entry.props["shard"])
        rows = await load_rows(self._tables, RowQuery(EVENTS, shard, FIRST_EVENT, END_EVENTS))
        for row in rows:
            if FORMER in row.props:
                # Finishes the move, if it stopped before the pointer was stored.
                await self._runner.run(find(parse_address(str(row.props[FORMER]))))
        if await self._linked(rows, now):
            # An address given out long ago must resolve as long as its event exists.
            await self._tables.write(LEDGER, tenant, (Merge(entry.rk, {"keep": now + KEEP_LINKED}, entry.etag),))
            return "kept"
        for row in rows:
            for name in id_names(row.props):
                await self._free_id("", tenant, name, row)
                await self._free_beside("", tenant, name)
        filing = Filing(shard, entry.rk.partition(":")[0], {})
        await self._runner.run(FACETS.before_removal(filing, rows))
        if any(ANSWERS in row.props for row in rows):
            await self._remove_answers("", shard)
        for some in batched(rows, DELETES):
            # With their ETags: a dead row that is redriven at this moment is kept, and its shard too.
            if not isinstance(await self._tables.write(EVENTS, shard, tuple(Delete(row.rk, row.etag) for row in some)), Applied):
                return "kept"
        async with self._mirror.serving(shard) as operation:
            if operation.way is not None:
                await self._remove_copy(tenant, entry.rk, shard, operation.way.copy)
        await self._tables.write(EVENTS, shard, (Delete(GATE, ANY),))
        await self._runner.run(FACETS.at_removal(filing, Counts(dead=int(entry.props["dead"]))))
        await self._tables.write(LEDGER, tenant, (Delete(entry.rk, ANY),))
        return "removed"

    async def _remove_copy(self, tenant: str, key: str, shard: str, side: str) -> None:
        """Remove the other account's copy of a shard that is being removed."""
        rows = await load_rows(self._tables, RowQuery(side + EVENTS, shard, FIRST_EVENT, END_EVENTS))
        for row in rows:
            for name in id_names(row.props):
                await self._free_id(side, tenant, name, row)
                await self._free_beside(side, tenant, name)
        if any(ANSWERS in row.props for row in rows):
            await self._remove_answers(side, shard)
        for some in batched(rows, DELETES):
            await self._tables.write(side + EVENTS, shard, tuple(Delete(row.rk, ANY) for row in some))
        await self._tables.write(side + EVENTS, shard, (Delete(GATE, ANY),))
        counts = tally(row.props["state"] for row in rows)
        await self._runner.run(on_side(side, FACETS.at_removal(Filing(shard, key.partition(":")[0], {}), counts)))
        for found in (NEWS + key, key):
            await self._tables.write(side + LEDGER, tenant, (Delete(found, ANY),))

    async def _remove_answers(self, side: str, shard: str) -> None:
        """Remove a shard's rows with answers: before its event rows, which show that there are any."""
        found = each_page(self._tables, RowQuery(side + EVENTS, shard, first=FIRST_ANSWER, end=END_ANSWERS, select=("at",), limit=DELETES))
        async for page in found:
            if page.rows:
                await self._tables.write(side + EVENTS, shard, tuple(Delete(row.rk, ANY) for row in page.rows))

    async def _linked(self, rows: Iterable[Row], now: Millis) -> bool:
        """Return True if one of these events has moved on and is still to be found.

        The event counts and not the shard that it moved to: events of two shards may have moved into each other.
        """
        for row in rows:
            found: Row | None = row
            while found is not None and found.props.get("target"):
                place = parse_address(str(found.props["target"]))
                found = await self._tables.get(EVENTS, place.shard, place.row)
            if found is not None and found is not row and not _is_over(found.props, now):
                return True
        return False

    async def _free_id(self, side: str, tenant: str, event_id: str, row: Row) -> None:
        partition = id_partition(tenant, event_id)
        named = await self._tables.get(side + IDS, partition, id_row_key(event_id))
        if named is not None and named.props["at"] == Address(row.pk, row.rk).text:
            answer = await self._tables.write(side + IDS, partition, (Delete(named.rk, named.etag),))
            if isinstance(answer, WriteRefused):
                log.debug("An id was used again while it was being freed", extra={"action": "id_kept"})

    async def _free_beside(self, side: str, tenant: str, event_id: str) -> None:
        for named in self._beside(tenant, event_id):
            found = await self._tables.get(side + IDS, named.partition, named.key)
            if found is not None and named.ends(found.props):
                await self._tables.write(side + IDS, named.partition, (Delete(found.rk, found.etag),))


def _is_over(props: Mapping[str, Any], now: Millis) -> bool:
    """Return True if an event ended so long ago that it need not be found any more."""
    return props["state"] in FINAL and int(props.get("ended", 0)) + (KEEP_DEAD if props["state"] == "dead" else KEEP_FINISHED) <= now
