"""A look sends the messages of the shards that it finds: those that are due first go first, and small ones of the same time share one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from shared.core.clock import Millis
from shared.core.errors import Unavailable
from shared.core.ids import SeededIds
from shared.scheduler.keys import GATE, HOME, index_key, index_partition, minute_text, placed, shard_key
from shared.scheduler.protocol.dispatch import MOST_TOGETHER, ShardMessage, parse_messages
from shared.scheduler.protocol.ingest import counts_props, file_shard
from shared.scheduler.rules import visible_at
from shared.scheduler.shard.gate import Counts, Gate, Tally
from shared.scheduler.timings import ANNOUNCE_TOGETHER, DISPATCH_AHEAD, MANY_EVENTS, SEND_AHEAD
from shared.scheduler.wakes.protocol import PK_PLAN, parse_wake
from shared.storage.memory import MemoryTables
from shared.storage.names import EVENTS, QUEUE_RETRIES, QUEUE_SHARDS, SHARDS, SWEEPS
from shared.storage.ports import ANY, Insert, Merge, Page, Row, RowQuery
from tests.unit.scheduler.harness import World

FULL = 990


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World(wakes="auto").open()
    yield world
    await world.close()


async def file(world: World, number: int, wake: Millis, events: int = 1, *, noted: bool = False, retries: bool = False) -> str:
    """Store a shard that nobody has dispatched, as a writer leaves it."""
    shard = shard_key("demo", placed(SeededIds(number).name(), HOME))
    gate = Gate("open", "w", index=index_key(shard, wake), bucket=minute_text(wake), counts=Counts(accepted=events))
    await world.tables.write(EVENTS, shard, [Insert(GATE, gate.props())])
    await world.app.runner.run(file_shard(shard, wake, sent=False))
    more: dict[str, Any] = counts_props(wake, Tally(Counts(accepted=events))) if noted else {}
    if retries:
        more |= {"retries": True}
    if more:
        await world.tables.write(SHARDS, index_partition(shard), [Merge(index_key(shard, wake), more, ANY)])
    return shard


def sent(world: World, queue: str = QUEUE_SHARDS) -> list[tuple[Millis, list[ShardMessage]]]:
    """The messages of shards in the order in which they were sent: when they become visible, and for whom."""
    messages = world.queues._queues[queue].messages.values()
    return [(each.visible, parse_messages(each.text)) for each in messages if parse_wake(each.text) is None]


async def test_a_thousand_shards_are_sent_in_the_order_of_their_wake_ups_and_share_messages(world: World) -> None:
    random, now = Random(7), world.now
    wakes = {await file(world, number, wake): wake for number in range(1000) if (wake := now + random.randrange(10_000, SEND_AHEAD))}
    await world.do(world.app.scheduler.looks.dispatch(now))
    found = sent(world)
    shards = [message.shard for _, some in found for message in some]
    assert sorted(shards) == sorted(wakes), "each once"
    assert len(found) <= SEND_AHEAD / ANNOUNCE_TOGETHER + 1000 / MOST_TOGETHER + 2
    times = [wakes[shard] for shard in shards]
    assert all(earlier <= later + ANNOUNCE_TOGETHER for earlier, later in pairwise(times))
    for visible, some in found:
        first = min(visible_at(wakes[message.shard], 1) for message in some)
        assert first <= visible < first + 1_000, "as early as the first needs it, at a whole second"
    await world.do(world.app.scheduler.looks.dispatch(now))
    assert len(sent(world)) == len(found), "what is sent is not sent again"


async def test_a_full_shard_is_sent_early_and_alone_and_a_small_one_waits(world: World) -> None:
    now = world.now
    far = now + SEND_AHEAD + 30_000
    assert far < now + DISPATCH_AHEAD
    full, small = await file(world, 1, far, FULL, noted=True), await file(world, 2, far, 3, noted=True)
    near = [await file(world, number, now + 60_000, events) for number, events in ((3, 2), (4, MANY_EVENTS), (5, 5))]
    await world.do(world.app.scheduler.looks.dispatch(now))
    together = {frozenset(message.shard for message in some): some for _, some in sent(world)}
    assert set(together) == {frozenset({full}), frozenset({near[1]}), frozenset({near[0], near[2]})}
    assert together[frozenset({full})][0].wake == far and together[frozenset({near[1]})][0].wake == now + 60_000
    await world.clock.advance(45)
    await world.do(world.app.scheduler.looks.dispatch(world.now))
    assert [message.shard for _, some in sent(world) for message in some].count(small) == 1


async def test_retries_go_to_their_own_queue(world: World) -> None:
    now = world.now
    retry, fresh = await file(world, 1, now + 30_000, retries=True), await file(world, 2, now + 30_000)
    await world.do(world.app.scheduler.looks.dispatch(now))
    assert [[message.shard for message in some] for _, some in sent(world)] == [[fresh]]
    assert [[message.shard for message in some] for _, some in sent(world, QUEUE_RETRIES)] == [[retry]]


async def test_a_message_that_the_queue_refuses_leaves_its_shards_to_the_next_look(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now = world.now
    shards = {await file(world, number, now + 60_000) for number in range(3)}

    async def refuse(*given: Any, **named: Any) -> None:
        raise Unavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(world.queues, "send", refuse)
        await world.do(world.app.scheduler.looks.dispatch(now))
    assert sent(world) == []
    await world.do(world.app.scheduler.looks.dispatch(now + 20_000))
    assert {message.shard for _, some in sent(world) for message in some} == shards


async def test_a_plan_that_cannot_be_read_keeps_no_shard_from_being_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    shard, get = await file(world, 1, world.now + 20_000), MemoryTables.get

    async def without_plan(tables: MemoryTables, table: str, pk: str, rk: str) -> Row | None:
        if (table, pk) == (SWEEPS, PK_PLAN):
            raise Unavailable
        return await get(tables, table, pk, rk)

    monkeypatch.setattr(MemoryTables, "get", without_plan)
    # The rest of the look needs the plan, and says so.
    with pytest.raises(Unavailable):
        await world.do(world.app.scheduler.looks.dispatch(world.now))
    assert [message.shard for _, some in sent(world) for message in some] == [shard]


@pytest.mark.parametrize("hangs", ["plan", "events"])
async def test_what_does_not_answer_holds_up_neither_messages_nor_wakes(world: World, monkeypatch: pytest.MonkeyPatch, hangs: str) -> None:
    shard, get, query, asked = await file(world, 1, world.now + 20_000), MemoryTables.get, MemoryTables.query, list[str]()

    async def slow_get(tables: MemoryTables, table: str, pk: str, rk: str) -> Row | None:
        if hangs == "plan" and (table, pk) == (SWEEPS, PK_PLAN) and not asked:
            asked.append(pk)
            await asyncio.Event().wait()
        return await get(tables, table, pk, rk)

    async def slow_query(tables: MemoryTables, given: RowQuery) -> Page:
        if hangs == "events" and given.table == EVENTS:
            asked.append(given.pk)
            await asyncio.Event().wait()
        return await query(tables, given)

    monkeypatch.setattr(MemoryTables, "get", slow_get)
    monkeypatch.setattr(MemoryTables, "query", slow_query)
    monkeypatch.setattr("shared.scheduler.sweeps.looks.HINT_TIMEOUT", 0.01)
    await world.do(world.app.scheduler.looks.dispatch(world.now))
    assert asked and [message.shard for _, some in sent(world) for message in some] == [shard]
    assert any(parse_wake(each.text) for each in world.queues._queues[QUEUE_SHARDS].messages.values())
