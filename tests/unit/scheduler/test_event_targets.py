"""Events with a target: accepted, changed, replaced and delivered."""

from __future__ import annotations

from typing import Any

import orjson

from tests.texts import assert_text

from .harness import World

URL = "/api/v1/events"
CHANNEL = "/api/v1/tenants/demo/channels/default"
HTTP: dict[str, Any] = {"type": "http", "url": "http://localhost:7072/x?code=1", "headers": {"X-Key": "k"}}
TARGET = {"path": "/orders/17", "query": {"a": "b"}, "method": "PUT", "headers": {"X-A": "b"}}


async def post(world: World, target: Any, **more: Any) -> Any:
    return await world.demo.post(URL, {"delay": "PT10S", "payload": 1, "target": target} | more)


def targets(world: World) -> list[Any]:
    return [orjson.loads(got.delivery.event_target or "null") for got in world.receiver.received]


async def test_targets_are_shown_changed_and_delivered(world: World) -> None:
    assert (await world.admin.put(CHANNEL, HTTP)).status in (200, 201)
    made = await post(world, TARGET, id="one")
    assert made.status == 201 and made.json()["target"] == TARGET
    assert (await post(world, TARGET, id="one")).status == 200
    assert (await post(world, TARGET | {"method": "PATCH"}, id="one")).status == 409
    assert "target" not in (await world.demo.create(id="plain", delay="PT10S"))
    moved = await world.demo.patch(f"{URL}/one", {"target": {"path": "/18"}, "delay": "PT20S"})
    assert moved.json()["target"] == {"path": "/18", "method": "POST"}
    assert "target" not in (await world.demo.patch(f"{URL}/one", {"target": None})).json()
    assert (await world.demo.patch(f"{URL}/one", {"target": TARGET, "payload": 2})).json()["target"] == TARGET
    await world.run(30)
    assert sorted(targets(world), key=str) == [None, TARGET]


async def test_a_collapsing_event_without_one_takes_the_target_away(world: World) -> None:
    await post(world, {"path": "/1"}, id="doc", collapse="PT1M")
    answer = await world.demo.post(URL, {"delay": "PT10S", "payload": 2, "id": "doc", "collapse": "PT1M"})
    assert answer.status == 200 and "target" not in answer.json()
    await world.run(20)
    assert targets(world) == [None]


async def test_what_does_not_fit_the_channel_is_refused_and_fails_if_the_channel_changes_later(world: World) -> None:
    await world.admin.put(CHANNEL, HTTP)
    for wrong in (
        {"query": {"Code": "2"}},
        {"headers": {"x-key": "2"}},
        {"path": "/../x"},
        {"path": "/%252f"},
        {},
        {"headers": {"host": "x"}},
    ):
        assert (await post(world, wrong)).status == 422, wrong
    batch = await world.demo.post(
        URL + "/batch", [{"delay": "PT10S", "payload": 1, "target": each} for each in (TARGET, {"query": {"code": "2"}})]
    )
    assert [each["status"] for each in batch.json()["results"]] == [201, 422]
    made = await post(world, TARGET, id="one")
    await world.admin.put("/api/v1/tenants/demo/channels/other", {"type": "queue", "queue": "orders"})
    assert (await post(world, TARGET, channel="other")).json()["errors"][0]["pointer"] == "/target"
    assert (await world.demo.patch(f"{URL}/one", {"channel": "other"})).status == 422
    await world.admin.put(CHANNEL, {"type": "queue", "queue": "orders"})
    await world.run(20)
    event = await world.demo.event(made.json()["id"])
    assert event["state"] == "dead"
    assert_text("delivery.target-without-http", event["error"])
    assert not world.receiver.received


async def test_a_fast_event_keeps_its_target_through_the_ingest_queue(world: World) -> None:
    assert (await post(world, TARGET, durability="fast")).status == 202
    await world.run(30)
    assert targets(world) == [TARGET]
