"""Helpers for the tests of flow control: two instances, and views of channels and deliveries."""

from __future__ import annotations

from typing import Any, cast

from shared.app.application import Application
from shared.core.clock import Millis
from shared.core.ids import SeededIds
from shared.delivery.channels.model import CHANNEL_TYPES
from shared.delivery.channels.ports import Sender, Verdict
from shared.storage.names import QUEUE_INGEST
from shared.storage.ports import Message

from ..harness import World

AGAIN = Verdict("retry", 503, "answered 503")
DELIVERED = Verdict("delivered", 200)
CHANNELS = "/api/v1/tenants/demo/channels"
DEFAULT = f"{CHANNELS}/default"
HTTP = {"type": "http", "url": "http://localhost:7072/"}


class Instances(World):
    """Two instances that share storage; messages go to them in turn."""

    apps: list[Application]

    async def open(self) -> World:
        await super().open()
        senders = cast(dict[str, Sender], dict.fromkeys(CHANNEL_TYPES, self.receiver))
        other = await Application.open(self.settings, clock=self.clock, ids=SeededIds(8), storage=self.storage, senders=senders)
        self.apps = [self.app, other]
        return self

    async def _serve(self, queue: str, message: Message) -> None:
        if queue == QUEUE_INGEST:
            return await super()._serve(queue, message)
        self.apps.append(self.apps.pop(0))
        await self.apps[0].scheduler.firing.serve(message.text)
        await self.queues.delete(queue, message)


async def batch(world: World, count: int, **event: Any) -> list[str]:
    body = {"due": "2027-01-15T08:00:05Z", "payload": 1, **event}
    answer = await world.demo.post("/api/v1/events/batch", [body] * count)
    assert answer.json()["accepted"] == count
    return [line["id"] for line in answer.json()["results"]]


async def channel(world: World, name: str = "default", **spec: Any) -> dict[str, Any]:
    answer = await world.admin.put(f"{CHANNELS}/{name}", HTTP | spec)
    assert answer.status in (200, 201), answer
    return dict(answer.json())


async def flow(world: World, name: str = "default") -> dict[str, Any]:
    return dict((await world.admin.get(f"{CHANNELS}/{name}")).json()["flow"])


def states(world: World) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in world.events():
        found[str(row.props["state"])] = found.get(str(row.props["state"]), 0) + 1
    return found


def begun(world: World, name: str = "default") -> list[Millis]:
    return sorted(got.began for got in world.receiver.received if got.target.name == name)


def calls(world: World) -> int:
    """Storage transactions so far."""
    return sum(world.tables.transactions[kind] for kind in ("get", "query", "write"))


def most_within(times: list[Millis], span: Millis) -> int:
    """The most of these times that lie within any span of that length."""
    return max((sum(at <= other < at + span for other in times) for at in times), default=0)
