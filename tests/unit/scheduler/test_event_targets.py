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


def aimed(method: str, **more: Any) -> dict[str, Any]:
    return {"delay": "PT10S", "target": {"path": "/17", "method": method}} | more


async def test_events_without_a_body_have_no_payload_wherever_they_are_shown_and_a_get_refuses_one(world: World) -> None:
    await world.admin.put(CHANNEL, HTTP)
    for wrong, detail in (
        (aimed("POST"), "is required"),
        (aimed("GET", payload=None), "a GET request has no body"),
        (aimed("GET", payload={"a": 1}), "a GET request has no body"),
        (aimed("GET", payload={"a": "x" * 20_000}), "a GET request has no body"),
    ):
        refused = await world.demo.post(URL, wrong)
        [error] = refused.json()["errors"]
        assert (refused.status, error["pointer"]) == (422, "/payload") and error["detail"].startswith(detail)
    for name, more in (("get", aimed("GET")), ("none", aimed("DELETE")), ("null", aimed("DELETE", payload=None))):
        made = await world.demo.post(URL, more | {"id": name})
        assert made.status == 201 and ("payload" in made.json()) == (name == "null")
        assert (await world.demo.post(URL, more | {"id": name})).status == 200
    assert (await world.demo.post(URL, aimed("DELETE", id="none", payload=None))).status == 409
    assert (await world.demo.post(URL, aimed("GET", durability="fast"))).status == 202
    listed = (await world.demo.get(URL)).json()["items"]
    assert [each["id"] for each in listed if "payload" in each] == ["null"] and len(listed) == 3
    await world.run(30)
    assert sorted(got.delivery.body for got in world.receiver.received) == [b"", b"", b"", b"null"]


async def test_a_change_leaves_no_event_without_the_payload_that_its_method_needs_or_with_one_that_it_refuses(world: World) -> None:
    await world.admin.put(CHANNEL, HTTP)
    await world.demo.post(URL, aimed("GET", id="get"))
    await world.demo.post(URL, aimed("PUT", id="put", payload=[1]))
    for name, change, pointer in (
        ("get", {"payload": 1}, "/payload"),
        ("get", {"payload": None}, "/payload"),
        ("get", {"target": None}, "/payload"),
        ("get", {"target": {"method": "PUT"}}, "/payload"),
        ("put", {"target": {"method": "GET"}}, "/target/method"),
        ("put", {"target": {"method": "GET"}, "payload": 1}, "/payload"),
    ):
        refused = await world.demo.patch(f"{URL}/{name}", change)
        assert (refused.status, refused.json()["errors"][0]["pointer"]) == (422, pointer), change
    assert (await world.demo.patch(f"{URL}/get", {"target": {"method": "GET", "path": "/18"}, "delay": "PT20S"})).status == 200
    assert (await world.demo.patch(f"{URL}/get", {"target": {"method": "DELETE"}})).status == 200
    assert "payload" not in (await world.demo.event("get"))
    assert (await world.demo.patch(f"{URL}/get", {"target": None, "payload": {"a": 1}})).json()["payload"] == {"a": 1}
    assert (await world.demo.patch(f"{URL}/put", {"target": {"method": "DELETE"}})).json()["payload"] == [1]


async def test_a_collapsing_event_takes_the_place_of_one_with_or_without_a_payload(world: World) -> None:
    await world.admin.put(CHANNEL, HTTP)
    for last, payload in ((aimed("GET"), b""), (aimed("PUT", payload=5), b"5"), (aimed("DELETE"), b"")):
        assert (await world.demo.post(URL, last | {"id": "doc", "collapse": "PT1M"})).status in (200, 201)
        assert ("payload" in await world.demo.event("doc")) == bool(payload)
    await world.run(20)
    assert [got.delivery.body for got in world.receiver.received] == [b""]


async def test_a_fast_event_keeps_its_target_through_the_ingest_queue(world: World) -> None:
    assert (await post(world, TARGET, durability="fast")).status == 202
    await world.run(30)
    assert targets(world) == [TARGET]
