"""Messages of shards that failed for good: reported, and left to the index, which asks for the shard ever more seldom."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest

from shared.core.errors import StorageError, Unavailable
from shared.scheduler import timings
from shared.scheduler.protocol.dispatch import ShardMessage, parse_message
from shared.storage.names import QUEUE_RETRIES, QUEUE_SHARDS, SHARDS

from ..harness import World


async def unserved(world: World, **event: Any) -> ShardMessage:
    """A shard that is due, and whose message is not in its queue any more."""
    await world.demo.create(**({"delay": "PT1S"} | event))
    [message] = await world.queues.receive(QUEUE_SHARDS)
    assert await world.queues.delete(QUEUE_SHARDS, message)
    return parse_message(message.text)


async def test_poisoned_shard_is_reported_and_left_to_the_index(world: World, caplog: pytest.LogCaptureFixture) -> None:
    message = await unserved(world)
    with caplog.at_level(logging.ERROR):
        await world.app.scheduler.firing.poisoned(message.text())
    assert message.shard in caplog.text and "the next try is in 45 s" in caplog.text
    assert (await world.queues.length(QUEUE_SHARDS), await world.queues.length(QUEUE_RETRIES)) == (0, 0), "no second loop beside repair"
    await world.run(40)
    assert world.receiver.received == []
    await world.run(25)
    assert len(world.receiver.received) == 1 and world.rows(SHARDS) == []
    assert world.app.scheduler.counters["poisoned"] == 1


async def test_shard_that_poisons_for_ever_is_asked_for_ever_more_seldom_and_called_stuck(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Process messages as the host does: each message fails five times and then goes to the poison handler."""
    message = await unserved(world)
    asked: list[int] = []
    for _ in range(10 * 240):
        await world.do(world.app.scheduler.sweeps.dispatch(world.now))
        for queue in (QUEUE_SHARDS, QUEUE_RETRIES):
            for found in await world.queues.receive(queue):
                await world.queues.delete(queue, found)
                asked.append(world.now)
                await world.app.scheduler.firing.poisoned(found.text)
        await world.clock.advance(15)
    pauses = [after - before for before, after in pairwise(asked)]
    assert (
        pauses == sorted(pauses)
        and pauses[0] < 60_000
        and timings.LONGEST_RESEND_PAUSE <= pauses[-1] <= timings.LONGEST_RESEND_PAUSE + 15_000
    )
    assert len(asked) < 20, "ten hours of it"
    stuck = [record for record in caplog.records if getattr(record, "action", "") == "shard_stuck"]
    assert stuck and all(record.levelno == logging.ERROR and getattr(record, "shard", "") == message.shard for record in stuck)
    assert (await world.demo.get("/api/v1/stats")).json()["stuck"] == 1
    await world.run(3_700, step=5)
    assert len(world.receiver.received) == 1, "whatever was in its way has gone"
    assert (await world.demo.get("/api/v1/stats")).json()["stuck"] == 0


async def test_poison_of_a_shard_that_was_served_since_is_no_alarm(world: World, caplog: pytest.LogCaptureFixture) -> None:
    message = await unserved(world)
    await world.do(world.app.scheduler.firing.serve(message.text()))
    await world.app.scheduler.firing.poisoned(message.text())
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert world.app.scheduler.counters["poisoned"] == 0 and world.rows(SHARDS) == []


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"shard":1,"index":""}', "\ufffd", '{"shard":"a"}', '{"shard":"00-0-t","index":"i","wake":[]}']
)
async def test_poison_that_names_no_shard_is_reported_and_dropped(world: World, text: str, caplog: pytest.LogCaptureFixture) -> None:
    await world.app.scheduler.firing.poisoned(text)
    assert "without a shard's name" in caplog.text
    assert await world.queues.length(QUEUE_SHARDS) == 0
    with pytest.raises(ValueError):
        await world.app.scheduler.firing.serve(text)


async def test_poison_that_cannot_be_noted_fails_and_so_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    message = await unserved(world)

    async def away(*_: Any, **__: Any) -> None:
        raise Unavailable("throttled")

    monkeypatch.setattr(world.tables, "write", away)
    with pytest.raises(StorageError):
        await world.app.scheduler.firing.poisoned(message.text())
