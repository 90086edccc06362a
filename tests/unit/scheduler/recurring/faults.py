"""A world whose processes die at a chosen write, whose writes take their time, and what must hold in it afterwards."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Any, cast

from shared.app.application import Application
from shared.core.clock import Millis, to_millis
from shared.core.errors import OutcomeUnknown, Unavailable
from shared.core.ids import SeededIds
from shared.delivery.channels.model import CHANNEL_TYPES
from shared.delivery.channels.ports import Sender
from shared.storage.ports import Applied, Op, WriteRefused
from tests.unit.scheduler.harness import World, drive

URL = "/api/v1/schedules/tick"
MINUTE: Millis = 60_000
DEAD = ("cancelled", "moved")


class Frail:
    """Stands before the tables and queues of a world.

    die_at: the write, counted from 1, with which the process dies: nothing reaches storage after it, and `applied` says whether it did
    itself. slow: writes and reads take up to this many seconds, before and after.
    """

    def __init__(self, world: World, seed: int = 0) -> None:
        self._world, self._random = world, Random(seed)
        self._write, self._get, self._query = world.tables.write, world.tables.get, world.tables.query
        self._send = world.queues.send
        for port, name in ((world.tables, "write"), (world.tables, "get"), (world.tables, "query"), (world.queues, "send")):
            setattr(port, name, getattr(self, name))
        self.writes, self.die_at, self.applied, self.dead, self.slow = 0, 0, False, False, 0.0

    async def restart(self) -> None:
        """A new process on the same storage, with names of its own."""
        world = self._world
        self.dead, self.die_at = False, 0
        await world.app.close()
        senders = cast(Mapping[str, Sender], dict.fromkeys(CHANNEL_TYPES, world.receiver))
        ids = SeededIds(f"after {self.writes} writes")
        world.app = await Application.open(world.settings, clock=world.clock, ids=ids, storage=world.storage, senders=senders)

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        self._alive()
        self.writes += 1
        if self.writes == self.die_at:
            if self.applied:
                await self._write(table, pk, ops)
            self.dead = True
            raise OutcomeUnknown("the process dies")
        await self._pause()
        answer = await self._write(table, pk, ops)
        await self._pause()
        return answer

    async def get(self, *args: Any) -> Any:
        self._alive()
        await self._pause()
        return await self._get(*args)

    async def query(self, *args: Any, **more: Any) -> Any:
        self._alive()
        await self._pause()
        return await self._query(*args, **more)

    async def send(self, *args: Any, **more: Any) -> None:
        self._alive()
        await self._send(*args, **more)

    def _alive(self) -> None:
        if self.dead:
            raise Unavailable("the process is dead")

    async def _pause(self) -> None:
        if self.slow:
            await self._world.clock.sleep(self._random.choice((0.0, self.slow * self._random.random())))


async def sweep(world: World) -> Counter[str]:
    return await world.app.scheduler.recurring.chain.sweep(world.now)


async def raced(world: World, seed: int, calls: list[Any]) -> list[Any]:
    """Two or three sweeps and the calls at once, in an order of the seed, while storage takes its time. Returns all results."""
    frail = Frail(world, seed)
    frail.slow = 0.05
    steps = [sweep(world), sweep(world), *calls]
    if seed % 3 == 0:
        steps.append(sweep(world))
    frail._random.shuffle(steps)

    async def gathered() -> list[Any]:
        return list(await asyncio.gather(*steps))

    results = await drive(world.clock, gathered())
    frail.slow = 0
    return results


async def sweeps(world: World, seconds: int) -> None:
    """Run the timer every 15 s for this many seconds, without deliveries."""
    for _ in range(seconds // 15):
        await world.clock.advance(15, settle=3)
        counts = await drive(world.clock, sweep(world))
        assert counts["failed"] == 0


def live(world: World) -> dict[Millis, list[str]]:
    """Ids of the events that fire or have fired, by occurrence."""
    found: dict[Millis, list[str]] = defaultdict(list)
    for row in world.events():
        event_id = str(row.props["id"])
        if row.props["state"] not in DEAD and "@" not in event_id:
            found[instant_of(event_id)].append(event_id)
    return dict(found)


def instant_of(event_id: str) -> Millis:
    stamp = event_id.rpartition(":")[2].partition("~")[0]
    return to_millis(datetime.fromisoformat(stamp))


def minutes(first: Millis, last: Millis) -> list[Millis]:
    """Whole minutes in (first, last]."""
    return list(range(first - first % MINUTE + MINUTE, last + 1, MINUTE))
