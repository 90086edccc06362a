"""Counts of a tenant's events: from the index rows of unfinished shards, or their gates where those do not have them, and the ledger of the
last day. Never from process memory."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import batched
from typing import Any

from ...core.clock import Clock, Millis, to_text
from ...core.durations import MAX_TIME
from ...core.event_loop import LoopTurns
from ...delivery.flow.rules import Block
from ...engine.effects import first_rows, has_rows, load_rows
from ...storage.names import EVENTS, LEDGER, SHARDS, SWEEPS
from ...storage.ports import Row, RowQuery, Tables, Where
from ..facets import ORIGIN
from ..facets.finding import HELD, REST, STATE_ROWS, count_held, partitions, shard_of
from ..keys import (
    END_EVENTS,
    FIRST_EVENT,
    GATE,
    HOME,
    MINUTE,
    MIRRORED,
    NEWS,
    index_name,
    index_partitions,
    index_shard,
    minute_of,
    minute_start,
    minute_text,
    shard_name,
)
from ..properties.work_rows import WORK, work_of
from ..protocol.dispatch import rounds_of
from ..protocol.ingest import counts_of_row
from ..protocol.moving import parse_redriven, redriven_by_channel
from ..protocol.user_ends import NO_ENDS, with_ends
from ..rules import may_take
from ..shard import ledger
from ..shard.gate import Counts, Tally, parse_gate
from ..timings import OWNER_SILENT, STUCK_ROUNDS
from .end_notes import read_ends

IN_FLIGHT = 32
GATES_AT_ONCE = 256
HELD_ROWS = 5_000
"""Most held rows that are read of each of a tenant's partitions of state rows; if there are more, `held` is a lower bound."""
READ_FOR = 2.0
"""Seconds after which `GET /stats` and `GET /load` read no more index rows, and then no more gates. Their answers are then incomplete."""
INDEX_PAGE = 1_000
"""Index rows that one request to storage reads. At least one page of each partition is read, however long it takes."""
NOTE_PAGES = 10
"""Pages of a thousand notes of user ends that the same answers read of each partition: more shards than their index pages have."""
INDEX_PROPS = ("state", "wake", "counts", "rounds")
"""Properties of index rows that totals need. Twenty thousand shards are eight megabytes of whole rows, and half of their time."""


ROWS_A_TURN = 500
"""Rows of shards that are counted before other tasks may run. A row of the ledger counts as `LEDGER_ROW` of them."""
LEDGER_ROW = 10

type Blocks = Callable[[str], Awaitable[Mapping[str, Block | None]]]


class TenantStats:
    """Figures per tenant. One per process."""

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        blocks: Blocks,
        places: Iterable[str] = (HOME,),
        copy: str = "",
        allow_work: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        """blocks: returns the channels of a tenant and the reason why each is blocked. copy: prefix of the tables for copies of mirrored
        shards. allow_work: returns True if a channel of the tenant allows long work."""
        self._allow_work = allow_work
        self._tables, self._clock, self._blocks, self._copy = tables, clock, blocks, copy
        self._partitions = index_partitions(places)
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)

    async def _unfinished(
        self, tenant: str, first: str = "", end: str | None = None, within: float = math.inf, more: Sequence[str] = ()
    ) -> tuple[dict[str, Row], bool]:
        """Return the index rows of the tenant's unfinished shards by name, filed for the minutes `first` up to but not including `end`,
        with `INDEX_PROPS` and the properties `more`.

        The second result is True if there are more: after `within` seconds no further page is read. The next wake-ups come first.
        """
        until = self._clock.monotonic() + within
        where, select = (Where("tenant", "eq", tenant),), (*INDEX_PROPS, *more)

        async def partition(name: str) -> tuple[list[Row], bool]:
            rows: list[Row] = []
            cursor: str | None = None
            while True:
                page = await self._tables.query(
                    RowQuery(SHARDS, name, first=first, end=end, where=where, select=select, limit=INDEX_PAGE, cursor=cursor)
                )
                rows += page.rows
                cursor = page.next
                if cursor is None or self._clock.monotonic() >= until:
                    return rows, cursor is not None

        found = await asyncio.gather(*map(partition, self._partitions))
        named: dict[str, Row] = {}
        for rows, _ in found:
            for some in batched(rows, ROWS_A_TURN):
                named |= {index_name(row.rk): row for row in some}
                await asyncio.sleep(0)
        return named, any(more for _, more in found)

    async def _gate(self, shard: str) -> tuple[Tally, bool]:
        """Return the gate's counts, and True if an owner serves the shard."""
        async with self._in_flight:
            row = await self._tables.get(EVENTS, shard, GATE)
        if row is None:
            return Tally(), False
        gate = parse_gate(row.props)
        return gate.tally, gate.state == "owned" and not may_take(gate, row.read_at - row.timestamp)

    async def _counted(
        self, tenant: str, rows: Mapping[str, Row], now: Millis, within: float = math.inf
    ) -> tuple[dict[str, tuple[Counts, bool]], bool]:
        """Return the counts of unfinished shards, and True for those that an owner serves, by name; and True if some are missing.

        rows: their index rows, by name. A gate is read only where its index row does not have the counts, the earliest wake-up first, for
        at most `within` seconds.
        """
        if not rows:
            return {}, False
        ends, unread = await read_ends(self._tables, tenant, None if within == math.inf else NOTE_PAGES)
        found: dict[str, tuple[Tally, bool]] = {}
        for each in batched(rows.items(), ROWS_A_TURN):
            found |= {name: (tally, False) for name, row in each if (tally := counts_of_row(row, now)) is not None}
            await asyncio.sleep(0)
        wakes = [(int(rows[name].props["wake"]), name) for name in rows.keys() - found.keys()]
        await asyncio.sleep(0)
        left = [name for _, name in sorted(wakes)]
        until = self._clock.monotonic() + within
        for some in batched(left, GATES_AT_ONCE):
            if self._clock.monotonic() >= until:
                break
            found.update(zip(some, await asyncio.gather(*(self._gate(index_shard(rows[name].rk)) for name in some)), strict=True))
        counted: dict[str, tuple[Counts, bool]] = {}
        for some_found in batched(found.items(), ROWS_A_TURN):
            for name, (tally, served) in some_found:
                noted = ends.get(index_shard(rows[name].rk), NO_ENDS) if ends else NO_ENDS
                counted[name] = with_ends(tally, noted), served
            await asyncio.sleep(0)
        return counted, unread or len(found) < len(rows)

    async def _lag(self, shards: Iterable[str]) -> Millis:
        """Return the largest delay of the copies of these shards."""

        async def one(shard: str) -> Millis:
            async with self._in_flight:
                return await copy_lag(self._tables, "", self._copy, shard)

        return max(await asyncio.gather(*map(one, shards)), default=0)

    async def open_events(self, tenant: str) -> int:
        """Return the number of the tenant's open events. Raises `StorageError`."""
        unfinished, _ = await self._unfinished(tenant)
        gates, _ = await self._counted(tenant, unfinished, self._clock.now())
        return sum(counts.open for counts, _ in gates.values())

    async def remains(self, tenant: str) -> bool:
        """Return True if events of the tenant are stored: a ledger row, or an unfinished shard. Raises `StorageError`."""
        if await has_rows(self._tables, RowQuery(LEDGER, tenant)):
            return True
        where = (Where("tenant", "eq", tenant),)
        return any(
            await asyncio.gather(*(has_rows(self._tables, RowQuery(SHARDS, partition, where=where)) for partition in self._partitions))
        )

    async def of(self, tenant: str, now: Millis) -> dict[str, Any]:
        """Return the answer of `GET /stats`."""
        unfinished, more = await self._unfinished(tenant, within=READ_FOR)
        gates, uncounted = await self._counted(tenant, unfinished, now, READ_FOR)
        # Read last, so that nothing is missed. A shard that finishes meanwhile is in the index and in the ledger, and counts once.
        entries = await load_rows(self._tables, RowQuery(LEDGER, tenant, minute_text(now - ledger.DAY), NEWS))
        finished = {shard_name(str(row.props["shard"])) for row in entries}
        for name in finished:
            gates.pop(name, None)
        turns = LoopTurns(ROWS_A_TURN)
        await turns.spend(len(unfinished))
        # An owner that stays through its minute does not refile the shard; its events are not overdue.
        overdue = _unserved(gates, (name for name, row in unfinished.items() if int(row.props["wake"]) + OWNER_SILENT <= now))
        await turns.spend(len(unfinished))
        stuck = _unserved(gates, (name for name, row in unfinished.items() if rounds_of(row) >= STUCK_ROUNDS))
        await turns.spend(len(unfinished))
        redriven = await self._redriven(unfinished, gates)
        await turns.spend(len(unfinished))
        # Many shards have the same numbers, which are added up once.
        alike = Counter(counts for counts, _ in gates.values())
        totals: Counter[str] = Counter()
        channels: dict[str, ledger.DeliveryFigures] = {}
        for counts, number in alike.items():
            totals.update({name: number * count for name, count in counts._asdict().items()})
        every = ledger.DeliveryFigures()
        for row in entries:
            redriven.update(parse_redriven(row.props))
            figures = ledger.figures_of(row.props)
            totals.update(figures.counts._asdict())
            for channel, found in figures.channels.items():
                channels.setdefault(channel, ledger.DeliveryFigures()).add(found)
                every.add(found)
            await turns.spend(LEDGER_ROW + LEDGER_ROW * len(figures.channels))
        # Redriven events live on elsewhere, and count there.
        totals["dead"] -= redriven.total()
        for row in entries:
            for channel, count in parse_redriven(row.props).items():
                channels[channel if channel in channels else ledger.REST].dead -= count
            await turns.spend()
        blocks = await self._blocks(tenant)
        left = {name: gates[name][0].open if name in gates else math.inf for name in unfinished.keys() - finished}
        held, partial = await self._held(tenant, left, blocks, now)
        mirrored = (index_shard(unfinished[name].rk) for name in gates if name.startswith(MIRRORED))
        lag = await self._lag(mirrored) if self._copy else None
        return {
            **({"incomplete": True} if more or uncounted else {}),
            "mirror_lag_ms": lag,
            "open": sum(number * counts.open for counts, number in alike.items()),
            "overdue": overdue,
            "stuck": stuck,
            **{name: totals[name] for name in ("delivered", "dead", "lapsed", "cancelled", "retrying")},
            "working": await self._working(tenant, unfinished, gates),
            "held": held.total(),
            # A held row counts if its shard is known to be unfinished.
            "held_partial": partial or (more and any(found is not None for found in blocks.values())),
            "late_ms": _late(every),
            "channels": {
                name: {"state": _state(name, blocks), "held": held[name], **_share(channels.get(name, ledger.DeliveryFigures()))}
                for name in sorted({*channels, *(name for name, found in blocks.items() if found is not None)})
            },
        }

    async def _working(self, tenant: str, rows: Mapping[str, Row], gates: Mapping[str, tuple[Counts, bool]]) -> int:
        """Return the events that receivers work on, those of the shards that can be read within `READ_FOR` seconds.

        Nothing is read for tenants whose channels allow no long work, nor where no event retries.
        """
        names = [name for name, (counts, _) in gates.items() if counts.retrying]
        if not names or self._allow_work is None or not await self._allow_work(tenant):
            return 0

        async def one(shard: str) -> int:
            async with self._in_flight:
                return await count_working(self._tables, shard)

        until, working = self._clock.monotonic() + READ_FOR, 0
        for some in batched(names, IN_FLIGHT):
            if self._clock.monotonic() < until:
                working += sum(await asyncio.gather(*(one(index_shard(rows[name].rk)) for name in some)))
        return working

    async def _held(
        self, tenant: str, opened: Mapping[str, float], blocks: Mapping[str, Block | None], now: Millis
    ) -> tuple[Counter[str], bool]:
        """Return the events that wait for a blocked channel, by channel, and True if there may be more.

        opened: most of them in each unfinished shard, by name: its open events.
        """
        blocked = {name for name, found in blocks.items() if found is not None}
        total: Counter[str] = Counter()
        if not blocked:
            return total, False
        found = await asyncio.gather(*(self._held_rows(partition) for partition in partitions(STATE_ROWS, tenant)))
        for row in (row for rows, _ in found for row in rows):
            # A row of a finished shard leads to nothing. Users may have ended events since its owner counted them.
            left = opened.get(shard_name(shard_of(row.rk)), 0)
            for channel, count in count_held(str(row.props[HELD]), now).most_common():
                count = int(min(count, left))
                total[channel] += count
                left -= count
        return Counter({name: count for name, count in total.items() if name in blocked}), REST in total or any(more for _, more in found)

    async def _held_rows(self, partition: str) -> tuple[list[Row], bool]:
        """Return the held rows of a partition, `HELD_ROWS` at most, and True if there are more."""
        return await first_rows(self._tables, RowQuery(SWEEPS, partition, first=f"{HELD}:", end=f"{HELD};", select=(HELD,)), HELD_ROWS)

    async def _redriven(self, rows: Mapping[str, Row], gates: Mapping[str, tuple[Counts, bool]]) -> Counter[str]:
        """Return the redriven events of unfinished shards, by name. rows: their index rows. Reads the dead rows of shards that have
        some."""

        async def one(shard: str) -> int:
            async with self._in_flight:
                rows = await load_rows(
                    self._tables, RowQuery(EVENTS, shard, FIRST_EVENT, END_EVENTS, select=("state", "target", "channel"))
                )
            return redriven_by_channel(rows).total()

        names = [name for name, (counts, _) in gates.items() if counts.dead]
        return Counter(dict(zip(names, await asyncio.gather(*(one(index_shard(rows[name].rk)) for name in names)), strict=True)))

    async def load(self, tenant: str, first: Millis, end: Millis) -> dict[str, Any]:
        """Return the answer of `GET /load`: for each minute from `first` up to but not including `end`, the open events of shards filed for
        it. Both are starts of minutes."""
        minutes = dict.fromkeys(range(first, end, MINUTE), 0)
        # The year 9999 has no minute after its last.
        filed, more = await self._unfinished(tenant, minute_text(first), minute_text(end) if end <= MAX_TIME else None, READ_FOR)
        gates, uncounted = await self._counted(tenant, filed, self._clock.now(), READ_FOR)
        for name, (counts, _) in gates.items():
            minutes[minute_start(int(filed[name].props["wake"]))] += counts.open
        items = [{"minute": to_text(minute), "scheduled": count} for minute, count in minutes.items()]
        return {"items": items, **({"incomplete": True} if more or uncounted else {})}

    async def history(self, tenant: str, first: Millis, end: Millis) -> list[dict[str, Any]]:
        """Return the answer of `GET /history`: results of the events planned for the minutes from `first` up to but not including `end`."""
        start, stop = minute_text(first), minute_text(end) if end <= MAX_TIME else NEWS
        unfinished, _ = await self._unfinished(tenant, more=("bucket",))
        planned = {name: bucket for name, row in unfinished.items() if start <= (bucket := str(row.props["bucket"])) < stop}
        gates, _ = await self._counted(tenant, {name: unfinished[name] for name in planned}, self._clock.now())
        minutes: dict[str, _Minute] = {}
        turns = LoopTurns(ROWS_A_TURN)
        # As in `of`: read last, so that a shard that finishes meanwhile counts once.
        for row in await load_rows(self._tables, RowQuery(LEDGER, tenant, start, stop)):
            gates.pop(shard_name(str(row.props["shard"])), None)
            minute = minutes.setdefault(row.rk.partition(":")[0], _Minute())
            figures = ledger.figures_of(row.props)
            minute.counts.update(figures.counts._asdict())
            minute.gap += figures.counts.open
            minute.redriven(parse_redriven(row.props).total())
            for found in figures.channels.values():
                minute.late.add(found)
            await turns.spend(LEDGER_ROW + LEDGER_ROW * len(figures.channels))
        redriven = await self._redriven(unfinished, gates)
        for name, (counts, _) in gates.items():
            minute = minutes.setdefault(planned[name], _Minute())
            minute.counts.update(counts._asdict())
            minute.open += counts.open
            minute.redriven(redriven[name])
            await turns.spend(LEDGER_ROW)
        return [_minute_out(name, minutes[name]) for name in sorted(minutes) if minutes[name].counts["accepted"]]


async def count_working(tables: Tables, shard: str) -> int:
    """Return the events of a shard that receivers work on. Raises `StorageError`."""
    found = await load_rows(tables, RowQuery(EVENTS, shard, FIRST_EVENT, END_EVENTS, select=("state", "tries", WORK)))
    return sum(work_of(row.props) is not None for row in found)


@dataclass(slots=True)
class _Minute:
    """Results of a minute's events. open: in unfinished shards. gap: in finished shards, so it should be 0."""

    counts: Counter[str] = field(default_factory=Counter)
    late: ledger.DeliveryFigures = field(default_factory=ledger.DeliveryFigures)
    open: int = 0
    gap: int = 0

    def redriven(self, count: int) -> None:
        """Count dead events that live on elsewhere as moved."""
        self.counts["dead"] -= count
        self.counts["moved"] += count


def _unserved(gates: Mapping[str, tuple[Counts, bool]], names: Iterable[str]) -> int:
    """Return the open events of those of some shards that no owner serves."""
    return sum(gates[name][0].open for name in names if name in gates and not gates[name][1])


def _minute_out(name: str, minute: _Minute) -> dict[str, Any]:
    ends = {each: minute.counts[each] for each in ("accepted", "delivered", "dead", "lapsed", "cancelled", "moved")}
    return {"minute": to_text(minute_of(name)), **ends, "open": minute.open, "gap": minute.gap, "late_ms": _late(minute.late)}


async def copy_lag(tables: Tables, source: str, copy: str, shard: str) -> Millis:
    """Return the largest delay of a shard's copy in milliseconds: 0 if it has what the gate has."""
    gate = await tables.get(source + EVENTS, shard, GATE)
    have = await tables.get(copy + EVENTS, shard, GATE)
    if gate is None or (have is not None and (have.props.get(ORIGIN) == gate.etag or gate.props.get(ORIGIN) == have.etag)):
        # After a failback it is the other way round: the gate is a copy of the copy's gate.
        return 0
    # The copy was up to date when it was last written, or nothing has changed since.
    oldest = have if have is not None else gate
    return max(1, oldest.read_at - oldest.timestamp)


def _state(name: str, blocks: Mapping[str, Block | None]) -> str:
    if name not in blocks:
        return "removed"
    found = blocks[name]
    return "ok" if found is None else found.reason


def _share(found: ledger.DeliveryFigures) -> dict[str, Any]:
    return {"delivered": found.delivered, "dead": found.dead, "late_ms": _late(found)}


def _late(found: ledger.DeliveryFigures) -> dict[str, Millis | None]:
    # A bucket's bound may exceed the largest lateness seen.
    longest = found.longest if found.delivered else None
    p50, p99 = (ledger.quantile(found.histogram, share) for share in (0.5, 0.99))
    if longest is not None and p50 is not None and p99 is not None:
        p50, p99 = min(p50, longest), min(p99, longest)
    return {"p50": p50, "p99": p99, "max": longest}
