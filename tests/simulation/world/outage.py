"""An outage and what follows: for three quarters of an hour, or as long as asked, nothing runs. Then every instance comes back, with the
host's real triggers.

Each instance polls each queue as the platform does: up to sixteen messages at a time, the next fetch when eight or fewer are in work, a
pause after an empty one that doubles from a tenth of a second to two seconds. Time is virtual, code and storage are the app's own and its
twin. What is measured: when each event is delivered, and by whom.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import batched
from math import ceil
from typing import Any, NamedTuple

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

BATCH, NEW_BATCH = 16, 8
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
LEASE = 600.0
MOST_IN_BATCH = 5_000
SCAN = 15.0
"""Seconds between runs of the job that dispatches: shards are under way all the time."""
OUTAGE = 45 * 60.0
SHARD_EVENTS = 20
SLOTS = 4
"""Deliveries at once, per instance and channel."""
TAKES = 0.1
"""Seconds that the receiver takes: with four slots an instance delivers some forty events a second."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """The load: shards due during the outage, and events a second due after it. outage: seconds. shard_events: the most in a shard. slots:
    deliveries at once, per instance and channel. takes: seconds that the receiver takes."""

    seed: int = 1
    late_shards: int = 300
    rate: int = 50
    """Events a second at which the backlog is to drain."""
    fresh_per_second: int = 5
    fresh_for: float = 180.0
    instances: int = 4
    tenants: int = 1
    one_by_one: bool = False
    """The platform runs one invocation at a time per queue and instance."""
    outage: float = OUTAGE
    shard_events: int = SHARD_EVENTS
    slots: int = SLOTS
    takes: float = TAKES

    @property
    def late_events(self) -> int:
        """Events that are due during the outage."""
        return self.late_shards * self.shard_events


class Arrival(NamedTuple):
    """A delivery, as the receiver saw it begin. Times in virtual milliseconds since 1970."""

    id: str
    due: Millis
    at: Millis
    instance: str
    tenant: str

    @property
    def late(self) -> Millis:
        return self.at - self.due


@dataclass(slots=True)
class Figures:
    """The result of the scenario."""

    ended: Millis
    """Time at which the outage was over."""
    arrivals: list[Arrival]
    shards: Counter[str]
    """Shards by the instance that delivered their first event; of the backlog and fresh ones together."""
    parked: float
    """The longest time a message of the backlog was sent ahead, in seconds."""
    unfinished: int
    most_queued: int
    """The most messages that were in the queue of the retries at once, hidden ones included."""
    expected: Counter[str] = field(default_factory=Counter)

    @property
    def backlog(self) -> list[Arrival]:
        return [each for each in self.arrivals if each.due < self.ended]

    @property
    def fresh(self) -> list[Arrival]:
        return [each for each in self.arrivals if each.due >= self.ended]

    def fresh_late(self, share: float, until: Millis | None = None) -> Millis:
        """The lateness that this share of the fresh events did not exceed."""
        late = sorted(each.late for each in self.fresh if until is None or each.due <= until)
        return late[ceil(share * len(late)) - 1]

    @property
    def drain_rate(self) -> float:
        """Events a second, over the middle four fifths of the backlog."""
        times = sorted(each.at for each in self.backlog)
        tenth = len(times) // 10
        return (len(times) - 2 * tenth) * 1000 / (times[-tenth - 1] - times[tenth])

    @property
    def drained(self) -> Millis:
        """Return the time at which the last event of the backlog was delivered."""
        return max((each.at for each in self.backlog), default=self.ended)

    @property
    def spread(self) -> float:
        """Shards served by the busiest instance, relative to the mean."""
        return max(self.shards.values()) * len(self.shards) / self.shards.total()


class Line:
    """The receiver. It takes about `takes` seconds per delivery, and keeps them."""

    def __init__(self, world: World, takes: float) -> None:
        self.world, self.takes = world, takes
        self.arrivals: list[Arrival] = []

    def at(self, instance: Instance) -> Carrier:
        return Carrier(self, instance)


class Carrier:
    """A `Sender`: one instance's way to the receiver."""

    def __init__(self, line: Line, instance: Instance) -> None:
        self._line, self._instance = line, instance

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        world = self._line.world
        at = world.start + round(world.loop.now * 1000)
        self._line.arrivals.append(Arrival(delivery.id, delivery.due, at, self._instance.name, target.tenant))
        await asyncio.sleep(self._line.takes * world.random.uniform(0.5, 1.5))
        return Verdict("delivered", 200)

    async def close(self) -> None:
        """Nothing to release."""


class Platform(Host):
    """Queue triggers and timers of all instances, as the platform has them: each instance polls for itself."""

    def __init__(self, world: World, *, one_by_one: bool) -> None:
        super().__init__(world)
        self._batch, self._new_batch = (1, 0) if one_by_one else (BATCH, NEW_BATCH)
        self.failures: list[BaseException] = []
        self.parked = 0.0
        self.most_queued = 0

    def put(self, queue: str, text: str, visible_in: float) -> None:
        run_through(self._world.queues.send(queue, text, visible_in=visible_in))

    def run(self, instance: Instance) -> None:
        for queue in (QUEUE_SHARDS, QUEUE_RETRIES):
            instance.spawn(self._poll_queue(instance, queue))

    async def _poll_queue(self, instance: Instance, queue: str) -> None:
        world = self._world
        # Instances do not start in step.
        await asyncio.sleep(world.random.uniform(0.0, LONGEST_PAUSE))
        working: set[asyncio.Task[None]] = set()
        pause = FIRST_PAUSE
        while True:
            if len(working) > self._new_batch:
                _, working = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
                continue
            found = run_through(world.queues.receive(queue, limit=self._batch, lease=LEASE))
            await asyncio.sleep(world.random.uniform(0.005, 0.02))
            if found:
                pause = FIRST_PAUSE
                working |= {instance.spawn(self._serve(instance, queue, message)) for message in found}
            else:
                await asyncio.sleep(pause * world.random.uniform(0.8, 1.2))
                pause = min(pause * 2, LONGEST_PAUSE)
            working = {task for task in working if not task.done()}

    async def _serve(self, instance: Instance, queue: str, message: Message) -> None:
        try:
            await instance.app.scheduler.firing.serve(message.text, retries=queue == QUEUE_RETRIES)
        except Exception as error:
            self.failures.append(error)
        else:
            run_through(self._world.queues.delete(queue, message))

    async def sweep(self, instances: list[Instance], period: float) -> None:
        """A timer: one instance at a time runs the sweep."""
        world = self._world
        while True:
            await asyncio.sleep(period - world.loop.now % period)
            instance = world.random.choice(instances)
            try:
                await instance.spawn(instance.app.scheduler.sweeps.dispatch(instance.clock.now()))
            except Exception as error:
                self.failures.append(error)
            self.look()

    def look(self) -> None:
        """Return the messages that wait in the queue of retries."""
        now = self._world.start + int(self._world.loop.now * 1000)
        messages = [each for each in self._world.queues._queues[QUEUE_RETRIES].messages.values() if not each.dequeue_count]
        self.most_queued = max(self.most_queued, len(messages))
        self.parked = max([self.parked, *((each.visible - now) / 1000 for each in messages)])


type Progress = Callable[[float, float], object]
"""Called with what is done, and with the whole."""


def play(scenario: Scenario, progress: Progress = lambda done, whole: None) -> Figures:
    """The outage and what follows, until nothing is left to do."""
    world = World(scenario.seed, "none")
    profile = world.profile
    profile.latency, profile.instances, profile.tenants, profile.skew, profile.drift = 0.01, 0, scenario.tenants, 0, 0.0
    profile.events_per_second = profile.open_events = None
    change = {
        "shard_events": scenario.shard_events,
        "deliver_concurrency": 256,
        "target_concurrency": scenario.slots,
        "backlog_per_second": scenario.rate,
    }
    world.settings = world.settings.model_copy(update=change)
    world.note = lambda *_: None  # type: ignore[method-assign]
    line = Line(world, scenario.takes)
    world.receiver = line  # type: ignore[assignment]
    with quietly(99):
        return world.script(_story(world, scenario, line, progress))


async def _story(world: World, scenario: Scenario, line: Line, progress: Progress) -> Figures:
    ended = world.start + int(scenario.outage * 1000)
    world.host = platform = Platform(world, one_by_one=scenario.one_by_one)
    keeper = await world.open()
    expected: Counter[str] = Counter()
    late = [world.random.randrange(world.start + 1, ended) for _ in range(scenario.late_events)]
    first, last = ended + 30_000, ended + 30_000 + int(scenario.fresh_for * 1000)
    fresh = [world.random.randrange(first, last) for _ in range(int(scenario.fresh_per_second * scenario.fresh_for))]
    whole = 2 * (len(late) + len(fresh))
    for tenant in range(scenario.tenants):
        for dues in (late, fresh):
            expected += await _store(keeper, f"t{tenant}", dues[tenant :: scenario.tenants], lambda stored: progress(stored, whole))
    await asyncio.sleep(scenario.outage - world.loop.now)
    instances = [platform.start() for _ in range(scenario.instances)]
    for instance in instances:
        platform.run(instance)
    timer = world.loop.create_task(platform.sweep(instances, SCAN))
    while world.rows(SHARDS) and world.loop.now < scenario.outage + 3_600:
        progress(whole // 2 + len(line.arrivals), whole)
        await asyncio.sleep(5.0)
    timer.cancel()
    if platform.failures:
        raise platform.failures[0]
    first_from: dict[str, str] = {}
    for arrival in line.arrivals:
        first_from.setdefault(arrival.id.partition(".")[0], arrival.instance)
    shards = Counter({instance.name: 0 for instance in instances})
    # An event that is due while it is stored may be delivered by the keeper, before the outage.
    shards.update(name for name in first_from.values() if name in shards)
    return Figures(ended, line.arrivals, shards, platform.parked, len(world.rows(SHARDS)), platform.most_queued, expected)


async def _store(keeper: Instance, tenant: str, dues: list[Millis], progress: Callable[[int], object]) -> Counter[str]:
    """Events due at these times; their ids. progress: called with the number of stored ones."""
    found: Counter[str] = Counter()
    for some in batched(sorted(dues), MOST_IN_BATCH, strict=False):
        body: list[dict[str, Any]] = [{"due": to_text(due), "payload": 1} for due in some]
        answer = await call(keeper, "events_batch", tenant, body=orjson.dumps(body))
        assert answer.body["accepted"] == len(some), answer.body
        found.update(line["id"] for line in answer.body["results"])
        progress(found.total())
    return found
