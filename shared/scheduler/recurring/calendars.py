"""Calendars of tenants: named lists of dates on which schedules that name them do not occur.

    partition     row                content
    calendars     {tenant}:{name}    the tenant's uid, and the dates

A schedule is stored with the days of its calendars, so that its chain follows from its row alone. A changed calendar gives each schedule
that names it a new revision; what a process that ends in between leaves is done by the next call, or within the hour by the sweep.

Each operation on a calendar reaches the schedules that name it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import batched
from typing import Final, NamedTuple

from ...core.clock import Millis
from ...core.errors import Problem
from ...core.event_loop import LoopTurns
from ...core.ids import Ids
from ...engine.conflicts import CONFLICT, WriteConflict, retry_on_conflict
from ...engine.effects import load_rows
from ...storage.names import SCHEDULES
from ...storage.ports import Applied, Delete, Insert, Props, Replace, Row, RowQuery, Tables
from ...tenants.store import TenantDirectory, contended
from ...web.etag import check_if_match, etag_of
from ...web.problem import conflict, invalid, not_found
from . import rules
from .definition import Definition
from .model import Recurrence
from .store import ScheduleDefinitions
from .timing import days_text, parse_days

log = logging.getLogger(__name__)

PARTITION: Final = "calendars"
MOST_CALENDARS: Final = 100
"""Most calendars of a tenant. Counted before one is made, so that calls at the same time may make a few more."""
MAX_CALENDAR_DATES = 1000
"""Most dates of one calendar."""
MOST_DATES = 2000
"""Most dates of all calendars that a schedule names: their numbers are stored with it."""
TRIES: Final = 5
AT_ONCE = 8
"""Schedules that a changed calendar reaches at the same time."""
NAMED = 5
"""Schedules that a refusal names."""

type ChangeDefinition = Callable[[Definition | None, Millis], Definition | None]
type ChangeSchedule = Callable[[str, str, ChangeDefinition], Awaitable[object]]
"""Writes the result of a function for a stored schedule, and carries it through."""


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
        if len(days) > MOST_DATES:
            raise invalid("/exclude/calendars", f"have {len(days):,} dates together; at most {MOST_DATES:,}")
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


class CalendarChanges:
    """Creates, changes and deletes calendars. One per process."""

    def __init__(
        self, store: ScheduleDefinitions, calendars: Calendars, directory: TenantDirectory, ids: Ids, change: ChangeSchedule
    ) -> None:
        self._store, self._calendars, self._directory, self._ids, self._change = store, calendars, directory, ids, change

    async def put(
        self, tenant: str, name: str, days: Iterable[int], headers: Mapping[str, str], *, dry_run: bool
    ) -> tuple[Calendar, str, bool]:
        """Store a calendar, and give the schedules that name it its days; return it, its entity tag, and True if it is new.

        If this fails half-way, the same call again goes on. dry_run: store nothing; the entity tag is empty if something would be stored.
        Raises 404, 409, 412, 422, `StorageError`.
        """
        uid = (await self._directory.home(tenant)).uid
        stored, new = await self._calendars.put(tenant, uid, name, days, headers, dry_run=dry_run)
        if not dry_run:
            # Also if nothing was stored: the former call may have ended before it reached all of them.
            await self._reach(tenant, uid, [each for each, spec in await self._naming(tenant, uid) if name in names_of(spec)])
        return stored, tag_of(stored), new

    async def get(self, tenant: str, name: str) -> Calendar:
        """Return a calendar. Raises 404."""
        return await self._calendars.get(tenant, (await self._directory.home(tenant)).uid, name)

    async def all(self, tenant: str) -> list[Calendar]:
        """Return the tenant's calendars by name."""
        return await self._calendars.all(tenant, (await self._directory.home(tenant)).uid)

    async def delete(self, tenant: str, name: str, headers: Mapping[str, str]) -> None:
        """Delete a calendar. Raises 404, 409 `calendar-in-use` while a schedule names it, 412."""
        uid = (await self._directory.home(tenant)).uid
        if using := sorted(each for each, spec in await self._naming(tenant, uid) if name in names_of(spec)):
            more = f" and {len(using) - NAMED:,} more" if len(using) > NAMED else ""
            raise conflict("calendar-in-use", f"schedules name it: {', '.join(using[:NAMED])}{more}")
        await self._calendars.delete(tenant, uid, name, headers)

    async def days_for(self, tenant: str, uid: str, spec: Recurrence) -> tuple[int, ...]:
        """Return the days of the calendars that a schedule names. Raises 422."""
        return await self._calendars.days(tenant, uid, names_of(spec))

    async def follow(self, tenant: str, uid: str, schedule: str) -> bool:
        """Give a schedule the present days of its calendars; return True if it had others. Raises `StorageError`."""
        found = await self._store.get(tenant, schedule)
        if found is None or found.deleted or found.uid != uid or not (names := names_of(found.spec)):
            return False
        try:
            days = await self._calendars.days(tenant, uid, names)
        except Problem as missing:
            # It was deleted while the schedule was stored; the schedule keeps the days that it has.
            log.warning("Schedule %s: %s", schedule, missing, extra={"action": "calendar_missing", "tenant": tenant, "schedule": schedule})
            return False
        if found.calendar_days == days:
            return False
        changed = False

        def change(old: Definition | None, now: Millis) -> Definition | None:
            nonlocal changed
            if old is None or old.deleted or old.uid != uid:
                raise not_found("schedule")
            # Whoever changed its calendars meanwhile has read them.
            changed = names_of(old.spec) == names and old.calendar_days != days
            return rules.redefined(old, old.spec, old.body, now, self._ids.name(), days) if changed else None

        try:
            await self._change(tenant, schedule, change)
        except Problem as problem:
            # It was deleted meanwhile.
            if problem.status != 404:
                raise
        return changed

    async def follow_all(self, now: Millis) -> Counter[str]:
        """Reach the schedules that an interrupted change of a calendar has not reached, and remove calendars of tenants that are gone."""
        counts: Counter[str] = Counter()
        for tenant, rows in (await self._calendars.owners()).items():
            uid = await self._directory.uid(tenant)
            for owner, row in rows:
                if owner != uid and await self._gone(tenant, owner):
                    await self._calendars.remove(row)
                    counts["removed"] += 1
            if uid is not None:
                counts["followed"] += await self._reach(tenant, uid, [each for each, _ in await self._naming(tenant, uid)])
        return counts

    async def _gone(self, tenant: str, uid: str) -> bool:
        """Return True if the tenant's incarnation is gone, as stored now: a cached answer may be older than the tenant."""
        try:
            return (await self._directory.home(tenant)).uid != uid
        except Problem as problem:
            if problem.status != 404:
                raise
            return True

    async def _naming(self, tenant: str, uid: str) -> list[tuple[str, Recurrence]]:
        return [(each, spec) async for each, spec, _ in self._store.specs(tenant, uid) if names_of(spec)]

    async def _reach(self, tenant: str, uid: str, schedules: Iterable[str]) -> int:
        """Give the schedules the present days of their calendars; return the number of those that had others."""
        count = 0
        for some in batched(schedules, AT_ONCE):
            count += sum(await asyncio.gather(*(self.follow(tenant, uid, each) for each in some)))
        return count


def names_of(spec: Recurrence) -> tuple[str, ...]:
    """Return the names of the calendars that a schedule names."""
    return tuple(spec.exclude.calendars) if spec.exclude is not None else ()
