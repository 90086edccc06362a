"""Events that a call makes due now are delivered by the process that took the call, without a queue in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from shared.delivery.channels.ports import Verdict
from shared.storage.names import QUEUE_SHARDS

from ..harness import World

REFUSED = Verdict("final", 422, "answered 422")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    opened = await World(express_events=5).open()
    yield opened
    await opened.close()


async def within_100_ms(world: World, done: Callable[[], bool]) -> None:
    """Let time pass until it is done: no queue is served, and no timer ticks."""

    async def wait() -> None:
        while not done():
            await world.clock.sleep(0.005)

    began = world.clock.monotonic()
    await world.do(wait())
    assert world.clock.monotonic() - began < 0.1


async def delivered(world: World, event_id: str, count: int = 1) -> None:
    await within_100_ms(world, lambda: len(world.receiver.of(event_id)) >= count)


async def test_an_event_that_is_fired(world: World) -> None:
    made = await world.demo.create(delay="P1D")
    assert (await world.demo.post(f"/api/v1/events/{made['id']}/fire")).status == 202
    await delivered(world, made["id"])


async def test_an_event_that_is_redriven(world: World) -> None:
    world.receiver.script("x", REFUSED, Verdict("delivered", 200))
    await world.demo.create(id="x", delay="PT0S")
    await delivered(world, "x")
    await world.run(5)
    assert (await world.demo.post("/api/v1/events/x/redrive")).status == 202
    await delivered(world, "x", 2)


async def test_a_schedule_that_is_triggered(world: World) -> None:
    await world.demo.put("/api/v1/schedules/nightly", {"cron": "0 3 * * *", "timezone": "UTC", "payload": 1})
    made = (await world.demo.post("/api/v1/schedules/nightly/trigger")).json()
    await delivered(world, made["id"])


async def test_a_callback(world: World) -> None:
    assert (await world.admin.put("/api/v1/tenants/demo/channels/told", {"type": "http", "url": "http://localhost:7072/t"})).status == 201
    made = await world.demo.create(delay="PT0S", on_delivered="told")
    await delivered(world, made["id"])

    await within_100_ms(world, lambda: any(got.target.name == "told" for got in world.receiver.received))


async def test_a_process_that_ends_at_once_leaves_the_shard_to_its_message(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await world.demo.create(delay="P1D")
    monkeypatch.setattr(world.app.scheduler.changes, "_serve_now", lambda message: True)  # and then it is gone
    assert (await world.demo.post(f"/api/v1/events/{made['id']}/fire")).status == 202
    assert await world.queues.length(QUEUE_SHARDS) >= 1
    await world.run(8)
    assert [got.delivery.id for got in world.receiver.received] == [made["id"]]


async def test_nothing_is_delivered_twice_although_the_message_comes_too(world: World) -> None:
    made = await world.demo.create(delay="P1D")
    await world.demo.post(f"/api/v1/events/{made['id']}/fire")
    await world.run(60)
    assert len(world.receiver.of(made["id"])) == 1
