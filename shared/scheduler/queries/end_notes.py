"""Notes user ends (`protocol.user_ends`) for totals, and removes notes of finished shards.

A process gathers for a second what it changes, so that many changes of a shard, and many shards, share a transaction. Nothing waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from itertools import batched
from typing import Final

from ...core import backoff
from ...core.clock import Clock, Millis
from ...core.errors import Rejected, StorageError
from ...engine import leaving
from ...engine.async_runner import AsyncRunner
from ...storage.names import EVENTS, SHARDS, SWEEPS
from ...storage.ports import Delete, Row, RowQuery, Tables
from ..keys import GATE, HOME, index_partitions, index_shard
from ..protocol.user_ends import (
    NO_ENDS,
    PARTITIONS,
    EndsNote,
    UserEnds,
    end_of,
    new_note,
    noted_shard,
    parse_ends,
    partition_of,
    store_notes,
)
from ..rules import is_user_end
from ..shard.gate import parse_gate
from ..timings import ENDS_NOTED_WITHIN

log = logging.getLogger(__name__)

MOST_NOTES: Final = 5_000
"""Shards whose notes a process remembers, the latest ones. If one of the others is changed again, it gets another row."""
TOGETHER: Final = 100
"""Rows in one transaction."""
LONGEST_PAUSE: Final = 30.0
"""Longest pause in seconds before notes that storage did not take are sent again."""
LAST_STORE: Final = 2.0
"""Seconds that the last notes of a process have. What storage does not take then, the next owner of the shard counts."""
PAGE: Final = 1_000
OLD: Millis = 600_000
"""Age from which a note may be removed: its shard's rows are not read any more by whoever began before the shard was finished."""
MOST_REMOVED: Final = 20_000
"""Most notes that one run looks at; the next run continues."""
IN_FLIGHT: Final = 32


class EndNotes:
    """Gathers the notes of this process and stores them. One per process; belongs to one event loop."""

    def __init__(self, runner: AsyncRunner, tables: Tables, clock: Clock, places: Iterable[str] = (HOME,)) -> None:
        self._runner, self._tables, self._clock = runner, tables, clock
        self._partitions = index_partitions(places)
        self._notes: OrderedDict[str, EndsNote] = OrderedDict()
        self._waiting: dict[EndsNote, None] = {}
        """Notes with events that are not stored."""
        self._task: asyncio.Task[None] | None = None
        self._leaving = False

    def ended(self, row: Row, state: str = "") -> None:
        """Note that no owner has brought the event to its final state. state: the final one, if `row` is from before.

        The caller knows that the state is stored. An event that is open, or that its owner has ended, is left out: the gate counts it.
        """
        state = state or str(row.props["state"])
        if not is_user_end(state, row.props):
            return
        note = self._notes.get(row.pk)
        if note is None:
            note = self._notes[row.pk] = new_note(row.pk, row.rk)
            if len(self._notes) > MOST_NOTES and self._notes[oldest := next(iter(self._notes))] not in self._waiting:
                del self._notes[oldest]
        self._notes.move_to_end(row.pk)
        note.ends = note.ends.joined(end_of(row.rk, state, row.props))
        if note.ends != note.stored:
            self._waiting[note] = None
            if self._task is None:
                self._task = asyncio.create_task(self._store_later())

    def leave(self) -> None:
        """Gather no longer, because the process is about to end."""
        self._leaving = True

    async def close(self) -> None:
        """Store what is gathered, if storage takes it within `LAST_STORE`."""
        self.leave()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await leaving.end_within([asyncio.create_task(self._store())], LAST_STORE)

    async def _store_later(self) -> None:
        failed = 0
        try:
            while self._waiting:
                wait = ENDS_NOTED_WITHIN if not failed else backoff.exponential(ENDS_NOTED_WITHIN, failed, LONGEST_PAUSE)
                await leaving.pause(self._clock, wait, lambda: self._leaving)
                failed = 0 if await self._store() else failed + 1
                if failed and self._leaving:
                    return
        finally:
            self._task = None

    async def _store(self) -> bool:
        """Store the notes that wait; return False if storage did not take some of them, which wait on."""
        waiting, self._waiting = self._waiting, {}
        groups: dict[str, list[EndsNote]] = {}
        for note in waiting:
            groups.setdefault(partition_of(note.shard), []).append(note)
        done = await asyncio.gather(
            *(self._store_some(partition, some) for partition, notes in groups.items() for some in batched(notes, TOGETHER))
        )
        return all(done)

    async def _store_some(self, partition: str, notes: tuple[EndsNote, ...]) -> bool:
        try:
            await self._runner.run(store_notes(partition, notes))
        except Rejected as error:
            log.warning("Storage refuses %d notes of ended events: %s", len(notes), error, extra={"action": "ends_refused"})
        except StorageError as error:
            log.debug("%d notes of ended events wait: %s", len(notes), error, extra={"action": "ends_unnoted"})
            self._waiting.update(dict.fromkeys(notes))
            return False
        except asyncio.CancelledError:
            self._waiting.update(dict.fromkeys(notes))
            raise
        return True

    async def tidy(self, now: Millis) -> Counter[str]:
        """Remove the notes of finished shards; return counts by result. Raises `StorageError`."""
        rows = [row for partition in PARTITIONS for row in await self._old(partition)]
        if not rows:
            return Counter()
        # Few of the notes that are left after this are of unfinished shards, and only these cost a look at a gate each.
        finished = await self._unfiled({noted_shard(row.rk) for row in rows})
        gone = [row for row in rows if noted_shard(row.rk) in finished]
        for partition in PARTITIONS:
            for some in batched((row for row in gone if row.pk == partition), TOGETHER):
                await self._tables.write(SWEEPS, partition, tuple(Delete(row.rk, row.etag) for row in some))
        return Counter(removed=len(gone), kept=len(rows) - len(gone))

    async def _old(self, partition: str) -> list[Row]:
        rows: list[Row] = []
        cursor: str | None = None
        while len(rows) < MOST_REMOVED // len(PARTITIONS):
            page = await self._tables.query(RowQuery(SWEEPS, partition, select=("moved",), cursor=cursor))
            rows += [row for row in page.rows if row.read_at - row.timestamp >= OLD]
            cursor = page.next
            if cursor is None:
                break
        return rows

    async def _unfiled(self, shards: set[str]) -> set[str]:
        """Return those of the shards that are finished, or gone."""
        left = set(shards)
        for partition in self._partitions:
            cursor: str | None = None
            while left:
                page = await self._tables.query(RowQuery(SHARDS, partition, select=("wake",), limit=PAGE, cursor=cursor))
                left.difference_update(index_shard(row.rk) for row in page.rows)
                cursor = page.next
                if cursor is None:
                    break
        finished: set[str] = set()
        # A row that was filed for another minute meanwhile may have been missed.
        for some in batched(sorted(left), IN_FLIGHT):
            gates = await asyncio.gather(*(self._tables.get(EVENTS, shard, GATE) for shard in some))
            finished |= {shard for shard, row in zip(some, gates, strict=True) if row is None or parse_gate(row.props).state == "done"}
        return finished


async def read_ends(tables: Tables, tenant: str = "", pages: int | None = None) -> tuple[Mapping[str, UserEnds], bool]:
    """Return the noted ends by shard, of one tenant or of all, and True if there are more. Raises `StorageError`.

    pages: most pages of each partition.
    """
    found: dict[str, UserEnds] = {}

    async def read(partition: str) -> bool:
        cursor: str | None = None
        number = 0
        while pages is None or number < pages:
            first, end = (f"{tenant}:", f"{tenant};") if tenant else ("", None)
            page = await tables.query(RowQuery(SWEEPS, partition, first=first, end=end, limit=PAGE, cursor=cursor))
            number += 1
            for row in page.rows:
                shard = noted_shard(row.rk)
                found[shard] = found.get(shard, NO_ENDS).joined(parse_ends(row.props))
            cursor = page.next
            if cursor is None:
                return False
        return True

    more = await asyncio.gather(*map(read, PARTITIONS))
    return found, any(more)
