"""Batches that storage is too slow for: what is stored is said event by event, and the rest can be sent again."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import orjson
import pytest

from shared.core.clock import SettableClock, to_text
from shared.scheduler.ingest import open_shards, writer
from shared.scheduler.ingest.admission import STORE_FOR
from shared.storage import Storage
from shared.storage.names import EVENTS, IDS, SHARDS
from shared.web import serve
from tests.faults import Faults, Perform, Request

from ..harness import START, World

URL = "/api/v1/events/batch"
MINUTE = 60_000
FAR = START + 3_600_000


class SlowTables(Faults):
    """Tables that need a time for each write to some tables, and are silent for ever to the writes after `most`."""

    def __init__(self, world: World) -> None:
        super().__init__(world.tables)
        self._clock, self.seconds, self.most = world.clock, 0.0, 10**9
        self.writes: Counter[str] = Counter()
        self.silent = asyncio.Event()

    async def plan(self, request: Request, perform: Perform) -> Any:
        if request.kind == "write" and request.table in (EVENTS, SHARDS, IDS):
            self.writes[request.table] += 1
            if self.seconds:
                await self._clock.sleep(self.seconds)
            if self.writes[EVENTS] > self.most:
                self.silent.set()
                await asyncio.Event().wait()
        return await perform()


@pytest.fixture
async def slow() -> AsyncIterator[tuple[World, SlowTables]]:
    world = World()
    tables = SlowTables(world)
    world.storage = Storage(tables, world.queues, server_times=world.storage.server_times)  # type: ignore[arg-type]
    await world.do(world.open())
    yield world, tables
    await world.do(world.close())


def of_minutes(count: int, *, named: bool = False, **more: Any) -> list[dict[str, Any]]:
    name: list[Mapping[str, Any]] = [{"id": f"e{number}"} if named else {} for number in range(count)]
    return [{**name[at], "due": to_text(FAR + at * MINUTE), "payload": at, **more} for at in range(count)]


def stored(world: World) -> set[int]:
    """The payloads of the stored events."""
    return {orjson.loads(str(row.props["body"])) for row in world.events()}


def lines_of(answer: Any) -> Mapping[str, list[int]]:
    """The places of the lines of each outcome."""
    found: dict[str, list[int]] = {"stored": [], "unchanged": [], "unknown": []}
    for line in answer.json()["results"]:
        found["stored" if line["status"] < 300 else line["problem"]["outcome"]].append(line["index"])
    return found


def test_batch_is_answered_within_the_time_of_its_call() -> None:
    assert STORE_FOR + open_shards.CONFIRMED_WITHIN + writer.SETTLED_WITHIN < serve.ANSWER_BATCH_WITHIN


async def test_shards_of_a_batch_are_filed_together(slow: tuple[World, SlowTables]) -> None:
    world, tables = slow
    tables.seconds = 0.01
    answer = await world.demo.post(URL, of_minutes(2_000))
    assert answer.json()["accepted"] == 2_000 and len(world.rows(SHARDS)) == 2_000
    assert len({row.props["wake"] for row in world.rows(SHARDS)}) == 2_000
    # 16 at once are alone; then each of 16 partitions has a group of at most a hundred, or two.
    assert tables.writes[SHARDS] <= 16 + 3 * 16
    assert tables.writes[EVENTS] == 2_000


@pytest.mark.parametrize("named", [False, True], ids=["without ids", "with ids"])
async def test_slow_batch_says_of_each_event_whether_it_is_stored_and_the_rest_can_be_sent_again(
    slow: tuple[World, SlowTables], named: bool
) -> None:
    world, tables = slow
    tables.seconds = 1.0
    batch = of_minutes(2_500, named=named)
    began = world.clock.monotonic()
    answer = await world.demo.post(URL, batch)
    assert answer.status == 200 and int(answer.headers["retry-after"]) >= 1
    assert world.clock.monotonic() - began < STORE_FOR + 10
    found = lines_of(answer)
    assert len(found["stored"]) > 300 and len(found["unchanged"]) > 300 and not found["unknown"]
    assert stored(world) == set(found["stored"])
    unfinished = next(line for line in answer.json()["results"] if line["status"] == 503)["problem"]
    assert unfinished["type"].endswith("/batch-unfinished") and "not stored" in unfinished["detail"]
    tables.seconds = 0.0
    again = await world.demo.post(URL, [batch[at] for at in found["unchanged"]])
    assert again.json()["accepted"] == len(found["unchanged"]) and "retry-after" not in again.headers
    assert stored(world) == set(range(2_500)) and len(world.events()) == 2_500


async def test_events_that_silent_storage_may_have_stored_are_unknown(
    slow: tuple[World, SlowTables], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, tables = slow
    tables.most = 40

    async def ended(work: asyncio.Future[None], *_: Any) -> bool:
        """End once the stored events have been told, in place of some time."""
        await tables.silent.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        return work.done()

    monkeypatch.setattr(open_shards, "ended_in_time", ended)
    answer = await world.demo.post(URL, of_minutes(200))
    assert answer.status == 200 and answer.headers["retry-after"]
    found = lines_of(answer)
    assert len(found["stored"]) == 40 and len(found["unknown"]) == 160
    assert stored(world) == set(found["stored"])


async def test_wait_for_unfinished_work_ends_some_time_after_the_deadline() -> None:
    clock, silent = SettableClock(START), asyncio.get_running_loop().create_future()
    assert not await open_shards.ended_in_time(silent, clock, clock.monotonic() - open_shards.CONFIRMED_WITHIN + 0.01)
    silent.set_result(None)
    assert await open_shards.ended_in_time(silent, clock, clock.monotonic())
    assert await open_shards.ended_in_time(silent, clock, math.inf)


async def test_fast_events_that_the_queue_does_not_take_in_time_are_answered_as_unfinished(
    slow: tuple[World, SlowTables], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = slow
    send, sent = world.queues.send, list[str]()

    async def slowly(queue: str, text: str, *more: Any, **options: Any) -> None:
        await world.clock.sleep(20.0)
        sent.append(text)
        await send(queue, text, *more, **options)

    monkeypatch.setattr(world.queues, "send", slowly)
    batch = of_minutes(100, durability="fast")
    for event in batch:
        event["payload"] = "x" * 30_000
    answer = await world.demo.post(URL, batch)
    found = lines_of(answer)
    statuses = Counter(line["status"] for line in answer.json()["results"])
    assert answer.status == 200 and statuses[202] == len(sent) and statuses[503] == len(found["unchanged"]) > 20


async def test_many_requests_in_the_api_of_bigben_are_answered_one_by_one(slow: tuple[World, SlowTables]) -> None:
    world, tables = slow
    tables.seconds = 1.0
    requests: Sequence[dict[str, Any]] = [
        {"id": f"e{at}", "tenant": "demo", "eventTime": to_text(FAR + at * MINUTE), "payload": at} for at in range(2_500)
    ]
    answer = await world.demo.post("/api/bigben/events/schedule", requests)
    replies = answer.json()
    by_status = Counter(reply["eventStatus"] for reply in replies)
    assert answer.status == 200 and by_status["ACCEPTED"] > 300 and by_status["ERROR"] > 300
    assert {reply["error"]["code"] for reply in replies if reply["eventStatus"] == "ERROR"} == {503}
    assert len(world.events()) == by_status["ACCEPTED"]
    tables.seconds = 0.0
    left = [request for request, reply in zip(requests, replies, strict=True) if reply["eventStatus"] == "ERROR"]
    again = await world.demo.post("/api/bigben/events/schedule", left)
    assert {reply["eventStatus"] for reply in again.json()} == {"ACCEPTED"} and len(world.events()) == 2_500
