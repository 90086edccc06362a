"""An event goes from its request to its endpoint: the whole app on storage in memory and virtual time, as two instances."""

from __future__ import annotations

import asyncio
from typing import Any

from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict
from shared.storage.names import EVENTS, LEDGER, SHARDS, SWEEPS, TENANTS
from shared.storage.ports import Delete, Op, TableRequest, WrappedTables, Write, WriteRefused
from tests.unit.scheduler.harness import World

from .drawing import Actor, Kind, Scene, Step

CALLER, FIRST, TABLES, QUEUE, SECOND, RECEIVER = "caller", "instance 1", "tables", "queue", "instance 2", "receiver"
DELAY = "PT40S"


class Recorder:
    """Keeps the steps of a scene."""

    def __init__(self, world: World) -> None:
        self.world, self.steps = world, list[Step]()
        self.began = world.clock.monotonic()

    def __call__(self, source: str, target: str, text: str, kind: Kind = "write") -> None:
        self.steps.append(Step(self.world.clock.monotonic() - self.began, source, target, text, kind))


class RecordedTables(WrappedTables):
    """The tables as one instance uses them."""

    def __init__(self, inner: Any, who: str, record: Recorder) -> None:
        super().__init__(inner)
        self._who, self._record = who, record

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def perform(self, request: TableRequest) -> Any:
        answer = await self.inner.perform(request)
        if isinstance(request, Write) and request.table not in (TENANTS, SWEEPS):
            refused = isinstance(answer, WriteRefused)
            text = f"{request.table}: " + ", ".join(part for op in request.ops if (part := describe(request.table, op)))
            self._record(self._who, TABLES, text, "refused" if refused else "write")
        return answer


class RecordedQueues:
    """The queues as one instance uses them."""

    def __init__(self, inner: Any, who: str, record: Recorder) -> None:
        self._inner, self._who, self._record = inner, who, record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def send(self, queue: str, text: str, *, visible_in: float = 0.0) -> None:
        self._record(self._who, QUEUE, f"message for the shard, visible in {visible_in:.0f} s", "message")
        await self._inner.send(queue, text, visible_in=visible_in)


def describe(table: str, op: Op) -> str:
    """Say what an operation does to a row; nothing for the ledger's second copy."""
    props = {} if isinstance(op, Delete) else op.props
    if table == EVENTS:
        return f"gate {props['state']}, epoch {props['epoch']}" if op.rk == "gate" else f"event {props['state']}"
    if table == SHARDS:
        return "index row removed" if isinstance(op, Delete) else "index row"
    return "counts of the shard" if table == LEDGER and not op.rk.startswith("~") else ""


async def _play() -> Scene:
    world = World()
    tables, queues = world.storage.tables, world.storage.queues
    record = Recorder(world)

    async def open_as(who: str) -> None:
        world.storage.tables, world.storage.queues = RecordedTables(tables, who, record), RecordedQueues(queues, who, record)
        await world.open()
        world.storage.tables, world.storage.queues = tables, queues

    async def deliver(target: Target, delivery: OutgoingDelivery) -> Verdict:
        record(SECOND, RECEIVER, f"POST, attempt {delivery.attempt}", "call")
        record(RECEIVER, SECOND, "204", "call")
        return Verdict("delivered", 204)

    world.receiver.otherwise = deliver
    await open_as(FIRST)
    first = world.app
    await world.run(1)
    record.steps.clear()
    record.began = world.clock.monotonic()
    record(CALLER, FIRST, f"POST /events, delay {DELAY}", "call")
    reply = await world.demo.post("/api/v1/events", {"delay": DELAY, "payload": {"n": 1}})
    record(FIRST, CALLER, f"{reply.status}", "call")
    await open_as(SECOND)
    await world.run(20)
    await world.run(30)
    event = await world.demo.event(reply.json()["id"])
    assert event["state"] == "delivered", event
    steps = record.steps
    taken = next(number for number, step in enumerate(steps) if step.source == SECOND)
    steps.insert(taken, Step(steps[taken].at, QUEUE, SECOND, "message", "message"))
    await world.close()
    await first.close()
    actors = (
        Actor(CALLER, ""),
        Actor(FIRST, "stores the event"),
        Actor(TABLES, "one arrow, one transaction"),
        Actor(QUEUE, "tocsin-shards"),
        Actor(SECOND, "owns the shard"),
        Actor(RECEIVER, ""),
    )
    return Scene("A delivery: who writes which row, sends which message and calls whom", actors, steps)


def play() -> Scene:
    """Post an event that is due in 40 s to one instance, and let another deliver it."""
    return asyncio.run(_play())
