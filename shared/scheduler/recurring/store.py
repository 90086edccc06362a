"""Definitions in table `TocsinSchedules`: reads, and conditional writes that include the pointer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import NamedTuple

from ...core.clock import Millis
from ...core.event_loop import LoopTurns
from ...engine.effects import each_page, load_rows
from ...storage.names import SCHEDULES
from ...storage.ports import ANY, Applied, Delete, Insert, Merge, Op, Page, Replace, Row, RowQuery, Tables, Upsert
from ..keys import MINUTE, minute_text
from .definition import DEFINITION, PARTITIONS, POINTER, Definition, definition_key, definition_of, parse_spec, partition_of
from .model import Recurrence

PAGE_BYTES = 4 * 1024 * 1024
"""Bytes of payload and content after which a page of a list ends."""
ROW_COST = 512
"""Bytes that a row counts for, in addition to its content, in the turns of the event loop."""


class SchedulePosition(NamedTuple):
    """A list's position: the partition's number, and the id before it."""

    number: int
    after: str


def pointers_after(until: Millis) -> str:
    """Return the first row key after the pointers up to the minute of `until`."""
    return POINTER + minute_text(until + MINUTE)


class ScheduleDefinitions:
    """The stored schedules. One per process."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def get(self, tenant: str, schedule: str) -> Definition | None:
        """Return the definition, even if it is deleted."""
        row = await self._tables.get(SCHEDULES, partition_of(tenant, schedule), definition_key(tenant, schedule))
        return definition_of(row) if row is not None else None

    async def write(self, old: Definition | None, new: Definition) -> Definition | None:
        """Replace `old` (None: nothing) by `new`, with its pointer, in one transaction. Return None if another process was faster."""
        ops: list[Op] = []
        if old is None:
            ops.append(Insert(new.key, new.props()))
        elif old.content == new.content:
            ops.append(Merge(new.key, new.chain_props(), old.etag))
        else:
            ops.append(Replace(new.key, new.props(), old.etag))
        before = old.pointer if old is not None else ""
        if new.pointer != before:
            if before:
                ops.append(Delete(before, ANY))
            if new.pointer:
                ops.append(Upsert(new.pointer, {"revision": new.revision}))
        answer = await self._tables.write(SCHEDULES, new.partition, ops)
        return replace(new, etag=answer.etags[0]) if isinstance(answer, Applied) else None

    async def remove(self, definition: Definition) -> bool:
        """Remove definition and pointer; return False if another process was faster."""
        ops: list[Op] = [Delete(definition.key, definition.etag)]
        if definition.pointer:
            ops.append(Delete(definition.pointer, ANY))
        return isinstance(await self._tables.write(SCHEDULES, definition.partition, ops), Applied)

    async def forget(self, pointer: Row) -> None:
        """Remove a pointer that no definition names."""
        await self._tables.write(SCHEDULES, pointer.pk, (Delete(pointer.rk, pointer.etag),))

    async def due(self, partition: str, until: Millis, limit: int) -> AsyncIterator[list[Row]]:
        """Yield pointers up to the minute of `until`, the earliest first, about `limit` at a time."""
        cursor: str | None = None
        end = pointers_after(until)
        rows: list[Row] = []
        while True:
            page = await self._tables.query(RowQuery(SCHEDULES, partition, first=POINTER, end=end, cursor=cursor))
            rows += page.rows
            cursor = page.next
            if cursor is None or len(rows) >= limit:
                yield rows
                rows = []
            if cursor is None:
                return

    async def page(self, tenant: str, limit: int, start: SchedulePosition) -> tuple[list[Definition], SchedulePosition | None]:
        """Return a tenant's definitions, without deleted ones, and the position of the next page."""
        found: list[Definition] = []
        size, turns = 0, LoopTurns()
        for number in range(start.number, len(PARTITIONS)):
            after = start.after if number == start.number else ""
            prefix = definition_key(tenant, "")
            # `!` sorts before every character of an id, so this is the first key after `after`; `;` follows the prefix's colon.
            first, end = prefix + after + ("!" if after else ""), prefix[:-1] + ";"
            cursor: str | None = None
            while True:
                page = await self._tables.query(
                    RowQuery(SCHEDULES, PARTITIONS[number], first=first, end=end, limit=min(100, limit), cursor=cursor)
                )
                for row in page.rows:
                    if len(found) == limit or size > PAGE_BYTES:
                        return found, SchedulePosition(number, after)
                    each, content = definition_of(row), content_size(row)
                    after = each.id
                    if not each.deleted:
                        found.append(each)
                        size += len(each.body) + content
                    await turns.spend(ROW_COST + content)
                cursor = page.next
                if cursor is None:
                    break
        return found, None

    async def count(self, tenant: str, uid: str) -> int:
        """Return the number of schedules of the tenant's incarnation, without deleted ones."""
        prefix = definition_key(tenant, "")
        pages = [
            load_rows(self._tables, RowQuery(SCHEDULES, each, prefix, prefix[:-1] + ";", select=("uid", "deleted"))) for each in PARTITIONS
        ]
        return sum(row.props["uid"] == uid and not row.props["deleted"] for rows in await asyncio.gather(*pages) for row in rows)

    async def specs(self, tenant: str, uid: str) -> AsyncIterator[tuple[str, Recurrence, Millis]]:
        """Yield id, content and creation time of each schedule of the tenant's incarnation, without payloads and deleted ones."""
        prefix = definition_key(tenant, "")
        columns = ("uid", "deleted", "spec", "created")
        pages = [load_rows(self._tables, RowQuery(SCHEDULES, each, prefix, prefix[:-1] + ";", select=columns)) for each in PARTITIONS]
        turns = LoopTurns()
        for rows in await asyncio.gather(*pages):
            for row in rows:
                if row.props["uid"] == uid and not row.props["deleted"]:
                    yield row.rk.split(":", 2)[2], parse_spec(str(row.props["spec"])), int(row.props["created"])
                    await turns.spend(ROW_COST + content_size(row))

    def heads(self, partition: str) -> AsyncIterator[Page]:
        """Yield pages of all definitions with only the tenant's uid and the release of the zone data."""
        return each_page(
            self._tables, RowQuery(SCHEDULES, partition, first=DEFINITION, end=DEFINITION[:-1] + ";", select=("uid", "zone_data"))
        )


def content_size(row: Row) -> int:
    """Return the bytes of a definition's content and calendars, which take time to parse."""
    return len(str(row.props["spec"])) + len(str(row.props.get("calendar_days", "")))
