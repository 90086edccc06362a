"""Flow control in a history: channels that are paused, whose receivers die for a while, or answer that they are gone; and what must hold.

Drawn from a chance of its own, so that histories without such trouble are what they were before there was any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from shared.storage.names import TENANTS
from shared.storage.ports import Delete, Op
from shared.tenants.rows import PREFIX_CHANNEL, of_tenant

if TYPE_CHECKING:
    from ..checks.oracle import Story
    from ..history import World
    from .instance import Instance

DOWN = "down"
"""The channel whose receiver is dead until a certain time."""
FRESH = 1.0
"""Seconds within which a pause reaches every instance, beside what storage and the network take."""


class Ward:
    """The channels of one history, as the world knows them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"{world.seed}/channels")
        self.share = self._random.choice((0.0, 0.0, 0.3, 0.6))
        """The share of events that go to the channel `DOWN`."""
        self.until = self._random.uniform(5.0, 200.0) if self.share else 0.0
        """Time at which its receiver recovers."""
        self.goes = self._random.choice((0.0, 0.0, 0.05))
        """Chance that an event's first attempt is answered 410."""
        self.pauses = [self._random.uniform(0.0, world.profile.window + 20.0)] if self._random.random() < 0.2 else []
        """Time at which an operator pauses the default channel."""
        self.paused: dict[tuple[str, str], float] = {}
        """Since when pauses are acknowledged."""
        self._resuming: set[tuple[str, str]] = set()
        """Channels that `resume_channels` resumes just now: it may undo a pause of the same moment."""

    def assign(self, story: Story) -> None:
        """Choose the story's channel, and whether its receiver says that it is gone."""
        if self._random.random() < self.share:
            story.extra["channel"] = DOWN
        if self._random.random() < self.goes:
            story.script.insert(0, story.script[0]._replace(verdict="gone"))

    def channel(self, story: Story) -> str:
        return str(story.extra.get("channel", "default"))

    def dead(self, channel: str) -> bool:
        """Return true while the receiver does not answer."""
        return channel == DOWN and self._world.loop.now < self.until

    def note_pause(self, tenant: str, paused: bool, since: float) -> None:
        """A pause was acknowledged, or a resume is asked for."""
        if paused and (tenant, "default") not in self._resuming:
            self.paused[tenant, "default"] = since
        else:
            self.paused.pop((tenant, "default"), None)

    def started(self, story: Story, instance: Instance) -> None:
        """A delivery starts: not long after a pause was acknowledged."""
        world = self._world
        since = self.paused.get((story.tenant, self.channel(story)))
        if since is None or world.profile.style not in ("none", "lost"):
            # Elsewhere reads may travel for minutes, and processes stand still.
            return
        late = world.loop.now - since
        world.counts["starts soon after a pause"] += 1
        if late > FRESH * (1 + world.profile.drift) + 2 * world.profile.latency + 0.01:
            world.fail(f"{story}: its delivery starts on {instance.name} {late:.3f} s after its channel was paused")

    def written(self, ops: Sequence[Op]) -> None:
        """Rows of tenants were written: see what becomes of channels."""
        for op in ops:
            if not op.rk.startswith(PREFIX_CHANNEL) or isinstance(op, Delete):
                continue
            default = op.rk == PREFIX_CHANNEL + "default"
            if op.props.get("paused") and default:
                self._world.oracle.punctual = False
            if '"state":"open"' in str(op.props.get("breaker")):
                self._world.counts["breakers open"] += 1
                if default:
                    # Its events are late for a reason.
                    self._world.oracle.punctual = False

    async def resume_channels(self) -> None:
        """Resume what 410 has paused, some time later, as a person would."""
        world = self._world
        while True:
            await asyncio.sleep(self._random.uniform(5.0, 30.0))
            for number in range(world.profile.tenants):
                tenant = f"t{number}"
                for name in ("default", DOWN):
                    partition = world.serving._tables[TENANTS].get(of_tenant(tenant))
                    row = partition.rows.get(PREFIX_CHANNEL + name) if partition is not None else None
                    if row is not None and row.props["paused"] and "410" in str(row.props["reason"]):
                        world.counts["channels gone"] += 1
                        await self.resume(tenant, name)

    async def resume(self, tenant: str, name: str) -> bool:
        """Resume a channel by some instance; return False if that failed, or its process ended."""
        instance = self._world.host.any()
        if instance is None:
            return False
        self.paused.pop((tenant, name), None)
        self._resuming.add((tenant, name))
        task = instance.spawn(self._act(instance, tenant, name))
        await asyncio.wait((task,))
        self._resuming.discard((tenant, name))
        if task.cancelled():
            return False
        if (error := task.exception()) is not None:
            self._world.host.expected(error)
        return error is None

    @staticmethod
    async def _act(instance: Instance, tenant: str, name: str) -> None:
        await instance.ready()
        app = await instance.app.serving()
        await app.directory.channels.pause(tenant, name, False)
        await app.resumed(tenant)
