"""The loop that looks, where single requests fail."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import Unavailable
from shared.leases.desk import Desk
from shared.leases.driver import Driver
from shared.leases.rows import Fleet, Server, server_key
from shared.leases.rules import Session
from shared.leases.scanner import Scanner
from shared.storage.blocking import run_through
from shared.storage.memory import MemoryTables
from shared.storage.names import FLEETS
from shared.storage.ports import Insert

from .conftest import KEY, Bench, FaultyTables

NAMES = "abcd"


class Unread(FaultyTables):
    """`unread`: row keys that cannot be read one by one."""

    def __init__(self, tables: MemoryTables) -> None:
        super().__init__(tables)
        self.unread: set[str] = set()

    def get(self, table: str, pk: str, rk: str, **options: Any) -> Any:
        if rk in self.unread:
            raise Unavailable("not reached")
        return super().get(table, pk, rk, **options)


class Looking:
    """The scanner of server `a`, and what it may read."""

    def __init__(self) -> None:
        self.bench = Bench(8)
        for name in NAMES:
            run_through(self.bench.memory.write(FLEETS, KEY, [Insert(server_key(name), Server(name, "live", name, 1).props())]))
        self.tables = Unread(self.bench.memory)
        self.desk = Desk(lambda: self.bench.moment)
        self.desk.fleet, self.desk.session = Fleet(8), Session(KEY, "a", "a")
        self.scanner = Scanner(KEY, "a", self.desk, lambda: self.bench.moment, lambda: 0, lambda: 0.5)
        self.driver = Driver(self.tables, lambda: self.bench.moment, 1)

    def plan(self) -> None:
        self.driver.drive(self.scanner._plan(self.bench.moment))

    def told(self) -> list[int]:
        return [len(self.bench.server(name).take) for name in NAMES]


def test_an_order_that_is_lost_keeps_no_other_waiting_and_is_given_soon() -> None:
    looking = Looking()
    looking.tables.unread.add(server_key("b"))
    looking.plan()
    assert looking.told() == [0, 0, 2, 2] and looking.desk.counts["failed"] == 1
    own = looking.desk.orders()
    assert own is not None and len(own.take) == 2
    assert looking.scanner._due and looking.scanner._next_scan <= looking.desk.fleet.profile.beat / 4
    looking.tables.unread.clear()
    looking.plan()
    assert looking.told() == [0, 2, 2, 2] and not looking.scanner._due


def test_a_plan_is_given_up_when_most_orders_are_lost() -> None:
    looking = Looking()
    looking.tables.unread |= {server_key(name) for name in "bcd"}
    with pytest.raises(Unavailable):
        looking.plan()
    assert looking.told() == [0, 0, 0, 0]


def test_a_free_partition_is_looked_for_again_soon_after_a_look_that_failed() -> None:
    looking = Looking()
    looking.scanner._next_scan = 1e9
    looking.desk.want([5], 1e9)
    steps = looking.scanner.run()
    effect, asked = next(steps), 0
    looking.scanner._next_scan = 1e9
    looking.scanner._incarnation = "a"
    while not hasattr(effect, "until"):
        asked += 1
        effect = steps.throw(Unavailable("not reached"))
    assert asked == 1 and effect.until - looking.bench.moment <= looking.desk.fleet.profile.beat / 4
    steps.close()
