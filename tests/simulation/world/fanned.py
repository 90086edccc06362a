"""Histories with fan-outs: clients post them, some with other content under the same id, and cancel some, while everything else goes wrong.

The plans, events and promises are those of the other histories. Of a fan-out, every channel of the acknowledged request gets the payload,
unless its cancel was acknowledged; no channel gets that of another request with the id; and of an id, one content is acknowledged at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson

from shared.core.clock import Millis, to_text
from shared.delivery.channels import Sender
from shared.delivery.channels.model import QueueChannel
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict
from shared.storage.names import EVENTS

from ..checks.invariants import only_owners_start
from ..history import Report, World, quietly
from ..workload import UNKNOWN, Answer, Clients
from .api import call
from .instance import Instance
from .marked import MarkedSender, PlannedAnswer

CHANNELS = "abc"
CALM_AFTER = 600.0
"""Seconds after which faults end although clients still repeat requests."""


@dataclass(slots=True, eq=False)
class Fanned:
    """One id of fan-outs, as its clients know it. contents: the channels of each request."""

    number: int
    tenant: str
    due: Millis
    contents: list[str]
    acked: int | None = None
    """The content that was acknowledged."""
    cancelled: set[str] = field(default_factory=set)
    """Channels whose cancel was acknowledged."""
    cancel_asked: bool = False
    accepted: Counter[str] = field(default_factory=Counter)
    """Deliveries, by content and channel."""

    @property
    def id(self) -> str:
        return f"fanned-{self.number:03d}"

    def document(self, content: int) -> bytes:
        names = list(self.contents[content])
        return orjson.dumps({"id": self.id, "due": to_text(self.due), "payload": {"f": self.number, "v": content}, "channels": names})


class FannedSender(MarkedSender):
    """Tells a delivery's channel to the world."""

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        if self._mark in orjson.loads(delivery.body):
            assert isinstance(self._world, FannedWorld)
            self._world.aimed[delivery.id] = target.name
        return await super().send(target, delivery)


class FannedWorld(World):
    """One history with fan-outs."""

    def __init__(self, seed: int, style: str | None = None) -> None:
        # A random generator of its own, so that the rest of a history is the same as without fan-outs.
        self.fortune = Random(f"{seed}/fan-outs")
        self.fanned: list[Fanned] = []
        self.aimed: dict[str, str] = {}
        super().__init__(seed, style)

    async def open(self) -> Instance:
        instance = await super().open()
        for number in range(self.profile.tenants):
            for name in CHANNELS:
                await instance.app.directory.channels.put(f"t{number}", name, QueueChannel(type="queue", queue="sink"))
        return instance

    def senders(self, instance: Instance) -> dict[str, Sender]:
        plain = super().senders(instance)
        return {**plain, "queue": FannedSender(self, instance, plain["queue"], "f", self.arrived)}

    async def lived(self) -> None:
        self.loop.call_later(CALM_AFTER, self._calm)
        fortune = self.fortune
        for number in range(fortune.randint(3, 9)):
            due = self.start + fortune.choice((20_000, fortune.randrange(1_000, 90_000)))
            contents = [fortune.choice(("ab", "abc", "bc")) for _ in range(fortune.choice((1, 1, 2)))]
            self.fanned.append(Fanned(number, f"t{fortune.randrange(self.profile.tenants)}", due, contents))
        requests = [(each, content) for each in self.fanned for content in range(len(each.contents))]
        posts = [self._post(*request) for request in requests for _ in range(fortune.choice((1, 2)))]
        cancels = [self._cancel(each) for each in self.fanned if fortune.random() < 0.3]
        await asyncio.gather(super().lived(), *posts, *cancels)

    def _calm(self) -> None:
        self.troubled = False

    def last_due(self) -> Millis:
        return max(super().last_due(), *(each.due for each in self.fanned))

    async def _post(self, each: Fanned, content: int) -> None:
        """Post one content; repeat the request until it is acknowledged, or refused for the other one."""
        await asyncio.sleep(self.fortune.uniform(0.0, 15.0))

        async def act(instance: Instance) -> Any:
            return await call(instance, "events_create", each.tenant, body=each.document(content))

        while True:
            answer = await self._request(f"post {each.id} {content}", act)
            if answer.kind == "ok":
                if each.acked not in (None, content):
                    self.fail(f"{each.id}: both contents are acknowledged")
                each.acked = content
                if [event["id"] for event in answer.reply.body["events"]] != [f"{each.id}@{name}" for name in each.contents[content]]:
                    self.fail(f"{each.id}: acknowledged {answer.reply.body}")
                self.counts["fan-outs"] += 1
                return
            if answer.code == "id-conflict":
                if len(each.contents) == 1:
                    self.fail(f"{each.id}: refused, although no other content was posted")
                self.counts["fan-outs refused"] += 1
                return
            await asyncio.sleep(self.fortune.choice((0.0, 0.2, 3.0, 15.0)))

    async def _cancel(self, each: Fanned) -> None:
        """Cancel the fan-out by its id, at any time from its first request on."""
        await asyncio.sleep(self.fortune.uniform(5.0, 40.0))
        each.cancel_asked = True
        for _ in range(5):
            answer = await self._request(f"cancel {each.id}", lambda instance: call(instance, "events_delete", each.tenant, each.id))
            if answer.kind == "ok":
                # Every other refusal is that of an event which is stored, also where its state could not be read afterwards.
                if left := [line for line in answer.reply.body["results"] if line["status"] == 404]:
                    self.fail(f"{each.id}: its cancel left events out that a request may store: {left}")
                # An earlier try whose answer was lost may have cancelled it.
                each.cancelled |= {line["channel"] for line in answer.reply.body["results"] if line.get("state") == "cancelled"}
                self.counts["fan-outs cancelled"] += 1
                return
            await asyncio.sleep(self.fortune.choice((0.2, 3.0)))

    async def _request(self, name: str, act: Any) -> Answer:
        answer: Answer = await Clients(self).request(name, act, [], patient=True)
        if answer.kind not in UNKNOWN | {"ok"} and answer.code not in ("too-many-requests", "contended", "id-conflict", "not-found"):
            self.fail(f"{name}: refused: {answer.code}")
        return answer

    def arrived(self, instance: Instance, delivery: OutgoingDelivery) -> PlannedAnswer:
        """Check a delivery: its request has the id, and its cancel was not acknowledged."""
        found = orjson.loads(delivery.body)
        each, content = self.fanned[int(found["f"])], int(found["v"])
        channel = self.aimed[delivery.id]
        self.note(instance, "delivers", (delivery.id, f"attempt {delivery.attempt}, content {content}"), None)
        only_owners_start(self, instance, delivery.id, each.tenant)
        if delivery.id != f"{each.id}@{channel}" or channel not in each.contents[content]:
            self.fail(f"{delivery.id} of content {content} goes to {channel}")
        if channel in each.cancelled:
            self.fail(f"{delivery.id} begins after its cancel was acknowledged")
        each.accepted[f"{content}{channel}"] += 1
        return PlannedAnswer(lambda: None, self.fortune.choice((0.0, 0.0, 2.0)))

    async def verdict(self, instance: Instance) -> None:
        for each in self.fanned:
            if len(versions := {key[0] for key in each.accepted}) > 1:
                self.fail(f"{each.id}: several contents were delivered: {versions}")
            if each.acked is None:
                continue
            expected = {f"{each.acked}{name}" for name in each.contents[each.acked] if name not in each.cancelled}
            missing = {f"{each.id}@{key[1]}" for key in expected - each.accepted.keys()}
            states = {row.props["id"]: row.props["state"] for row in self.rows(EVENTS) if row.props.get("id") in missing}
            # A cancel whose answer was lost may have been made.
            if missing and not (each.cancel_asked and set(states.values()) == {"cancelled"}):
                self.fail(f"{each.id}: never came: {missing}, which are {states}")
            if self.exact and any(count > 1 for count in each.accepted.values()):
                self.fail(f"without faults, {each.id} came twice: {each.accepted}")
        await super().verdict(instance)


def simulate_fanouts(seed: int, style: str | None = None) -> Report:
    """Play one history with fan-outs. The same seed gives the same history."""
    world = FannedWorld(seed, style)
    with quietly(world.profile.group):
        return world.play()
