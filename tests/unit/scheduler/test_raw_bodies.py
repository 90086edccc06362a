"""Events with a content type of their own: their payload is the base64 of the bytes that are sent."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.texts import assert_text

from .harness import World

URL = "/api/v1/events"
TENANT = "/api/v1/tenants/demo"
BODY = b'<order id="17"/>\x00\xff\xfe'
XML: dict[str, Any] = {"payload": base64.b64encode(BODY).decode(), "content_type": "text/xml"}
DELAY = {"delay": "PT10S"}


def sent(world: World) -> list[tuple[bytes, str]]:
    return [(got.delivery.body, got.delivery.content_type) for got in world.receiver.received]


def encoded(size: int) -> str:
    return base64.b64encode(b"\xff" * size).decode()


async def test_every_way_of_an_event_keeps_its_bytes_and_shows_their_base64_and_type(world: World) -> None:
    await world.admin.put(f"{TENANT}/channels/other", {"type": "http", "url": "http://localhost:7072/x"})
    made = await world.demo.post(URL, DELAY | XML | {"id": "one"})
    assert made.status == 201 and {name: made.json()[name] for name in XML} == XML
    assert (await world.demo.post(URL, DELAY | XML | {"id": "one"})).status == 200
    assert (await world.demo.post(URL, DELAY | XML | {"id": "one", "content_type": "text/html"})).status == 409
    assert (await world.demo.post(URL, DELAY | XML | {"durability": "fast"})).status == 202
    assert (await world.demo.post(URL, DELAY | XML | {"channels": ["default", "other"]})).status == 201
    assert (await world.demo.post(f"{URL}/batch", [DELAY | XML | {"id": "in-batch"}])).json()["accepted"] == 1
    schedule = await world.demo.put("/api/v1/schedules/poll", {"every": "PT1M"} | XML)
    assert schedule.status == 201 and {name: schedule.json()[name] for name in XML} == XML
    moved = await world.demo.patch(f"{URL}/in-batch", {"delay": "PT30S"})
    assert {name: moved.json()[name] for name in XML} == XML
    await world.run(90)
    assert sent(world) == [(BODY, "text/xml")] * 6
    for each in (await world.demo.get(URL)).json()["items"]:
        assert {name: each[name] for name in XML} == XML


@pytest.mark.parametrize("payload", [{"a": 1}, "no base64", "YQ", "YR==", None, 5, "x" * 20_001])
async def test_a_payload_that_stands_for_no_bytes_is_refused(world: World, payload: Any) -> None:
    wrong = {"payload": payload, "content_type": "text/xml"}
    await world.demo.post(URL, DELAY | XML | {"id": "one"})
    for answer in (
        await world.demo.post(URL, DELAY | wrong),
        await world.demo.put("/api/v1/schedules/poll", {"every": "PT1M"} | wrong),
        await world.demo.patch(f"{URL}/one", wrong),
        await world.demo.patch(f"{URL}/one", {"payload": payload}),
    ):
        [error] = answer.json()["errors"]
        assert (answer.status, error["pointer"]) == (422, "/payload")
        assert_text("events.payload-not-base64", error["detail"])


async def test_a_type_without_a_payload_is_refused(world: World) -> None:
    await world.admin.put(f"{TENANT}/channels/default", {"type": "http", "url": "http://localhost:7072/x"})
    aimed = DELAY | {"target": {"method": "DELETE"}, "id": "one"}
    assert (await world.demo.post(URL, aimed)).status == 201
    for answer in (
        await world.demo.post(URL, aimed | {"content_type": "text/xml", "id": "two"}),
        await world.demo.post(URL, DELAY | {"target": {"method": "GET"}, "content_type": "text/xml"}),
        await world.demo.patch(f"{URL}/one", {"content_type": "text/xml"}),
    ):
        assert answer.status == 422 and answer.json()["errors"][0]["pointer"] in ("", "/content_type")
    assert (await world.demo.patch(f"{URL}/one", XML)).status == 200
    await world.run(20)
    assert sent(world) == [(BODY, "text/xml")]


async def test_a_change_of_the_type_alone_sends_the_same_payload_in_the_other_way(world: World) -> None:
    await world.demo.post(URL, DELAY | {"id": "one", "payload": "YQ=="})
    await world.demo.post(URL, DELAY | {"id": "two", "payload": {"a": 1}})
    assert (await world.demo.patch(f"{URL}/two", {"content_type": "text/plain"})).json()["errors"][0]["pointer"] == "/payload"
    assert (await world.demo.patch(f"{URL}/one", {"content_type": "text/plain"})).json()["content_type"] == "text/plain"
    await world.run(11)
    assert (b"a", "text/plain") in sent(world)
    await world.demo.post(URL, DELAY | {"id": "three"} | XML)
    cleared = (await world.demo.patch(f"{URL}/three", {"content_type": None})).json()
    assert "content_type" not in cleared and cleared["payload"] == XML["payload"]


async def test_the_last_of_collapsing_events_replaces_the_type(world: World) -> None:
    await world.demo.post(URL, DELAY | XML | {"id": "doc", "collapse": "PT1M"})
    answer = await world.demo.post(URL, DELAY | {"payload": 2, "id": "doc", "collapse": "PT1M"})
    assert answer.status == 200 and "content_type" not in answer.json()
    await world.run(20)
    assert sent(world) == [(b"2", "application/json")]


async def test_the_largest_payload_counts_the_bytes_and_a_queue_message_their_base64(world: World) -> None:
    await world.admin.put(f"{TENANT}/channels/queue", {"type": "queue", "queue": "orders"})
    typed = DELAY | {"content_type": "image/png"}
    for more, fits, too_large in (
        ({}, 262_144, 262_145),
        ({"channel": "queue"}, 30_000, 31_000),
        ({"durability": "fast"}, 30_000, 31_000),
    ):
        assert (await world.demo.post(URL, typed | more | {"payload": encoded(fits)})).status in (201, 202)
        assert (await world.demo.post(URL, typed | more | {"payload": encoded(too_large)})).status == 413
    await world.demo.post(URL, typed | {"payload": encoded(262_144), "id": "large"})
    # As JSON, the text itself would be sent, which is longer.
    assert (await world.demo.patch(f"{URL}/large", {"content_type": None})).status == 413
    assert (await world.demo.patch(f"{URL}/large", {"channel": "queue"})).status == 413
    await world.run(20)
    assert max(len(body) for body, _ in sent(world)) == 262_144


async def test_escapes_in_the_base64_are_not_kept_and_make_no_event_too_large_for_its_row(world: World) -> None:
    text = encoded(65_500)
    # As some encoders write + and /, but each letter.
    members = b'"content_type": "image/png", "payload": "%b"' % "".join(f"\\u{ord(sign):04x}" for sign in text).encode()
    assert (await world.demo.post(URL, DELAY | {"id": "changed", "payload": 1})).status == 201
    batch = b"[%b]" % b",".join(b'{"id": "%b", "delay": "PT10S", %b}' % (name, members) for name in (b"one", b"two"))
    answers = [
        await world.demo.post(URL, b'{"id": "alone", "delay": "PT10S", %b}' % members),
        await world.demo.post(f"{URL}/batch", batch),
        await world.demo.patch(f"{URL}/changed", b"{%b}" % members),
        await world.demo.put("/api/v1/schedules/poll", b'{"every": "PT1M", %b}' % members),
    ]
    assert [each.status for each in answers] == [201, 200, 200, 201] and answers[1].json()["rejected"] == 0
    assert text.encode() in answers[2].body
    await world.run(90)
    assert sent(world) == [(base64.b64decode(text), "image/png")] * 5
