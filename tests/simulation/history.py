"""One seed, from start to verdict."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from pydantic import SecretStr

from shared.app.application import Application, build
from shared.app.ports import Ports
from shared.app.timers import Counts
from shared.core.clock import Millis
from shared.core.ids import SeededIds
from shared.core.settings import Settings
from shared.delivery.channels import Sender
from shared.delivery.channels.model import QueueChannel
from shared.scheduler.ingest import shard_filler
from shared.scheduler.protocol import owning
from shared.storage import Storage
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_QUEUES, ALL_TABLES, QUEUE_INGEST, QUEUE_RETRIES, QUEUE_SHARDS, SHARDS
from shared.storage.ports import Row
from shared.tenants.model import Durability, Limits, Retry, Tenant
from shared.whatif.twin.loop import Stuck, VirtualLoop

from .checks.oracle import Oracle
from .checks.trace import Entry, Trace
from .checks.verdict import judge
from .plan import Plan, upkeep
from .profile import Effect, Profile, draw
from .world.api import ADMIN_KEY
from .world.channels import DOWN, Ward
from .world.host import POISON, Host
from .world.instance import Instance, make_task
from .world.machine import process_of
from .world.receiver import Receiver
from .world.storage import SimQueues, SimTables
from .world.twin import HostQueues
from .world.works import WORKS, Works

START: Millis = 1_800_000_000_000
QUIET_WITHIN = 1_500.0
"""Seconds after the last fault and the last due time within which everything must have ended."""
STRAGGLERS = 620.0
"""Seconds that are let pass after that: leases end, late requests arrive, old messages come back."""

MOST_LINES = 60_000
"""Effects after which a history is taken never to end."""


class Violation(Exception):
    """A promise was broken."""


@dataclass(slots=True)
class Report:
    """The result of one history."""

    seed: int
    profile: Profile
    counts: Counter[str]
    trace: Trace
    seconds: float
    """Virtual."""
    violation: str | None = None


class TrueClock:
    """The storage service's clock: the truth."""

    def __init__(self, world: World) -> None:
        self._loop, self._start = world.loop, world.start

    def now(self) -> Millis:
        return self._start + int(self._loop.now * 1000 + 1e-6)

    def monotonic(self) -> float:
        return self._loop.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@cache
def settings_of(shard_events: int, slots: int, express_events: int) -> Settings:
    """Settings are the same objects for all histories: they take long to make."""
    return Settings(
        storage=SecretStr("UseDevelopmentStorage=true"),
        admin_key=SecretStr(ADMIN_KEY),
        shard_events=shard_events,
        deliver_concurrency=slots,
        target_concurrency=slots,
        express_events=express_events,
        wakes="off",
    )


class World:
    """Everything of one history: storage, instances, clients, and chance."""

    def __init__(self, seed: int, style: str | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.lease_chance = Random(f"{seed}/lease")
        self.profile = draw(self.random, style)
        self.loop = VirtualLoop()
        self.loop.set_task_factory(make_task)
        self.loop.set_exception_handler(self._unhandled)
        self.start = START + self.random.randrange(60_000)
        self.counts: Counter[str] = Counter()
        self.trace = Trace(self.start)
        self.troubled = self.profile.style != "none"
        self.violation: str | None = None
        self.failed: asyncio.Future[None] = self.loop.create_future()
        # From a chance of its own, like all that came after the first histories.
        express_events = Random(f"{seed}/express").choice((0, 1, 3, 200, 200))
        self.settings = settings_of(self.profile.shard_events, self.profile.slots, express_events)
        clock = TrueClock(self)
        self.tables = MemoryTables(clock, page_rows=self.profile.page_rows)
        self.queues = HostQueues(clock)
        self.oracle = Oracle(self)
        self.ward = Ward(self)
        self.works = Works(self)
        self.receiver = Receiver(self)
        self.host = Host(self)
        self.owners: dict[str, str] = {}
        """Names in gates, and the instances that chose them."""
        self._effects = 0
        self._crashes_left = self.profile.crashes
        self._travelling = 0

    def note(self, instance: Instance | None, what: str, subject: Any, result: Any = None) -> None:
        """A line of the trace."""
        self.trace.lines.append(Entry(self.loop.now, instance.name if instance is not None else "-", what, subject, result))
        if len(self.trace.lines) > MOST_LINES and self.violation is None:
            self.fail(f"{MOST_LINES:,} effects, and no end")

    def fail(self, text: str, cause: BaseException | None = None) -> None:
        """A promise is broken: the history ends here."""
        if self.violation is None:
            self.violation = text
            self.note(None, "VIOLATION", text)
            if not self.failed.done():
                self.failed.set_result(None)
        raise Violation(text) from cause

    def fault(self, instance: Instance, effect: Effect) -> str | None:
        """The fault that happens to this effect, if any."""
        if not self.troubled or not instance.faulty:
            return None
        self._effects += 1
        profile = self.profile
        if self._effects not in profile.at and not (profile.rate and self.random.random() < profile.rate):
            return None
        chosen = profile.weights.get(effect)
        if chosen is None:
            return None
        fault = self.random.choices(*chosen)[0]
        if fault.startswith("crash"):
            if not self._crashes_left:
                return None
            self._crashes_left -= 1
        self.counts[f"fault: {fault}"] += 1
        return fault

    def latency(self, instance: Instance) -> float:
        """Seconds that a request or an answer takes."""
        base = self.profile.latency
        if not base or not instance.faulty or self.random.random() < 0.4:
            return 0.0
        return base * self.random.random()

    def long_wait(self) -> float:
        """Seconds of a slow answer, or a pause."""
        chance = self.random.random()
        least, most = (0.5, 5.0) if chance < 0.4 else (5.0, 30.0) if chance < 0.6 else (45.0, 120.0)
        return self.random.uniform(least, most)

    async def timeout(self, instance: Instance) -> None:
        """The time until a caller gives an answer up."""
        await asyncio.sleep(self.random.choice((0.0, 0.05, 1.0, 10.0)))
        await instance.ready()

    def later(self, apply: Callable[[], Any]) -> None:
        """A request that travels for long."""
        chance = self.random.random()
        least, most = (0.0, 2.0) if chance < 0.5 else (2.0, 60.0) if chance < 0.9 else (60.0, 240.0)

        def arrive() -> None:
            self._travelling -= 1
            apply()

        self._travelling += 1
        self.loop.call_later(self.random.uniform(least, most), arrive)

    def rows(self, table: str) -> list[Row]:
        """All rows of a table, as they are."""
        return self.rows_of(self.serving, table)

    @staticmethod
    def rows_of(tables: MemoryTables, table: str) -> list[Row]:
        """All rows of a table of an account, as they are."""
        found: list[Row] = []
        for pk, partition in tables._tables[table].items():
            for row in partition.rows.values():
                found.append(Row(pk, row.rk, row.props, row.etag, row.timestamp, 0))
        return found

    @property
    def exact(self) -> bool:
        """Return whether nothing goes wrong: each attempt is made once, and on time."""
        return self.profile.style == "none"

    @property
    def serving(self) -> MemoryTables:
        """The tables of the account that serves."""
        return self.tables

    def shut(self, shard: str) -> bool:
        """Return whether an empty shard may have been shut, and left at that."""
        return False

    @property
    def accounts(self) -> tuple[MemoryTables, ...]:
        """All tables there are."""
        return (self.tables,)

    def application(self, instance: Instance) -> Application:
        """The app of a process."""
        tables = SimTables(instance, self.tables)
        storage = Storage(tables, SimQueues(instance), server_times=(tables.server_time,))
        return build(self.settings, self.ports(instance, storage))

    def ports(self, instance: Instance, storage: Storage) -> Ports:
        """Return the ports of a process, whose chance comes from the seed alone."""
        entropy = Random(f"{self.seed}/{instance.name}/entropy").randbytes
        senders, process = self.senders(instance), process_of(instance)
        return Ports(storage, instance.clock, self.ids_of(instance), senders, process=process, entropy=entropy)

    def ids_of(self, instance: Instance) -> SeededIds:
        """The chance of a process."""
        return SeededIds(f"{self.seed}/{instance.name}")

    def senders(self, instance: Instance) -> dict[str, Sender]:
        """A process's way to the receiver."""
        return dict.fromkeys(("queue", "http"), self.receiver.at(instance))

    def away(self, instance: Instance, side: str) -> bool:
        """Return whether the process does not reach an account now."""
        return False

    def lost(self, side: str) -> bool:
        """Return whether an account is away for all."""
        return False

    async def app_of(self, instance: Instance, queue: str) -> Application:
        """The application that a queue's trigger calls."""
        return instance.app

    def holder_of(self, instance: Instance, queue: str) -> Application:
        """The application on the account that has the queue."""
        return instance.app

    def plain(self, queue: str) -> str:
        """The app's own name of a queue."""
        return queue

    def unpolled(self, queue: str) -> bool:
        """Return whether the host cannot look into a queue now."""
        return False

    triggers: tuple[str, ...] = (QUEUE_SHARDS, QUEUE_RETRIES, QUEUE_INGEST)
    """Queues that the host polls."""

    def queue_of(self, queue: str, side: str) -> str:
        """Return the name of an account's queue among all queues."""
        return queue

    def _unhandled(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, Violation) and self.violation is None:
            with suppress(Violation):
                self.host.expected(error)

    async def open(self) -> Instance:
        """Tables, queues, tenants, and the first instances; answers the judge, an instance without faults."""
        await self.tables.ensure(ALL_TABLES)
        await self.queues.ensure((*ALL_QUEUES, QUEUE_SHARDS + POISON, QUEUE_RETRIES + POISON, QUEUE_INGEST + POISON))
        judge_instance = Instance(self, "judge", faulty=False)
        limits = Limits(events_per_second=self.profile.events_per_second, open_events=self.profile.open_events)
        retry = Retry.model_construct(attempts=3, first=2_000, max=15_000, within=86_400_000)
        for number in range(self.profile.tenants):
            directory = judge_instance.app.directory
            await directory.put(f"t{number}", Tenant(retry=retry, limits=limits, durability=self.durability))
            for name in ("default", DOWN):
                await directory.channels.put(f"t{number}", name, QueueChannel(type="queue", queue="sink"))
            if self.works.share:
                await directory.channels.put(f"t{number}", WORKS, self.works.channel())
        for _ in range(self.profile.instances):
            self.host.start()
        return judge_instance

    sides: int | None = 0
    """Changes of sides of a mirrored pair so far; None during one, when a read may show what the other account never had."""
    durability: Durability | None = None
    """The channels of all tenants."""
    asked: Durability | None = None
    """The options of events that are not `fast`."""

    async def run(self) -> None:
        """The whole history; raises `Violation`."""
        judge_instance = await self.open()
        timers = self.loop.create_task(self.host.timers())
        resumer = self.loop.create_task(self.ward.resume_channels())
        mishaps = self.loop.create_task(self._mishaps())
        await self.lived()
        end_of_trouble = self.profile.window + self.profile.trouble
        if self.troubled and self.loop.now < end_of_trouble:
            await asyncio.sleep(end_of_trouble - self.loop.now)
        await mishaps
        self.troubled = False
        self.note(None, "trouble ends", None)
        await self.operated()
        await self._quiet()
        timers.cancel()
        resumer.cancel()
        self.works.close()
        await self.verdict(judge_instance)

    async def lived(self) -> None:
        """Wait until every client has done its part."""
        await Plan(self).run()

    def unfinished(self) -> bool:
        """Return True if the timers have something to do, now or later."""
        return bool(self.rows(SHARDS))

    async def sweep(self, instance: Instance) -> Counts:
        """The scheduler's job runs in a process."""
        app = await instance.app.serving()
        return {"dispatch": await app.scheduler.sweeps.dispatch(instance.clock.now())}

    def last_due(self) -> Millis:
        """The latest due time, as far as it is known; 0 without any."""
        return max((claim.low for story in self.oracle.stories for claim in story.dues.claims), default=0)

    async def verdict(self, instance: Instance) -> None:
        """Check what holds when all is quiet."""
        await judge(self, instance)

    async def operated(self) -> None:
        """Wait until the operator, if there is one, has finished."""

    async def _mishaps(self) -> None:
        for when, what in upkeep(self.random, self):
            await asyncio.sleep(max(0.0, when - self.loop.now))
            instance = self.host.any()
            if instance is None:
                continue
            match what:
                case "deploy":
                    await self.host.deploy(instance)
                case "freeze":
                    instance.pause(self.random.uniform(5.0, 90.0))
                case _:
                    instance.crash()

    async def _quiet(self) -> None:
        """Wait until nothing is unfinished, then for stragglers."""
        latest = self.last_due()
        deadline = max(self.loop.now, (latest - self.start) / 1000) + QUIET_WITHIN
        began = self.loop.now
        while self.unfinished() or self.host.work or self._travelling or self._queued():
            if self.loop.now > deadline:
                self.fail(f"not everything has ended {QUIET_WITHIN:.0f} s after the last fault and due time; {self._unfinished()}")
            await asyncio.sleep(5.0)
        self.counts["seconds until quiet"] = round(self.loop.now - max(began, (latest - self.start) / 1000))
        await asyncio.sleep(STRAGGLERS)
        while self.unfinished() or self.host.work or self._queued():
            if self.loop.now > deadline + STRAGGLERS:
                self.fail(f"stragglers undid the quiet; {self._unfinished()}")
            await asyncio.sleep(5.0)
        for instance in self.host.graves:
            if instance.unfinished:
                self.fail(f"tasks outlive their process: {instance.unfinished}")

    def _queued(self) -> int:
        """Messages that may hold events which no table has."""
        names = [queue for queue in self.triggers if queue.startswith(QUEUE_INGEST)]
        return sum(self.queues.held(name) + self.queues.held(name + POISON) for name in names)

    def _unfinished(self) -> str:
        index = [(row.rk, row.props["state"]) for row in self.rows(SHARDS)]
        work = [(work.instance.name, work.message.text) for work in self.host.work.values()]
        return f"index: {index}, messages of the ingest queue: {self._queued()}, in work: {work}"

    def play(self) -> Report:
        """Run to the end, whatever it is."""
        asyncio.set_event_loop(None)
        try:
            self.loop.run_until_complete(self._guarded())
        except Stuck as stuck:
            self.violation = self.violation or str(stuck)
        finally:
            self._bury()
        return Report(self.seed, self.profile, self.counts, self.trace, self.loop.now, self.violation)

    def script[T](self, scenario: Coroutine[Any, Any, T]) -> T:
        """Run a scenario of a test's own instead."""
        try:
            return self.loop.run_until_complete(scenario)
        finally:
            self._bury()

    async def _guarded(self) -> None:
        whole = self.loop.create_task(self.run())
        await asyncio.wait((whole, self.failed), return_when=asyncio.FIRST_COMPLETED)
        if not whole.done():
            whole.cancel()
            with suppress(asyncio.CancelledError, Violation):
                await whole
        elif self.violation is None and (error := whole.exception()) is not None:
            raise error
        elif not whole.cancelled():
            whole.exception()

    def _bury(self) -> None:
        """End every task, so that the next history starts with nothing of this one."""
        for instance in self.host.instances:
            instance.alive = False
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        with suppress(Stuck):
            self.loop.run_until_complete(_settle())
        self.loop.close()


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@contextmanager
def quietly(group: int) -> Iterator[None]:
    """Without the app's logs, with transactions of `group` events, and without pauses for the garbage."""
    logger = logging.getLogger("shared")
    level, before, enabled = logger.level, (shard_filler.GROUP, owning.MAX_CHANGES), gc.isenabled()
    logger.setLevel(logging.CRITICAL + 1)
    shard_filler.GROUP = owning.MAX_CHANGES = group
    gc.disable()
    try:
        yield
    finally:
        logger.setLevel(level)
        shard_filler.GROUP, owning.MAX_CHANGES = before
        if enabled:
            gc.enable()


def simulate(seed: int, style: str | None = None) -> Report:
    """One history. The same seed gives the same one, to the last line of its trace."""
    world = World(seed, style)
    with quietly(world.profile.group):
        return world.play()
