"""Reads and writes a fleet's maintenance rows: a view, and one transaction on the ETags of what it was decided from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import batched
from typing import Final

from ...core.clock import Millis
from ...engine.effects import each_page, load_rows
from ...leases.rows import FLEET, Fleet, parse_fleet
from ...storage.names import FLEETS, MAINTENANCE
from ...storage.ports import ANY, MAX_EGT_ROWS, Applied, Delete, Insert, Merge, Op, Props, Replace, Row, RowQuery, Tables, Upsert, Where
from ..rows import (
    ALARMS,
    EVENTS,
    GUARD,
    INDEX,
    MONITORS,
    NODES,
    AlarmsRow,
    EventRow,
    FleetEvents,
    GuardRow,
    MaintenanceRow,
    MonitorsRow,
    NodeRow,
    encode_row,
    event_key,
    node_key,
    parse_alarms,
    parse_event,
    parse_guard,
    parse_monitors,
    parse_node,
)
from ..story import StoryRow, StoryStep, Told, encode_story, parse_story, story_key, story_range, told_by, with_steps

_FRESH: Final = (Where("fresh", "eq", True),)
MOST_ROWS: Final = MAX_EGT_ROWS - 4
"""Rows of one write."""
SURE_ROWS: Final = MAX_EGT_ROWS // 2 - 2
"""Rows of one write if it has something to tell: each may have a row of its event's story beside it."""
READS_AT_ONCE: Final = 16
"""Rows of stories that are read at the same time. A wave adds steps to the stories of fifty nodes in one write."""
ATTEMPTS: Final = 10
"""Attempts after conflicts. They are frequent, because all agents of a scope report the same event at once."""


@dataclass(frozen=True, slots=True)
class StoredEvents:
    """The rows that were read. etags: by row key. now: the storage service's time of the answer. whole: the view has all nodes."""

    view: FleetEvents
    etags: Mapping[str, str]
    now: Millis
    whole: bool


class MaintenanceStore:
    """Reads and writes maintenance rows. One per process; keeps no state."""

    def __init__(self, tables: Tables, wall: Callable[[], Millis]) -> None:
        """wall: the time of the app's steps. Storage's own has whole seconds only, and steps are in order of time."""
        self._tables, self.wall = tables, wall

    async def definition(self, key: str) -> Fleet | None:
        """Return the fleet as it is defined now; None when there is no such fleet. Raises `StorageError`."""
        row = await self._tables.get(FLEETS, key, FLEET)
        return parse_fleet(row.props) if row is not None else None

    async def read(self, key: str, nodes: Iterable[str] = (), *, whole: bool = False, old: bool = False) -> StoredEvents:
        """Read the fleet's fresh events (`old`: the whole ledger), reservations, monitors and alarms, with the rows of some nodes or
        (`whole`) of all.

        Raises `StorageError`.
        """
        rows, now = await self._rows(key, ALARMS, NODES[1] if whole else NODES[0], () if old else _FRESH)
        if not whole:
            found = await asyncio.gather(*(self._tables.get(MAINTENANCE, key, node_key(node)) for node in nodes))
            rows += [row for row in found if row is not None]
            now = max([now, *(row.read_at for row in found if row is not None)])
        by_key = {row.rk: row for row in rows}
        events = [parse_event(row) for row in rows if EVENTS[0] <= row.rk < EVENTS[1]]
        view = FleetEvents(
            {each.node: each for row in rows if NODES[0] <= row.rk < NODES[1] for each in (parse_node(row),)},
            {each.event_id: each for each in events},
            parse_monitors(by_key.get(MONITORS)),
            parse_alarms(by_key.get(ALARMS)),
            parse_guard(by_key.get(GUARD)),
        )
        return StoredEvents(view, {row.rk: row.etag for row in rows}, now, whole)

    async def event(self, key: str, event_id: str) -> EventRow | None:
        """Return one event of any age. Raises `StorageError`."""
        row = await self._tables.get(MAINTENANCE, key, event_key(event_id))
        return parse_event(row) if row is not None else None

    async def events(self, key: str) -> list[EventRow]:
        """Return all events of the ledger. Raises `StorageError`."""
        return [parse_event(row) for row in await load_rows(self._tables, RowQuery(MAINTENANCE, key, *EVENTS))]

    async def write(
        self, key: str, read: StoredEvents, kept: Mapping[str, MaintenanceRow | None], reported: Told | None = None
    ) -> StoredEvents | None:
        """Write rows by key (None: remove), all at once or none. Return the fleet as it is then; None when another write came in between.
        Raises `TooLarge`, `StorageError`.

        Of very many events the first are written: what is left over is found again by the next look. The same write adds what it decides to
        the stories of its events, and the steps that an agent reported.
        """
        kept = dict(list(kept.items())[:MOST_ROWS])
        told = told_by(read.view, kept, self.wall())
        if len(kept) > SURE_ROWS and told:
            kept = dict(list(kept.items())[:SURE_ROWS])
            told = told_by(read.view, kept, self.wall())
        ops: list[Op] = []
        for rk, value in kept.items():
            etag = read.etags.get(rk)
            if value is None:
                ops.append(Delete(rk, etag or ANY))
                continue
            ops.append(Insert(rk, encode_row(value)) if etag is None else Replace(rk, encode_row(value), etag))
        for about, steps in (reported or {}).items():
            # The cause before its effect.
            told[about] = steps + told.get(about, [])
        for some in batched(list(told.items())[: MAX_EGT_ROWS - len(ops)], READS_AT_ONCE):
            for more in await asyncio.gather(*(self._told(key, event_id, node, steps) for (event_id, node), steps in some)):
                ops += more
        if not ops:
            return read
        written = await self._tables.write(MAINTENANCE, key, ops)
        return _after_write(read, kept, written.etags) if isinstance(written, Applied) else None

    async def story(self, key: str, event_id: str) -> list[StoryRow]:
        """Return all rows of an event's story; rows that cannot be read are left out. Raises `StorageError`."""
        rows = await load_rows(self._tables, RowQuery(MAINTENANCE, key, *story_range(event_id)))
        return [found for row in rows if (found := _readable(row)) is not None]

    async def _told(self, key: str, event_id: str, node: str, steps: Sequence[StoryStep]) -> Sequence[Op]:
        """Return the write that adds steps to a story, on its ETag."""
        rk = story_key(event_id, node)
        row = await self._tables.get(MAINTENANCE, key, rk)
        before = (_readable(row) if row is not None else None) or StoryRow(event_id, node)
        after = with_steps(before, steps)
        if after == before:
            return ()
        return (Insert(rk, encode_story(after)) if row is None else Replace(rk, encode_story(after), row.etag),)

    # -- the index

    async def index(self, tenant: str = "") -> list[str]:
        """Return the keys of the fleets with agents, of one tenant if it is named. Raises `StorageError`."""
        first, end = (f"{tenant}:", f"{tenant};") if tenant else ("", "~")
        return [row.rk for row in await load_rows(self._tables, RowQuery(MAINTENANCE, INDEX, first, end))]

    async def note(self, key: str, props: Props) -> None:
        """Merge properties into a fleet's index row, if it still exists. Raises `StorageError`."""
        await self._tables.write(MAINTENANCE, INDEX, (Merge(key, props, ANY),))

    async def enlist(self, key: str) -> None:
        """Add a fleet to the index. Raises `StorageError`."""
        await self._tables.write(MAINTENANCE, INDEX, (Upsert(key, {"fresh": True}),))

    # -- the end

    async def stale(self, key: str, events: Iterable[EventRow], *, remove: bool) -> int:
        """Take ended events out of what reports read, or (`remove`) out of the ledger. Returns their number."""
        events = list(events)
        if remove:
            # Before the events: after a failure, the next run finds the events again, and with them their stories.
            for each in events:
                await self._remove_rows(key, *story_range(each.event_id))
        keys = [event_key(each.event_id) for each in events]
        for start in range(0, len(keys), MAX_EGT_ROWS):
            some = keys[start : start + MAX_EGT_ROWS]
            await self._tables.write(MAINTENANCE, key, [Delete(rk, ANY) if remove else Merge(rk, {"fresh": False}, ANY) for rk in some])
        return len(keys)

    async def end(self, key: str) -> None:
        """Remove all rows of an ended fleet. Safe to repeat. Raises `StorageError`."""
        await self._remove_rows(key, "", "~")
        if await self._tables.get(MAINTENANCE, INDEX, key) is not None:
            await self._tables.write(MAINTENANCE, INDEX, (Delete(key, ANY),))

    async def _remove_rows(self, key: str, first: str, end: str) -> None:
        rows = await load_rows(self._tables, RowQuery(MAINTENANCE, key, first, end))
        for start in range(0, len(rows), MAX_EGT_ROWS):
            await self._tables.write(MAINTENANCE, key, [Delete(row.rk, ANY) for row in rows[start : start + MAX_EGT_ROWS]])

    async def _rows(self, key: str, first: str, end: str, where: Sequence[Where]) -> tuple[list[Row], Millis]:
        rows: list[Row] = []
        read_at = 0
        async for page in each_page(self._tables, RowQuery(MAINTENANCE, key, first=first, end=end, where=where)):
            rows += page.rows
            read_at = page.read_at
        return rows, read_at


def changed_events(view: FleetEvents, events: Mapping[str, EventRow]) -> dict[str, MaintenanceRow]:
    """Return the rows of the changed events."""
    return {event_key(event_id): event for event_id, event in events.items() if event != view.events.get(event_id)}


def _after_write(read: StoredEvents, kept: Mapping[str, MaintenanceRow | None], etags: Sequence[str]) -> StoredEvents:
    """Return what was read with the rows that a write has replaced. etags: of the rows of `kept`, in their order, and others after them."""
    view, known = read.view, dict(read.etags)
    nodes, events = dict(view.nodes), dict(view.events)
    for (rk, row), etag in zip(kept.items(), etags, strict=False):
        match row:
            case None:
                known.pop(rk, None)
                nodes.pop(rk.removeprefix(NODES[0]), None)
                continue
            case NodeRow():
                nodes[row.node] = row
            case EventRow():
                events[row.event_id] = row
            case MonitorsRow():
                view = replace(view, monitors=row)
            case AlarmsRow():
                view = replace(view, alarms=row)
            case GuardRow():
                view = replace(view, guard=row)
        known[rk] = etag
    return replace(read, view=replace(view, nodes=nodes, events=events), etags=known)


def _readable(row: Row) -> StoryRow | None:
    """Return the story in a row; None for one that was edited so that it cannot be read: that stops no decision."""
    try:
        return parse_story(row.props)
    except (KeyError, TypeError, ValueError):
        return None
