"""Agents and app together, each by its production rules, in the wire's own words: lost answers, restarts, partitions, holds, approvals."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

import pytest

from shared.maintenance.rule_settings import FleetRule, MaintenanceSettings
from tests.unit.maintenance.joint_fleet import START, Fleet

SEEDS: Final = 40
FLEETS: Final = (
    MaintenanceSettings(catch_up=0, hand_off=20_000),
    MaintenanceSettings(catch_up=30_000, hand_off=20_000, early=True),
    MaintenanceSettings(catch_up=0, hand_off=20_000, early=True, domains_down=3),
    MaintenanceSettings(lead=60_000, catch_up=0, hand_off=20_000, require_central=True, rules=(FleetRule("prepare", source="User"),)),
)


def test_no_agent_approves_what_the_fleet_or_its_own_node_is_not_ready_for() -> None:
    posts = joint = 0
    for seed in range(SEEDS):
        fleet = Fleet(FLEETS[seed % len(FLEETS)], random.Random(seed))
        for _ in range(250):
            fleet.move()
        posts += len(fleet.posts)
        joint += fleet.joint
    assert posts > SEEDS / 2
    assert joint > 0, "events of several nodes are approved by agents, too"


def play_until_prepared(domains: Mapping[str, str], settings: MaintenanceSettings) -> Fleet:
    """Return a fleet whose nodes are all named by one event, have all prepared for it, and have reported that twice."""
    fleet = Fleet(settings, random.Random(0), domains)
    fleet.announce(tuple(domains), notice=300)
    for _ in range(70):
        fleet.pass_time(5)
        for node in fleet.nodes.values():
            node.look()
            node.hook(True)
            node.report(lost=False)
            # A POST changes the report, which is then sent at once.
            node.report(lost=False)
        if all(node.ready for node in fleet.nodes.values()):
            break
    for node in fleet.nodes.values():
        node.report(lost=False)
    assert fleet.wall < START + 300_000, "before NotBefore"
    return fleet


@pytest.mark.parametrize("count", [2, 5])
def test_an_event_of_several_nodes_of_one_fault_domain_is_approved_once_all_are_prepared(count: int) -> None:
    fleet = play_until_prepared({f"n{number}": "0" for number in range(count)}, MaintenanceSettings())
    assert fleet.posts == ["e1"], "once, although each may"
    assert fleet.joint == 1


def test_an_event_of_two_fault_domains_is_approved_if_both_may_be_down() -> None:
    fleet = play_until_prepared({"a": "0", "b": "1"}, MaintenanceSettings(domains_down=2))
    assert fleet.posts == ["e1"]


def test_an_event_of_more_fault_domains_than_may_be_down_is_held() -> None:
    fleet = play_until_prepared({"a": "0", "b": "1"}, MaintenanceSettings(domains_down=1))
    assert fleet.posts == []
    assert fleet.nodes["a"].state.events["e1"].reason == "held by the fleet: it takes 2 fault domains down at once: 0, 1"


def test_a_node_that_has_not_prepared_keeps_the_others_from_approving() -> None:
    fleet = Fleet(MaintenanceSettings(), random.Random(0), {"a": "0", "b": "0"})
    fleet.announce(("a", "b"), notice=300)
    a, b = fleet.nodes.values()
    for _ in range(60):
        fleet.pass_time(5)
        for node in (a, b):
            node.look()
            node.report(lost=False)
        a.hook(True)
    assert (fleet.posts, a.state.events["e1"].reason) == ([], "held by the fleet: b is preparing")
