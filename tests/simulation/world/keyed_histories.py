"""Histories with ordering keys: clients post events of a few keys, some fail once, while everything else goes wrong.

The plans, events and promises are those of the other histories. An event that was acknowledged 10 s and the error of the clocks before it
is due must be accepted by the receiver before a later one of its key begins, unless it has ended otherwise.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any

import orjson

from shared.core.clock import Millis, to_text
from shared.delivery.channels import Sender
from shared.delivery.channels.model import KeyLimits, QueueChannel
from shared.delivery.channels.ports import OutgoingDelivery, Verdict
from shared.storage.names import EVENTS

from ..checks.invariants import only_owners_start
from ..history import Report, World, quietly
from ..workload import UNKNOWN, Answer, Clients
from .api import call
from .instance import Instance
from .marked import ACCEPTED, MarkedSender, PlannedAnswer

STORED_BEFORE: Millis = 10_000
CALM_AFTER = 600.0
"""Seconds after which faults end although clients still repeat requests."""


@dataclass(slots=True, eq=False)
class KeyedEvent:
    """One event, as its client knows it."""

    number: int
    tenant: str
    key: str
    due: Millis
    fails: bool
    takes: float
    acked: Millis | None = None
    accepted: int = 0
    tried: int = 0

    @property
    def id(self) -> str:
        return f"keyed-{self.number:03d}"


class KeyedWorld(World):
    """One history with ordering keys."""

    def __init__(self, seed: int, style: str | None = None, **more: Any) -> None:
        # A random generator of its own, so that the rest of a history is the same as without keys.
        self.fortune = Random(f"{seed}/keys")
        self.keyed: list[KeyedEvent] = []
        super().__init__(seed, style, **more)
        self.slack = 1 if not self.profile.skew else 2 * self.profile.skew + 2_000
        """Most milliseconds between true time and the time by which a process decides."""

    async def open(self) -> Instance:
        instance = await super().open()
        spec = QueueChannel(type="queue", queue="sink", per_key=KeyLimits(ordered=True))
        for number in range(self.profile.tenants):
            await instance.app.directory.channels.put(f"t{number}", "default", spec)
        return instance

    def senders(self, instance: Instance) -> dict[str, Sender]:
        plain = super().senders(instance)
        return {**plain, "queue": MarkedSender(self, instance, plain["queue"], "k", self.arrived)}

    async def lived(self) -> None:
        self.loop.call_later(CALM_AFTER, self._calm)
        fortune = self.fortune
        for number in range(fortune.randint(4, 14)):
            tenant, key = f"t{fortune.randrange(self.profile.tenants)}", fortune.choice("aab")
            due = self.start + fortune.choice((20_000, 40_000, fortune.randrange(5_000, 90_000))) + self.put_off()
            takes = fortune.choice((0.0, 0.0, 2.0))
            self.keyed.append(KeyedEvent(number, tenant, key, due, fortune.random() < 0.2, takes))
        await asyncio.gather(super().lived(), *(self._post(each) for each in self.keyed))

    def put_off(self) -> Millis:
        """Return the milliseconds by which an event is due later than usual."""
        return 0

    def posted_at(self) -> float:
        """Return the seconds after which an event is posted."""
        return self.fortune.uniform(0.0, 15.0)

    def _calm(self) -> None:
        self.troubled = False

    def last_due(self) -> Millis:
        return max(super().last_due(), *(each.due for each in self.keyed))

    @property
    def true(self) -> Millis:
        """The time now."""
        return self.start + int(self.loop.now * 1000 + 1e-6)

    async def _post(self, event: KeyedEvent) -> None:
        """Post one event; repeat the request until it is acknowledged."""
        await asyncio.sleep(self.posted_at())
        document = {"id": event.id, "due": to_text(event.due), "payload": {"k": event.number}, "ordering_key": event.key}
        body = orjson.dumps(document)

        async def act(instance: Instance) -> Any:
            return await call(instance, "events_create", event.tenant, body=body)

        clients = Clients(self)
        while True:
            answer: Answer = await clients.request(f"post {event.id}", act, [], patient=True)
            if answer.kind == "ok":
                event.acked = self.true
                self.counts["keyed events"] += 1
                return
            if answer.kind not in UNKNOWN and answer.code not in ("too-many-requests", "contended"):
                self.fail(f"{event.id}: refused: {answer.code}")
                return
            await asyncio.sleep(self.fortune.choice((0.0, 0.2, 3.0, 15.0)))

    def arrived(self, instance: Instance, delivery: OutgoingDelivery) -> PlannedAnswer:
        """Check a delivery: no event ahead of it is left."""
        event = self.keyed[int(orjson.loads(delivery.body)["k"])]
        self.note(instance, "delivers", (event.id, f"attempt {delivery.attempt}, key {event.key}"), None)
        only_owners_start(self, instance, delivery.id, event.tenant)
        event.tried += 1
        fails = event.fails and event.tried == 1

        def take() -> None:
            event.accepted += not fails

        answer = PlannedAnswer(take, event.takes, Verdict("retry", 503, "busy") if fails else ACCEPTED)
        if event.accepted:
            # A repetition, after a crash.
            return answer
        for other in self.keyed:
            ahead = (other.tenant, other.key) == (event.tenant, event.key) and (other.due, other.id) < (event.due, event.id)
            if not ahead or other.acked is None or other.acked > other.due - STORED_BEFORE - self.slack or other.accepted:
                continue
            states = [row.props["state"] for row in self.rows(EVENTS) if row.props.get("id") == other.id]
            if "dead" not in states:
                self.disordered(event, other, states)
        return answer

    def disordered(self, event: KeyedEvent, other: KeyedEvent, states: list[Any]) -> None:
        """Judge a delivery that begins although another event is ahead."""
        self.fail(f"{event.id} begins, but {other.id} is ahead in key {event.key} of {event.tenant}, and is {states}")

    async def verdict(self, instance: Instance) -> None:
        if missing := [each.id for each in self.keyed if each.acked is not None and not each.accepted]:
            states = {row.props["id"]: row.props["state"] for row in self.rows(EVENTS) if row.props.get("id") in missing}
            if set(states.values()) != {"dead"}:
                self.fail(f"events with keys never came: {states}")
        if self.exact and (doubled := [each.id for each in self.keyed if each.accepted > 1]):
            self.fail(f"without faults, events with keys came twice: {doubled}")
        await super().verdict(instance)


def simulate_keys(seed: int, style: str | None = None) -> Report:
    """Play one history with ordering keys. The same seed gives the same history."""
    world = KeyedWorld(seed, style)
    with quietly(world.profile.group):
        return world.play()
