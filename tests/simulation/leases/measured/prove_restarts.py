"""The moves of rolling restarts, by the order of the restarts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.leases.profiles import PROFILES
from shared.leases.rows import MoveLimits

from .fleet import Measured

PROFILE = PROFILES["default"]
SERVERS, PARTITIONS = 8, 64
AWAY = 3.0


@pytest.fixture
def fleet() -> Iterator[Measured]:
    measured = Measured(PROFILE, SERVERS, PARTITIONS, limits=MoveLimits(moves_per_minute=10_000))
    measured.start_all()
    measured.run(20 * PROFILE.beat)
    measured.moves.clear()
    measured.watch.gaps.clear()
    yield measured
    measured.close()


def stop(fleet: Measured, name: str, *, keep: bool = False) -> None:
    node = fleet.nodes[name]
    node.keeper_state.stop(keep=keep)
    fleet.until(lambda: not node.running, 60 * PROFILE.beat)


def start(fleet: Measured, name: str) -> None:
    node = fleet.start(name)
    fleet.until(lambda: node.keeper_state.session is not None, 60 * PROFILE.beat)


def test_servers_that_stop_and_keep_their_partitions_move_none(fleet: Measured) -> None:
    fleet.disks.clear()
    for name in fleet.names:
        stop(fleet, name, keep=True)
        fleet.run(AWAY)
        # Without the proof in a folder.
        fleet.disks.clear()
        start(fleet, name)
        fleet.until(fleet.served, 4 * PROFILE.beat)
    assert fleet.moves.total() == 0
    # A start is spread over H/4, and needs a few requests.
    assert max(gap for _, gap, _ in fleet.watch.gaps) < AWAY + PROFILE.beat / 4 + 1


def test_with_a_spare_server_and_without_waits_each_partition_moves_once(fleet: Measured) -> None:
    start(fleet, "spare")
    for name in fleet.names:
        stop(fleet, name)
        if name != fleet.names[-1]:
            fleet.run(PROFILE.takeover + 2 * PROFILE.beat)
            start(fleet, name)
    fleet.until(fleet.balanced, 3600)
    assert fleet.moves.total() == PARTITIONS and max(fleet.moves.values()) == 1


def test_to_wait_for_balance_after_each_restart_moves_each_partition_about_twice(fleet: Measured) -> None:
    for name in fleet.names:
        stop(fleet, name)
        fleet.run(PROFILE.takeover + 2 * PROFILE.beat)
        start(fleet, name)
        fleet.until(fleet.balanced, 3600)
    assert 1.5 * PARTITIONS <= fleet.moves.total() <= 2 * PARTITIONS


def test_drains_to_the_server_that_came_back_move_each_partition_once_although_operators_wait_for_balance(fleet: Measured) -> None:
    fleet.control("prohibit", "spare")
    start(fleet, "spare")
    fleet.control("drain", "spare")
    fleet.control("permit", "spare")
    fleet.run(4 * PROFILE.beat)
    assert fleet.moves.total() == 0, "a drained spare server gets nothing"
    back = "spare"
    for name in fleet.names:
        fleet.control("drain", name, back)
        fleet.until(lambda name=name: fleet.served() and not fleet.shares()[name], 60 * PROFILE.beat)
        if name != fleet.names[-1]:
            stop(fleet, name)
            fleet.run(PROFILE.takeover + 2 * PROFILE.beat)
            start(fleet, name)
        # The operator waits, and the returned server stays empty until it is the next one's destination.
        fleet.run(8 * PROFILE.beat)
        assert fleet.shares()[name] == 0 and fleet.shares()[back] == PARTITIONS // SERVERS
        back = name
    assert fleet.moves.total() == PARTITIONS and max(fleet.moves.values()) == 1


def test_a_destination_that_dies_leaves_the_drained_server_s_partitions_to_the_others(fleet: Measured) -> None:
    first, second, *others = fleet.names
    fleet.control("drain", first, second)
    fleet.until(lambda: fleet.served() and not fleet.shares()[first], 60 * PROFILE.beat)
    fleet.run(4 * PROFILE.beat)
    assert fleet.shares()[second] == 2 * PARTITIONS // SERVERS, "a destination keeps what it was given"
    fleet.nodes[second].crash()
    fleet.until(lambda: sum(fleet.shares()[name] for name in others) == PARTITIONS, PROFILE.takeover + 4 * PROFILE.beat)
    assert fleet.shares()[first] == 0
