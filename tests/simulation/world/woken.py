"""Planned wakes without timers: from some time on, often from the start, no timer runs any more, and nobody serves the sweeps that are
asked for. What is stored is found by wakes, and by processes that start.

An operator may purge the queue of the shards. Then nobody looks until a process starts, which one does once the trouble is over.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

from shared.app.timers import Counts
from shared.scheduler.wakes.protocol import parse_wake
from shared.storage.names import QUEUE_RETRIES, QUEUE_SHARDS, QUEUE_SWEEPS

from ..history import Report, World, quietly
from .host import Host
from .instance import Instance
from .machine import process_of

STARTS_AFTER = 150.0
"""Least time in seconds from a purge until a process starts."""
FOUND_WITHIN = 900.0
"""Seconds after the last fault and due time within which everything has ended: a message that was taken by a process that was killed comes
back after ten minutes, the wakes of a silent timer come each minute, and each of three attempts of an event may fail."""
MOST_WAKES = 60
"""Wakes in the queue: those that the plan names, and what faults have added."""


class WokenHost(Host):
    """A host whose timers stop."""

    def __init__(self, world: Woken) -> None:
        super().__init__(world)
        self._woken = world

    def start(self) -> Instance:
        instance = super().start()
        if process_of(instance) is None:
            instance.spawn(instance.app.recover())
        return instance

    def put(self, queue: str, text: str, visible_in: float) -> None:
        if queue != QUEUE_SWEEPS:
            super().put(queue, text, visible_in)

    async def timers(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._woken.timers_for):
                await super().timers()


class Woken(World):
    """A history with planned wakes."""

    def __init__(self, seed: int, style: str | None = None) -> None:
        super().__init__(seed, style)
        chance = Random(f"{seed}/woken")
        self.settings = self.settings.model_copy(update={"wakes": chance.choice(("auto", "auto", "12", "60"))})
        self.timers_for: float = chance.choice((0.0, 0.0, 45.0, 130.0))
        self.purged_at: float | None = chance.uniform(0.0, self.profile.window) if self.troubled and chance.random() < 0.5 else None
        self.host = WokenHost(self)

    async def sweep(self, instance: Instance) -> Counts:
        return {"dispatch": await instance.app.scheduler.looks.dispatch(instance.clock.now())}

    async def lived(self) -> None:
        others = [self.loop.create_task(self._count())]
        if self.purged_at is not None:
            others.append(self.loop.create_task(self._purge(self.purged_at)))
        await super().lived()
        await asyncio.gather(*others[1:])
        others[0].cancel()

    async def _purge(self, at: float) -> None:
        """Remove all messages of shards."""
        await asyncio.sleep(at)
        self.note(None, "the queues are purged", None)
        self.counts["purges"] += 1
        for queue in (QUEUE_SHARDS, QUEUE_RETRIES):
            self.queues._queue(queue).messages.clear()

    async def _count(self) -> None:
        """See that wakes do not become more and more."""
        while True:
            wakes = self.wakes_queued()
            self.counts["most wakes"] = max(self.counts["most wakes"], wakes)
            if wakes > MOST_WAKES:
                self.fail(f"W5: {wakes} wakes are in the queue")
            await asyncio.sleep(1.0)

    def wakes_queued(self) -> int:
        """Return the number of wakes that nobody has taken."""
        found = self.queues._queue(QUEUE_SHARDS).messages.values()
        return sum(parse_wake(each.text) is not None and not each.dequeue_count for each in found)

    async def operated(self) -> None:
        if self.purged_at is not None:
            # After the trouble: a look that fails is one fault more.
            await asyncio.sleep(max(0.0, self.purged_at + STARTS_AFTER - self.loop.now))
            self.host.start()
        self.counts["wakes taken"] = sum(each.app.scheduler.counters["wakes"] for each in (*self.host.instances, *self.host.graves))

    async def verdict(self, instance: Instance) -> None:
        await super().verdict(instance)
        if self.counts["seconds until quiet"] > FOUND_WITHIN:
            self.fail(f"it takes {self.counts['seconds until quiet']} s until everything has ended")


def simulate_woken(seed: int, style: str | None = None) -> Report:
    """One history with wakes and without timers."""
    world = Woken(seed, style)
    with quietly(world.profile.group):
        return world.play()


def _lone(seed: int) -> Woken:
    """Return the history of one event that waits for minutes, without timers and without faults of chance."""
    world = Woken(seed, "single")
    profile = world.profile
    profile.events, profile.tenants, profile.window, profile.horizon, profile.busy = 1, 1, 10.0, 400.0, 0.5
    profile.at, profile.events_per_second, profile.open_events = frozenset(), None, None
    profile.message_trouble = profile.timer_silent = profile.timer_doubled = profile.deploys = profile.impatient = 0.0
    world.timers_for, world.purged_at = 0.0, None
    return world


def simulate_killed(seed: int, effect: int) -> Report:
    """One history of an event that waits for minutes. A process is killed at the effect of that number, before it or after it."""
    world = _lone(seed)
    profile = world.profile
    profile.at, profile.crashes = frozenset({effect}), 1
    profile.weights = {name: (["crash", "crash-applied"], [1, 1]) for name in profile.weights}
    # Trouble goes on until the event is due, so that each effect of its wakes may be the one.
    profile.trouble = 500.0
    with quietly(profile.group):
        return world.play()


def simulate_purged(seed: int) -> Report:
    """One history of an event that waits for minutes. The queue is purged after its request, and later a process starts."""
    world = _lone(seed)
    world.purged_at = world.profile.window + 5.0
    with quietly(world.profile.group):
        return world.play()
