"""The audit trail: a record of each administrative call, kept for a year.

    partition          row                                       content
    audit:{month}      {9999999999999 - milliseconds}-{name}     a record: at, by, tenant, action, path; then outcome, status, changes

The newest record is the first of its month; the name begins with a number that keeps the order within a millisecond. The rows are in table
`TocsinTenants`, so a mirrored pair has them in both accounts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson

from ..core.clock import Clock, Millis, to_text
from ..core.errors import Unavailable
from ..core.ids import SystemIds
from ..engine.effects import first_rows
from ..storage.names import SECOND, TENANTS
from ..storage.ports import ANY, Applied, Delete, Insert, Merge, Props, Row, RowQuery, Tables, Upsert, Where
from ..web.audited import Change, Outcome
from ..web.problem import invalid
from ..web.routes import Call

KEPT = timedelta(days=366)
_LATEST = 9_999_999_999_999
_MOST_AT_ONCE = 9999
OLDER = 12
"""Months before the last one that is too old in which records may be left."""
_DAY: Millis = 86_400_000
_BATCH = 100
_POSITION = re.compile(r"20\d\d-(?:0[1-9]|1[0-2])/\d{13}-\d{4}[0-9a-v]{16}")


class Position(NamedTuple):
    """A place in the list: a month, and the key of the last record shown."""

    month: str
    row: str

    @property
    def text(self) -> str:
        """Return the position as one string."""
        return f"{self.month}/{self.row}"


def parse_position(text: str) -> Position | None:
    """Parse `Position.text`; None for '', the beginning. Raises 422 for another text."""
    if not text:
        return None
    if not _POSITION.fullmatch(text):
        raise invalid("?cursor", "is not a cursor of this list; begin the list again without it")
    month, _, row = text.partition("/")
    return Position(month, row)


class AuditRecords:
    """Stores, lists and removes records. One per process."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        # Names that repeat with a seed would change those of events: who calls as an operator must not change what a simulation shows.
        self._tables, self._clock, self._ids = tables, clock, SystemIds()
        self._last = (0, 0)
        """The latest millisecond with a record of this process, and how many it had before its last one."""

    async def begin(self, call: Call[Any, Any, Any], action: str) -> str:
        """Store a record of a call that is about to be carried out; return its name. Raises `StorageError`."""
        row, props = self._new(call, action)
        month = _month(int(props["at"]))
        written = await self._tables.write(TENANTS, _partition(month), [Insert(row, props)])
        if not isinstance(written, Applied):
            raise Unavailable("a record of the audit trail exists already")
        return f"{month}/{row}"

    def _new(self, call: Call[Any, Any, Any], action: str) -> tuple[str, Props]:
        now = self._clock.now()
        self._last = (now, self._last[1] + 1 if self._last[0] == now else 0)
        row = f"{_LATEST - now:013d}-{max(0, _MOST_AT_ONCE - self._last[1]):04d}{self._ids.name()}"
        tenant = call.params.get("tenant", call.tenant)
        props: Props = {"at": now, "by": call.key.prefix or "nobody", "tenant": tenant, "action": action, "path": call.path}
        return row, props

    async def add_to_second(self, call: Call[Any, Any, Any], action: str, status: int) -> None:
        """Store the record of a call that is done in the second account, which answers whenever one can switch. Raises `StorageError`."""
        row, props = self._new(call, action)
        done: Props = {**props, "outcome": "done", "status": status, "changes": "[]"}
        await self._tables.write(SECOND + TENANTS, _partition(_month(int(props["at"]))), [Upsert(row, done)])

    async def end(self, name: str, outcome: Outcome, status: int, changes: list[Change]) -> None:
        """Complete a record. Raises `StorageError`."""
        month, _, row = name.partition("/")
        props: Props = {"outcome": outcome, "status": status, "changes": orjson.dumps([list(change) for change in changes]).decode()}
        await self._tables.write(TENANTS, _partition(month), [Merge(row, props, ANY)])

    async def list(
        self, limit: int, start: Position | None, *, first: Millis | None = None, end: Millis | None = None, where: Mapping[str, str]
    ) -> tuple[list[dict[str, Any]], Position | None]:
        """Return records, the newest first, and the position to continue after. where: values that properties must have."""
        now = self._clock.now()
        latest = _month(min(now, end) if end is not None else now)
        earliest = _month(max(first or 0, now - round(KEPT.total_seconds() * 1000)))
        month = min(start.month, latest) if start is not None else latest
        found: list[Row] = []
        begin = f"{_LATEST - end + 1:013d}" if end is not None else ""
        # A time before 1970 would make a longer number, which sorts before those of all records.
        stop = f"{_LATEST - first + 1:013d}" if first is not None and first > 0 else None
        conditions = [Where(name, "eq", value) for name, value in where.items()]
        while month >= earliest:
            after = max(begin, f"{start.row}!") if start is not None and start.month == month else begin
            wanted = limit + 1 - len(found)
            rows, _ = await first_rows(self._tables, RowQuery(TENANTS, _partition(month), first=after, end=stop, where=conditions), wanted)
            found += rows
            if len(found) > limit:
                last = found[limit - 1]
                return [_shown(row) for row in found[:limit]], Position(last.pk.partition(":")[2], last.rk)
            month = _before(month)
        return [_shown(row) for row in found], None

    async def retain(self, now: Millis) -> Counter[str]:
        """Remove records of the month that has become too old, and of one of the `OLDER` before it, each day another one: perhaps the app
        did not run for months. Return counts. Raises `StorageError`."""
        counts: Counter[str] = Counter()
        month = older = _before(_month(now - round(KEPT.total_seconds() * 1000)))
        for _ in range(1 + now // _DAY % OLDER):
            older = _before(older)
        for each in (month, older):
            page = await self._tables.query(RowQuery(TENANTS, _partition(each), select=("at",), limit=_BATCH))
            if page.rows:
                await self._tables.write(TENANTS, _partition(each), [Delete(row.rk, ANY) for row in page.rows])
                counts["removed"] += len(page.rows)
        return counts


def _partition(month: str) -> str:
    return f"audit:{month}"


def _month(at: Millis) -> str:
    return to_text(at)[:7]


def _before(month: str) -> str:
    first = datetime(int(month[:4]), int(month[5:]), 1, tzinfo=UTC)
    return (first - timedelta(days=1)).strftime("%Y-%m")


def _shown(row: Row) -> dict[str, Any]:
    props = row.props
    changes = [{"field": field, **_values(before, after)} for field, before, after in orjson.loads(str(props.get("changes", "[]")))]
    return {
        "at": to_text(int(props["at"])),
        "by": props["by"],
        "tenant": props["tenant"] or None,
        "action": props["action"],
        "path": props["path"],
        "outcome": props.get("outcome", "unknown"),
        "status": props.get("status"),
        "changes": changes,
    }


def _values(before: str, after: str) -> dict[str, str]:
    return {name: value for name, value in (("before", before), ("after", after)) if value}
