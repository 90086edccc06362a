"""Tells tenants what happens to their events, channels, schedules and keys: as events of their own, at most one a minute of each kind."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final, cast

from ...core.clock import Clock, Millis
from ...core.errors import Rejected, StorageError
from ...delivery.notices import ABOUT_CHANNELS, NoticeKind
from ...engine.async_runner import AsyncRunner
from ...engine.queries import each_row, load_rows
from ...storage.names import SWEEPS
from ...storage.ports import ANY, Delete, RowQuery, Tables, Where
from ...tenants.store import TenantDirectory
from ..ingest.writer import Writer
from ..keys import digest
from ..owed import NOTICE
from ..rows import EventToStore, new_event
from ..shard.queued_ids import QueuedIds
from .notice_rows import PARTITION, FixedNotice, Happening, close, fix, notice_key, record

log = logging.getLogger(__name__)

LOOK_EVERY: Final[Millis] = 600_000
"""Period in which the sweep looks for notices of processes that have ended; each minute after this process has noted one."""

type Topic = tuple[str, NoticeKind]
"""Tenant and kind."""


class Notices:
    """Notes what happens, and stores the notices. A `Notify`. One per process; belongs to one event loop."""

    def __init__(
        self, runner: AsyncRunner, tables: Tables, clock: Clock, directory: TenantDirectory, writer: Writer, queued_ids: QueuedIds
    ) -> None:
        self._runner, self._tables, self._clock = runner, tables, clock
        self._directory, self._writer, self._ids = directory, writer, queued_ids
        self._waiting: dict[Topic, list[tuple[Happening, asyncio.Future[None]]]] = {}
        """Happenings that are not stored yet, while a write of their topic is under way."""
        self._telling: dict[Topic, asyncio.Task[None]] = {}
        self._open: set[Topic] = set()
        """Topics of which the task has yet to look."""
        self._looked: Millis = 0
        self._noted: Millis = 0

    async def wants(self, tenant: str, kind: NoticeKind, subject: str = "") -> bool:
        """Return True if the tenant is to be told of such a happening. Raises `StorageError`."""
        settings = await self._directory.tenant(tenant)
        wanted = settings.notices if settings is not None else None
        return wanted is not None and kind in wanted.kinds and not (kind in ABOUT_CHANNELS and subject == wanted.channel)

    async def __call__(self, tenant: str, kind: NoticeKind, subject: str, detail: str = "", count: int = 1) -> None:
        """See `Notify`."""
        if not await self.wants(tenant, kind, subject):
            return
        topic, now = (tenant, kind), self._clock.now()
        self._noted = now
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        happening = Happening(subject, detail, now, count)
        if topic in self._waiting:
            # The write that is under way may have read the row already: the next one takes all that wait.
            self._waiting[topic].append((happening, stored))
            await stored
            return
        self._waiting[topic] = []
        try:
            await self._runner.run(record(tenant, kind, [happening]))
            self._start(topic)
        finally:
            await self._record_waiting(topic)

    async def _record_waiting(self, topic: Topic) -> None:
        while some := self._waiting[topic]:
            self._waiting[topic] = []
            failure: Exception | None = None
            try:
                await self._runner.run(record(*topic, [happening for happening, _ in some]))
                self._start(topic)
            except Exception as error:
                failure = error
            for _, stored in some:
                if not stored.done():
                    if failure is None:
                        stored.set_result(None)
                    else:
                        stored.set_exception(failure)
        del self._waiting[topic]

    def _start(self, topic: Topic) -> None:
        """Have what is open told, also by a task that has just seen that nothing is."""
        self._open.add(topic)
        if topic not in self._telling:
            self._telling[topic] = asyncio.create_task(self._tell(topic))

    async def _tell(self, topic: Topic) -> None:
        """Store the notices of a topic until there is nothing to tell."""
        try:
            while topic in self._open:
                self._open.discard(topic)
                while (again := await self._once(*topic)) is not None:
                    await self._clock.sleep(max(0, again - self._clock.now()) / 1000)
        except StorageError as error:
            # The sweep finds it.
            log.debug("A notice could not be stored yet: %s", error, extra={"action": "notice_postponed", "tenant": topic[0]})
        except Exception:
            log.exception("Storing a notice raised an unexpected error", extra={"action": "notice_failed", "tenant": topic[0]})
        finally:
            self._telling.pop(topic, None)

    async def _once(self, tenant: str, kind: NoticeKind) -> Millis | None:
        """Store one notice. Return the time at which to look again; None if there is nothing to tell. Raises `StorageError`."""
        settings = await self._directory.tenant(tenant)
        if settings is None or settings.notices is None or kind not in settings.notices.kinds:
            # The tenant was removed, or does not subscribe any more.
            await self._tables.write(SWEEPS, PARTITION, (Delete(notice_key(tenant, kind), ANY),))
            return None
        fixed = await self._runner.run(fix(tenant, kind, self._clock.now()))
        if not isinstance(fixed, FixedNotice):
            return fixed
        [stored] = await self._writer.store(tenant, [self._event(tenant, kind, settings.notices.channel, fixed)])
        if isinstance(stored, Rejected):
            log.error("Storage refuses a notice: %s", stored, extra={"action": "notice_failed", "tenant": tenant})
        elif isinstance(stored, StorageError):
            raise stored
        await self._runner.run(close(tenant, kind, fixed.seq))
        return self._clock.now()

    def _event(self, tenant: str, kind: NoticeKind, channel: str, fixed: FixedNotice) -> EventToStore:
        from ..model import EventIn

        event = EventIn.model_construct(due=fixed.at, channel=channel, payload=None)
        found = new_event(event, fixed.content, fixed.at)
        found.id = found.props["id"] = self._ids.derive(tenant, fixed.at, fixed.at, fixed.source(kind))
        found.hash = digest("notice", found.id).hex()
        found.props[NOTICE] = kind
        return found

    async def sweep(self, now: Millis) -> Counter[str]:
        """Store what is to be told and no process is at. Return counts."""
        counts: Counter[str] = Counter()
        if now >= self._noted + LOOK_EVERY and now < self._looked + LOOK_EVERY:
            return counts
        self._looked = now
        async for row in each_row(self._tables, RowQuery(SWEEPS, PARTITION, where=(Where("open", "eq", True),), select=("seq",))):
            tenant, _, kind = row.rk.partition(":")
            counts["open"] += 1
            self._start((tenant, cast(NoticeKind, kind)))
        return counts

    async def forget(self, tenant: str) -> None:
        """Remove what is noted for a tenant that is being deleted. Raises `StorageError`."""
        for row in await load_rows(self._tables, RowQuery(SWEEPS, PARTITION, f"{tenant}:", f"{tenant};")):
            await self._tables.write(SWEEPS, PARTITION, (Delete(row.rk, ANY),))

    async def close(self) -> None:
        """End the background tasks. The sweep of another process finds what is left."""
        tasks = list(self._telling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
