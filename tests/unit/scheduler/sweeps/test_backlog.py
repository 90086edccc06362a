"""Dispatch of what is late: at a set rate, through the queue of the retries, marked so that sweeps keep to one line."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.core.errors import Unavailable
from shared.scheduler import timings
from shared.scheduler.timings import BACKLOG_HORIZON
from shared.storage.names import QUEUE_RETRIES, QUEUE_SHARDS, SHARDS
from shared.storage.ports import Delete, Merge

from ..harness import World

RATE = 50
"""Events a second: a shard of one event counts as twenty, and takes 0.4 s of the line."""
PLACES = BACKLOG_HORIZON // 400


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Drains at 50 events a second; one event a shard."""
    world = await World(backlog_per_second=RATE, shard_events=1).open()
    yield world
    await world.close()


async def outage(world: World, shards: int, minutes: int = 10) -> None:
    """Create `shards` shards that are due while nothing runs, and late by more than `BACKLOG_AFTER` when it is over."""
    body = [{"delay": "PT5M", "payload": 1}] * shards
    answer = await world.demo.post("/api/v1/events/batch", body)
    assert answer.json()["accepted"] == shards
    await world.clock.advance(300 + minutes * 60)


async def dispatch(world: World) -> Counter[str]:
    found: Counter[str] = await world.do(world.app.scheduler.sweeps.dispatch(world.now))
    return found


def waiting(world: World, queue: str = QUEUE_RETRIES) -> list[float]:
    """Return the seconds from now until the messages of a queue become visible."""
    return sorted((each.visible - world.now) / 1000 for each in world.queues._queues[queue].messages.values())


async def test_what_is_late_is_handed_out_at_the_set_rate_through_the_queue_of_the_retries(world: World) -> None:
    await outage(world, 100)
    found = await dispatch(world)
    assert found["backlog"] == PLACES and found["sent"] == 0
    assert waiting(world, QUEUE_SHARDS) == []
    visible = waiting(world)
    for number, at in enumerate(visible, 1):
        assert number * 0.4 <= at < number * 0.4 + 1.1, "the queue knows whole seconds only"
    assert visible[-1] <= 31


async def test_sweeps_that_follow_go_on_where_the_line_ends(world: World) -> None:
    await outage(world, 200)
    await dispatch(world)
    assert (await dispatch(world))["backlog"] == 0, "a timer that fires twice does no harm"
    await world.clock.advance(20)
    assert abs((await dispatch(world))["backlog"] - 50) <= 1
    visible = waiting(world)
    assert len(visible) >= PLACES + 49
    for before, after in zip(visible, visible[5:], strict=False):
        assert after - before >= 1, "never more than two or three a second"


async def test_two_sweeps_at_once_hand_out_no_shard_twice(world: World) -> None:
    await outage(world, 120)
    sweeps = world.app.scheduler.sweeps
    found = await world.do(asyncio.gather(sweeps.dispatch(world.now), sweeps.dispatch(world.now)))
    assert sum(each["backlog"] for each in found) == len(waiting(world)) <= 2 * PLACES
    texts = [each.text for each in world.queues._queues[QUEUE_RETRIES].messages.values()]
    assert len(set(texts)) == len(texts)


async def test_everything_late_is_delivered_once_in_the_time_it_takes_at_the_rate(world: World) -> None:
    await outage(world, 150)
    await world.run(45)
    some = len(world.receiver.received)
    assert 90 <= some <= 120, "45 s of 0.4 s each"
    await world.run(30)
    assert Counter(each.delivery.id for each in world.receiver.received).most_common(1)[0][1] == 1
    assert len(world.receiver.received) == 150 and world.rows(SHARDS) == []


async def test_events_that_come_in_overdue_are_no_backlog(world: World) -> None:
    made = await world.demo.create(due="2020-01-01T00:00:00Z")
    assert len(waiting(world, QUEUE_SHARDS)) == 1 and waiting(world) == []
    await world.run(3)
    assert (await world.demo.event(made["id"]))["state"] == "delivered"


async def test_events_that_outlived_their_expiry_lapse_without_a_delivery(world: World) -> None:
    await world.demo.create(delay="PT3M", expires="PT1M")
    await world.clock.advance(3_600)
    await world.run(5)
    assert world.receiver.received == [] and (await world.demo.get("/api/v1/stats")).json()["lapsed"] == 1


async def test_punctual_shards_are_sent_before_anything_late_and_to_their_own_queue(world: World) -> None:
    await outage(world, 100)
    await world.demo.create(delay="PT4M")
    await world.clock.advance(65)
    order: list[str] = []
    send = world.queues.send

    async def noted(queue: str, text: str, *, visible_in: float = 0.0) -> None:
        order.append(queue)
        await send(queue, text, visible_in=visible_in)

    world.queues.send = noted  # type: ignore[method-assign]
    assert (await dispatch(world))["sent"] == 1
    assert order == [QUEUE_SHARDS] + [QUEUE_RETRIES] * PLACES


async def test_shard_of_the_backlog_whose_message_is_lost_is_handed_out_again(world: World) -> None:
    await outage(world, 3)
    await dispatch(world)
    lost = await take(world)
    assert len(lost) == 3
    await world.clock.advance(timings.BACKLOG_RESEND_PAUSE / 1000 - 10)
    assert (await dispatch(world))["backlog"] == 0, "it may just be waiting in its queue"
    await world.clock.advance(15)
    assert (await dispatch(world))["backlog"] == 3
    assert [row.props["rounds"] for row in world.rows(SHARDS)] == [1, 1, 1]
    await world.run(10)
    assert len(world.receiver.received) == 3


async def take(world: World) -> list[Any]:
    """Lose the messages of the backlog."""
    await world.clock.advance(5)
    messages = await world.queues.receive(QUEUE_RETRIES)
    for message in messages:
        assert await world.queues.delete(QUEUE_RETRIES, message)
    return messages


async def test_shard_that_is_served_is_not_handed_out(world: World) -> None:
    world.receiver.takes = 300.0
    await world.demo.create(delay="PT1S")
    await world.run(200)
    assert len(world.rows(SHARDS)) == 1
    assert (await dispatch(world))["backlog"] == 0


async def test_queue_that_takes_nothing_ends_the_sweep_and_leaves_no_mark(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await outage(world, 100)
    before = {row.rk: row.props for row in world.rows(SHARDS)}
    tried = []

    async def away(*given: Any, **_: Any) -> None:
        tried.append(given)
        raise Unavailable("throttled")

    with monkeypatch.context() as patched:
        patched.setattr(world.queues, "send", away)
        found = await dispatch(world)
        assert (found["backlog"], found["unsent"]) == (0, len(tried)) and len(tried) <= 32, "the rest is not even tried"
    after = {row.rk: row.props for row in world.rows(SHARDS)}
    assert {key: after[key]["state"] for key in after} == dict.fromkeys(before, "pending")
    assert all(not props.get("rounds") for props in after.values()), "nobody failed to serve it"
    assert (await dispatch(world))["backlog"] == PLACES, "no place was used up"


async def test_row_that_changed_meanwhile_is_left_to_what_it_asks_for_now(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await outage(world, 2)
    write, done = world.tables.write, []

    async def write_and_change(table: str, pk: str, ops: Any) -> Any:
        if table == SHARDS and not done:
            done.append(ops[0].rk)
            await write(table, pk, (Merge(ops[0].rk, {"state": "sent"}, "*"),))
        elif table == SHARDS and len(done) == 1 and ops[0].rk != done[0]:
            done.append(ops[0].rk)
            await write(table, pk, (Delete(ops[0].rk, "*"),))
        return await write(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", write_and_change)
    found = await dispatch(world)
    assert len(done) == 2 and found["backlog"] == 0 and waiting(world) == []


async def test_full_line_costs_no_reads_of_what_has_to_wait(world: World) -> None:
    await outage(world, 300)
    await dispatch(world)
    before = Counter(world.tables.transactions)
    await dispatch(world)
    spent = Counter(world.tables.transactions) - before
    assert spent["get"] == 0 and spent["write"] == 0
