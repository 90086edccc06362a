"""Events out: through the whole application, to a broker."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from shared.core.clock import SystemClock
from shared.core.settings import Settings
from shared.delivery.channels.kafka import KafkaSender
from shared.delivery.channels.model import KafkaChannel
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict

from .cluster import Cluster
from .conftest import Broker, eventually

type Apps = Callable[..., Any]


async def test_events_arrive_as_cloudevents_in_the_order_in_which_their_deliveries_began(broker: Cluster, apps: Apps) -> None:
    topic = broker.topic("out-events")
    app = await apps()
    await app.channel(broker, topic=topic, key="/machine")
    events = [{"id": f"e-{n}", "delay": f"PT{n / 200:.3f}S", "payload": {"machine": f"m{n % 7}", "n": n}} for n in range(300)]
    answer = await app.call("POST", "events/batch", events)
    assert answer.json()["accepted"] == 300
    messages = await asyncio.to_thread(broker.messages, topic, 300)
    began = defaultdict(list)
    for message in messages:
        headers = dict(message.headers())
        payload = orjson.loads(message.value())
        assert headers["content-type"] == b"application/json" and headers["ce_specversion"] == b"1.0"
        assert headers["ce_id"] == f"e-{payload['n']}".encode() and headers["ce_source"] == b"/tenants/demo/channels/default"
        assert message.key() == headers["ce_partitionkey"] == payload["machine"].encode()
        began[message.partition()].append(headers["ce_tocsinfired"])
    assert {dict(message.headers())["ce_id"] for message in messages} == {b"e-%d" % n for n in range(300)}
    assert all(times == sorted(times) for times in began.values())


async def test_many_messages_under_way_keep_their_order_by_key(broker: Cluster) -> None:
    sender = KafkaSender(Settings(storage="UseDevelopmentStorage=true", egress_allow="localhost, 127.0.0.0/8"))
    topic = broker.topic("out-order")
    target = Target("demo", "c", KafkaChannel(type="kafka", servers=broker.servers, topic=topic, tls=False, key="/machine"))
    now = SystemClock().now()
    deliveries = [OutgoingDelivery(f"e-{n}", now, now, 1, orjson.dumps({"machine": n % 7, "n": n})) for n in range(2000)]
    verdicts = await asyncio.gather(*(sender.send(target, delivery) for delivery in deliveries))
    assert {verdict.outcome for verdict in verdicts} == {"delivered"}
    places = defaultdict(set)
    sequences = defaultdict(list)
    for message in await asyncio.to_thread(broker.messages, topic, 2000):
        places[message.key()].add(message.partition())
        sequences[message.key()].append(orjson.loads(message.value())["n"])
    assert all(len(found) == 1 for found in places.values())
    assert sequences == {b"%d" % key: list(range(key, 2000, 7)) for key in range(7)}
    await sender.close()


async def test_broker_that_is_away_gets_its_events_once_it_is_back(tmp_path: Any, apps: Apps) -> None:
    other = Broker(tmp_path).start()
    try:
        topic = other.topic("out-away")
        app = await apps(patience=1.5)
        await app.channel(other, topic=topic)
        first = (await app.call("POST", "events", {"delay": "PT0S", "payload": 1})).json()["id"]
        await asyncio.to_thread(other.messages, topic, 1)
        other.stop()
        late = (
            await app.call("POST", "events", {"delay": "PT0S", "payload": 2, "retry": {"first": "PT0.1S", "max": "PT0.1S", "attempts": 50}})
        ).json()["id"]

        async def event(event_id: str) -> dict[str, Any]:
            found: dict[str, Any] = (await app.call("GET", f"events/{event_id}")).json()
            return found

        async def delivered(event_id: str) -> bool:
            return bool((await event(event_id))["state"] == "delivered")

        async def tried() -> list[dict[str, Any]]:
            return list((await event(late))["attempts"])

        await eventually(lambda: delivered(first), "the first one's end")
        [attempt, *_] = await eventually(tried, "a failed attempt")
        assert attempt["outcome"] == "retry" and attempt["error"].startswith("kafka: not acknowledged in time")
        other.start()
        await eventually(lambda: delivered(late), "delivery after the outage")
        # What was given up is never sent: each event is there once.
        values = [message.value() for message in await asyncio.to_thread(other.messages, topic, 2)]
        assert sorted(values) == [b"1", b"2"]
    finally:
        other.stop()


# After the test before it, which stops the broker and starts it again, the broker keeps the new topic from the client for minutes at times.
@pytest.mark.long
async def test_topic_that_is_missing_gets_its_events_once_it_is_there(broker: Cluster, apps: Apps) -> None:
    app = await apps()
    await app.channel(broker, topic="out-later")
    # The client library looks for a topic that was missing seconds later only: attempts must not run out before.
    retry = {"first": "PT0.5S", "max": "PT2S", "attempts": 100}
    late = (await app.call("POST", "events", {"delay": "PT0S", "payload": 1, "retry": retry})).json()["id"]

    async def event() -> dict[str, Any]:
        found: dict[str, Any] = (await app.call("GET", f"events/{late}")).json()
        return found

    async def tried() -> bool:
        return bool((await event())["attempts"])

    async def delivered() -> bool:
        return bool((await event())["state"] == "delivered")

    await eventually(tried, "a failed attempt")
    broker.topic("out-later")
    await eventually(delivered, "delivery once the topic is there")


async def test_message_larger_than_the_broker_takes_is_final(broker: Cluster) -> None:
    sender = KafkaSender(Settings(storage="UseDevelopmentStorage=true", egress_allow="localhost, 127.0.0.0/8"))
    spec = KafkaChannel(type="kafka", servers=broker.servers, topic=broker.topic("out-large"), tls=False)
    now = SystemClock().now()
    verdict = await sender.send(Target("demo", "c", spec), OutgoingDelivery("e", now, now, 1, b'"' + b"x" * 2_000_000 + b'"'))
    assert verdict == Verdict("final", None, verdict.error) and "(MSG_SIZE_TOO_LARGE)" in (verdict.error or "")
    small = await sender.send(Target("demo", "c", spec), OutgoingDelivery("e", now, now, 1, b"1"))
    assert small.outcome == "delivered"
    await sender.close()
