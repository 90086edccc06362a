"""Shards that are announced together share a message, and lose nothing by it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.core.errors import Unavailable
from shared.scheduler.ingest.shard_filler import MANY
from shared.scheduler.protocol.dispatch import MOST_TOGETHER, ShardMessage, parse_message, parse_messages, text_together
from shared.scheduler.timings import HELD_FOR
from shared.storage.memory import MemoryQueues
from shared.storage.names import EVENTS, QUEUE_SHARDS, SHARDS

from ..harness import Client, World

TENANTS = 30


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World().open()
    yield world
    await world.close()


@pytest.fixture
async def clients(world: World) -> list[Client]:
    return [await world.tenant(f"t{number}") for number in range(TENANTS)]


async def create(clients: list[Client], **event: str) -> list[str]:
    return [str((await client.create(**event))["id"]) for client in clients]


def sent(world: World) -> list[list[ShardMessage]]:
    """Return the messages in the queue, the shards of each."""
    return [parse_messages(message.text) for message in world.queues._queues[QUEUE_SHARDS].messages.values()]


async def test_shards_of_many_tenants_share_messages_and_are_punctual(world: World, clients: list[Client]) -> None:
    made = await create(clients, delay="PT20S")
    await world.run(HELD_FOR + 0.5)
    shards = [message.shard for messages in sent(world) for message in messages]
    assert sorted(shards) == sorted(row.pk for row in world.rows(EVENTS) if row.rk == "gate")
    assert len(sent(world)) <= MANY + 2, "the first few are sent one by one"
    await world.run(25)
    assert sorted(world.receiver.delivered()) == sorted(made)
    assert all(0 <= got.began - got.delivery.due <= 20 for got in world.receiver.received)
    assert not world.rows(SHARDS) and await world.queues.length(QUEUE_SHARDS) == 0


async def test_few_shards_and_those_that_are_due_soon_are_announced_at_once(world: World, clients: list[Client]) -> None:
    await create(clients[: MANY - 1], delay="PT20S")
    assert len(sent(world)) == MANY - 1
    await create(clients[MANY:], delay="PT5S")
    assert len(sent(world)) == MANY - 1 + TENANTS - MANY


async def test_process_that_ends_in_order_sends_what_it_holds(world: World, clients: list[Client]) -> None:
    await create(clients, delay="PT20S")
    assert sum(map(len, sent(world))) < TENANTS
    await world.app.scheduler.writer.announcer.close()
    assert sum(map(len, sent(world))) == TENANTS


async def test_shards_whose_announcement_is_lost_with_its_process_are_found_by_the_next_one(world: World, clients: list[Client]) -> None:
    made = await create(clients, delay="PT20S")
    held = world.app.scheduler.writer.announcer
    for task in list(held._tasks):
        task.cancel()
    held._held.clear()
    assert sum(map(len, sent(world))) < TENANTS
    await world.run(15)
    await world.open()
    # Without timers, which are silent after a kill.
    world._scanned = world.clock.monotonic() + 10_000
    young = world.app.recover()
    world._start(young)
    await world.run(22)
    assert sorted(world.receiver.delivered()) == sorted(made)
    assert all(got.began - got.delivery.due <= 20_000 for got in world.receiver.received)


async def test_queue_that_refuses_a_message_leaves_all_its_shards_to_the_sweep(
    world: World, clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, refused = MemoryQueues.send, []

    async def send(self: MemoryQueues, queue: str, text: str, *, visible_in: float = 0.0) -> None:
        if queue == QUEUE_SHARDS and len(parse_messages(text)) > 1:
            refused.append(text)
            raise Unavailable("the queue does not answer")
        await plain(self, queue, text, visible_in=visible_in)

    monkeypatch.setattr(MemoryQueues, "send", send)
    made = await create(clients, delay="PT30S")
    await world.run(HELD_FOR + 0.5)
    waiting = [row.rk for row in world.rows(SHARDS) if row.props["state"] == "pending"]
    assert sorted(waiting) == sorted(message.index for text in refused for message in parse_messages(text)) and len(waiting) > TENANTS / 2
    await world.run(35)
    assert sorted(world.receiver.delivered()) == sorted(made)
    assert all(got.began - got.delivery.due <= 20 for got in world.receiver.received)


def test_message_for_several_shards_names_each_of_them() -> None:
    several = [ShardMessage(f"0{number}-n-t", f"202701150800:t:n{number}") for number in range(MOST_TOGETHER)]
    assert parse_messages(text_together(several)) == several
    assert parse_message(text_together(several)) == several[0]
    assert text_together(several[:1]) == several[0].text()
    assert len(text_together(several)) < 36 * 1024
