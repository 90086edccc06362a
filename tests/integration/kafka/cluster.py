"""Brokers as a client sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.waiting import wait_until

DEADLINE = 180.0


class Cluster:
    """Brokers at `servers`: makes topics, puts messages, and looks at what is there."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def topic(self, name: str, partitions: int = 3) -> str:
        admin = AdminClient({"bootstrap.servers": self.servers})
        [made] = admin.create_topics([NewTopic(name, partitions, 1)]).values()
        made.result(DEADLINE)
        return name

    def put(self, topic: str, messages: list[tuple[bytes | None, bytes | None]]) -> None:
        """Keys and values, in order."""
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 1})
        for key, value in messages:
            producer.produce(topic, value, key)
        assert producer.flush(DEADLINE) == 0

    def messages(self, topic: str, count: int, partitions: int = 3) -> list[Any]:
        """The first `count` messages, each partition in its order."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "looks", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        found: list[Any] = []

        def all_here() -> bool:
            message = consumer.poll(0.5) if len(found) < count else None
            if message is not None:
                assert message.error() is None
                found.append(message)
            return len(found) >= count

        wait_until(all_here, f"{count} messages", DEADLINE, pause=0, seen=lambda: f"{len(found)} messages")
        consumer.close()
        return found

    def committed(self, topic: str, group: str, partitions: int = 3) -> int:
        """Messages that the group is done with, over all partitions."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group})
        places = consumer.committed([TopicPartition(topic, partition) for partition in range(partitions)], DEADLINE)
        consumer.close()
        return sum(max(0, place.offset) for place in places)

    def done(self, topic: str, group: str, count: int) -> Callable[[], Any]:
        """Return a condition that is true once the group has committed `count` messages."""
        return lambda: asyncio.to_thread(lambda: self.committed(topic, group) == count)
