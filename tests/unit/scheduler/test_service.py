"""The parts of a scheduler are made when they are first used, also while its process ends."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.storage.names import QUEUE_SHARDS

from .harness import World

PARTS = ("express", "writer", "notices", "end_notes", "sweeps", "looks", "state_pass", "label_index")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World(express_events=5).open()
    yield world
    await world.close()


async def test_a_process_that_has_only_started_has_made_nothing_that_posts_and_sweeps_need(world: World) -> None:
    scheduler = world.app.scheduler
    assert [name for name in PARTS if scheduler.made(name) is not None] == []
    await scheduler.close()
    assert [name for name in PARTS if scheduler.made(name) is not None] == []


async def test_an_event_that_is_posted_first_while_the_process_ends_goes_to_the_queue(world: World) -> None:
    scheduler = world.app.scheduler
    scheduler.leave()
    made = await world.demo.create(delay="PT0S", payload=1)
    assert scheduler.made("express") is not None and scheduler.express.shards == 0
    assert await world.queues.length(QUEUE_SHARDS) == 1
    await world.open()
    await world.run(10)
    assert world.receiver.delivered() == [made["id"]]
