"""Storage that is slower than every time-out for a minute, under events with ordering keys that two processes deliver: does the load that
the app makes fall again, or do repeated requests keep storage busy?

Storage serves its requests one after the other at a fixed rate, also those whose callers have given up. Each process calls it as
`storage.azure.transport` does: so many open requests at most, a time-out, and repetitions of what may be repeated. Time is virtual; code
and rows are the app's own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from shared.app.application import Application, build
from shared.core import backoff
from shared.core.clock import to_text
from shared.core.errors import OutcomeUnknown, Unavailable
from shared.delivery.channels.model import KeyLimits, QueueChannel
from shared.scheduler.rules import FINAL
from shared.storage import Storage
from shared.storage.azure.transport import TransportPolicy
from shared.storage.names import EVENTS
from shared.storage.ports import TableRequest, Write

from ..history import World, quietly
from .api import call
from .instance import Instance
from .outage import Line, Platform
from .storage import SimQueues, SimTables

TICK = 15.0
"""Seconds between two sweeps while events are under way."""


@dataclass(frozen=True, slots=True)
class Overload:
    """The load and the trouble. Times in seconds.

    events: with `keys` ordering keys, due evenly over `spread` from `FIRST_DUE` on. per_second: requests that storage serves. begins,
    lasts: of the trouble. slow: what each request takes longer then. starved: requests that storage serves a second then.
    """

    seed: int = 1
    events: int = 300
    keys: int = 60
    spread: float = 240.0
    per_second: float = 400.0
    begins: float = 180.0
    lasts: float = 60.0
    slow: float = 12.0
    starved: float = 400.0
    instances: int = 2
    policy: TransportPolicy = field(default_factory=TransportPolicy)


FIRST_DUE = 60.0
WATCHED = 900.0
"""Seconds after the trouble for which open events are waited for."""


@dataclass(slots=True)
class Figures:
    """The result. Seconds are of virtual time, from the beginning."""

    requests: Counter[int] = field(default_factory=Counter)
    """Requests that reached storage, by second."""
    delivered: dict[str, float] = field(default_factory=dict)
    """Seconds of the first delivery of each event."""
    settled: float = 0.0
    """The moment from which no event is open."""

    def mean(self, first: float, last: float) -> float:
        """Return the mean number of requests a second of a span."""
        return sum(self.requests[second] for second in range(int(first), int(last))) / (last - first)


class Server:
    """Storage's side: serves requests in their order at a rate."""

    def __init__(self, world: World, asked: Overload, figures: Figures) -> None:
        self._world, self._asked, self._figures = world, asked, figures
        self.policy = asked.policy
        self._free = 0.0

    async def turn(self) -> None:
        """Wait until the request is served."""
        now, asked = self._world.loop.now, self._asked
        self._figures.requests[int(now)] += 1
        trouble = asked.begins <= now < asked.begins + asked.lasts
        self._free = max(self._free, now) + 1 / (asked.starved if trouble else asked.per_second)
        slow = asked.slow if trouble else 0.0
        await asyncio.sleep(self._free - now + slow)


class BusyTables(SimTables):
    """A process's tables behind the server and the policy of the transport."""

    def __init__(self, instance: Instance, tables: Any, server: Server) -> None:
        super().__init__(instance, tables)
        self._server = server
        self._connections = asyncio.Semaphore(server.policy.connections)
        self._abandoned: set[asyncio.Future[Any]] = set()

    async def perform(self, request: TableRequest) -> Any:
        parent = super().perform
        if not isinstance(request, Write):
            return await self._repeated(lambda: parent(request))
        try:
            return await self._exchange(lambda: parent(request))
        except TimeoutError:
            raise OutcomeUnknown("no answer within the time-out") from None

    async def _repeated[T](self, perform: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call that may be repeated, as the transport does."""
        loop, random, policy = self._world.loop, self._world.random, self._server.policy
        began, attempt = loop.now, 1
        while True:
            try:
                return await self._exchange(perform)
            except TimeoutError:
                wait = random.random() * backoff.exponential(policy.base, attempt - 1, policy.cap)
                if attempt >= policy.attempts or loop.now - began + wait > policy.total:
                    raise Unavailable("no answer within the time-outs") from None
                attempt += 1
                await asyncio.sleep(wait)

    async def _exchange[T](self, perform: Callable[[], Awaitable[T]]) -> T:
        async with asyncio.timeout(self._server.policy.request):
            async with self._connections:
                served = asyncio.ensure_future(self._served(perform))
                self._abandoned.add(served)
                served.add_done_callback(self._forget)
                # Storage does not hear that its caller gives up.
                return await asyncio.shield(served)

    def _forget(self, served: asyncio.Future[Any]) -> None:
        self._abandoned.discard(served)
        if not served.cancelled():
            served.exception()

    async def _served[T](self, perform: Callable[[], Awaitable[T]]) -> T:
        await self._server.turn()
        return await perform()


class OverloadWorld(World):
    """Instances whose tables share one server."""

    server: Server

    def application(self, instance: Instance) -> Application:
        tables = BusyTables(instance, self.tables, self.server) if instance.faulty else SimTables(instance, self.tables)
        return build(self.settings, self.ports(instance, Storage(tables, SimQueues(instance), server_times=(tables.server_time,))))


def play(asked: Overload) -> Figures:
    """Play until every event has ended, at most `WATCHED` after the trouble."""
    world, figures = OverloadWorld(asked.seed, "none"), Figures()
    world.server = Server(world, asked, figures)
    profile = world.profile
    profile.latency, profile.instances, profile.tenants, profile.skew, profile.drift = 0.002, 0, 1, 0, 0.0
    profile.events_per_second = profile.open_events = None
    world.note = lambda *_: None  # type: ignore[method-assign]
    line = Line(world, 0.05)
    world.receiver = line  # type: ignore[assignment]
    with quietly(99):
        return world.script(_story(world, asked, line, figures))


async def _story(world: OverloadWorld, asked: Overload, line: Line, figures: Figures) -> Figures:
    world.host = platform = Platform(world, one_by_one=False)
    keeper = await world.open()
    await keeper.app.directory.channels.put("t0", "default", QueueChannel(type="queue", queue="sink", per_key=KeyLimits(ordered=True)))
    dues = [world.start + round(1000 * (FIRST_DUE + asked.spread * number / asked.events)) for number in range(asked.events)]
    body = [{"id": f"e{n}", "due": to_text(due), "payload": n, "ordering_key": f"k{n % asked.keys}"} for n, due in enumerate(dues)]
    answer = await call(keeper, "events_batch", "t0", body=orjson.dumps(body))
    assert answer.body["accepted"] == asked.events, answer.body
    keeper.app.leave()
    instances = [platform.start() for _ in range(asked.instances)]
    for instance in instances:
        platform.run(instance)
    timer = world.loop.create_task(platform.sweep(instances, TICK))
    end = asked.begins + asked.lasts + WATCHED
    while world.loop.now < end and any(row.rk.startswith("e") and row.props["state"] not in FINAL for row in world.rows(EVENTS)):  # noqa: ASYNC110
        await asyncio.sleep(1.0)
    figures.settled = world.loop.now
    await asyncio.sleep(120.0)
    timer.cancel()
    for arrival in line.arrivals:
        figures.delivered.setdefault(arrival.id, (arrival.at - world.start) / 1000)
    return figures
