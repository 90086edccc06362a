"""Read events from Kafka topics: the work of the function `ingest_kafka`.

    poll ─► accept (the same checks as HTTP) ─► stored or rejected ─► commit the offsets
                 │ storage does not answer, or the tenant is over a limit: wait and retry the rest
                 └ the run ends first: the next run continues with the first unfinished message

An offset is committed only when every message before it is stored, or recorded as a reject. A message that is read twice (a crash
before the commit, a partition that moved) creates no second event: its id is derived from its place in the topic.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from ...app.parts import PartService
from ...core.clock import Clock, Millis
from ...core.durations import MAX_TIME
from ...core.errors import Problem, StorageError
from ...delivery.kafka.connection import identity_tokens
from ...scheduler.ingest.queue_consumer import IntakeResult, Item, Reject, RetryLater
from .consumer import Consumer, KafkaMessage, SourceFailed, ThreadedConsumer
from .sources import KafkaSource

log = logging.getLogger(__name__)

BATCH = 500
"""Largest number of messages that are accepted together."""
WAIT = 0.5
"""Longest wait for messages, in seconds. A message ends it at once."""
_LONGEST_PAUSE = 5.0


class IntakePort(Protocol):
    """The part of `Intake` that this module uses."""

    async def take(self, tenant: str, items: Sequence[Item], *, origin: str, uid: str) -> Sequence[IntakeResult]:
        """See `Intake.take`."""


type OpenConsumer = Callable[[KafkaSource], Awaitable[Consumer]]


def consumer_opener(client_id: str | None) -> OpenConsumer:
    """Return a function that opens consumers of librdkafka. With Event Hubs they log in by the managed identity of this client id."""
    tokens = identity_tokens(client_id)

    async def open_consumer(source: KafkaSource) -> Consumer:
        login = source.login
        return await ThreadedConsumer.open(login, source.topic, source.group, tokens if login.by_identity else None)

    return open_consumer


def item_of(source: KafkaSource, record: KafkaMessage) -> Item:
    """Return the event in a message. Its id is derived from cluster, topic, partition, offset, and timestamp (for a recreated topic)."""
    cluster = hashlib.sha256(source.servers.lower().encode()).hexdigest()[:8]
    # Producers may set any timestamp. One outside the calendar must not stop the source.
    at = min(max(0, record.at), MAX_TIME)
    return Item(record.value, f"kafka:{cluster}/{source.topic}/{record.partition}/{record.offset}", at, record.trace)


def offsets_to_commit(records: Sequence[KafkaMessage], open_ones: Iterable[KafkaMessage]) -> dict[int, int]:
    """Return the offsets to commit, by partition: that of the first open record, or the one after the last record.

    Partitions without a finished record are left out.
    """
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


class SourceReader:
    """Reads one source. Its consumer stays open between runs, so that it does not have to join the group again."""

    def __init__(self, source: KafkaSource, intake: IntakePort, clock: Clock, open_consumer: OpenConsumer) -> None:
        self.source, self._intake, self._clock, self._open = source, intake, clock, open_consumer
        self._consumer: Consumer | None = None
        self._busy = asyncio.Lock()

    async def run(self, until: float, leaving: Callable[[], bool]) -> Counter[str]:
        """Accept messages until this time of the monotonic clock, and return counts. Raises SourceFailed and errors of the login."""
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
            # Messages that were polled but not committed go to the next member that joins, which may be this process.
            await self._leave()
            raise
        error = consumer.last_error()
        if error is not None:
            counts["complaints"] += 1
            level = logging.DEBUG if counts["taken"] else logging.WARNING
            log.log(level, "Kafka source %s: %s", self.source.name, error, extra={"action": "kafka_complaint", "error": error})
        return counts

    async def _take(
        self, consumer: Consumer, records: list[KafkaMessage], until: float, leaving: Callable[[], bool], counts: Counter[str]
    ) -> bool:
        """Accept the records. Returns False if some are left for the next run."""
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
        done = offsets_to_commit(records, waiting)
        if done and not await consumer.commit(done):
            counts["commits_lost"] += 1
        if waiting:
            counts["waiting"] += len(waiting)
            await consumer.seek(_first_offsets(waiting))
        return not waiting

    async def _once(self, records: list[KafkaMessage], counts: Counter[str]) -> tuple[list[KafkaMessage], float]:
        """Accept the records once. Returns those to retry, and the seconds to wait before."""
        items = [item_of(self.source, record) for record in records]
        try:
            results = await self._intake.take(self.source.tenant, items, origin="kafka", uid=self.source.uid)
        except (StorageError, Problem) as error:
            # Nothing was decided: storage does not answer, or the tenant does not exist. Both may change, so all records are retried.
            counts["failures"] += 1
            log.warning(
                "Kafka source %s waits: %s", self.source.name, error, extra={"action": "kafka_waiting", "tenant": self.source.tenant}
            )
            return records, 0.0
        waiting: list[KafkaMessage] = []
        wanted = 0.0
        for record, result in zip(records, results, strict=True):
            if isinstance(result, RetryLater):
                waiting.append(record)
                wanted = max(wanted, result.after)
            else:
                counts["rejected" if isinstance(result, Reject) else "taken"] += 1
        return waiting, wanted

    async def close(self) -> None:
        """Leave the group after the running work."""
        async with self._busy:
            await self._leave()

    async def _leave(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close()


def _first_offsets(records: Iterable[KafkaMessage]) -> Mapping[int, int]:
    out: dict[int, int] = {}
    for record in records:
        out[record.partition] = min(record.offset, out.get(record.partition, record.offset))
    return out


class KafkaIngest(PartService):
    """Reads all sources of a process. It belongs to one event loop."""

    def __init__(
        self, sources: Sequence[KafkaSource], intake: IntakePort, clock: Clock, seconds: float, open_consumer: OpenConsumer
    ) -> None:
        self._clock, self._seconds = clock, seconds
        self._taps = [SourceReader(source, intake, clock, open_consumer) for source in sources]
        self._leaving = False

    def leave(self) -> None:
        """Read nothing more, because the process is about to end. Messages that were read are stored and committed."""
        self._leaving = True

    async def run_once(self, now: Millis) -> Counter[str]:
        """Accept messages during one run of the timer. A failed source does not stop the others; SourceFailed is raised at the end."""
        until = self._clock.monotonic() + self._seconds
        results = await asyncio.gather(*(tap.run(until, lambda: self._leaving) for tap in self._taps), return_exceptions=True)
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
        self.leave()
        await asyncio.gather(*(tap.close() for tap in self._taps))
