"""The kafka channel: what a message looks like, what an answer means, who shares a producer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import deque
from typing import Any

import pytest

from shared.delivery.channels.kafka import MAX_PRODUCERS, KafkaSender, headers_of, partition_key, verdict_of
from shared.delivery.channels.model import KafkaChannel
from shared.delivery.channels.ports import Target
from shared.delivery.kafka.connection import Login
from shared.delivery.kafka.producer import Acknowledgement, Headers
from tests.texts import assert_text

from .conftest import make_delivery, make_settings

HUB = "ns.servicebus.windows.net:9093"


def target(servers: str = HUB, **spec: Any) -> Target:
    return Target("demo", "default", KafkaChannel(**({"type": "kafka", "servers": servers, "topic": "alarms"} | spec)))


class FakeProducer:
    """Keeps what was put; gives the answers it was handed in order, then success."""

    def __init__(self, *answers: Acknowledgement) -> None:
        self.answers = deque(answers)
        self.put_messages: list[tuple[str, bytes, bytes, Headers]] = []
        self.closed = 0

    async def put(self, topic: str, key: bytes, value: bytes, headers: Headers) -> Acknowledgement:
        self.put_messages.append((topic, key, value, headers))
        return self.answers.popleft() if self.answers else Acknowledgement()

    async def close(self) -> None:
        self.closed += 1


class Opens:
    """Opens fake producers, and remembers for whom."""

    def __init__(self, *producers: FakeProducer) -> None:
        self.coming = deque(producers)
        self.opened: list[tuple[Login, FakeProducer]] = []

    async def __call__(self, login: Login) -> FakeProducer:
        await asyncio.sleep(0)
        made = self.coming.popleft() if self.coming else FakeProducer()
        self.opened.append((login, made))
        return made


def test_attributes_are_headers_and_values_are_plain_utf8() -> None:
    delivery = make_delivery("ev-ü", attempt=3, traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01")
    assert dict(headers_of(target(), delivery, "k ü")) == {
        "content-type": b"application/json",
        "ce_specversion": b"1.0",
        "ce_type": b"tocsin.event.due",
        "ce_source": b"/tenants/demo/channels/default",
        "ce_id": "ev-ü".encode(),
        "ce_time": b"2027-01-15T08:00:00.210Z",
        "ce_tocsindue": b"2027-01-15T08:00:00.210Z",
        "ce_tocsinfired": b"2027-01-15T08:00:00.250Z",
        "ce_tocsinlatems": b"40",
        "ce_tocsinattempt": b"3",
        "ce_partitionkey": "k ü".encode(),
        "traceparent": b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01",
    }
    assert {"ce_partitionkey", "traceparent"}.isdisjoint(dict(headers_of(target(), make_delivery(), None)))


@pytest.mark.parametrize(
    ("pointer", "body", "key"),
    [
        (None, b'{"a": "x"}', None),
        ("/a", b'{"a": "x"}', "x"),
        ("/a/b", b'{"a": {"b": 17}}', "17"),
        ("/a/1", b'{"a": [1, true]}', "true"),
        ("/a~1b/~0", b'{"a/b": {"~": "x"}}', "x"),
        ("/", b'{"": 1.5}', "1.5"),
        ("/a", b'{"a": null}', None),
        ("/a", b'{"a": ""}', None),
        ("/a", b'{"a": {"b": 1}}', None),
        ("/a/2", b'{"a": [1, 2]}', None),
        ("/a/-1", b'{"a": [1, 2]}', None),
        ("/a/b", b'{"a": "text"}', None),
        ("/a", b"17", None),
        ("/b", b'{"a": 1}', None),
    ],
)
def test_key_is_what_the_pointer_finds_in_the_payload(pointer: str | None, body: bytes, key: str | None) -> None:
    assert partition_key(pointer, body) == key


@pytest.mark.parametrize(
    ("answer", "outcome", "words"),
    [
        (Acknowledgement(), "delivered", None),
        (Acknowledgement("MSG_SIZE_TOO_LARGE"), "final", "larger than the topic takes"),
        (Acknowledgement("TOPIC_EXCEPTION"), "final", "name is not valid"),
        (Acknowledgement("UNKNOWN_TOPIC_OR_PART"), "retry", "no such topic"),
        (Acknowledgement("TOPIC_AUTHORIZATION_FAILED"), "retry", "may not write to the topic"),
        (
            Acknowledgement("_MSG_TIMED_OUT", hint="_AUTHENTICATION"),
            "retry",
            "not acknowledged in time (_MSG_TIMED_OUT); kafka: the login was refused",
        ),
        (Acknowledgement("NOT_ENOUGH_REPLICAS"), "retry", "NOT_ENOUGH_REPLICAS"),
        (Acknowledgement("OUT_OF_ORDER_SEQUENCE_NUMBER", fatal=True), "retry", "OUT_OF_ORDER_SEQUENCE_NUMBER"),
    ],
)
def test_only_what_can_never_be_taken_is_final(answer: Acknowledgement, outcome: str, words: str | None) -> None:
    verdict = verdict_of(answer)
    assert verdict.outcome == outcome
    assert (verdict.error is None) if words is None else words in (verdict.error or "")


async def test_key_is_the_events_id_unless_the_payload_has_one() -> None:
    opens = Opens()
    sender = KafkaSender(make_settings(), open_producer=opens)
    assert (await sender.send(target(key="/n"), make_delivery("ev-1"))).outcome == "delivered"
    assert (await sender.send(target(key="/absent"), make_delivery("ev-2"))).outcome == "delivered"
    [(login, producer)] = opens.opened
    assert login.by_identity and [(topic, key, value) for topic, key, value, _ in producer.put_messages] == [
        ("alarms", b"1.0", b'{"n": 1.0}'),
        ("alarms", b"ev-2", b'{"n": 1.0}'),
    ]
    await sender.close()
    assert producer.closed == 1


async def test_channels_with_one_login_share_a_producer_and_others_do_not() -> None:
    opens = Opens()
    sender = KafkaSender(make_settings("broker"), open_producer=opens)
    logins = [
        {"topic": "a"},
        {"topic": "b"},
        {"servers": "broker:9092"},
        {"servers": "broker:9092", "tls": False},
        {"servers": "broker:9092", "username": "u", "password": "p"},
    ]
    await asyncio.gather(*(sender.send(target(**spec), make_delivery()) for spec in logins for _ in range(3)))
    assert len(opens.opened) == 4
    await sender.close()
    assert all(producer.closed == 1 for _, producer in opens.opened)


async def test_producer_that_is_of_no_more_use_is_replaced() -> None:
    opens = Opens(FakeProducer(Acknowledgement("_FATAL", fatal=True)))
    sender = KafkaSender(make_settings(), open_producer=opens)
    assert (await sender.send(target(), make_delivery())).outcome == "retry"
    assert (await sender.send(target(), make_delivery())).outcome == "delivered"
    await sender.close()
    assert [producer.closed for _, producer in opens.opened] == [1, 1]


async def test_client_that_cannot_be_opened_is_a_failed_attempt_without_its_message() -> None:
    async def refuse(_: Login) -> FakeProducer:
        raise RuntimeError("password=hunter2")

    sender = KafkaSender(make_settings(), open_producer=refuse)
    for _ in range(2):
        verdict = await sender.send(target(), make_delivery())
        assert verdict.outcome == "retry"
        assert_text("delivery.kafka-not-opened", verdict.error, failure="RuntimeError")
    await sender.close()


async def test_producer_not_used_for_longest_makes_room() -> None:
    opens = Opens()
    sender = KafkaSender(make_settings("10.0.0.0/8"), open_producer=opens)
    for number in range(MAX_PRODUCERS):
        await sender.send(target(f"10.0.0.{number}:9092"), make_delivery())
    await sender.send(target("10.0.0.0:9092"), make_delivery())
    await sender.send(target("10.0.1.1:9092"), make_delivery())
    assert len(opens.opened) == MAX_PRODUCERS + 1
    await asyncio.sleep(0.0)
    await sender.close()
    assert [producer.closed for _, producer in opens.opened] == [1] * (MAX_PRODUCERS + 1)


async def test_brokers_off_the_allow_list_are_never_connected_to() -> None:
    opens = Opens()
    sender = KafkaSender(make_settings(), open_producer=opens)
    for servers in ("10.0.0.4:9092", "evil.example:9092", f"{HUB},evil.example:9093", "ns.servicebus.windows.net:443", "[::1]:9092"):
        verdict = await sender.send(target(servers), make_delivery())
        assert verdict.outcome == "final" and "egress refused" in (verdict.error or "")
    assert opens.opened == []
    await sender.close()


def test_app_without_kafka_does_not_load_the_library() -> None:
    code = "import sys, function_app; from shared.app.application import Application; sys.exit('confluent_kafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
