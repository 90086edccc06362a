"""Pause, and 410, as users see them: through HTTP and over instances."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.errors import Unavailable
from shared.delivery.channels.ports import Verdict
from tests.texts import assert_text

from ..harness import World
from .flowing import DEFAULT, DELIVERED, Instances, batch, begun, channel, states

# -- pause


async def test_events_of_a_paused_channel_stay_as_they_are_and_cost_next_to_nothing(world: World) -> None:
    made = await batch(world, 50)
    await world.admin.post(f"{DEFAULT}/pause", {"reason": "moving"})
    await world.run(10)
    await world.run(1200, step=1)
    assert states(world) == {"scheduled": 50}
    assert world.app.scheduler.counters["shards_taken"] <= 16, "a look every half minute at first, then less and less"
    assert (await world.demo.delete(f"/api/v1/events/{made[0]}")).status == 204
    shown = (await world.admin.get(DEFAULT)).json()
    assert (shown["paused"], shown["reason"], shown["flow"]) == (True, "moving", {"breaker": "closed"})
    assert world.receiver.received == []


async def test_resuming_calls_the_events_back_at_once(world: World) -> None:
    made = await batch(world, 20)
    await world.admin.post(f"{DEFAULT}/pause")
    await world.run(1200, step=1)
    at = world.now
    resumed = (await world.admin.post(f"{DEFAULT}/resume")).json()
    assert (resumed["paused"], "paused_at" in resumed) == (False, False)
    await world.run(5)
    assert sorted(world.receiver.delivered()) == sorted(made)
    assert max(begun(world)) - at <= 3_000
    assert all(got.delivery.attempt == 1 for got in world.receiver.received)


async def test_resuming_succeeds_although_no_event_can_be_called_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await batch(world, 3)
    await world.admin.post(f"{DEFAULT}/pause")
    await world.run(20)

    async def away(*_: Any, **__: Any) -> None:
        raise Unavailable("throttled")

    with monkeypatch.context() as patch:
        patch.setattr(world.tables, "query", away)
        assert (await world.admin.post(f"{DEFAULT}/resume")).status == 200
    await world.run(60)
    assert len(world.receiver.received) == 3, "each shard looks again by itself"


async def test_other_channels_of_the_same_shard_are_served_on_time(world: World) -> None:
    await channel(world, "b")
    body = [{"delay": f"PT{5 + number}S", "payload": 1, "channel": "b" if number % 2 else "default"} for number in range(40)]
    assert (await world.demo.post("/api/v1/events/batch", body)).json()["accepted"] == 40
    await world.admin.post(f"{DEFAULT}/pause")
    await world.run(60)
    assert [got.target.name for got in world.receiver.received] == ["b"] * 20
    assert max(got.delivery.late_ms for got in world.receiver.received) == 0
    assert states(world) == {"delivered": 20, "scheduled": 20}


async def test_events_claimed_before_a_pause_are_given_back_as_they_were(world: World) -> None:
    await batch(world, 5)
    await world.run(4)
    assert states(world) == {"firing": 5}
    await world.admin.post(f"{DEFAULT}/pause")
    await world.run(5)
    assert states(world) == {"scheduled": 5} and world.receiver.received == []
    assert {row.props["tries"] for row in world.events()} == {0}


async def test_pause_reaches_every_instance_within_a_second(two: Instances) -> None:
    await two.demo.post("/api/v1/events/batch", [{"delay": f"PT{5 + number / 10}S", "payload": 1} for number in range(200)])
    await two.run(10)
    assert len(two.receiver.received) > 10
    await two.admin.post(f"{DEFAULT}/pause")
    at = two.now
    await two.run(20)
    assert all(start <= at + 1_000 for start in begun(two))


# -- 410


async def test_410_ends_the_event_and_pauses_the_channel_and_says_so(world: World, caplog: pytest.LogCaptureFixture) -> None:
    first = await world.demo.create(delay="PT1S")
    world.receiver.script(
        first["id"], Verdict("final", 410, "answered 410 Gone: the receiver wants no more deliveries", gone=True), DELIVERED
    )
    later = await world.demo.create(delay="PT10S")
    await world.run(30)
    assert (await world.demo.event(first["id"]))["state"] == "dead"
    shown = (await world.admin.get(DEFAULT)).json()
    assert shown["paused"]
    assert_text("channel.paused-by-410", shown["reason"], at="2027-01-15T08:00:01.000Z")
    assert (await world.demo.event(later["id"]))["state"] == "scheduled"
    assert [record for record in caplog.records if getattr(record, "action", "") == "channel_gone"]
    assert world.app.scheduler.counters["channels_gone"] == 1
    resumed = (await world.admin.post(f"{DEFAULT}/resume")).json()
    assert (resumed["paused"], "reason" in resumed) == (False, False)
    await world.run(5)
    assert (await world.demo.event(later["id"]))["state"] == "delivered"


async def test_410_does_not_overwrite_a_persons_pause(world: World) -> None:
    made = await world.demo.create(delay="PT1S")
    world.receiver.script(made["id"], Verdict("final", 410, "answered 410 Gone", gone=True))
    world.receiver.takes = 5.0
    await world.run(3)
    await world.admin.post(f"{DEFAULT}/pause", {"reason": "by hand"})
    await world.run(10)
    assert (await world.demo.event(made["id"]))["state"] == "dead"
    assert (await world.admin.get(DEFAULT)).json()["reason"] == "by hand"


async def test_410_of_an_address_that_was_replaced_meanwhile_pauses_nothing(world: World) -> None:
    made = await world.demo.create(delay="PT1S")
    world.receiver.script(made["id"], Verdict("final", 410, "answered 410 Gone", gone=True))
    world.receiver.takes = 5.0
    await world.run(3)
    await channel(world, url="http://localhost:7073/new")
    await world.run(10)
    assert (await world.admin.get(DEFAULT)).json()["paused"] is False
