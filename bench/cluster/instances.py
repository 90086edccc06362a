"""Instances of the app on virtual time: clients store events in batches, queue triggers take the shards, a receiver notes when events come.

The app's code is production's. Storage is the in-memory twin behind `StorageLimits`; each event and each request charges its CPU to the
instance (`Charges`), which does one thing at a time. A second of this time takes as long as its code needs to run.
"""

from __future__ import annotations

import asyncio
import random
from array import array
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from shared.app.application import Application
from shared.core.clock import Millis
from shared.core.ids import SeededIds
from shared.core.settings import Settings
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict
from shared.scheduler.ingest.admission import Admitted
from shared.storage import spread_storage
from shared.storage.names import SHARDS
from shared.whatif.twin.cpu import Charges, SharedCores, VirtualProcessor
from shared.whatif.twin.loop import START, LoopClock, VirtualLoop, run_to_end
from shared.whatif.twin.storage import AccountConnection, LimitedAccount, LimitedQueues, LimitedTables, StorageLimits
from shared.whatif.twin.trigger import HostTrigger, ticking

from ..tools.stage import PAYLOAD, TENANT, batch_text, local_settings
from .paused import PausedLoop, PausedProcessor

LANES: Final = 8
"""Batches in flight per instance."""
TURN: Final = 0.001
"""Seconds for which a process keeps a core of a shared machine."""
RECEIVER: Final = 0.005
"""Seconds from a request's departure to the receiver's answer."""
CONNECTION: Final = "UseDevelopmentStorage=true"
FURTHER: Final = (
    "AccountName=devstoreaccount1;AccountKey=Zm9v;TableEndpoint=http://127.0.0.1:9/{number};QueueEndpoint=http://127.0.0.1:9/{number}"
)
LONGEST: Final = 1_800.0
"""Seconds of virtual time after the last due time within which everything must have ended."""

type Progress = Callable[[float, float], None]


@dataclass(frozen=True, slots=True)
class SharedMachine:
    """A machine that instances share with an emulator and a receiver: its cores, and their seconds of CPU.

    row, settled: of the emulator for a row before the first due time, and for one after it. delivery: of the receiver. answer: seconds from
    a request's departure to the receiver's answer, without CPU.
    """

    cores: int
    row: float
    settled: float
    delivery: float
    answer: float = 0.0002


@dataclass(frozen=True, slots=True)
class Load:
    """Events that are stored in batches, and are due evenly over `over` seconds of one minute, or of several, from its second `after` on.

    rate: events a second that clients offer; None: each client sends the next batch when the last is answered. shared: the one machine on
    which all runs; None: each instance has a core of its own, and storage and receiver cost nothing. shard: most events of a shard. batch:
    events of a batch. size: bytes of a payload. paused: the part of a core that the one instance gets, as `PausedLoop` gives it.
    """

    events: int
    over: float
    instances: int
    accounts: int = 1
    rate: float | None = None
    charges: Charges = field(default_factory=Charges)
    limits: StorageLimits = field(default_factory=StorageLimits)
    shared: SharedMachine | None = None
    shard: int = 990
    batch: int = 1000
    size: int = PAYLOAD
    after: float = 0.0
    seed: int = 1
    paused: float | None = None


@dataclass(slots=True)
class Outcome:
    """The result of a run. Times in seconds."""

    load: Load
    stored_in: float = 0.0
    """From the first batch to the last answer."""
    fired_in: float = 0.0
    """From the first due time to the last arrival."""
    late: array[float] = field(default_factory=lambda: array("d"))
    """Lateness of each event at the receiver, sorted."""
    repeated: int = 0
    """Deliveries beyond the first of an event."""
    sent_again: int = 0
    """Events that a client sent again, because the answer was 503."""
    shares: list[int] = field(default_factory=list)
    """Deliveries by instance."""
    cpu_storing: float = 0.0
    """CPU of the busiest instance while events were stored, as a share of a core."""
    cpu_firing: float = 0.0
    entities_storing: float = 0.0
    """Entities a second of the busiest account, on average while events were stored."""
    entities_firing: float = 0.0
    entities_peak: int = 0
    """Entities of the busiest second of an account."""
    refused: Counter[str] = field(default_factory=Counter)
    """Requests that an account refused, by the limit that was reached."""
    slots: int = 0
    """Most shards that one instance served at once."""
    in_flight: float = 0.0
    """Deliveries of the busiest instance that were under way, on average while events were delivered."""
    shards: int = 0
    failed: int = 0
    """Invocations that ended with an error of storage, and were repeated half a minute later."""

    def late_at(self, share: float) -> float:
        """Return the lateness that this share of the events did not exceed."""
        return self.late[min(len(self.late) - 1, int(share * len(self.late)))]

    @property
    def stored_rate(self) -> float:
        """Events a second."""
        return self.load.events / self.stored_in

    @property
    def fired_rate(self) -> float:
        """Events a second."""
        return self.load.events / self.fired_in


class Receiver:
    """Takes the deliveries of all instances."""

    def __init__(self, clock: LoopClock, outcome: Outcome, processor: VirtualProcessor, seconds: float, answer: float) -> None:
        """seconds: of CPU that a delivery costs the receiver's process. answer: seconds from a request's departure to its answer."""
        self._clock, self._outcome, self._processor, self._seconds, self.answer = clock, outcome, processor, seconds, answer
        self._seen: set[str] = set()
        self.last = 0.0

    async def take(self, delivery: OutgoingDelivery) -> None:
        """Note an arrival."""
        await self._processor.use(self._seconds)
        if delivery.id in self._seen:
            self._outcome.repeated += 1
            return
        self._seen.add(delivery.id)
        self.last = self._clock.monotonic() + self.answer / 2
        self._outcome.late.append(self.last - (delivery.due - START) / 1000)


class Line:
    """A `Sender`: an instance's way to the receiver."""

    def __init__(self, receiver: Receiver, processor: VirtualProcessor, seconds: float) -> None:
        self._receiver, self._processor, self._seconds = receiver, processor, seconds
        self.sent = self.in_flight = 0

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        self.in_flight += 1
        try:
            await self._processor.use(self._seconds)
            self.sent += 1
            await self._receiver.take(delivery)
            await asyncio.sleep(self._receiver.answer)
            return Verdict("delivered", 200)
        finally:
            self.in_flight -= 1

    async def close(self) -> None:
        """Nothing to release."""


@dataclass(slots=True)
class Instance:
    """One instance: its app, its queue trigger, and what it has done."""

    app: Application
    queues: LimitedQueues
    processor: VirtualProcessor
    line: Line
    trigger: HostTrigger | None = None

    async def store(self, dues: list[Millis], charges: Charges, size: int) -> int:
        """Answer a batch, and send again what was refused. Return the number of events that were sent again. size: bytes of a payload."""
        again = 0
        while True:
            # In parts, because the app's own loop serves others between events too.
            for _ in range(10):
                await self.processor.use(len(dues) * charges.ingest / 10)
            results = await self.app.scheduler.ingest.batch(TENANT, batch_text(dues, size=size), lines=True)
            dues = [due for due, result in zip(dues, results, strict=True) if not isinstance(result, Admitted)]
            if not dues:
                return again
            again += len(dues)
            await asyncio.sleep(1.0)


class ClusterRun:
    """One load, from the first batch to the last finished shard."""

    def __init__(self, load: Load, progress: Progress) -> None:
        self.load, self._progress = load, progress
        self.loop = VirtualLoop() if load.paused is None else PausedLoop(load.paused)
        self.clock = LoopClock(self.loop)
        self.outcome = Outcome(load)
        shared = load.shared
        self._machine = SharedCores(shared.cores, TURN) if shared is not None else None
        row, delivery = (shared.row, shared.delivery) if shared is not None else (0.0, 0.0)
        store = VirtualProcessor(self._machine) if shared is not None else None
        self.accounts = [LimitedAccount(self.clock, load.limits, store, row) for _ in range(load.accounts)]
        answer = shared.answer if shared is not None else RECEIVER
        self.receiver = Receiver(self.clock, self.outcome, VirtualProcessor(self._machine), delivery, answer)
        self.instances: list[Instance] = []

    def play(self) -> Outcome:
        """Run to the end. Raises `TimeoutError`."""
        run_to_end(self.loop, self._story())
        return self.outcome

    async def _open(self, number: int) -> Instance:
        load, clock = self.load, self.clock
        processor = PausedProcessor(self.loop) if isinstance(self.loop, PausedLoop) else VirtualProcessor(self._machine)
        chances = (random.Random(f"{load.seed}/{number}/{at}") for at in range(load.accounts))
        pairs = zip(self.accounts, chances, strict=True)
        ways = [AccountConnection(each, processor, load.charges, clock, chance) for each, chance in pairs]
        queues = LimitedQueues(ways[0])
        line = Line(self.receiver, processor, load.charges.fire)
        storage = spread_storage([LimitedTables(way, clock) for way in ways], queues, clock)
        app = await Application.open(
            self._settings(), clock=clock, ids=SeededIds(f"{load.seed}/{number}"), storage=storage, senders={"http": line}
        )
        return Instance(app, queues, processor, line)

    def _settings(self) -> Settings:
        found = local_settings(CONNECTION, accounts=[FURTHER.format(number=number) for number in range(1, self.load.accounts)])
        return found.model_copy(update={"shard_events": self.load.shard})

    async def _story(self) -> None:
        load = self.load
        self.instances = [await self._open(number) for number in range(load.instances)]
        chance = random.Random(load.seed)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(ticking(self.instances[0].app))
            for each in self.instances:
                await asyncio.sleep(chance.uniform(0.0, 2.0 / load.instances))
                each.trigger = HostTrigger(each.app, each.queues, self.clock)
                await stack.enter_async_context(each.trigger)
            first = await self._store(chance)
            await self._fire(first)
        for each in self.instances:
            await each.app.close()

    async def _store(self, chance: random.Random) -> float:
        """Store the events. Return the time at which the first is due."""
        load = self.load
        began = self.loop.now
        # With room for a storage that refuses much.
        first = 60.0 * (2 + int(began + load.events / min(load.rate or 1e9, 4_000.0 * load.instances)) // 60) + load.after
        width = round(load.over * 1000)
        dues = [START + round(first * 1000) + (chance.randrange(width) if width else 0) for _ in range(load.events)]
        used = [each.processor.busy for each in self.instances]
        before = self._entities()
        at = iter(range(0, load.events, load.batch))

        async def lane(number: int) -> None:
            for start in at:
                if load.rate is not None:
                    await asyncio.sleep(max(0.0, began + start / load.rate - self.loop.now))
                instance = self.instances[(start // load.batch if load.rate is not None else number) % load.instances]
                self.outcome.sent_again += await instance.store(dues[start : start + load.batch], load.charges, load.size)
                self._progress(start / 2, load.events)

        await asyncio.gather(*(lane(number) for number in range(LANES * load.instances)))
        outcome = self.outcome
        outcome.stored_in = self.loop.now - began
        outcome.cpu_storing = max(each.processor.busy - was for each, was in zip(self.instances, used, strict=True)) / outcome.stored_in
        outcome.entities_storing = max(now - was for now, was in zip(self._entities(), before, strict=True)) / outcome.stored_in
        return first

    async def _fire(self, first: float) -> None:
        """Wait until all events have come, and all shards are finished."""
        load, outcome = self.load, self.outcome
        ends = first + load.over + LONGEST
        await asyncio.sleep(max(0.0, first - self.loop.now))
        if load.shared is not None:
            for account in self.accounts:
                account.row = load.shared.settled
        used = [each.processor.busy for each in self.instances]
        before = self._entities()
        looks, flying = 0, [0] * load.instances
        while len(outcome.late) < load.events:
            self._check(ends)
            looks += 1
            flying = [seen + each.line.in_flight for seen, each in zip(flying, self.instances, strict=True)]
            self._progress((load.events + len(outcome.late)) / 2, load.events)
            await asyncio.sleep(0.1)
        span = self.loop.now - first
        outcome.fired_in = self.receiver.last - first
        outcome.shares = [each.line.sent for each in self.instances]
        outcome.in_flight = max(flying) / looks
        outcome.cpu_firing = max(each.processor.busy - was for each, was in zip(self.instances, used, strict=True)) / span
        outcome.entities_firing = max(now - was for now, was in zip(self._entities(), before, strict=True)) / span
        while any(each.tables._tables[SHARDS] for each in self.accounts):
            self._check(ends)
            await asyncio.sleep(1.0)
        outcome.late = array("d", sorted(outcome.late))
        outcome.entities_peak = max(max(each.entities.values()) for each in self.accounts)
        for each in self.accounts:
            outcome.refused.update(each.refused)
        outcome.failed = sum(each.trigger.failed for each in self.instances if each.trigger is not None)
        outcome.shards = sum(each.app.scheduler.counters["shards_taken"] for each in self.instances)

    def _check(self, ends: float) -> None:
        """Raise if the run has gone wrong, and note the slots in use."""
        for each in self.instances:
            if each.trigger is not None:
                self.outcome.slots = max(self.outcome.slots, each.trigger.busy)
        if self.loop.now > ends:
            left = sum(len(each.tables._tables[SHARDS]) for each in self.accounts)
            raise TimeoutError(f"{len(self.outcome.late):,} of {self.load.events:,} events came; {left} index partitions have rows")

    def _entities(self) -> list[int]:
        return [each.entities.total() for each in self.accounts]


def play(load: Load, progress: Progress = lambda done, total: None) -> Outcome:
    """Run a load. The same load gives the same outcome on every machine."""
    return ClusterRun(load, progress).play()
