"""A herd of events for a receiver that is slower than they come: shards that are sent away come back in time, and none waits twice."""

from __future__ import annotations

import pytest

from shared.core.clock import Millis, to_text
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict
from shared.delivery.flow.lane import Lane
from shared.storage.ports import Message

from ..harness import START, World
from .flowing import DELIVERED, batch

TAKES = 0.32
"""Seconds that the receiver takes: 64 deliveries at once are 200 a second."""


def busy_lane(world: World, waiting: int, window: int) -> Lane:
    """A lane in which that many deliveries wait, of a receiver whose answers take `TAKES`."""
    lane = world.app.scheduler.flow.lanes.lane("demo", "default")
    now = world.clock.monotonic()
    lane.begin(now - TAKES)
    lane.end(now - TAKES, now, answered=True)
    lane.window = lane.in_flight = window
    lane.claimed, lane.in_line = window + waiting, waiting
    return lane


async def away(world: World, shard: str, count: int = 1_000) -> float:
    """Seconds for which a shard with so many due events is sent away."""
    hold = (await world.app.scheduler.flow.holds(shard, "demo", {"default": count}, bool))["default"]
    assert hold.room == 0
    return (hold.until - world.now) / 1000


async def test_shards_that_come_back_keep_their_places(world: World) -> None:
    busy_lane(world, 2_000, 64)
    # 10 s of others, and 5 s for each shard; half of that.
    assert [await away(world, shard) for shard in "abcd"] == [7.5, 10.0, 12.5, 15.0]
    assert [await away(world, shard) for shard in "abcd"] == [7.5, 10.0, 12.5, 15.0]


async def test_a_shard_that_does_not_come_back_loses_its_place(world: World) -> None:
    busy_lane(world, 2_000, 64)
    assert [await away(world, shard) for shard in "ab"] == [7.5, 10.0]
    await world.clock.advance(13.0)
    assert await away(world, "b") == 7.5, "another process serves the first one"


async def test_places_are_counted_no_further_than_matters(world: World) -> None:
    lane, now = busy_lane(world, 0, 64), world.clock.monotonic()
    for shard in "abcd":
        lane.wait(shard, 10, now)
    assert lane.before("d", now, 15) == 20
    assert lane.before("d", now, 100) == 30
    assert lane.before("e", now + 60, 100) == 0 and not lane.places


async def test_a_window_that_grows_sends_no_shard_away_for_the_time_that_a_narrow_one_takes(world: World) -> None:
    lane = busy_lane(world, 2_000, 4)
    assert await away(world, "a") <= 7.5 + 4 * TAKES, "four rounds from 4 to 64"
    now = world.clock.monotonic()
    lane.begin(now)
    lane.end(now, now, answered=False)
    lane.window = 4
    assert await away(world, "a") == 60.0, "a receiver that does not answer does not widen it"


class LateOwners(World):
    """Owners start one after another within a second, as they do where storage takes time."""

    started = 0

    async def _serve(self, queue: str, message: Message) -> None:
        self.started += 1
        await self.clock.sleep(self.started % 20 / 20)
        await super()._serve(queue, message)


@pytest.mark.parametrize("world_type", [World, LateOwners], ids=["all-at-once", "before-the-first-answer"])
async def test_a_herd_is_delivered_in_little_more_than_the_time_that_its_receiver_needs(world_type: type[World]) -> None:
    takes = 1.0
    world = await world_type(shard_events=50).open()
    ends: list[Millis] = []

    async def answer(target: Target, delivery: OutgoingDelivery) -> Verdict:
        await world.clock.sleep(takes)
        ends.append(world.now)
        return DELIVERED

    world.receiver.send = answer  # type: ignore[method-assign]
    try:
        await batch(world, 1_000, due=to_text(START - 1_000))
        # The window grows in four rounds; polls, ticks and a wait that was estimated while it grew take up to 4 s.
        await world.run(1_000 / 64 * takes + 4 * takes + 4)
        assert len(ends) == 1_000
    finally:
        await world.close()
