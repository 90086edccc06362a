"""A bounded cache of reads with an age limit, one load at a time per key, and a separate, smaller cache of missing keys.

Marks of changes: one small row that a process reads instead of every row of tenants, keys and channels that it has cached.

    partition    row      content
    changes      marks    a random mark for each group of tenants, replaced before a tenant, a key or a channel of the group changes

A process looks at the row at most once in `LOOK_TTL` seconds, and only when it needs a cached row that is too old. If the mark of the row's
group has not changed, the row has not changed either, and is used further without being read. The rules that make this safe:

- The mark is replaced before the change, and the change is stored within `CHANGE_WITHIN` seconds of that, or marked once more before it is
  acknowledged. So a row that is read `SETTLED_AFTER` seconds after the mark was replaced shows the change.
- A process knows only that a mark was replaced before the look that shows it. It takes rows of this group as read anew if their read began
  `SETTLED_AFTER` seconds after the end of that look, and reads older ones again.
- Every row is read again after `LONGEST`, whatever the marks say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple
from zlib import crc32

from ..core.clock import Clock
from ..core.errors import OutcomeUnknown, StorageError
from ..storage.names import TENANTS
from ..storage.ports import ANY, Applied, Insert, Merge, Op, Row, Tables

log = logging.getLogger(__name__)


class Found[V](NamedTuple):
    """An answer. until: monotonic time until which it is used. read_at: monotonic time at which its load began."""

    until: float
    value: V
    read_at: float


class Cached[K: Hashable, V]:
    """A cache of answers of `load`, at most `ttl` seconds old (`missing_ttl` for None), counted from the start of the load.

    Missing keys are cached separately, so that a flood of guesses cannot displace keys in use. Failures are not cached. `drop` also
    discards the result of a load in progress, which may have read the state before the caller's write.
    """

    def __init__(
        self,
        load: Callable[[K], Awaitable[V | None]],
        clock: Clock,
        *,
        ttl: float,
        missing_ttl: float,
        size: int,
        still: Callable[[V, float], Awaitable[float | None]] | None = None,
    ) -> None:
        """still: is asked about an answer that is too old, with the monotonic time at which its load began. It returns the monotonic time
        until which the answer is used further, or None if it must be loaded again."""
        self._load, self._clock, self._ttl, self._missing_ttl, self._size = load, clock, ttl, missing_ttl, size
        self._still = still
        self._found: dict[K, Found[V]] = {}
        self._missing: dict[K, float] = {}
        self._flights: dict[K, asyncio.Task[V | None]] = {}

    def found(self, key: K) -> Found[V] | None:
        """Return the answer in memory if it is young enough. None does not mean that there is none: `get` finds out."""
        kept = self._found.get(key)
        return kept if kept is not None and kept.until > self._clock.monotonic() else None

    async def get(self, key: K) -> V | None:
        """Return the answer, from memory while it is young enough. Raises the exceptions of `load`."""
        if (kept := self.found(key)) is not None:
            return kept.value
        now = self._clock.monotonic()
        if self._missing.get(key, now) > now:
            return None
        flight = self._flights.get(key)
        if flight is None:
            # In a separate task: when one caller is cancelled, the others still get the answer.
            flight = asyncio.ensure_future(self._fetch(key, now))
            self._flights[key] = flight
            flight.add_done_callback(_look)
        return await asyncio.shield(flight)

    def drop(self, key: K) -> None:
        """Forget the answer for `key`."""
        self._found.pop(key, None)
        self._missing.pop(key, None)
        self._flights.pop(key, None)

    async def _fetch(self, key: K, started: float) -> V | None:
        try:
            value, until, read_at = await self._confirm_or_load(key, started)
        except BaseException:
            if self._flights.get(key) is asyncio.current_task():
                del self._flights[key]
            raise
        if self._flights.get(key) is asyncio.current_task():
            del self._flights[key]
            self._keep(key, value, until, read_at)
        return value

    async def _confirm_or_load(self, key: K, started: float) -> tuple[V | None, float, float]:
        """Return the answer, the time until which it is used if there is one, and the time at which its load began."""
        kept = self._found.get(key)
        if kept is not None and self._still is not None:
            until = await self._still(kept.value, kept.read_at)
            if until is not None:
                return kept.value, until, kept.read_at
            started = self._clock.monotonic()
        return await self._load(key), started + self._ttl, started

    def _keep(self, key: K, value: V | None, until: float, read_at: float) -> None:
        self._found.pop(key, None)
        self._missing.pop(key, None)
        if value is None:
            make_room(self._missing, self._size // 4)
            self._missing[key] = read_at + self._missing_ttl
        else:
            make_room(self._found, self._size)
            self._found[key] = Found(until, value, read_at)

    def __len__(self) -> int:
        return len(self._found) + len(self._missing)


def _look(flight: asyncio.Task[object]) -> None:
    # All callers may have been cancelled; reading the failure keeps asyncio from reporting it as never retrieved.
    if not flight.cancelled():
        flight.exception()


def make_room(kept: dict[Any, Any], size: int) -> None:
    """Remove the oldest entries, so that there are at most `size` after one more is added."""
    # The first entry is the oldest: entries are appended, and all have the same age limit.
    while len(kept) >= max(1, size):
        del kept[next(iter(kept))]


PK_CHANGES: Final = "changes"
MARKS: Final = "marks"
GROUPS: Final = 32
LOOK_TTL: Final = 1.0
"""Seconds for which a look at the marks counts. Not longer than any age that a cached row may have."""
CHANGE_WITHIN: Final = 10.0
"""Seconds from the marking of a change within which it is stored, or marked once more."""
SETTLED_AFTER: Final = 15.0
"""Seconds after which a change that was marked is certainly stored: `CHANGE_WITHIN`, and room for the difference of two clocks."""
LONGEST: Final = 60.0
"""Seconds after which a row is read again in any case."""
ATTEMPTS: Final = 5
"""Most attempts to store a mark whose answer was lost."""


def group_of(tenant: str) -> str:
    """Return the property that has the marks of the tenant's group."""
    return f"g{crc32(tenant.encode()) % GROUPS}"


class ChangeMarks:
    """Marks changes, and says which cached rows have not changed. One per process; belongs to one event loop."""

    def __init__(self, tables: Tables, clock: Clock, entropy: Callable[[int], bytes]) -> None:
        self._tables, self._clock, self._entropy = tables, clock, entropy
        self._looks: Cached[str, float] = Cached(self._look, clock, ttl=LOOK_TTL, missing_ttl=LOOK_TTL, size=1)
        self._marks: dict[str, object] | None = None
        """The marks of the last look, by group; None before the first look."""
        self._all_settled = float("-inf")
        self._settled: dict[str, float] = {}
        """By group, the monotonic time after which a row must have been read to show every change that the looks have shown. Groups that
        are left out have that of all."""
        self._failed_until = float("-inf")

    @asynccontextmanager
    async def changing(self, tenant: str) -> AsyncIterator[None]:
        """Mark that rows of the tenant change within this block. Raises `StorageError` if this could not be stored."""
        began = self._clock.monotonic()
        await self._mark(tenant)
        yield
        if self._clock.monotonic() - began > CHANGE_WITHIN:
            await self._mark(tenant)

    async def unchanged(self, tenant: str, read_at: float, ttl: float) -> float | None:
        """Return the monotonic time until which a row of the tenant may be used further; None if it must be read again.

        read_at: monotonic time at which its last read began. ttl: the greatest age that it may have, in seconds.
        """
        if self._is_outdated(tenant, read_at):
            return None
        try:
            seen_at = await self._looks.get("")
        except StorageError as error:
            # The row itself may be within reach. For a while, it is read without a look before.
            log.debug("The marks of changes could not be read: %s", error, extra={"action": "marks_unread"})
            self._failed_until = self._clock.monotonic() + LOOK_TTL
            return None
        if seen_at is None or self._is_outdated(tenant, read_at):
            return None
        return min(seen_at + ttl, read_at + LONGEST)

    def _is_outdated(self, tenant: str, read_at: float) -> bool:
        """Return True if the row must be read again, whatever a further look shows."""
        now = self._clock.monotonic()
        return now < self._failed_until or now - read_at >= LONGEST or read_at <= self._settled.get(group_of(tenant), self._all_settled)

    async def _look(self, key: str) -> float:
        """Look at the marks; return the monotonic time at which the look began."""
        began = self._clock.monotonic()
        row = await self._tables.get(TENANTS, PK_CHANGES, MARKS)
        ended = self._clock.monotonic()
        marks: dict[str, object] = dict(row.props) if row is not None else {}
        if self._marks is None:
            if row is not None:
                self._all_settled = ended - _age(row) + SETTLED_AFTER
        else:
            for group in marks.keys() | self._marks.keys():
                if marks.get(group) != self._marks.get(group):
                    self._settled[group] = ended + SETTLED_AFTER
        self._marks = marks
        return began

    async def _mark(self, tenant: str) -> None:
        """Replace the mark of the tenant's group. A mark that is stored twice, or late, does no harm."""
        props = {group_of(tenant): self._entropy(8).hex()}
        op: Op = Merge(MARKS, dict(props), ANY)
        for attempt in range(ATTEMPTS):
            try:
                answer = await self._tables.write(TENANTS, PK_CHANGES, (op,))
            except OutcomeUnknown:
                if attempt + 1 == ATTEMPTS:
                    raise
                continue
            if isinstance(answer, Applied):
                return
            op = Insert(MARKS, dict(props)) if answer.reason == "missing" else Merge(MARKS, dict(props), ANY)
        raise OutcomeUnknown("a change could not be marked, because the row of marks keeps being removed")


def _age(row: Row) -> float:
    """Return the seconds since the row was written, by storage's time: at most a second too few."""
    return max(0, row.read_at - row.timestamp) / 1000
