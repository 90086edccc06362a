"""Lists a tenant's locks by name, over the partitions that hold them.

Each partition is read in small parts, and a page ends early when it shows many waiters: a row may have 30 kB of them, and one request must
not fill the memory of a process that serves other tenants too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from ..core.clock import Millis
from ..storage.ports import Row, RowQuery, Tables
from .model import LockOut, LockWaiterOut
from .rows import PARTITIONS, TABLE, LockRow, parse_lock, partition_at
from .rules import free_at, is_over, live_waiters

AT_ONCE: Final = 32
"""Most rows of a partition that are read together: 512 of all partitions."""
MOST_SHOWN: Final = 2_000
"""Waiters after which a page ends."""


@dataclass(slots=True)
class _PartitionReader:
    """Reads the rows of a partition in order. rows: read, and not taken yet."""

    tables: Tables
    pk: str
    first: str
    rows: deque[Row] = field(default_factory=deque)
    cursor: str | None = None
    ended: bool = False

    async def fill(self, limit: int) -> None:
        """Read on until there is a row, or none is left."""
        while not self.rows and not self.ended:
            page = await self.tables.query(RowQuery(TABLE, self.pk, first=self.first, limit=limit, cursor=self.cursor))
            self.rows.extend(page.rows)
            self.cursor, self.ended = page.next, page.next is None


async def list_locks(tables: Tables, tenant: str, limit: int, after: str = "") -> tuple[list[LockOut], str | None]:
    """Return locks by name after `after`, at most `limit`, and the last name if there are more. Raises `StorageError`."""
    # `!` sorts before every character of a name.
    first = f"{after}!" if after else ""
    readers = [_PartitionReader(tables, partition_at(tenant, number), first) for number in range(len(PARTITIONS))]
    found: list[LockOut] = []
    shown = 0
    while True:
        await asyncio.gather(*(each.fill(min(limit, AT_ONCE)) for each in readers if not each.rows and not each.ended))
        rest = [each for each in readers if each.rows]
        if not rest:
            return found, None
        if len(found) >= limit or shown >= MOST_SHOWN:
            return found, found[-1].name
        row = min(rest, key=lambda each: each.rows[0].rk).rows.popleft()
        found.append(lock_out(row.rk, parse_lock(row), row.read_at))
        shown += len(found[-1].waiters)


def lock_out(name: str, lock: LockRow, now: Millis) -> LockOut:
    """Return a lock as the API shows it. now: the storage service's time."""
    waiters = [LockWaiterOut(holder=each.holder, since=each.since) for each in live_waiters(lock, now)]
    if is_over(lock, now):
        return LockOut(name=name, state="free", token=lock.token, waiters=waiters)
    revoked = lock.state == "revoked"
    return LockOut(
        name=name,
        state=lock.state,
        token=lock.token,
        holder=lock.holder,
        granted=lock.granted,
        renewed=lock.renewed,
        free_at=free_at(lock),
        waiters=waiters,
        note=lock.note if revoked else None,
        author=lock.author if revoked else None,
    )
