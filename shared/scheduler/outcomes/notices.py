"""Notices: what happens to a tenant's events, channels, schedules and keys is stored, and then told as events.

Protocol steps without I/O.

    TocsinSweeps, notices     {tenant}:{kind}

    (1) what happened is added to the row, before it can be seen by others     (2) its content is fixed: `sending`, and a new `seq`
    (3) an event with this content is stored, under an id that follows from `seq` and its time     (4) `sending` is emptied

A process that ends after (1) or (2) leaves an open row, which the sweep finds. After (3) the sweep stores the same event under the same id.
What happens between (2) and (4) is in the row beside `sending`, and is told next time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, cast

import orjson

from ...core.clock import Clock, Millis, to_text
from ...core.errors import Rejected, StorageError
from ...delivery.notices import ABOUT_CHANNELS, NoticeKind
from ...engine.async_runner import AsyncRunner
from ...engine.effects import Steps, each_row, get, load_rows, write
from ...engine.row_codec import Format, RowCodec
from ...storage.names import SWEEPS
from ...storage.ports import ANY, Applied, Delete, Insert, Merge, Props, RowQuery, Tables, Where
from ...tenants.store import TenantDirectory
from ..ingest.writer import Writer
from ..keys import digest
from ..properties.owed import NOTICE
from ..rows import EventToStore, new_event
from ..shard.queued_ids import QueuedIds

log = logging.getLogger(__name__)


PK_NOTICES: Final = "notices"
PERIOD: Final[Millis] = 60_000
"""Shortest time between two notices of one kind to one tenant. What happens meanwhile is told in the next one."""
HOURLY: Final = frozenset[NoticeKind]({"limit.reached"})
"""Kinds of which a subject is noted once in `HOUR`: it goes on for as long as somebody keeps calling."""
HOUR: Final[Millis] = 3_600_000
MOST_SUBJECTS: Final = 20
"""Subjects that a notice names; others are only counted."""
MOST_DETAIL: Final = 300
"""Characters of a subject's detail."""


class Happening(NamedTuple):
    """One or more things of a kind that happened to a subject: the last of them at `at`."""

    subject: str
    detail: str
    at: Millis
    times: int = 1


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """The pending and the last notice of one kind to a tenant.

    count: happenings that are in no notice yet; first, last: when they happened; subjects: the latest of each, by subject.
    sending: the content of the notice that is being stored as an event, '' for none; seq, sent_at: its number, and when it was fixed.
    open: there is something to be told. noted: of kinds in `HOURLY`, when each subject of the last hour was noted.
    """

    count: int = 0
    first: Millis = 0
    last: Millis = 0
    subjects: Mapping[str, tuple[int, Millis, str]] = field(default_factory=dict)
    sending: str = ""
    seq: int = 0
    sent_at: Millis = 0
    open: bool = False
    noted: Mapping[str, Millis] = field(default_factory=dict)

    def props(self) -> Props:
        """Return the row's properties; always all of them."""
        return _ROW.encode(self)


def _read_subjects(text: object) -> dict[str, tuple[int, Millis, str]]:
    return {subject: tuple(entry) for subject, entry in orjson.loads(str(text or "{}")).items()}


def _text(found: Mapping[str, Any]) -> str:
    return orjson.dumps(dict(found)).decode()


_ROW: Final = RowCodec(
    NoticeRow,
    formats={"subjects": Format(_text, _read_subjects), "noted": Format(_text, lambda text: orjson.loads(str(text or "{}")))},
)


def parse_notice(props: Props) -> NoticeRow:
    """Return the row of its properties."""
    return _ROW.decode(props)


class FixedNotice(NamedTuple):
    """A notice whose content no longer changes. source: names it for good."""

    seq: int
    at: Millis
    content: bytes

    def source(self, kind: NoticeKind) -> str:
        """Return the name from which the id of its event follows."""
        return f"notice:{kind}:{self.seq}:{self.at}"


def notice_key(tenant: str, kind: NoticeKind) -> str:
    """Return the row key of a tenant's notices of one kind."""
    return f"{tenant}:{kind}"


def added(row: NoticeRow, happenings: Sequence[Happening]) -> NoticeRow:
    """Return the row with these happenings. The latest `MOST_SUBJECTS` subjects are kept."""
    subjects = dict(row.subjects)
    for each in happenings:
        before = subjects.pop(each.subject, (0, 0, ""))
        subjects[each.subject] = (before[0] + each.times, max(before[1], each.at), each.detail[:MOST_DETAIL] or before[2])
    kept = dict(list(subjects.items())[-MOST_SUBJECTS:])
    times = [each.at for each in happenings]
    first = min(times) if not row.count else min(row.first, *times)
    count = row.count + sum(each.times for each in happenings)
    return replace(row, count=count, first=first, last=max(row.last, *times), subjects=kept, open=True)


def once_an_hour(row: NoticeRow, happenings: Sequence[Happening]) -> tuple[NoticeRow, Sequence[Happening]]:
    """Return those of subjects that were not noted within the hour, and the row that says that they are noted now."""
    fresh: list[Happening] = []
    noted = dict(row.noted)
    for each in happenings:
        if each.at >= noted.get(each.subject, each.at - HOUR) + HOUR:
            noted[each.subject] = each.at
            fresh.append(each)
    latest = max(noted.values(), default=0)
    return replace(row, noted={subject: at for subject, at in noted.items() if at > latest - HOUR}), fresh


def content_of(kind: NoticeKind, row: NoticeRow) -> dict[str, Any]:
    """Return the payload of a notice."""
    subjects = [
        {"subject": subject, "count": count, "last": to_text(last), **({"detail": detail} if detail else {})}
        for subject, (count, last, detail) in row.subjects.items()
    ]
    return {"type": kind, "count": row.count, "first": to_text(row.first), "last": to_text(row.last), "subjects": subjects}


def record(tenant: str, kind: NoticeKind, happenings: Sequence[Happening]) -> Steps[None]:
    """Step 1. After a lost answer the happenings may be counted twice; they are never left out."""
    key = notice_key(tenant, kind)
    while True:
        found = yield from get(SWEEPS, PK_NOTICES, key)
        row, fresh = parse_notice(found.props) if found is not None else NoticeRow(), happenings
        if kind in HOURLY:
            row, fresh = once_an_hour(row, happenings)
            if not fresh:
                return
        props = added(row, fresh).props()
        answer = yield from write(SWEEPS, PK_NOTICES, Insert(key, props) if found is None else Merge(key, props, found.etag))
        if isinstance(answer, Applied):
            return


def fix(tenant: str, kind: NoticeKind, now: Millis) -> Steps[FixedNotice | Millis | None]:
    """Step 2, or what an earlier process has fixed. Return the time of the next notice if it is too early for it; None if there is none."""
    key = notice_key(tenant, kind)
    while True:
        found = yield from get(SWEEPS, PK_NOTICES, key)
        row = parse_notice(found.props) if found is not None else NoticeRow()
        if found is None or not row.open:
            return None
        if row.sending:
            return FixedNotice(row.seq, row.sent_at, row.sending.encode())
        if now < row.sent_at + PERIOD:
            return row.sent_at + PERIOD
        content = orjson.dumps(content_of(kind, row))
        fixed = replace(row, count=0, subjects={}, sending=content.decode(), seq=row.seq + 1, sent_at=now)
        answer = yield from write(SWEEPS, PK_NOTICES, Merge(key, fixed.props(), found.etag))
        if isinstance(answer, Applied):
            return FixedNotice(fixed.seq, now, content)


def close(tenant: str, kind: NoticeKind, seq: int) -> Steps[None]:
    """Step 4: the notice `seq` is stored as an event."""
    key = notice_key(tenant, kind)
    while True:
        found = yield from get(SWEEPS, PK_NOTICES, key)
        row = parse_notice(found.props) if found is not None else NoticeRow()
        if found is None or row.seq != seq or not row.sending:
            return
        answer = yield from write(SWEEPS, PK_NOTICES, Merge(key, replace(row, sending="", open=row.count > 0).props(), found.etag))
        if isinstance(answer, Applied):
            return


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
            await self._tables.write(SWEEPS, PK_NOTICES, (Delete(notice_key(tenant, kind), ANY),))
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
        async for row in each_row(self._tables, RowQuery(SWEEPS, PK_NOTICES, where=(Where("open", "eq", True),), select=("seq",))):
            tenant, _, kind = row.rk.partition(":")
            counts["open"] += 1
            self._start((tenant, cast(NoticeKind, kind)))
        return counts

    async def forget(self, tenant: str) -> None:
        """Remove what is noted for a tenant that is being deleted. Raises `StorageError`."""
        for row in await load_rows(self._tables, RowQuery(SWEEPS, PK_NOTICES, f"{tenant}:", f"{tenant};")):
            await self._tables.write(SWEEPS, PK_NOTICES, (Delete(row.rk, ANY),))

    async def close(self) -> None:
        """End the background tasks. The sweep of another process finds what is left."""
        tasks = list(self._telling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
