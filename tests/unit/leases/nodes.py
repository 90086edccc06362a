"""Fleets in memory that the app looks after, and servers whose beats a test makes one by one: they do what their rows tell them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shared.core.clock import SettableClock
from shared.core.errors import Problem
from shared.core.pressure import PressureGauge
from shared.engine.async_runner import AsyncRunner
from shared.engine.effects import Steps, load_rows
from shared.fleets.watch.service import FleetWatch
from shared.leases.protocol import membership, takeover
from shared.leases.protocol.membership import BeatApplied, IncarnationFenced, Registered, ServerReport
from shared.leases.rows import (
    FLEET,
    INDEX,
    INTENTS,
    NO_PARTITION,
    PARTITIONS,
    Fleet,
    Intent,
    Partition,
    Server,
    fleet_key,
    parse_fleet,
    parse_intent,
    parse_partition,
    parse_server,
    partition_key,
    server_key,
)
from shared.leases.rules import ServerSession
from shared.leases.service.control.service import ManualControls
from shared.leases.service.control.verbs import ControlRequest
from shared.leases.service.planning import Planning
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES, FLEETS
from shared.storage.ports import ANY, Applied, Delete, Insert, Merge, RowQuery, Upsert

TENANT = "demo"
T = 18.0
"""The default profile's."""
NOTIFY = '{"notify": {"channel": "ops", "kinds": ["stale", "dead"]}}'


class Channel:
    """Takes the app's events in; `fails`: what it raises instead."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.told = 0
        self.fails: Exception | None = None

    async def __call__(self, tenant: str, content: Mapping[str, Any]) -> None:
        self.told += 1
        if self.fails is not None:
            raise self.fails
        assert tenant == TENANT
        event = dict(content)
        known = self.events.setdefault(event["id"], event)
        if known != event:
            raise Problem(409, "id-conflict", "the id names an event with other content")


class World:
    """The app's part over storage in memory, on a clock that the test moves."""

    def __init__(self, *, clock: SettableClock | None = None, tables: MemoryTables | None = None, channel: Channel | None = None) -> None:
        """Another instance of the app shares what is given."""
        self.clock = clock or SettableClock()
        self.tables = tables if tables is not None else MemoryTables(self.clock)
        self.channel = channel or Channel()
        self.runner = AsyncRunner(self.tables, self.clock)
        planning = Planning(self.runner)
        self.control = ManualControls(self.runner, planning, self.clock)
        self.pressure = PressureGauge(self.clock.monotonic)
        self.watch = FleetWatch(self.runner, planning, self.channel, pressure=self.pressure)

    async def open(self) -> World:
        await self.tables.ensure(ALL_TABLES)
        return self

    async def fleet(self, name: str = "fleet", partitions: int = 4, **options: Any) -> str:
        """Create a fleet and return its key."""
        key = fleet_key(TENANT, name)
        await self.tables.write(FLEETS, INDEX, [Insert(key, {"created": self.clock.now(), "ending": False})])
        assert await self.runner.run(takeover.create_fleet(key, Fleet(partitions, **options)))
        return key

    async def drive[R](self, steps: Steps[R]) -> R:
        return await self.runner.run(steps)

    async def scan(self) -> Counter[str]:
        return +await self.watch.takeover.run_once(self.clock.now())

    async def inspect(self) -> Counter[str]:
        return +await self.watch.inspect.run_once(self.clock.now())

    async def say(self, verb: Any, partition: int = NO_PARTITION, server: str = "", fleet: str = "fleet", **more: Any) -> Intent:
        word = ControlRequest(verb, partition, server, more.pop("note", "why"), "abc", self.clock.now(), **more)
        return (await self.control.apply(TENANT, fleet, word)).intent

    async def row(self, key: str) -> Fleet:
        found = await self.tables.get(FLEETS, key, FLEET)
        assert found is not None
        return parse_fleet(found.props)

    async def intents(self, key: str) -> list[Intent]:
        return [parse_intent(row.props) for row in await load_rows(self.tables, RowQuery(FLEETS, key, *INTENTS))]

    async def server(self, key: str, name: str) -> Server:
        row = await self.tables.get(FLEETS, key, server_key(name))
        assert row is not None
        return parse_server(row)

    async def partition(self, key: str, number: int) -> Partition:
        row = await self.tables.get(FLEETS, key, partition_key(number))
        assert row is not None
        return parse_partition(row)

    async def owners(self, key: str) -> dict[int, str]:
        """Return the owners by the rows, whether they are alive or not."""
        rows = await load_rows(self.tables, RowQuery(FLEETS, key, *PARTITIONS))
        return {partition.number: partition.owner for partition in map(parse_partition, rows) if partition.owner}

    async def lose(self, key: str, number: int) -> None:
        await self.tables.write(FLEETS, key, [Delete(partition_key(number), ANY)])

    async def put_fleet(self, key: str, **change: Any) -> None:
        await self.tables.write(FLEETS, key, [Upsert(FLEET, replace(await self.row(key), **change).props())])


class Node:
    """A server that follows its orders, with one heartbeat at each call. scans: the value in its row."""

    def __init__(self, world: World, key: str, name: str, *, scans: bool = False) -> None:
        self.world, self.key, self.name, self.scans = world, key, name, scans
        self.life = 0
        self.session = ServerSession(key, name, "")
        self.report = ServerReport()

    async def join(self) -> Node:
        self.life += 1
        self.session = ServerSession(self.key, self.name, f"{self.name}{self.life}", generation=(await self.world.row(self.key)).generation)
        found = await self.world.drive(membership.register(self.session, self.report, None, (), T))
        assert found == Registered(), found
        kind = await self.world.tables.write(FLEETS, self.key, [Merge(server_key(self.name), {"scans": self.scans}, ANY)])
        assert isinstance(kind, Applied)
        self.session.etag = kind.etags[0]
        return self

    @property
    def has(self) -> set[int]:
        return set(self.session.held)

    async def beat(self, times: int = 1) -> None:
        """Send a heartbeat, and another at once each time the row contained something new."""
        for _ in range(times):
            while not await self._once():
                pass

    async def _once(self) -> bool:
        session = self.session
        drop = [number for number in session.drop if number in session.held]
        for number in drop:
            session.leaving[number] = session.held.pop(number)
        take = [] if drop else [number for number in session.take if number not in session.held]
        claims = await self.world.drive(takeover.scout(session, take)) if take else []
        found = await self.world.drive(membership.beat(session, self.report, "live", claims, drop, self.world.clock.now()))
        assert not isinstance(found, IncarnationFenced), f"{self.name} is fenced"
        if not isinstance(found, BeatApplied):
            session.held.update({number: session.leaving.pop(number) for number in drop if number in session.leaving})
        return isinstance(found, BeatApplied)


async def settle(*nodes: Node, rounds: int = 4) -> None:
    """Have all of them beat in turn until orders that are given now are carried out."""
    for _ in range(rounds):
        for node in nodes:
            await node.beat()


async def live(world: World, seconds: float, *nodes: Node, scan: bool = True) -> Counter[str]:
    """Let time pass: nodes beat every 5 s, the timers tick every 15 s and every minute."""
    counts: Counter[str] = Counter()
    for step in range(1, round(seconds / 5) + 1):
        await world.clock.advance(5)
        for node in nodes:
            await node.beat()
        if scan and step % 3 == 0:
            counts += await world.scan()
        if scan and step % 12 == 0:
            counts += await world.inspect()
    return counts


async def pair(world: World, **options: Any) -> tuple[str, Node, Node]:
    """Two servers that share four partitions."""
    key = await world.fleet(**options)
    a, b = await Node(world, key, "a").join(), await Node(world, key, "b").join()
    await world.scan()
    await settle(a, b)
    assert (len(a.has), len(b.has)) == (2, 2)
    return key, a, b
