"""Keepers and the watch after storage has lost writes that it had acknowledged."""

from __future__ import annotations

from typing import Any

import pytest

from shared.engine.validity import SentAt
from shared.leases import rules
from shared.leases.profiles import PROFILES
from shared.leases.rows import Partition, Server, join_holds, parse_partition, partition_key, server_key, split_holds
from shared.leases.rules import ServerSession
from shared.storage.blocking import run_through
from shared.storage.names import FLEETS

from .test_loops import KEY, FleetOf, H, T, V

PROFILE = PROFILES["default"]


@pytest.fixture
def fleet() -> FleetOf:
    return FleetOf()


def stored(fleet: FleetOf) -> list[Partition]:
    rows = [run_through(fleet.world.store.get(FLEETS, KEY, partition_key(number))) for number in range(fleet.partitions)]
    return [parse_partition(row) for row in rows if row is not None]


def go_back(fleet: FleetOf, rows: dict[str, Any]) -> None:
    fleet.world.store.go_back(FLEETS, KEY, rows)
    fleet.watch.rolled_back(stored(fleet), V / 0.99)


def epochs(fleet: FleetOf) -> dict[int, int]:
    return {row.number: row.epoch for row in stored(fleet)}


def test_servers_whose_rows_went_backwards_end_and_take_their_partitions_again_under_higher_epochs(fleet: FleetOf) -> None:
    a, b = fleet.shared("a", "b")
    copy = fleet.world.store.copy(FLEETS, KEY)
    a.keeper_state.drain(True)
    fleet.until(6 * H, lambda: fleet.has(b) == {0, 1, 2, 3})
    a.keeper_state.drain(False)
    fleet.until(12 * H, lambda: len(fleet.has(a)) == 2)
    acted = {**a.view.epochs, **b.view.epochs}
    go_back(fleet, copy)
    fleet.until(2 * H, lambda: not fleet.has(a) and not fleet.has(b))
    assert a.keeper_state.counts["rolled_back"] == b.keeper_state.counts["rolled_back"] == 1
    ended = fleet.now
    fleet.until(V + 3 * H, lambda: fleet.has(a) | fleet.has(b) == {0, 1, 2, 3})
    # The last server that acts on lost writes has stopped by then.
    assert fleet.now - ended > V - H
    assert all(epoch > acted[number] for number, epoch in epochs(fleet).items())
    assert a.running and b.running


def test_a_server_that_registered_after_the_copy_registers_again(fleet: FleetOf) -> None:
    [a] = fleet.shared("a")
    copy = fleet.world.store.copy(FLEETS, KEY)
    b = fleet.start("b")
    fleet.until(8 * H, lambda: len(fleet.has(b)) == 2)
    acted = dict(b.view.epochs)
    go_back(fleet, copy)
    fleet.until(2 * H, lambda: not fleet.has(b))
    assert b.keeper_state.counts["rolled_back"] == 1, "its row is missing"
    fleet.until(2 * V + 8 * H, lambda: len(fleet.has(a)) == len(fleet.has(b)) == 2)
    assert all(epochs(fleet)[number] > epoch for number, epoch in acted.items())


def test_a_server_whose_former_incarnation_is_back_waits_and_claims_under_higher_epochs(fleet: FleetOf) -> None:
    """It was restarted after the copy: its row shows the incarnation that it replaced."""
    [a] = fleet.shared("a")
    copy = fleet.world.store.copy(FLEETS, KEY)
    a.keeper_state.stop(keep=True)
    fleet.until(2 * H, lambda: not a.running)
    again = fleet.start("a")
    fleet.until(4 * H, lambda: len(fleet.has(again)) == 4)
    acted, stored_before = dict(again.view.epochs), epochs(fleet)
    assert acted == stored_before
    go_back(fleet, copy)
    fleet.until(2 * H, lambda: not fleet.has(again))
    ended = fleet.now
    fleet.until(T + V + 8 * H, lambda: len(fleet.has(again)) == 4)
    assert again.keeper_state.counts["rolled_back"] == 1
    assert fleet.now - ended > V - H
    assert all(epochs(fleet)[number] > epoch for number, epoch in acted.items())


def test_a_row_that_was_removed_long_after_its_end_is_no_rollback() -> None:
    """The watch removes rows of servers that were dead for a day: a machine that stood still finds nothing."""
    session = ServerSession(KEY, "a", "a1", confirmed=7, valid=SentAt(100.0))
    assert rules.read_back(session, None, "", 0, SentAt(100.0 + 86_400)) == "fenced"
    assert not session.rolled_back
    session = ServerSession(KEY, "a", "a1", confirmed=7, valid=SentAt(100.0))
    assert rules.read_back(session, None, "", 0, SentAt(101.0)) == "fenced"
    assert session.rolled_back


def test_a_namesake_that_took_over_is_no_rollback() -> None:
    session = ServerSession(KEY, "a", "a2", confirmed=7, valid=SentAt(100.0), replaced="a1")
    assert rules.read_back(session, Server("a", "live", "a3", 1), "e", 1, SentAt(101.0)) == "fenced"
    assert not session.rolled_back


def test_a_row_went_backwards_when_its_beat_or_its_time_is_lower_than_before() -> None:
    session = ServerSession(KEY, "a", "a1", confirmed=7, written=1_000_000)
    row = Server("a", "live", "a1", 7)
    assert not rules.went_backwards(session, row, 1_000_000)
    assert not rules.went_backwards(session, row, 1_000_000 - rules.CLOCK_STEP), "storage's clocks may differ a little"
    assert rules.went_backwards(session, row, 1_000_000 - rules.CLOCK_STEP - 1)
    assert rules.went_backwards(session, Server("a", "live", "a1", 6), 1_000_001)


def test_each_heartbeat_lists_what_the_server_holds(fleet: FleetOf) -> None:
    a, b = fleet.shared("a", "b")
    for node in (a, b):
        assert split_holds(fleet.server(node.server).holds) == fleet.has(node)
    assert (join_holds([1, 4, 5]), split_holds("32"), split_holds("0"), split_holds("")) == ("32", {1, 4, 5}, frozenset(), None)
    assert server_key("a") == "s:a"
