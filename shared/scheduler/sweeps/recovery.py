"""Recovery after the death of a process: asks at once for the shards that it served, and for messages that it had taken.

The timers do the same, later: they may be silent for a minute after a hard kill, and they wait until a gate is old. A new process looks a
few times while it is young, for owners whose process it can prove to have ended, and for shards that no process serves. It writes nothing
but the marks of the ordinary sweep, so it may run in any number of processes at once, or never.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...core.clock import Clock, Millis
from ...core.errors import StorageError
from ...core.process_identity import ProcessIdentity
from ...engine.async_runner import AsyncRunner
from ...storage.names import SHARDS
from ...storage.ports import Row, RowQuery, Tables, Where
from .. import timings
from ..keys import HOME, index_partitions, minute_text
from ..protocol.dispatch import RecoveryLook, recover
from ..shard.gate import process_of
from . import backlog

log = logging.getLogger(__name__)

IN_FLIGHT = 16
"""Index partitions or gates that are read at the same time."""
MOST_GATES = 200
"""Most gates of one partition that one look reads; the next look and the sweeps read the rest."""
EMPTY_LOOKS = 2
"""Looks in a row that find no shard, after which a new process stops looking."""
_LAST_LOOK: Millis = round(1000 * timings.RECOVER_AT[-1])


class SeenOwner(NamedTuple):
    """The owner that an earlier look found in a shard's gate.

    etag: of the index row at that time. It changes whenever the shard rests, or is asked for again. process: identity of the owner's
    process; '' if it is not known. old_at: monotonic time in seconds before which the gate is too young to be taken.
    """

    etag: str
    process: str
    old_at: float


class ShardRecovery:
    """Looks for the shards of processes that have ended. One per process."""

    def __init__(
        self,
        runner: AsyncRunner,
        tables: Tables,
        clock: Clock,
        places: Iterable[str] = (HOME,),
        process: ProcessIdentity | None = None,
    ) -> None:
        self._runner, self._tables, self._clock = runner, tables, clock
        self._partitions, self._process = index_partitions(places), process
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)
        self._seen: dict[str, dict[str, SeenOwner]] = {}
        """By index partition and row key, from the last look."""
        self._leaving = False
        self._began: Millis = 0
        """Time at which the process began to look."""
        self._idle_until: Millis = 0
        """Time before which no shard of the last look can be asked for."""
        self._proves = process is not None and not process.first
        """False where no process can be proven to have ended: then a shard is asked for only if it has been late for a while."""

    def leave(self) -> None:
        """Look no more, because the process stops working."""
        self._leaving = True

    async def run(self) -> None:
        """Look at the times of `RECOVER_AT`, counted from this call.

        Stop after two looks in a row that find no shard: a process that died before this one has left none. Skip looks while none
        of the shards that were found can need one.
        """
        began, empty = self._clock.monotonic(), 0
        self._began = self._clock.now()
        self._idle_until = 0 if self._proves else self._began + timings.RECOVER_AFTER
        for at in timings.RECOVER_AT:
            await self._clock.sleep(max(0.0, began + at - self._clock.monotonic()))
            if self._leaving:
                return
            if self._clock.now() < self._idle_until:
                continue
            try:
                seen = await self.run_once(self._clock.now())
                empty = 0 if seen["rows"] or seen["unread"] else empty + 1
                if empty == EMPTY_LOOKS:
                    return
            except Exception:
                empty = 0
                # A defect that one look meets must not cost the others: the timers may be silent.
                log.exception("A search for lost shards failed; the next one tries again", extra={"action": "recovery_failed"})

    async def run_once(self, now: Millis) -> Counter[str]:
        """Ask for every shard that was lost with a process. Return counts by result."""
        counts: Counter[str] = Counter()
        self._idle_until, wakes = 0, list[Millis]()
        looks = (self._partition(partition, now, wakes) for partition in self._partitions)
        for found in await asyncio.gather(*looks, return_exceptions=True):
            if isinstance(found, BaseException):
                raise found
            counts.update(found)
        if not counts["unread"]:
            self._idle_until = recovers_from(wakes, self._began, proves=self._proves)
        if counts["resent"]:
            extra = {"action": "shards_recovered", "count": counts["resent"]}
            log.info("%d shards had lost their process or their message; their messages were sent again", counts["resent"], extra=extra)
        return counts

    async def _partition(self, partition: str, now: Millis, wakes: list[Millis]) -> Counter[str]:
        """Ask for the lost shards of a partition; add the wake-ups of its rows to `wakes`. Return counts by result."""
        try:
            rows = await self._rows(partition, now)
        except StorageError as error:
            # An account that does not answer must not delay the shards of the others.
            log.debug("The index partition %s could not be read: %s", partition, error, extra={"action": "partition_unread"})
            return Counter({"unread": 1})
        seen = self._seen.get(partition, {})
        self._seen[partition] = kept = {row.rk: seen[row.rk] for row in rows if row.rk in seen}
        # Shards of later minutes have no owner yet.
        end = minute_text(now + timings.WAKE_EARLIEST + timings.MINUTE)
        unknown = [row for row in rows if row.rk < end and self._is_worth_reading(row, kept.get(row.rk))]
        # The latest wake-ups first: the shards of a long backlog must not keep punctual ones from being looked at.
        unknown.sort(key=lambda row: row.rk, reverse=True)
        found = Counter(await asyncio.gather(*(self._one(row, now, kept) for row in unknown[:MOST_GATES])))
        found["rows"] = len(rows)
        wakes += [int(row.props["wake"]) for row in rows]
        return found

    async def _rows(self, partition: str, now: Millis) -> list[Row]:
        """Return the index rows whose message was sent, with a wake-up near now. Raises `StorageError`.

        They reach as far ahead as the last look is away: a process may die after it has filed a shard and before it sends the message, or
        with a message that has become visible just before the minute of its shard.
        """
        end, where = minute_text(now + _LAST_LOOK + timings.MINUTE), (Where("state", "eq", "sent"),)
        async with self._in_flight:
            page = await self._tables.query(
                RowQuery(SHARDS, partition, first=minute_text(now - timings.RECOVER_WITHIN), end=end, where=where)
            )
            if page.next is not None:
                # A long backlog fills the page, so the punctual shards behind it are asked for by themselves.
                punctual = minute_text(now - timings.BACKLOG_AFTER)
                last = await self._tables.query(RowQuery(SHARDS, partition, first=punctual, end=end, where=where))
                return [row for row in page.rows if row.rk < punctual] + last.rows
        return page.rows

    def _is_worth_reading(self, row: Row, seen: SeenOwner | None) -> bool:
        """Return True if the gate of an index row may show what the last look could not know.

        Where this is wrong, because a shard was taken over without a change of its index row, the sweeps find it later.
        """
        if seen is None or seen.etag != row.etag or self._clock.monotonic() >= seen.old_at:
            return True
        return self._has_ended(seen.process)

    async def _one(self, row: Row, now: Millis, seen: dict[str, SeenOwner]) -> str:
        async with self._in_flight:
            try:
                late = _is_late(row, now)
                found = await self._runner.run(recover(row, now, self._has_ended, late=late, began=self._began))
            except StorageError as error:
                log.debug("An index row could not be checked: %s", error, extra={"action": "recovery_failed", "row": row.rk})
                return "failed"
            except Exception:
                # One row that is not as expected must not hide the others.
                log.exception("An index row could not be checked", extra={"action": "recovery_failed", "row": row.rk})
                return "failed"
        self._remember(row, found, seen, late=late)
        return "resent" if found.asked else "nothing"

    def _remember(self, row: Row, found: RecoveryLook, seen: dict[str, SeenOwner], *, late: bool) -> None:
        seen.pop(row.rk, None)
        if found.asked or found.gate is None:
            return
        if late:
            # The sweep sends the message by the backlog's time-line if the shard has no owner, or if the owner is only silent.
            seen[row.rk] = SeenOwner(row.etag, process_of(found.gate), math.inf)
        elif found.gate.state == "owned":
            left = (timings.OWNER_SILENT - found.age) / 1000
            # A gate that was old already was not asked for, because a message may be under way: look again each time.
            seen[row.rk] = SeenOwner(row.etag, process_of(found.gate), self._clock.monotonic() + left)

    def _has_ended(self, name: str) -> bool:
        return self._process is not None and name != "" and self._process.has_ended(name)


def recovers_from(wakes: Sequence[Millis], began: Millis, *, proves: bool) -> Millis:
    """Return the time from which a shard with one of these wake-ups can be asked for; 0 if there is none. Until then no look is needed:
    the next process, or the sweep, finds the shards of processes that end in the meantime.

    began: see `may_recover`. proves: processes can be proven to have ended.
    """
    if not wakes:
        return 0
    return min(wakes) - timings.WAKE_EARLIEST if proves else max(min(wakes), began) + timings.RECOVER_AFTER


def _is_late(row: Row, now: Millis) -> bool:
    """Return True for a shard of the backlog. Its message may wait in its queue for minutes."""
    return backlog.is_late(row, now) or bool(row.props.get("events"))
