"""A simulated Azure Functions host: queue triggers, poison queues, timers, restarts."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from shared.app.timer_jobs import under_way
from shared.core.errors import Problem, StorageError
from shared.scheduler.ingest.message_lease import serve_leased
from shared.scheduler.timings import CARRIED_FROM_TRY, INGEST_LEASE
from shared.storage import limits
from shared.storage.blocking import run_through
from shared.storage.names import QUEUE_INGEST, QUEUE_SWEEPS
from shared.storage.ports import Message

from .instance import Instance
from .machine import process_of

if TYPE_CHECKING:
    from ..history import World

LEASE = 600.0
"""Seconds a message in work is hidden; after a crash that is how long it stays so."""
FAILED_AGAIN = 30.0
MAX_DEQUEUE = 5
POLL = 2.0
FUNCTION_TIMEOUT = 600.0
TICK = 15.0
"""Seconds between the runs that a sweep plans."""
SWEEP = 4
"""Ticks between two sweeps."""
POISON = "-poison"


class Work(NamedTuple):
    """A message in work."""

    instance: Instance
    queue: str
    message: Message
    since: float
    owner: bool
    """The message is this invocation's to delete; a double's is not."""
    limit: asyncio.TimerHandle


class Host:
    """Runs the app's triggers on the instances that are alive."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._names = 0
        self.instances: list[Instance] = []
        self.graves: list[Instance] = []
        self.work: dict[asyncio.Task[None], Work] = {}
        self._timer: asyncio.Task[None] | None = None
        self._silent_until = 0.0
        self._planned = False
        """The last sweep has planned runs before the next one."""

    def start(self) -> Instance:
        """A new process."""
        self._names += 1
        instance = Instance(self._world, f"i{self._names}")
        self.instances.append(instance)
        if process_of(instance) is not None:
            # Its tasks die with it. What may end it otherwise is judged as for every task of the app.
            instance.spawn(instance.app.recover())
        return instance

    def died(self, instance: Instance) -> None:
        """A process is gone; another takes its place after a while. Its messages stay hidden until their leases end."""
        world = self._world
        world.note(instance, "dies", None)
        world.counts["crashes"] += 1
        self.instances.remove(instance)
        self.graves.append(instance)
        world.loop.call_later(world.random.uniform(0.2, 20.0) if world.troubled else 1.0, self.start)

    def any(self) -> Instance | None:
        """An instance that takes new work."""
        ready = [each for each in self.instances if not each.leaving]
        return self._world.random.choice(ready) if ready else None

    def put(self, queue: str, text: str, visible_in: float) -> None:
        """A message arrives in its queue."""
        world = self._world
        run_through(world.queues.send(queue, text, visible_in=visible_in))
        self._poll_in(queue, limits.whole_seconds(visible_in) + self._poll_delay())

    def _poll_delay(self) -> float:
        random = self._world.random
        delay = random.uniform(0.0, POLL) if random.random() < 0.5 else 0.0
        if self._trouble():
            delay += random.uniform(5.0, 120.0)
        return delay

    def _trouble(self) -> bool:
        world = self._world
        return world.troubled and world.random.random() < world.profile.message_trouble

    def _poll_in(self, queue: str, seconds: float) -> None:
        self._world.loop.call_later(seconds, self._poll, queue)

    def _poll(self, queue: str) -> None:
        world = self._world
        if self.any() is None:
            self._poll_in(queue, 1.0)
            return
        if world.unpolled(queue):
            self._poll_in(queue, POLL)
            return
        for message in run_through(world.queues.receive(queue, limit=16, lease=LEASE)):
            instance = self.any()
            if instance is None or self._trouble():
                # Taken, but the answer was lost, or the process went before it began: hidden until the lease ends.
                world.note(instance, "message vanishes for now", (queue, message.text))
                self._poll_in(queue, LEASE + 1.0)
                continue
            self._invoke(instance, queue, message, owner=True)
            if self._trouble() and (other := self.any()) is not None:
                world.counts["messages doubled"] += 1
                self._invoke(other, queue, message, owner=False)

    def _invoke(self, instance: Instance, queue: str, message: Message, *, owner: bool) -> None:
        world = self._world
        task = instance.spawn(self._run(instance, queue, message))
        limit = world.loop.call_later(FUNCTION_TIMEOUT, self._overlong, instance)
        self.work[task] = Work(instance, queue, message, world.loop.now, owner, limit)
        task.add_done_callback(self._ended)

    async def _run(self, instance: Instance, queue: str, message: Message) -> None:
        await instance.ready()
        world = self._world
        world.note(instance, "takes message", (queue, message.text))
        scheduler, home = (await world.app_of(instance, queue)).scheduler, world.holder_of(instance, queue)
        holder = home.storage.queues
        plain = world.plain(queue)
        if plain == QUEUE_INGEST and message.dequeue_count >= CARRIED_FROM_TRY:
            scheduler = home.scheduler
        firing, intake, queue = scheduler.firing, scheduler.intake, plain
        if queue == QUEUE_INGEST:
            own = scheduler is home.scheduler
            await serve_leased(holder, instance.clock, queue, message, lambda taken: intake.serve(taken, own=own))
        elif queue == QUEUE_INGEST + POISON:
            world.counts["poisoned"] += 1
            await serve_leased(holder, instance.clock, queue, message, intake.poisoned)
        elif queue == QUEUE_SWEEPS:
            # A process that found no recent sweep at its start has planned it.
            await (await instance.app.serving()).timers.run_soon(message.text)
        elif queue.endswith(POISON):
            world.counts["poisoned"] += 1
            await firing.poisoned(message.text)
        else:
            await scheduler.serve_message(message.text)

    def _overlong(self, instance: Instance) -> None:
        self._world.counts["killed by the time limit"] += 1
        instance.crash()

    def _ended(self, task: asyncio.Task[None]) -> None:
        world, work = self._world, self.work.pop(task)
        work.limit.cancel()
        if world.plain(work.queue).startswith(QUEUE_INGEST):
            # The app's own lease ends sooner than the host's.
            self._poll_in(work.queue, INGEST_LEASE + 1.0)
        if task.cancelled() or not work.instance.alive:
            if work.owner:
                self._poll_in(work.queue, work.since + LEASE + 1.0 - world.loop.now)
            return
        error = task.exception()
        world.note(work.instance, "message done" if error is None else f"message fails: {error}", (work.queue, work.message.text))
        if error is None:
            if work.owner and not self._trouble():
                run_through(world.queues.delete(work.queue, work.message))
            else:
                self._poll_in(work.queue, LEASE + 1.0)
            return
        self.expected(error)
        world.counts["invocations failed"] += 1
        if not work.owner:
            return
        if work.queue.endswith(POISON):
            # A poison queue has no poison queue: its message stays hidden for the lease.
            self._poll_in(work.queue, LEASE + 1.0)
        elif work.message.dequeue_count >= MAX_DEQUEUE:
            run_through(world.queues.delete(work.queue, work.message))
            self.put(work.queue + POISON, work.message.text, 0.0)
        else:
            world.queues.release(work.queue, work.message, FAILED_AGAIN)
            self._poll_in(work.queue, FAILED_AGAIN)

    def expected(self, error: BaseException) -> None:
        """Only these may leave the app; anything else is a bug in it."""
        if not isinstance(error, StorageError | Problem):
            self._world.fail(f"an exception nobody expected: {error!r}", error)

    async def timers(self) -> None:
        """The sweep: every minute, unless it goes silent, and the runs that it plans in between; sometimes on two instances at once."""
        world, loop = self._world, self._world.loop
        while True:
            await asyncio.sleep((loop.now // TICK + 1) * TICK - loop.now)
            if world.troubled and world.random.random() < world.profile.timer_silent:
                self._silent_until = loop.now + world.random.uniform(15.0, 120.0)
            sweep = round(loop.now / TICK) % SWEEP == 0
            planned, self._planned = self._planned, self._planned and not sweep
            if not (loop.now >= self._silent_until if sweep else planned) or (self._timer is not None and not self._timer.done()):
                continue
            if not world.unfinished():
                continue
            instance = self.any()
            if instance is None:
                continue
            self._timer = self._sweep(instance, plans=sweep)
            if world.troubled and world.random.random() < world.profile.timer_doubled and (other := self.any()) is not None:
                self._sweep(other, plans=sweep)

    def _sweep(self, instance: Instance, *, plans: bool) -> asyncio.Task[None]:
        async def run() -> None:
            await instance.ready()
            counts = await self._world.sweep(instance)
            self._planned = self._planned or (plans and under_way("scheduler_scan", counts))

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled() or not instance.alive:
                # The singleton's lock is held until its lease ends.
                self._silent_until = self._world.loop.now + self._world.random.uniform(15.0, 120.0)
            elif (error := task.exception()) is not None:
                self.expected(error)

        self._world.note(instance, "timer", None)
        task = instance.spawn(run())
        task.add_done_callback(partial(ended))
        return task

    async def deploy(self, instance: Instance) -> None:
        """Restart a process in order: no new work, half a minute to end, then it is killed."""
        world = self._world
        if not instance.alive:
            return
        world.note(instance, "is asked to leave", None)
        world.counts["deploys"] += 1
        instance.leaving = True
        instance.app.leave()
        await asyncio.sleep(world.random.uniform(1.0, 30.0))
        instance.crash()

    @property
    def idle(self) -> bool:
        """Nothing is in work, and no message will become visible but those that a lease hides."""
        return not self.work and not any(self._world.queues.waiting(queue) for queue in self._world.triggers)
