"""Little traffic: events that are posted one by one, and how long functions run for them, which is what the platform bills.

One instance answers requests and sweeps, another one polls the queues as the platform does: after an empty poll it waits for a tenth of a
second, then twice as long each time, up to two seconds. Requests to storage take a few milliseconds. Time is virtual, the code is
the app's own, and storage is the in-memory twin.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from random import Random
from typing import NamedTuple

import orjson

from shared.core.clock import Millis, to_text
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict
from shared.storage.blocking import run_through
from shared.storage.names import QUEUE_RETRIES, QUEUE_SHARDS, SHARDS
from shared.storage.ports import Message

from ..history import World, quietly
from .api import call
from .host import Host
from .instance import Instance

BATCH, NEW_BATCH = 16, 48
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
LEASE = 600.0
SCAN, STALE = 15.0, 60.0
ONE_WAY = 0.004
"""Seconds that a request to storage, or its answer, takes."""
BILLED_AT_LEAST = 1.0
"""The shortest time in seconds for which an instance is billed."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Single posts at random instants, or evenly: each event is due `lead` seconds after its post, at random between two bounds."""

    per_minute: float
    minutes: float
    lead: tuple[float, float] = (6.0, 40.0)
    evenly: bool = False
    answers: Callable[[Random], Verdict] = lambda _: Verdict("delivered", 200)
    retries: tuple[float, ...] = ()
    """Pauses before further attempts, in seconds; empty for the tenant's own."""
    seed: int = 1
    tenants: int = 1
    """Each post is of one of them, at random."""


class Execution(NamedTuple):
    """One execution of `fire_shard` or `fire_retry`, in seconds of virtual time."""

    queue: str
    began: float
    ended: float

    @property
    def took(self) -> float:
        return self.ended - self.began


@dataclass(slots=True)
class Figures:
    """The executions, events and requests of the instance that delivers."""

    late: list[Millis] = field(default_factory=list)
    """Lateness of the first attempt of each event."""
    executions: list[Execution] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    """Requests of the app to storage, without polls."""
    unfinished: int = 0
    seconds: float = 0.0

    @property
    def mean_run(self) -> float:
        """Mean length of an execution in seconds."""
        return sum(each.took for each in self.executions) / len(self.executions)

    @property
    def per_event(self) -> float:
        """Executions for each event."""
        return len(self.executions) / len(self.late)

    @property
    def busy(self) -> float:
        """Seconds of wall time during which at least one function runs, each time at least the shortest billed time."""
        total, until = 0.0, 0.0
        for each in sorted(self.executions, key=lambda each: each.began):
            end = max(each.ended, each.began + BILLED_AT_LEAST)
            total += max(0.0, end - max(each.began, until))
            until = max(until, end)
        return total

    def late_at(self, share: float) -> Millis:
        """Return the lateness that this share of the events did not exceed, in milliseconds."""
        return sorted(self.late)[ceil(share * len(self.late)) - 1]


class Line:
    """The receiver: it answers after a few milliseconds, and notes when first attempts come."""

    def __init__(self, world: World, traffic: Traffic, figures: Figures) -> None:
        self._world, self._traffic, self._figures = world, traffic, figures
        self._random = Random(traffic.seed)

    def at(self, instance: Instance) -> Line:
        return self

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        if delivery.attempt == 1:
            self._figures.late.append(self._world.start + round(self._world.loop.now * 1000) - delivery.due)
        await asyncio.sleep(0.005)
        return self._traffic.answers(self._random)

    async def close(self) -> None:
        """Nothing to release."""


class Platform(Host):
    """Queue triggers of one instance, and the sweep."""

    def __init__(self, world: World, figures: Figures) -> None:
        super().__init__(world)
        self._figures = figures
        self.failures: list[BaseException] = []

    def put(self, queue: str, text: str, visible_in: float) -> None:
        run_through(self._world.queues.send(queue, text, visible_in=visible_in))

    def run(self, instance: Instance) -> None:
        for queue in (QUEUE_SHARDS, QUEUE_RETRIES):
            instance.spawn(self._poll(instance, queue))

    async def _poll(self, instance: Instance, queue: str) -> None:
        working: set[asyncio.Task[None]] = set()
        await asyncio.sleep(self._world.random.uniform(0.0, LONGEST_PAUSE))
        pause = FIRST_PAUSE
        while True:
            if len(working) > NEW_BATCH:
                _, working = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
                continue
            found = run_through(self._world.queues.receive(queue, limit=BATCH, lease=LEASE))
            await asyncio.sleep(2 * ONE_WAY)
            if found:
                pause = FIRST_PAUSE
                working |= {instance.spawn(self._serve(instance, queue, message)) for message in found}
            else:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            working = {task for task in working if not task.done()}

    async def _serve(self, instance: Instance, queue: str, message: Message) -> None:
        began = self._world.loop.now
        try:
            await instance.app.scheduler.firing.serve(message.text, retries=queue == QUEUE_RETRIES)
        except Exception as error:
            self.failures.append(error)
        else:
            run_through(self._world.queues.delete(queue, message))
        self._figures.executions.append(Execution(queue, began, self._world.loop.now))

    async def sweep(self, instance: Instance, period: float, offset: float) -> None:
        """Run the sweep once in each period."""
        loop = self._world.loop
        while True:
            await asyncio.sleep(period - (loop.now - offset) % period)
            await instance.spawn(instance.app.scheduler.sweeps.dispatch(instance.clock.now()))


def play(traffic: Traffic) -> Figures:
    """Post for the given time, and go on until every event has ended."""
    world = World(traffic.seed, "none")
    profile = world.profile
    profile.instances, profile.tenants, profile.skew, profile.drift, profile.page_rows = 0, traffic.tenants, 0, 0.0, 1000
    profile.events_per_second = profile.open_events = None
    world.settings = world.settings.model_copy(
        update={"shard_events": 990, "deliver_concurrency": 256, "target_concurrency": 64, "backlog_per_second": 2000}
    )
    figures = Figures()
    world.latency = lambda instance: ONE_WAY  # type: ignore[method-assign]
    world.note = lambda instance, what, subject, result=None: _count(figures, what)  # type: ignore[method-assign]
    world.receiver = Line(world, traffic, figures)  # type: ignore[assignment]
    with quietly(99):
        return world.script(_story(world, traffic, figures))


def _count(figures: Figures, what: str) -> None:
    if what in ("get", "query", "write", "send"):
        figures.requests[what] += 1


async def _story(world: World, traffic: Traffic, figures: Figures) -> Figures:
    world.host = platform = Platform(world, figures)
    keeper = await world.open()
    platform.run(platform.start())
    sweeps = [world.loop.create_task(platform.sweep(keeper, period, offset)) for period, offset in ((SCAN, 0.0), (STALE, 20.0))]
    chance, whose = Random(f"{traffic.seed}/posts"), Random(f"{traffic.seed}/tenants")
    calls: list[asyncio.Task[None]] = []
    pause = 60.0 / traffic.per_minute
    count = round(traffic.per_minute * traffic.minutes)
    figures.requests.clear()
    began = world.loop.now
    for _ in range(count):
        await asyncio.sleep(pause if traffic.evenly else chance.expovariate(1 / pause))
        due = world.start + round(1000 * (world.loop.now + chance.uniform(*traffic.lead)))
        calls.append(world.loop.create_task(_post(keeper, whose.randrange(traffic.tenants), due, traffic.retries)))
    await asyncio.gather(*calls)
    figures.seconds = world.loop.now - began
    while len(figures.late) < count or (world.rows(SHARDS) and world.loop.now < began + figures.seconds + 3_600):  # noqa: ASYNC110
        await asyncio.sleep(1.0)
    for each in sweeps:
        each.cancel()
    if platform.failures:
        raise platform.failures[0]
    figures.unfinished = len(world.rows(SHARDS))
    return figures


async def _post(keeper: Instance, tenant: int, due: Millis, pauses: tuple[float, ...]) -> None:
    retry = {"retry": {"schedule": [f"PT{pause:g}S" for pause in pauses]}} if pauses else {}
    answer = await call(keeper, "events_create", f"t{tenant}", body=orjson.dumps({"due": to_text(due), "payload": 1, **retry}))
    assert answer.status == 201, answer.body
