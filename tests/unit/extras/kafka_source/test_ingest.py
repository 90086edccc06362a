"""The pump from a topic into the intake: what is committed when, and what is read again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.clock import SettableClock
from shared.core.errors import Problem, Unavailable
from shared.extras.kafka_source.consumer import KafkaMessage, SourceFailed
from shared.extras.kafka_source.ingest import BATCH, KafkaIngest, item_of, offsets_to_commit
from shared.extras.kafka_source.sources import KafkaSource
from shared.scheduler.ingest.admission import Admitted
from shared.scheduler.ingest.queue_consumer import IntakeResult, Item, Reject, RetryLater

SOURCE = KafkaSource(servers="b:9092", topic="orders", tenant="acme", uid="0123456789abcdef")
BUSY = Problem(429, "too-many-requests", "over the tenant's events per second")


def records(partition: int, *offsets: int) -> list[KafkaMessage]:
    return [KafkaMessage(partition, offset, 1_000 + offset, b"%d" % offset) for offset in offsets]


class Topic:
    """A topic of one partition, its group, and a consumer of it that takes no time but what it waits."""

    def __init__(self, clock: SettableClock, count: int) -> None:
        self.clock, self.count = clock, count
        self.committed = 0
        self.position = 0
        self.refuses_commits = False
        self.error: Exception | None = None
        self.word: str | None = None
        self.opened = self.closed = 0

    async def open(self, source: KafkaSource) -> Topic:
        self.opened += 1
        self.position = self.committed
        return self

    async def poll(self, limit: int, seconds: float) -> list[KafkaMessage]:
        if self.error is not None:
            raise self.error
        await asyncio.sleep(0)
        found = records(0, *range(self.position, min(self.count, self.position + limit)))
        self.position += len(found)
        if not found:
            await self.clock.sleep(seconds)
        return found

    async def commit(self, offsets: Mapping[int, int]) -> bool:
        if self.refuses_commits:
            return False
        assert offsets[0] >= self.committed, "offsets went back"
        self.committed = offsets[0]
        return True

    async def seek(self, offsets: Mapping[int, int]) -> None:
        self.position = offsets[0]

    def last_error(self) -> str | None:
        return self.word

    async def close(self) -> None:
        self.closed += 1


class Fake:
    """An intake: answers as `judge` says, remembers what it stored and in which order it was asked."""

    def __init__(self, judge: Callable[[int], str | Exception] = lambda _: "ok") -> None:
        self.judge = judge
        self.stored: list[int] = []
        self.asked: list[list[int]] = []
        self.begun = asyncio.Event()

    async def take(self, tenant: str, items: Sequence[Item], *, origin: str, uid: str) -> Sequence[IntakeResult]:
        assert (tenant, origin, uid) == ("acme", "kafka", SOURCE.uid)
        numbers = [int(item.raw) for item in items]
        self.asked.append(numbers)
        self.begun.set()
        return [self._one(number) for number in numbers]

    def _one(self, number: int) -> IntakeResult:
        answer = self.judge(number)
        if isinstance(answer, Exception):
            raise answer
        event: Any = None
        if answer == "wait":
            return RetryLater([event], 1.0, BUSY)
        if answer == "reject":
            return Reject("r", BUSY)
        self.stored.append(number)
        return Admitted(str(number), event, True)


async def tick(clock: SettableClock, ingest: KafkaIngest, seconds: float = 10.0) -> Mapping[str, int]:
    running = asyncio.create_task(ingest.run_once(clock.now()))
    await clock.advance(seconds)
    assert running.done(), "a tick is bounded"
    return running.result()


def pump(clock: SettableClock, topic: Topic, intake: Fake) -> KafkaIngest:
    return KafkaIngest([SOURCE], intake, clock, 10.0, topic.open)


async def test_everything_is_taken_in_batches_and_committed() -> None:
    clock = SettableClock()
    topic, intake = Topic(clock, 1_234), Fake(lambda n: "reject" if n % 100 == 7 else "ok")
    ingest = pump(clock, topic, intake)
    assert await tick(clock, ingest) == {"taken": 1_221, "rejected": 13}
    assert topic.committed == 1_234 and [len(asked) for asked in intake.asked] == [BATCH, BATCH, 234]
    topic.count += 1
    assert await tick(clock, ingest) == {"taken": 1}
    assert topic.opened == 1, "the consumer is kept from tick to tick"
    await ingest.close()
    assert topic.closed == 1


async def test_only_what_waits_is_taken_again_and_the_rest_of_the_tick_is_used_for_it() -> None:
    clock = SettableClock()
    asked: list[int] = []

    def judge(number: int) -> str:
        asked.append(number)
        return "wait" if number in (3, 5) and asked.count(number) < 3 else "ok"

    topic, intake = Topic(clock, 8), Fake(judge)
    assert (await tick(clock, pump(clock, topic, intake)))["taken"] == 8
    assert intake.asked == [list(range(8)), [3, 5], [3, 5]] and topic.committed == 8


async def test_tick_that_ends_first_commits_what_is_done_and_reads_the_rest_again() -> None:
    clock = SettableClock()
    full = True
    topic = Topic(clock, 8)
    intake = Fake(lambda number: "wait" if full and number in (3, 5) else "ok")
    ingest = pump(clock, topic, intake)
    counts = await tick(clock, ingest)
    assert counts["waiting"] == 2 and topic.committed == 3 and topic.position == 3
    full = False
    await tick(clock, ingest)
    assert topic.committed == 8 and set(intake.stored) == set(range(8))


@pytest.mark.parametrize("failure", [Unavailable("away"), Problem(404, "not-found", "no such tenant")])
async def test_nothing_is_committed_while_nothing_can_be_decided(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    clock = SettableClock()
    away = True
    topic = Topic(clock, 5)
    intake = Fake(lambda _: failure if away else "ok")
    ingest = pump(clock, topic, intake)
    with caplog.at_level(logging.WARNING):
        counts = await tick(clock, ingest)
    assert counts["waiting"] == 5 and counts["failures"] == len(intake.asked) > 2 and topic.committed == 0
    assert "orders at b:9092 waits" in caplog.text
    away = False
    assert await tick(clock, ingest) == {"taken": 5}
    assert topic.committed == 5


async def test_commit_that_is_refused_is_counted_and_harms_nothing() -> None:
    clock = SettableClock()
    topic, intake = Topic(clock, 5), Fake()
    topic.refuses_commits = True
    ingest = pump(clock, topic, intake)
    assert await tick(clock, ingest) == {"taken": 5, "commits_lost": 1}


async def test_source_that_fails_is_reported_by_name_opened_again_and_stops_no_other() -> None:
    clock = SettableClock()
    broken, sound = Topic(clock, 3), Topic(clock, 3)
    broken.error = SourceFailed("UNKNOWN_TOPIC_OR_PART")
    other = SOURCE.model_copy(update={"topic": "bills"})

    async def open_consumer(source: KafkaSource) -> Topic:
        return await (broken if source is SOURCE else sound).open(source)

    ingest = KafkaIngest([SOURCE, other], Fake(), clock, 10.0, open_consumer)
    running = asyncio.create_task(ingest.run_once(clock.now()))
    await clock.advance(10.0)
    with pytest.raises(SourceFailed, match=r"b:9092.*UNKNOWN_TOPIC_OR_PART"):
        await running
    assert sound.committed == 3 and (broken.closed, sound.closed) == (1, 0)
    broken.error = None
    assert await tick(clock, ingest) == {"taken": 3}
    assert broken.opened == 2


async def test_complaint_of_the_connection_is_a_warning_when_nothing_came(caplog: pytest.LogCaptureFixture) -> None:
    clock = SettableClock()
    topic = Topic(clock, 0)
    topic.word = "_ALL_BROKERS_DOWN"
    with caplog.at_level(logging.WARNING):
        assert await tick(clock, pump(clock, topic, Fake())) == {"complaints": 1}
    assert "_ALL_BROKERS_DOWN" in caplog.text


async def test_closing_waits_for_what_is_in_hand_and_reads_no_more() -> None:
    clock = SettableClock()
    topic, intake = Topic(clock, 5 * BATCH), Fake()
    ingest = pump(clock, topic, intake)
    running = asyncio.create_task(ingest.run_once(clock.now()))
    await intake.begun.wait()
    await ingest.close()
    assert (await running)["taken"] == topic.committed < 5 * BATCH and topic.closed == 1


def test_place_in_the_topic_names_the_event() -> None:
    [record] = records(3, 17)
    item = item_of(SOURCE, record)
    assert (item.raw, item.at) == (b"17", 1_017) and item.source.startswith("kafka:") and item.source.endswith("/orders/3/17")
    assert item_of(SOURCE, record._replace(at=-1)).at == 0
    sources = {item_of(SOURCE.model_copy(update={"servers": servers}), record).source for servers in ("b:9092", "B:9092", "c:9092")}
    assert len(sources) == 2


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_commit_never_passes_what_is_open_and_leaves_nothing_done_behind_without_need(found: list[tuple[int, bool]]) -> None:
    taken = [KafkaMessage(partition, offset, 0, b"") for offset, (partition, _) in enumerate(found)]
    waiting = [record for record, (_, waits) in zip(taken, found, strict=True) if waits]
    done = offsets_to_commit(taken, waiting)
    for partition in range(4):
        mine = [record.offset for record in taken if record.partition == partition]
        first_open = min((record.offset for record in waiting if record.partition == partition), default=None)
        if first_open is None:
            assert done.get(partition) == (mine[-1] + 1 if mine else None)
        else:
            assert done.get(partition) == (first_open if mine[0] < first_open else None)
