"""Calendars of tenants: named lists of dates on which schedules that name them do not occur.

    partition     row                content
    calendars     {tenant}:{name}    the tenant's uid, and the dates

A schedule is stored with the days of its calendars, so that its chain follows from its row alone. A changed calendar gives each schedule
that names it a new revision; what a process that ends in between leaves is done by the next call, or within the hour by the sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ...core.errors import Problem
from ...core.loop_turns import LoopTurns
from ...engine.conflicts import CONFLICT, WriteConflict, retry_on_conflict
from ...engine.queries import load_rows
from ...storage.names import SCHEDULES
from ...storage.ports import Applied, Delete, Insert, Props, Replace, Row, RowQuery, Tables
from ...tenants.store import contended
from ...web.etag import check_if_match, etag_of
from ...web.problem import conflict, invalid, not_found
from .exclusions import MOST_DAYS, days_text, parse_days

PARTITION: Final = "calendars"
MOST_CALENDARS: Final = 100
"""Most calendars of a tenant. Counted before one is made, so that calls at the same time may make a few more."""
TRIES: Final = 5


class Calendar(NamedTuple):
    """A stored calendar: its name, its days by number, in order, and the row's ETag."""

    name: str
    days: tuple[int, ...]
    etag: str


class Calendars:
    """The stored calendars. One per process."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def get(self, tenant: str, uid: str, name: str) -> Calendar:
        """Return a calendar of the tenant's incarnation. Raises 404, `StorageError`."""
        row = await self._tables.get(SCHEDULES, PARTITION, f"{tenant}:{name}")
        if row is None or row.props["uid"] != uid:
            raise not_found("calendar")
        return _calendar(row)

    async def all(self, tenant: str, uid: str) -> list[Calendar]:
        """Return the tenant's calendars by name. Raises `StorageError`."""
        rows, turns, found = (
            await load_rows(self._tables, RowQuery(SCHEDULES, PARTITION, f"{tenant}:", f"{tenant};")),
            LoopTurns(),
            list[Calendar](),
        )
        for row in rows:
            if row.props["uid"] == uid:
                found.append(_calendar(row))
                await turns.spend(len(str(row.props["days"])))
        return found

    async def _count(self, tenant: str, uid: str) -> int:
        rows = await load_rows(self._tables, RowQuery(SCHEDULES, PARTITION, f"{tenant}:", f"{tenant};", select=("uid",)))
        return sum(row.props["uid"] == uid for row in rows)

    async def put(
        self, tenant: str, uid: str, name: str, days: Iterable[int], headers: Mapping[str, str], *, dry_run: bool
    ) -> tuple[Calendar, bool]:
        """Store a calendar; the second value is True if it is new. The same dates again change nothing.

        dry_run: store nothing; the ETag is empty if something would be stored. Raises 409, 412, `StorageError`.
        """
        wanted = tuple(sorted(set(days)))
        key = f"{tenant}:{name}"

        async def attempt() -> tuple[Calendar, bool] | WriteConflict:
            row = await self._tables.get(SCHEDULES, PARTITION, key)
            old = _calendar(row) if row is not None and row.props["uid"] == uid else None
            check_if_match(headers, tag_of(old) if old is not None else None)
            if old is not None and old.days == wanted:
                return old, False
            if old is None and await self._count(tenant, uid) >= MOST_CALENDARS:
                raise conflict("too-many-calendars", f"the tenant has {MOST_CALENDARS} calendars; delete one that is not used", "calendars")
            if dry_run:
                return Calendar(name, wanted, ""), old is None
            props: Props = {"uid": uid, "days": days_text(wanted)}
            op = Insert(key, props) if row is None else Replace(key, props, row.etag)
            written = await self._tables.write(SCHEDULES, PARTITION, [op])
            if not isinstance(written, Applied):
                return CONFLICT
            return Calendar(name, wanted, written.etags[0]), old is None

        return await retry_on_conflict(attempt, TRIES, contended)

    async def delete(self, tenant: str, uid: str, name: str, headers: Mapping[str, str]) -> None:
        """Delete a calendar. Raises 404, 409, 412, `StorageError`."""
        found = await self.get(tenant, uid, name)
        check_if_match(headers, tag_of(found))
        gone = await self._tables.write(SCHEDULES, PARTITION, [Delete(f"{tenant}:{name}", found.etag)])
        if not isinstance(gone, Applied):
            raise contended()

    async def days(self, tenant: str, uid: str, names: Iterable[str]) -> tuple[int, ...]:
        """Return the days of several calendars together. Raises 422 for one that does not exist and for too many days."""
        days: set[int] = set()
        for number, name in enumerate(names):
            try:
                days |= set((await self.get(tenant, uid, name)).days)
            except Problem as missing:
                raise invalid(f"/exclude/calendars/{number}", f"there is no calendar {name}; create it first") from missing
        if len(days) > MOST_DAYS:
            raise invalid("/exclude/calendars", f"have {len(days):,} dates together; at most {MOST_DAYS:,}")
        return tuple(sorted(days))

    async def owners(self) -> dict[str, list[tuple[str, Row]]]:
        """Return the rows of all calendars, with the uid in each, by tenant. Raises `StorageError`."""
        owners: dict[str, list[tuple[str, Row]]] = {}
        for row in await load_rows(self._tables, RowQuery(SCHEDULES, PARTITION, "", "~", select=("uid",))):
            owners.setdefault(row.rk.partition(":")[0], []).append((str(row.props["uid"]), row))
        return owners

    async def remove(self, row: Row) -> None:
        """Remove a row as it was read. Raises `StorageError`."""
        await self._tables.write(SCHEDULES, PARTITION, [Delete(row.rk, row.etag)])


def tag_of(calendar: Calendar) -> str:
    """Return the entity tag of a calendar's representation; '' for one that is not stored."""
    return etag_of(calendar.etag) if calendar.etag else ""


def _calendar(row: Row) -> Calendar:
    return Calendar(row.rk.partition(":")[2], parse_days(str(row.props["days"])), row.etag)
