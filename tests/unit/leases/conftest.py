"""A fleet in memory, a clock that stands still until it is moved, and storage that can lose answers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

import pytest

from shared.core.clock import SettableClock, SystemClock, steady
from shared.core.errors import OutcomeUnknown, Unavailable
from shared.engine.effects import Steps
from shared.engine.thread_runner import ThreadRunner
from shared.leases.profiles import Profile
from shared.leases.protocol import takeover
from shared.leases.rows import Fleet, MoveLimits, Partition, Server, fleet_key, parse_partition, parse_server, partition_key, server_key
from shared.storage.blocking import MemoryBlockingTables, run_through
from shared.storage.memory import MemoryTables
from shared.storage.names import FLEETS
from shared.storage.ports import Applied, Op, Page, Row, RowQuery, WriteRefused

KEY = fleet_key("default", "fleet")
T = 18.0


class FaultyTables(MemoryBlockingTables):
    """`faults`: what the next writes do: `lost` applies and loses the answer, `gone` loses the request, `away` refuses to connect, ''
    works. `down` lets nothing through. `odd`: what is raised instead of each request it names. `unread`: keys of rows that cannot be read
    one by one, nor written."""

    def __init__(self, tables: MemoryTables) -> None:
        super().__init__(tables)
        self.faults: deque[str] = deque()
        self.down = False
        self.odd: dict[str, Exception] = {}
        self.unread: set[str] = set()
        self.writes = 0

    def get(self, table: str, pk: str, rk: str, *, timeout: float) -> Row | None:
        self._check("get", rk)
        return super().get(table, pk, rk, timeout=timeout)

    def query(self, query: RowQuery, *, timeout: float) -> Page:
        self._check("query")
        return super().query(query, timeout=timeout)

    def write(self, table: str, pk: str, ops: Sequence[Op], *, timeout: float) -> Applied | WriteRefused:
        self._check("write", *(op.rk for op in ops))
        self.writes += 1
        fault = self.faults.popleft() if self.faults else ""
        if fault == "away":
            raise Unavailable("not reached")
        if fault == "gone":
            raise OutcomeUnknown("the request is lost")
        found = super().write(table, pk, ops, timeout=timeout)
        if fault == "lost":
            raise OutcomeUnknown("the answer is lost")
        return found

    def _check(self, kind: str, *keys: str) -> None:
        if kind in self.odd:
            raise self.odd[kind]
        if self.down or not self.unread.isdisjoint(keys):
            raise Unavailable("not reached")


class Bench:
    """A fleet whose steps are driven one by one, on a clock of the test's own."""

    def __init__(self, partitions: int = 2) -> None:
        self.clock = SettableClock()
        self.memory = MemoryTables(self.clock)
        run_through(self.memory.ensure([FLEETS, "Data"]))
        self.tables = FaultyTables(self.memory)
        self.moment = 0.0
        self.runner = ThreadRunner(self.tables, lambda: self.moment, 1.0)
        assert self.drive(takeover.create_fleet(KEY, Fleet(partitions)))

    def drive[R](self, steps: Steps[R]) -> R:
        return self.runner.run(steps)

    def server(self, name: str) -> Server:
        row = run_through(self.memory.get(FLEETS, KEY, server_key(name)))
        assert row is not None
        return parse_server(row)

    def partition(self, number: int) -> Partition:
        row = run_through(self.memory.get(FLEETS, KEY, partition_key(number)))
        assert row is not None
        return parse_partition(row)


@pytest.fixture
def bench() -> Bench:
    return Bench()


QUICK = Profile(0.2, 0.6, 1.7)


def quick_fleet(partitions: int, profile: Profile = QUICK, **limits: int) -> FaultyTables:
    """Storage with a fleet whose durations are fractions of a second, for keepers on real threads."""
    memory = MemoryTables(SystemClock())
    run_through(memory.ensure([FLEETS]))
    tables = FaultyTables(memory)
    fleet = Fleet(partitions, profile, MoveLimits(claims_per_cycle=limits.get("claims", 100), drain=0.5))
    assert ThreadRunner(tables, steady, 1).run(takeover.create_fleet(KEY, fleet))
    return tables


def until(look: Callable[[], object], what: str) -> None:
    """Wait for a condition; 20 s are for a machine that does much else."""
    pause = threading.Event()
    for _ in range(2000):
        if look():
            return
        pause.wait(0.01)
    raise AssertionError(what)
