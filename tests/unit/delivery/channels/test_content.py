"""Bodies that are no JSON, over each kind of channel."""

from __future__ import annotations

import base64
import json
from typing import Any

import orjson
import pytest
from pydantic import TypeAdapter, ValidationError

from shared.core.clock import SettableClock
from shared.core.signing import verify
from shared.delivery.channels.cloudevents import structured
from shared.delivery.channels.content import ContentType, bytes_of, without_escapes
from shared.delivery.channels.event_target import EventTarget
from shared.delivery.channels.http import HttpSender, post_of
from shared.delivery.channels.kafka import KafkaSender
from shared.delivery.channels.queue import QueueSender
from shared.storage.memory import MemoryQueues

from . import test_eventgrid as grid
from . import test_kafka as kafka
from .conftest import NOW, SECRET, Listen, http_target, make_delivery, make_settings, url
from .test_queue import to_queue

BODY = b'<order id="17"/>\x00\xff\xfe'
TYPE = "text/xml; charset=utf-8"
CONTENT: dict[str, Any] = {"body": BODY, "content_type": TYPE}
IS_TYPE: TypeAdapter[str] = TypeAdapter(ContentType)


async def test_a_request_has_the_bytes_their_type_and_a_signature_over_them(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen()
    # A header whose name ends like that of the type stays as it is.
    target = http_target(url(receiver), headers={"X-Content-Type": "application/json"})
    aimed = EventTarget(path="/17", method="DELETE").stored()
    for more in ({}, {"event_target": aimed}):
        assert (await sender.send(target, make_delivery(**CONTENT, **more))).outcome == "delivered"
    assert (await sender.send(target, make_delivery())).outcome == "delivered"
    *raw, plain = receiver.requests
    for request in raw:
        assert (request.body, request.headers["content-type"]) == (BODY, TYPE)
        assert request.headers["x-content-type"] == "application/json" and request.headers["content-length"] == str(len(BODY))
        assert [name for name, _ in request.pairs].count("content-type") == 1
        assert verify(request.headers, BODY, [SECRET], NOW)
    assert plain.headers["content-type"] == "application/json" and receiver.connections == 1
    assert post_of(target, make_delivery(**CONTENT), sender.egress).headers["content-type"] == TYPE


async def test_a_queue_message_and_an_event_of_event_grid_carry_base64_and_the_type() -> None:
    queues = MemoryQueues(SettableClock(NOW))
    await queues.ensure(["orders"])
    assert (await QueueSender(queues).send(to_queue(), make_delivery(**CONTENT))).outcome == "delivered"
    [message] = await queues.receive("orders")
    event = json.loads(message.text)
    assert (base64.b64decode(event["data_base64"]), event["datacontenttype"]) == (BODY, TYPE) and "data" not in event
    sender, publisher, _ = grid.make()
    assert (await sender.send(grid.to_topic(), make_delivery(**CONTENT))).outcome == "delivered"
    [[published]] = publisher.batches
    assert (published.data, published.datacontenttype) == (BODY, TYPE)


async def test_a_kafka_message_is_the_bytes_and_its_key_the_events_id() -> None:
    opens = kafka.Opens()
    sender = KafkaSender(make_settings(), open_producer=opens)
    await sender.send(kafka.target(key="/order"), make_delivery(**CONTENT))
    [(_, key, value, headers)] = opens.opened[0][1].put_messages
    assert (key, value, dict(headers)["content-type"]) == (b"ev-1", BODY, TYPE.encode())


def test_no_body_can_add_members_to_the_json_form() -> None:
    forged = b'1,"id":"forged","data":2'
    event = json.loads(structured(http_target("https://example.com/"), make_delivery(body=forged, content_type="text/plain"), {}))
    assert event["id"] == "ev-1" and base64.b64decode(event["data_base64"]) == forged


@pytest.mark.parametrize(
    "text", ["text/plain", TYPE, 'multipart/form-data; boundary="a b"', "application/vnd.api+json", "image/svg+xml;q=1;r=2"]
)
def test_media_types_are_taken(text: str) -> None:
    assert IS_TYPE.validate_python(text) == text


WRONG = (
    *("", "text", "/", "text/", "text/plain ", " text/plain", "text/plain;", "text/plain; charset", "text/plain\r\nx-a: b", "text/pläin"),
    *('text/plain; a="', 'text/plain; a="\r\n"', "text/plain, text/html", "a/b" + "; a=b" * 60, "text/*", "*/*"),
    # JSON is sent as it is, and a CloudEvent in the body would be another event than that of the headers.
    *("application/json", "Application/JSON; charset=utf-8", "application/cloudevents+json", "APPLICATION/CloudEvents-batch+json"),
)


@pytest.mark.parametrize("text", WRONG)
def test_other_types_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        IS_TYPE.validate_python(text)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 262_144])
def test_a_payload_stands_for_its_bytes(size: int) -> None:
    body = bytes(number % 256 for number in range(size))
    text = base64.b64encode(body).decode()
    escaped = json.dumps(text).replace("/", "\\/").replace("+", "\\u002b").encode()
    assert bytes_of(orjson.dumps(text)) == bytes_of(escaped) == body
    assert without_escapes(escaped) == without_escapes(orjson.dumps(text)) == orjson.dumps(text)


@pytest.mark.parametrize(
    "payload", [b'"YQ"', b'"YR=="', b'"YQ==\\n"', b'"Y_8="', b'" YQ=="', b'"\\u00e4"', b"1", b"null", b'{"a":1}', b'["YQ=="]']
)
def test_a_payload_that_is_not_the_usual_base64_stands_for_no_bytes(payload: bytes) -> None:
    with pytest.raises(ValueError):
        bytes_of(payload)
