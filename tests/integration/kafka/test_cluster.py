"""Behaviour of several brokers: leaders and coordinators that move, brokers that go away, and refusals, both out and in."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaError

from shared.core.clock import SystemClock
from shared.core.settings import Settings
from shared.delivery.channels.kafka import KafkaSender
from shared.delivery.channels.model import KafkaChannel
from shared.delivery.channels.ports import OutgoingDelivery, Target
from shared.extras.kafka_source.ingest import KafkaIngest, consumer_opener
from shared.extras.kafka_source.sources import read_sources

from .conftest import App, eventually, source
from .mock_cluster import FETCH, OFFSET_COMMIT, PRODUCE, MockCluster
from .test_in import event

type Apps = Callable[..., Any]


@pytest.fixture
async def sender() -> AsyncIterator[KafkaSender]:
    sender = KafkaSender(Settings(storage="UseDevelopmentStorage=true", egress_allow="127.0.0.0/8"), timeout=120)
    yield sender
    await sender.close()


def target(cluster: MockCluster, topic: str) -> Target:
    return Target("demo", "c", KafkaChannel(type="kafka", servers=cluster.servers, topic=topic, tls=False, key="/machine"))


def delivery(n: int) -> OutgoingDelivery:
    now = SystemClock().now()
    return OutgoingDelivery(f"e-{n}", now, now, 1, orjson.dumps({"machine": n % 7, "n": n}))


async def test_leaders_move_and_a_broker_goes_away_while_messages_are_under_way(cluster: MockCluster, sender: KafkaSender) -> None:
    topic = cluster.topic("cluster-out")
    for partition in range(3):
        cluster.lead(topic, partition, 1)

    async def send(numbers: range) -> None:
        verdicts = await asyncio.gather(*(sender.send(target(cluster, topic), delivery(n)) for n in numbers))
        assert {verdict.outcome for verdict in verdicts} == {"delivered"}

    await send(range(500))
    under_way = asyncio.create_task(send(range(500, 1000)))
    await asyncio.sleep(0)
    # The broker that leads everything is gone with the messages that it has not acknowledged.
    cluster.down(1)
    for partition in range(3):
        cluster.lead(topic, partition, 2 + partition % 2)
    await under_way
    await send(range(1000, 1500))
    sequences = defaultdict(list)
    for message in await asyncio.to_thread(cluster.messages, topic, 1500):
        sequences[message.key()].append(orjson.loads(message.value())["n"])
    assert sequences == {b"%d" % key: list(range(key, 1500, 7)) for key in range(7)}


@pytest.mark.parametrize(
    ("error", "outcome", "text"),
    [
        ("NOT_ENOUGH_REPLICAS", "delivered", None),
        ("NOT_LEADER_FOR_PARTITION", "delivered", None),
        ("REQUEST_TIMED_OUT", "delivered", None),
        ("INVALID_RECORD", "final", "the broker finds the message invalid"),
        ("POLICY_VIOLATION", "final", "the message is against the topic's policy"),
        ("TOPIC_AUTHORIZATION_FAILED", "retry", "this service may not write to the topic"),
    ],
)
async def test_answer_of_a_broker_to_a_message_is_judged_and_the_next_message_goes_through(
    error: str, outcome: str, text: str | None, cluster: MockCluster, sender: KafkaSender
) -> None:
    topic = cluster.topic(f"cluster-{error.lower().replace('_', '-')}")
    assert (await sender.send(target(cluster, topic), delivery(0))).outcome == "delivered"
    cluster.answer(PRODUCE, getattr(KafkaError, error))
    verdict = await sender.send(target(cluster, topic), delivery(1))
    assert (verdict.outcome, verdict.error) == (outcome, text and f"kafka: {text} ({error})")

    async def next_one() -> bool:
        return (await sender.send(target(cluster, topic), delivery(2))).outcome == "delivered"

    # A topic that is closed to the client stays so until it has asked for the topic again.
    await eventually(next_one, "the next message")
    arrived = [0, 1, 2] if outcome == "delivered" else [0, 2]
    messages = await asyncio.to_thread(cluster.messages, topic, len(arrived))
    assert sorted(orjson.loads(message.value())["n"] for message in messages) == arrived


async def test_all_brokers_are_away_and_back(cluster: MockCluster, apps: Apps) -> None:
    topic = cluster.topic("cluster-away")
    app: App = await apps(patience=1.5)
    await app.channel(cluster, topic=topic)
    cluster.down()
    retry = {"first": "PT0.1S", "max": "PT0.1S", "attempts": 100}
    late = (await app.call("POST", "events", {"delay": "PT0S", "payload": 1, "retry": retry})).json()["id"]

    async def found() -> dict[str, Any]:
        body: dict[str, Any] = (await app.call("GET", f"events/{late}")).json()
        return body

    async def tried() -> list[dict[str, Any]]:
        return list((await found())["attempts"])

    async def delivered() -> bool:
        return bool((await found())["state"] == "delivered")

    [attempt, *_] = await eventually(tried, "a failed attempt")
    assert attempt["outcome"] == "retry" and attempt["error"].startswith("kafka: not acknowledged in time")
    cluster.up()
    await eventually(delivered, "delivery after the outage")
    assert [message.value() for message in await asyncio.to_thread(cluster.messages, topic, 1)] == [b"1"]


async def taken(app: App, cluster: MockCluster, topic: str, until: Callable[[], Any]) -> Counter[str]:
    """Run the timer of a source, whose group has the topic's name, until this is true; return the counts of all runs."""
    sources = read_sources(source(cluster, topic, group=topic), emulated=True)
    ingest = KafkaIngest(sources, app.app.scheduler.intake, app.clock, 3.0, consumer_opener(None))
    counts: Counter[str] = Counter()

    async def run() -> Any:
        counts.update(await ingest.run_once(app.clock.now()))
        return await until()

    await eventually(run, "the end of what is to be read")
    await ingest.close()
    return counts


async def test_leaders_and_the_coordinator_move_while_events_come_in(cluster: MockCluster, apps: Apps) -> None:
    topic = cluster.topic("cluster-in")
    cluster.coordinate(topic, 1)
    app: App = await apps()
    cluster.put(topic, [event(n) for n in range(600)])
    running = asyncio.create_task(taken(app, cluster, topic, cluster.done(topic, topic, 1200)))
    await eventually(lambda: asyncio.to_thread(lambda: cluster.committed(topic, topic) > 0), "a first commit")
    for partition in range(3):
        cluster.lead(topic, partition, 3)
    cluster.coordinate(topic, 2)
    cluster.down(1)
    await asyncio.to_thread(cluster.put, topic, [event(n) for n in range(600, 1200)])
    # An event that is read again is found stored, and counts as taken both times.
    assert (await running)["taken"] >= 1200
    assert (await app.stats())["open"] == 1200


@pytest.mark.parametrize("error", ["COORDINATOR_NOT_AVAILABLE", "UNKNOWN_MEMBER_ID"])
async def test_refused_commits_lose_and_double_nothing(error: str, cluster: MockCluster, apps: Apps) -> None:
    topic = cluster.topic(f"cluster-commits-{error.lower()}")
    app: App = await apps()
    cluster.put(topic, [event(n) for n in range(300)])
    cluster.answer(OFFSET_COMMIT, *[getattr(KafkaError, error)] * 2)
    assert (await taken(app, cluster, topic, cluster.done(topic, topic, 300)))["taken"] >= 300
    assert (await app.stats())["open"] == 300


async def test_refused_reads_are_repeated(cluster: MockCluster, apps: Apps) -> None:
    topic = cluster.topic("cluster-reads")
    app: App = await apps()
    cluster.put(topic, [event(n) for n in range(300)])
    cluster.answer(FETCH, *[KafkaError.NOT_LEADER_FOR_PARTITION] * 3)
    assert (await taken(app, cluster, topic, cluster.done(topic, topic, 300)))["taken"] == 300
    assert (await app.stats())["open"] == 300
