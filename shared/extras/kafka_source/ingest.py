"""Events in from Kafka: what the function `ingest_kafka` does.

    poll ─► take in (the same checks as HTTP) ─► stored or rejected ─► commit the offsets
                 │ storage is away, or the tenant over a limit: wait and take the rest again
                 └ the tick ends first: read on from the first message that is not done, next time

An offset is committed only when every message before it is stored, or kept as a reject. A message that is read twice (a crash before the
commit, a partition that moved) makes no second event: its id follows from where it lies in the topic.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from ...core.clock import Clock, Millis
from ...core.durations import MAX_TIME
from ...core.errors import Problem, StorageError
from ...delivery.kafka.connection import identity_tokens
from ...scheduler.ingest.queue_consumer import IntakeResult, Item, Reject, RetryLater
from .consumer import Consumer, Record, SourceFailed, ThreadedConsumer
from .sources import Source

log = logging.getLogger(__name__)

BATCH = 500
"""Messages taken in at a time."""
WAIT = 0.5
"""Seconds of one wait for messages; a message ends it at once."""
_LONGEST_PAUSE = 5.0


class TakesIn(Protocol):
    """What is needed of `Intake`."""

    async def take(self, tenant: str, items: Sequence[Item], *, origin: str) -> Sequence[IntakeResult]:
        """See `Intake.take`."""


type Open = Callable[[Source], Awaitable[Consumer]]


def opener(client_id: str | None) -> Open:
    """Opens consumers of librdkafka; at Event Hubs by the identity of this client id."""
    tokens = identity_tokens(client_id)

    async def open_consumer(source: Source) -> Consumer:
        login = source.login
        return await ThreadedConsumer.open(login, source.topic, source.group, tokens if login.by_identity else None)

    return open_consumer


def item_of(source: Source, record: Record) -> Item:
    """The event in a message. Its place names it: cluster, topic, partition, offset; with its timestamp, should the topic be made anew."""
    cluster = hashlib.sha256(source.servers.lower().encode()).hexdigest()[:8]
    # Producers set timestamps as they like; one that no calendar holds must not stop the source.
    at = min(max(0, record.at), MAX_TIME)
    return Item(record.value, f"kafka:{cluster}/{source.topic}/{record.partition}/{record.offset}", at, record.trace)


def done_up_to(records: Sequence[Record], open_ones: Iterable[Record]) -> dict[int, int]:
    """Offsets to commit, by partition: of the first record that is still open, or behind the last. Left out: where nothing is done."""
    first_open: dict[int, int] = {}
    for record in open_ones:
        first_open[record.partition] = min(record.offset, first_open.get(record.partition, record.offset))
    out: dict[int, int] = {}
    for record in records:
        stop = first_open.get(record.partition)
        if stop is None:
            out[record.partition] = max(out.get(record.partition, 0), record.offset + 1)
        elif record.offset < stop:
            out[record.partition] = stop
    return out


class Tap:
    """One source. Its consumer is kept from tick to tick, so that the group need not be joined anew."""

    def __init__(self, source: Source, intake: TakesIn, clock: Clock, open_consumer: Open) -> None:
        self.source, self._intake, self._clock, self._open = source, intake, clock, open_consumer
        self._consumer: Consumer | None = None
        self._busy = asyncio.Lock()

    async def run(self, until: float, leaving: Callable[[], bool]) -> Counter[str]:
        """Take messages in until this time of the monotonic clock; counts. Raises SourceFailed, or what opening a client raised."""
        async with self._busy:
            return await self._run(until, leaving)

    async def _run(self, until: float, leaving: Callable[[], bool]) -> Counter[str]:
        counts: Counter[str] = Counter()
        if self._consumer is None:
            self._consumer = await self._open(self.source)
        consumer = self._consumer
        try:
            while not leaving() and (left := until - self._clock.monotonic()) > 0:
                records = await consumer.poll(BATCH, min(WAIT, left))
                if records and not await self._take(consumer, records, until, leaving, counts):
                    break
        except BaseException:
            # What was polled and not committed comes again to whoever joins next, ourselves included.
            await self._leave()
            raise
        complaint = consumer.complaint()
        if complaint is not None:
            counts["complaints"] += 1
            level = logging.DEBUG if counts["taken"] else logging.WARNING
            log.log(level, "Kafka source %s: %s", self.source.name, complaint, extra={"action": "kafka_complaint", "error": complaint})
        return counts

    async def _take(
        self, consumer: Consumer, records: list[Record], until: float, leaving: Callable[[], bool], counts: Counter[str]
    ) -> bool:
        """False when some had to be left for the next tick."""
        waiting, pause = records, 0.5
        while True:
            waiting, wanted = await self._once(waiting, counts)
            if not waiting:
                break
            wait = min(max(wanted, pause), _LONGEST_PAUSE)
            if leaving() or self._clock.monotonic() + wait >= until:
                break
            await self._clock.sleep(wait)
            pause *= 2
        done = done_up_to(records, waiting)
        if done and not await consumer.commit(done):
            counts["commits_lost"] += 1
        if waiting:
            counts["waiting"] += len(waiting)
            await consumer.seek(_first(waiting))
        return not waiting

    async def _once(self, records: list[Record], counts: Counter[str]) -> tuple[list[Record], float]:
        """Those that are to be taken again, and the seconds to wait before."""
        items = [item_of(self.source, record) for record in records]
        try:
            results = await self._intake.take(self.source.tenant, items, origin="kafka")
        except (StorageError, Problem) as error:
            # Nothing was decided: storage is away, or the tenant is not there. Both may change, so nothing is given up.
            counts["failures"] += 1
            log.warning(
                "Kafka source %s waits: %s", self.source.name, error, extra={"action": "kafka_waiting", "tenant": self.source.tenant}
            )
            return records, 0.0
        waiting: list[Record] = []
        wanted = 0.0
        for record, result in zip(records, results, strict=True):
            if isinstance(result, RetryLater):
                waiting.append(record)
                wanted = max(wanted, result.after)
            else:
                counts["rejected" if isinstance(result, Reject) else "taken"] += 1
        return waiting, wanted

    async def close(self) -> None:
        """Leave the group, once what is in hand is done with."""
        async with self._busy:
            await self._leave()

    async def _leave(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close()


def _first(records: Iterable[Record]) -> Mapping[int, int]:
    out: dict[int, int] = {}
    for record in records:
        out[record.partition] = min(record.offset, out.get(record.partition, record.offset))
    return out


class KafkaIngest:
    """All sources of a process. Belongs to one event loop."""

    def __init__(self, sources: Sequence[Source], intake: TakesIn, clock: Clock, seconds: float, open_consumer: Open) -> None:
        self._clock, self._seconds = clock, seconds
        self._taps = [Tap(source, intake, clock, open_consumer) for source in sources]
        self.leaving = False
        """Set when the process is about to end: what is in hand is stored and committed, and nothing more is read."""

    async def run_once(self, now: Millis) -> Counter[str]:
        """Take in what comes during one tick. Sources fail one by one: SourceFailed in the end, after the others had their time."""
        until = self._clock.monotonic() + self._seconds
        results = await asyncio.gather(*(tap.run(until, lambda: self.leaving) for tap in self._taps), return_exceptions=True)
        counts: Counter[str] = Counter()
        failed: list[str] = []
        for tap, result in zip(self._taps, results, strict=True):
            if isinstance(result, Counter):
                counts += result
            elif isinstance(result, Exception):
                why = str(result) if isinstance(result, SourceFailed) else type(result).__name__
                failed.append(f"{tap.source.name}: {why}")
            else:
                raise result
        if failed:
            raise SourceFailed("; ".join(failed))
        return counts

    async def close(self) -> None:
        """Leave every group."""
        self.leaving = True
        await asyncio.gather(*(tap.close() for tap in self._taps))
