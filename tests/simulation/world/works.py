"""Receivers that complete events later: they accept an attempt, and call the service about it from a process of their own.

Drawn from a chance of its own, so that histories without such events are what they were before there were any.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from shared.delivery.channels.model import HttpChannel
from shared.delivery.channels.ports import OutgoingDelivery

from ..checks.oracle import Step
from ..workload import UNKNOWN, Clients
from .api import call_work

if TYPE_CHECKING:
    from ..checks.oracle import Story
    from ..history import World
    from .instance import Instance

WORKS = "works"
"""The channel that allows long work."""
MANNERS = ("complete", "complete", "twice", "fail", "beat", "silent", "late")


class Works:
    """The long work of one history."""

    def __init__(self, world: World) -> None:
        self._world, self._clients = world, Clients(world)
        self._random = Random(f"{world.seed}/works")
        self.share = self._random.choice((0.0, 0.0, 0.4)) if world.asked is None else 0.0
        """Share of the events whose receiver completes them later."""
        self.pace = 1.0
        """Factor on the seconds that receivers take."""
        self.within, self.at_most = "PT10S", "PT40S"
        self._tasks: set[asyncio.Task[None]] = set()

    def channel(self) -> HttpChannel:
        long_work = {"within": self.within, "at_most": self.at_most}
        return HttpChannel.model_validate({"type": "http", "url": "https://works.example/", "long_work": long_work})

    def assign(self, story: Story) -> None:
        """Choose whether the story's receiver completes it later."""
        if self._random.random() < self.share and "channel" not in story.extra and story.script[0].verdict == "ok":
            story.extra["channel"] = WORKS
            story.script.insert(0, Step("later"))
            if self._random.random() < 0.3:
                story.script.insert(0, Step("later"))

    def begin(self, story: Story, delivery: OutgoingDelivery) -> None:
        """The receiver has accepted an attempt, and works on it."""
        how = self._random.choice(MANNERS)
        self._world.counts[f"work: {how}"] += 1
        task = self._world.loop.create_task(self._work(story, delivery, how))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, story: Story, delivery: OutgoingDelivery, how: str) -> None:
        await asyncio.sleep(self.pace * self._random.choice((0.0, 0.0, 0.3, 2.0, 8.0, 9.9)))
        if how == "silent":
            return
        if how == "late":
            await asyncio.sleep(self.pace * 20.0)
        if how == "beat":
            for _ in range(self._random.randint(1, 4)):
                await self._tell(story, delivery, "heartbeat")
                await asyncio.sleep(self.pace * self._random.uniform(1.0, 9.0))
        if how == "fail":
            await self._tell(story, delivery, "fail")
            return
        # From here on the event may be delivered, whatever the answer.
        story.taken = max(story.taken, 1)
        for _ in range(2 if how == "twice" else 1):
            if await self._tell(story, delivery, "complete"):
                story.completed = True
                if story.cancelled:
                    self._world.fail(f"{story}: its cancel was acknowledged, and then its completion")

    async def _tell(self, story: Story, delivery: OutgoingDelivery, verb: str) -> bool:
        """Call the service until it answers; return True if it did what was asked."""

        async def act(instance: Instance) -> Any:
            return await call_work(instance, delivery, verb)

        for _ in range(8):
            answer = await self._clients.request(f"{verb} {story.number}", act, [])
            if answer.kind == "ok":
                self._world.counts[f"work: {verb} acknowledged"] += 1
                return True
            if answer.kind not in UNKNOWN and answer.code != "too-many-requests":
                self._world.counts[f"work: {answer.code}"] += 1
                return False
            await asyncio.sleep(1.0)
        return False

    def close(self) -> None:
        """End the receivers' processes."""
        for task in self._tasks:
            task.cancel()
