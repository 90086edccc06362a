"""A fleet on virtual time that is to be measured: a well-behaved network, many servers, the app's timers beside them.

The benchmark and the test of what a fleet costs use it; nothing here breaks on purpose but what they ask for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from shared.engine.async_runner import AsyncRunner
from shared.engine.thread_runner import ThreadRunner
from shared.fleets.watch.service import FleetWatch as AppWatch
from shared.leases.model import AnyVerb
from shared.leases.profiles import Profile
from shared.leases.protocol import takeover
from shared.leases.rows import INDEX, NO_PARTITION, PARTITIONS, Fleet, MoveLimits, fleet_key
from shared.leases.service.control.service import ManualControls
from shared.leases.service.control.verbs import ControlRequest
from shared.leases.service.planning import Planning
from shared.storage.blocking import MemoryBlockingTables, run_through
from shared.storage.names import ALL_TABLES, FLEETS
from shared.storage.ports import Insert, Op, Replace

from ..node import Disk, Node
from ..watch import Watch
from ..world import Host, Weather, World

KEY = fleet_key("t", "f")
AZURE = Weather(delay=(0.0025, 0.015), slow=0.01, slow_up_to=0.3)
"""Requests of 5 to 30 ms, one in a hundred of up to 300."""
SCAN_EVERY, INSPECT_EVERY = 15.0, 60.0
"""Seconds between ticks of the app's two timers."""


class _Silence:
    """Discard alarms."""

    async def __call__(self, tenant: str, content: Mapping[str, Any]) -> None:
        raise AssertionError("the fleet has no channel for its alarms")


class Measured:
    """One fleet. app: whether the app's timers look at it, too.

    counts: moves (claims by another server than the one before), claims.
    """

    def __init__(
        self, profile: Profile, servers: int, partitions: int, *, seed: object = 0, limits: MoveLimits | None = None, app: bool = True
    ) -> None:
        self.profile, self.partitions = profile, partitions
        self.world = World(f"fleet {seed}", traced=False)
        run_through(self.world.store.ensure(ALL_TABLES))
        run_through(self.world.store.write(FLEETS, INDEX, [Insert(KEY, {"created": self.world.time.now(), "ending": False})]))
        rows = Fleet(partitions, profile, limits if limits is not None else MoveLimits(drain=min(10.0, profile.validity / 2)))
        assert ThreadRunner(MemoryBlockingTables(self.world.store), self.world.time.monotonic, 1.0).run(takeover.create_fleet(KEY, rows))
        self.world.weather = AZURE
        self.watch = Watch(self.world)
        self.world.store.listeners.append(self._applied)
        self.names = [f"s{number:03d}" for number in range(servers)]
        self.nodes: dict[str, Node] = {}
        self.disks: dict[str, Disk] = {}
        self.moves: Counter[int] = Counter()
        """Claims of each partition by another server than the one before."""
        self._had: dict[int, str] = {}
        self._app = app
        if app:
            self._loop = asyncio.new_event_loop()
            runner = AsyncRunner(self.world.store, self.world.time)
            planning = Planning(runner)
            self._controls = ManualControls(runner, planning, self.world.time)
            self._timers = AppWatch(runner, planning, _Silence())
            self._every(SCAN_EVERY, lambda: self._timers.takeover.run_once(self.world.time.now()))
            self._every(INSPECT_EVERY, lambda: self._timers.inspect.run_once(self.world.time.now()))

    def close(self) -> None:
        """End the app's part."""
        if self._app:
            self._loop.close()

    def _every(self, seconds: float, tick: Callable[[], Coroutine[Any, Any, object]]) -> None:
        def run() -> None:
            self._loop.run_until_complete(tick())
            self.world.at(self.world.time.seconds + seconds, run)

        self.world.at(seconds * self.world.random.random(), run)

    def _applied(self, table: str, pk: str, ops: Sequence[Op]) -> None:
        if table != FLEETS:
            return
        for op in ops:
            if op.rk.startswith(PARTITIONS[0]) and isinstance(op, Insert | Replace) and op.props["owner"]:
                number, owner = int(op.rk[2:]), str(op.props["owner"])
                self.moves[number] += self._had.get(number, owner) != owner
                self._had[number] = owner

    # -- servers

    def start(self, name: str) -> Node:
        """A process of that name, on the machine it always had."""
        node = Node(self.world, KEY, name, Host(self.world, name), self.profile, self.watch.seen, disk=self.disks.setdefault(name, Disk()))
        self.nodes[name] = node
        node.start()
        return node

    def start_all(self) -> None:
        """All at about once, as a deployment does; then until each has its share."""
        beat = self.profile.beat
        for name in self.names:
            self.world.at(self.now + beat * self.world.random.random(), self.start, name)
        self.run(2 * beat)
        self.until(self.balanced, 60 * beat)

    @property
    def now(self) -> float:
        """True seconds."""
        return self.world.time.seconds

    def run(self, seconds: float) -> None:
        """Continue for this many seconds."""
        self.world.run(self.now + seconds)

    def until(self, satisfied: Callable[[], bool], most: float, every: float = 0.1) -> float:
        """Go on until then; the seconds that it took. TimeoutError after `most` seconds."""
        began = self.now
        if not self.world.run(began + most, satisfied, every):
            raise TimeoutError(f"not after {most:.0f} s of virtual time: shares {sorted(self.shares().values())}")
        return self.now - began

    def control(self, verb: AnyVerb, server: str, to: str | None = None) -> None:
        """Apply an operator's control of a server, as the app does."""
        request = ControlRequest(verb, NO_PARTITION, server, "a restart", "tsn_abc", self.world.time.now(), to=to)
        self._loop.run_until_complete(self._controls.apply("t", "f", request))

    # -- what is so now

    def shares(self) -> dict[str, int]:
        """Partitions that each running server serves."""
        return {
            name: len(node.view.epochs) if node.host.steady() < node.view.until else 0
            for name, node in self.nodes.items()
            if node.running and not node.keeper_state.stopping
        }

    @property
    def spread(self) -> int:
        """The most that a server has, less the fewest."""
        shares = self.shares().values()
        return max(shares) - min(shares)

    def served(self) -> bool:
        """Return whether each partition is served."""
        return sum(self.shares().values()) == self.partitions

    def balanced(self) -> bool:
        """Return whether each partition is served, and shares are equal."""
        return self.served() and self.spread <= 1

    def cost(self, seconds: float) -> Counter[str]:
        """Transactions and entities in this number of seconds, as the store counts them: get, query, write, rows_read, rows_written."""
        before = Counter(self.world.store.transactions)
        self.run(seconds)
        return self.world.store.transactions - before
