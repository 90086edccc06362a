"""The loop that looks, where single requests fail."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.errors import StorageError
from shared.engine.effects import Wait, Work
from shared.engine.thread_runner import ThreadRunner
from shared.leases.node.keeper_state import KeeperState
from shared.leases.node.scan_loop import ScanLoop
from shared.leases.profiles import Profile
from shared.leases.rows import Fleet, Partition, Server, partition_key, server_key
from shared.leases.rules import ServerSession
from shared.storage.blocking import run_through
from shared.storage.names import FLEETS
from shared.storage.ports import Insert, Merge, Replace, RowQuery

from ..conftest import KEY, Bench, FaultyTables

NAMES, H = "abcd", 1.0


class Looking:
    """The scanner of server `a`, and what it may read."""

    def __init__(self) -> None:
        self.bench = Bench(8)
        for name in NAMES:
            run_through(self.bench.memory.write(FLEETS, KEY, [Insert(server_key(name), Server(name, "live", name, 1).props())]))
        self.tables = FaultyTables(self.bench.memory)
        self.keeper_state = KeeperState(lambda: self.bench.moment)
        self.keeper_state.fleet, self.keeper_state.session = Fleet(8, Profile(H, 3, 4.1)), ServerSession(KEY, "a", "a")
        self.steps = ScanLoop(KEY, "a", self.keeper_state, lambda: self.bench.moment, lambda: 0, lambda: 0.5).run()
        self.runner = ThreadRunner(self.tables, lambda: self.bench.moment, 1)

    def _rounds(self) -> Work[None]:
        """Run the scanner up to its next wait."""
        effect = next(self.steps)
        while not isinstance(effect, Wait):
            try:
                answer = yield effect
            except StorageError as error:
                effect = self.steps.throw(error)
            else:
                effect = self.steps.send(answer)
        self.bench.moment = max(self.bench.moment, effect.until)

    def plan(self) -> None:
        """Go on until it has planned once more."""
        plans = self.keeper_state.counts["plans"]
        for _ in range(100):
            self.runner.run(self._rounds())
            if self.keeper_state.counts["plans"] > plans:
                return
        raise AssertionError("no plan")

    def ordered(self) -> list[int]:
        return [len(self.bench.server(name).take) for name in NAMES]


def test_an_order_that_is_lost_keeps_no_other_waiting_and_is_given_soon() -> None:
    looking = Looking()
    looking.tables.unread.add(server_key("b"))
    looking.plan()
    assert looking.ordered() == [0, 0, 2, 2] and looking.keeper_state.counts["failed"] == 1
    own = looking.keeper_state.take_plan()
    assert own is not None and len(own.take) == 2
    looking.tables.unread.clear()
    then = looking.bench.moment
    looking.plan()
    assert looking.ordered() == [0, 2, 2, 2] and looking.bench.moment - then <= H


def test_a_plan_is_given_up_when_most_orders_are_lost() -> None:
    looking = Looking()
    looking.tables.unread |= {server_key(name) for name in "bcd"}
    looking.plan()
    assert looking.ordered() == [0, 0, 0, 0] and looking.keeper_state.counts["orders_refused"] == 0
    looking.tables.unread.clear()
    looking.plan()
    assert looking.ordered() == [0, 2, 2, 2]


def test_all_orders_of_a_plan_are_given_at_once_and_none_that_stands_is_given_again() -> None:
    looking = Looking()
    looking.plan()
    assert looking.ordered() == [0, 2, 2, 2] and looking.tables.writes == 1
    looking.keeper_state.request_plan()
    looking.plan()
    assert looking.tables.writes == 1


def test_orders_that_are_refused_together_are_given_one_by_one() -> None:
    looking = Looking()
    # `c` beats while the plan is made.
    beaten = looking.tables.query

    def query(asked: RowQuery, *, timeout: float) -> Any:
        page = beaten(asked, timeout=timeout)
        run_through(looking.bench.memory.write(FLEETS, KEY, [Merge(server_key("c"), {"beat": 9}, "*")]))
        return page

    looking.tables.query = query  # type: ignore[method-assign]
    looking.plan()
    assert looking.ordered() == [0, 2, 2, 2] and looking.keeper_state.counts["orders_refused"] == 0
    assert looking.bench.server("c").beat == 9


def test_rows_that_cannot_be_read_stop_no_look_and_what_they_are_about_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    looking = Looking()
    owned = Partition(3, "b", "b", 1).props()
    odd = [Merge(server_key("b"), {"beat": "many"}, "*"), Merge(partition_key(5), {"epoch": "high"}, "*")]
    run_through(looking.bench.memory.write(FLEETS, KEY, [Replace(partition_key(3), owned, "*"), *odd]))
    looking.plan()
    own = looking.keeper_state.take_plan()
    assert own is not None
    ordered = {*own.take, *looking.bench.server("c").take, *looking.bench.server("d").take}
    assert ordered == {0, 1, 2, 4, 6, 7}
    errors = [record for record in caplog.records if getattr(record, "action", "") == "lease_rows_unreadable"]
    assert len(errors) == 1 and "p:00005, s:b" in errors[0].getMessage()
    looking.keeper_state.request_plan()
    looking.plan()
    assert not looking.keeper_state.counts["failed"] and len(caplog.records) == len(errors)


def test_a_free_partition_is_looked_for_again_soon_after_a_look_that_failed() -> None:
    looking = Looking()
    looking.plan()
    looking.keeper_state.set_wanted([5], 1e9)
    looking.tables.unread |= {partition_key(5)}
    failed, then = looking.keeper_state.counts["failed"], looking.bench.moment
    while looking.keeper_state.counts["failed"] < failed + 3:
        looking.runner.run(looking._rounds())
    assert looking.bench.moment - then <= H
    looking.tables.unread.clear()
    while not looking.keeper_state.offered_claims(1):
        looking.runner.run(looking._rounds())
    assert looking.bench.moment - then <= 1.25 * H
