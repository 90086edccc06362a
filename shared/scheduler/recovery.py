"""Recovery after the death of a process: asks at once for the shards that it served, and for messages that it had taken.

The timers do the same, later: they may be silent for a minute after a hard kill, and they wait until a gate is old. A new process looks a
few times while it is young, for owners whose process it can prove to have ended, and for shards that no process serves. It writes nothing
but the marks of the ordinary sweep, so it may run in any number of processes at once, or never.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable

from ..core.clock import Clock, Millis
from ..core.errors import StorageError
from ..core.process_identity import ProcessIdentity
from ..engine.async_runner import AsyncRunner
from ..storage.names import SHARDS
from ..storage.ports import Row, Tables, Where
from . import timings
from .firing import backlog
from .keys import HOME, index_partitions, minute_text
from .protocol.dispatch import recover

log = logging.getLogger(__name__)

IN_FLIGHT = 16
MOST_ROWS = 200
"""Most index rows of one partition that one look reads; the sweeps have the rest."""


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

    async def run(self) -> None:
        """Look at the times of `RECOVER_AT`, counted from this call."""
        began = self._clock.monotonic()
        for at in timings.RECOVER_AT:
            await self._clock.sleep(max(0.0, began + at - self._clock.monotonic()))
            await self.run_once(self._clock.now())

    async def run_once(self, now: Millis) -> Counter[str]:
        """Ask for every shard that was lost with a process. Return counts by result."""
        counts: Counter[str] = Counter()
        for found in await asyncio.gather(*(self._partition(partition, now) for partition in self._partitions)):
            counts.update(found)
        if counts["resent"]:
            extra = {"action": "shards_recovered", "count": counts["resent"]}
            log.info("%d shards had lost their process or their message; they were asked for again", counts["resent"], extra=extra)
        return counts

    async def _partition(self, partition: str, now: Millis) -> Counter[str]:
        first, end = minute_text(now - timings.RECOVER_WITHIN), minute_text(now + timings.MINUTE)
        where = (Where("state", "eq", "sent"),)
        try:
            async with self._in_flight:
                page = await self._tables.query(SHARDS, partition, first=first, end=end, where=where, limit=MOST_ROWS)
        except StorageError as error:
            # An account that does not answer must not delay the shards of the others.
            log.debug("The index partition %s could not be read: %s", partition, error, extra={"action": "partition_unread"})
            return Counter({"unread": 1})
        # The backlog has a line of its own, and its messages may wait in their queue for minutes.
        rows = [row for row in page.rows if not backlog.is_late(row, now) and not row.props.get("events")]
        return Counter(await asyncio.gather(*(self._one(row, now) for row in rows)))

    async def _one(self, row: Row, now: Millis) -> str:
        async with self._in_flight:
            try:
                return await self._runner.run(recover(row, now, self._has_ended))
            except StorageError as error:
                log.debug("An index row could not be looked at: %s", error, extra={"action": "recovery_failed", "row": row.rk})
                return "failed"

    def _has_ended(self, name: str) -> bool:
        return self._process is not None and self._process.has_ended(name)
