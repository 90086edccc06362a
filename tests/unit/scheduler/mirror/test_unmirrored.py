"""A scheduler without a second account: its mirror lets everything pass and copies nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.scheduler.keys import MIRRORED, Address, event_row, placed, shard_key
from shared.scheduler.mirror.unmirrored import UNGUARDED, Mirror
from shared.scheduler.rows import EventToStore
from shared.storage.names import EVENTS
from tests.unit.scheduler.harness import World

SHARD = shard_key("demo", placed("0000000000000000", MIRRORED))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    opened = await World().open()
    yield opened
    await opened.close()


def unpaired(world: World) -> Mirror:
    return Mirror(world.app.scheduler.runner)


async def test_every_owner_may_serve(world: World) -> None:
    guard = await unpaired(world).guard(SHARD)
    assert guard is UNGUARDED
    assert guard.may_start and await guard.look() and guard.start_watch(lambda: None, lambda: None) is None
    assert await world.app.scheduler.runner.run(guard.before_end({})) is True


async def test_nothing_is_copied_or_asked_of_another_account(world: World) -> None:
    mirror = unpaired(world)
    before = len(world.rows(EVENTS))

    def steps_of(way: object) -> None:
        raise AssertionError("a copy was asked for")

    async with mirror.serving(SHARD) as operation:
        await operation.copy(steps_of)
        await operation.copy_id("demo", "x")
    event = EventToStore({}, 0, 0, durability="mirrored")
    assert not mirror.mirrors(event) and mirror.term() == 0
    assert await mirror.known_before("demo", event, "x") is None
    assert len(world.rows(EVENTS)) == before


async def test_change_is_made_and_its_answer_returned(world: World) -> None:
    def steps() -> object:
        yield from ()
        return "done"

    found = await unpaired(world).carry(Address(SHARD, event_row(0)), steps(), lambda answer: True)
    assert found == "done"
