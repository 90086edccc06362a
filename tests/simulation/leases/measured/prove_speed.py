"""The time until partitions are served again, counted on virtual time: the same on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from shared.leases.node import standby
from shared.leases.profiles import PROFILES

from .fleet import Measured

PROFILE = PROFILES["default"]
SERVERS, PARTITIONS = 8, 64
QUIET = 70.0
"""Seconds after which what was ordered within a minute is forgotten."""


@pytest.fixture
def fleet() -> Iterator[Measured]:
    fleet = Measured(PROFILE, SERVERS, PARTITIONS, seed="speed")
    fleet.start_all()
    fleet.run(QUIET)
    yield fleet
    fleet.close()


def crash(fleet: Measured, name: str, when: float) -> list[float]:
    """End the process this many heartbeat intervals after its last heartbeat. Return the seconds without service, by partition."""
    fleet.run(PROFILE.beat * when)
    known = len(fleet.watch.gaps)
    fleet.nodes[name].crash()
    fleet.until(fleet.served, 4 * PROFILE.takeover)
    gaps = [gap for _, gap, _ in fleet.watch.gaps[known:]]
    fleet.start(name)
    fleet.until(lambda: name in fleet.shares() and fleet.balanced(), 60 * PROFILE.beat)
    return gaps


def test_after_a_crash_all_is_served_within_t_and_a_heartbeat_since_standbys_were_informed(fleet: Measured) -> None:
    crashes = [crash(fleet, name, place / SERVERS) for place, name in enumerate(fleet.names)]
    gaps = [gap for each in crashes for gap in each]
    assert len(gaps) >= PARTITIONS * 0.9
    # Without standby assignments it is half a heartbeat interval more, and orders that are read after the fencing.
    assert sum(max(each) for each in crashes) / len(crashes) <= PROFILE.takeover + PROFILE.beat / 4
    # The row is seen up to 1.1 beats after it was written, and the process may end right after that; four looks a second, and a claim.
    assert max(gaps) <= PROFILE.takeover + 1.1 * PROFILE.beat + 1.0


def test_a_server_that_returns_within_v_keeps_its_partitions_although_standbys_were_informed(fleet: Measured) -> None:
    moved = fleet.moves.total()
    for name in ("s000", "s005"):
        writes_before = fleet.world.store.transactions["write"]
        foreseen = sum(node.keeper_state.counts["foreseen"] for node in fleet.nodes.values())
        fleet.nodes[name].crash()
        fleet.until(lambda: sum(node.keeper_state.counts["foreseen"] for node in fleet.nodes.values()) > foreseen, PROFILE.validity)  # noqa: B023
        assert fleet.world.store.transactions["write"] > writes_before
        expecting = [node for node in fleet.nodes.values() if node.running]
        fleet.until(lambda: any(name in node.keeper_state.expected_servers() for node in expecting), 2 * PROFILE.beat)  # noqa: B023
        fleet.start(name)
        fleet.until(fleet.balanced, 10 * PROFILE.beat)
        fleet.run(QUIET)
    assert fleet.moves.total() == moved


def test_where_half_of_all_are_silent_no_standbys_are_informed(fleet: Measured) -> None:
    # All were seen alive in one look, and the other one that looks is among them.
    looks = fleet.nodes["s000"].keeper_state.counts
    seen = looks["scans"]
    fleet.until(lambda: looks["scans"] > seen, 2 * PROFILE.beat, every=0.01)
    fleet.run(0.05)
    for name in fleet.names[1 : 2 + SERVERS // 2]:
        fleet.nodes[name].crash()
    fleet.until(fleet.served, 3 * PROFILE.takeover)
    assert looks["fenced"] == SERVERS // 2 + 1 and not looks["foreseen"]


def test_a_profile_that_leaves_no_time_for_it_assigns_no_standbys(fleet: Measured) -> None:
    with patch.object(standby.rules, "MIN_MISSED", 4.0):
        assert max(crash(fleet, "s004", 0.5)) > 0
    assert not any(node.keeper_state.counts["foreseen"] for node in fleet.nodes.values())


def test_a_server_that_comes_has_its_share_within_two_beats(fleet: Measured) -> None:
    for _ in range(3):
        fleet.start("x")
        took = fleet.until(lambda: "x" in fleet.shares() and fleet.balanced(), 60 * PROFILE.beat)
        assert took <= 2 * PROFILE.beat
        fleet.run(QUIET)
        fleet.nodes["x"].keeper_state.stop()
        fleet.until(fleet.balanced, 60 * PROFILE.beat)
        fleet.run(QUIET)


def test_a_planned_hand_off_leaves_nothing_alone_for_more_than_a_second(fleet: Measured) -> None:
    known = len(fleet.watch.gaps)
    for name in ("s001", "s006"):
        fleet.nodes[name].keeper_state.stop()
        fleet.until(lambda: not fleet.nodes[name].running and fleet.served(), 60 * PROFILE.beat)  # noqa: B023
        fleet.start(name)
        fleet.until(lambda: name in fleet.shares() and fleet.balanced(), 60 * PROFILE.beat)  # noqa: B023
        fleet.run(QUIET)
    gaps = [gap for _, gap, _ in fleet.watch.gaps[known:]]
    assert len(gaps) >= 4 * (PARTITIONS // SERVERS)
    assert max(gaps) <= 1.0


def test_one_after_the_other_stopped_with_a_spare_server_moves_each_partition_once(fleet: Measured) -> None:
    joined = lambda name: lambda: fleet.nodes[name].keeper_state.session is not None  # noqa: E731
    moved = fleet.moves.total()
    fleet.start("spare")
    fleet.until(joined("spare"), PROFILE.takeover)
    for name in fleet.names:
        node = fleet.nodes[name]
        node.keeper_state.stop()
        fleet.until(lambda: not node.running, 60 * PROFILE.beat)  # noqa: B023
        if name != fleet.names[-1]:
            fleet.run(PROFILE.takeover + 2 * PROFILE.beat)
            fleet.start(name)
            fleet.until(joined(name), PROFILE.takeover)
    fleet.until(fleet.balanced, 60 * PROFILE.beat)
    assert fleet.moves.total() - moved == PARTITIONS
