"""Agents and app together, each by its production rules: lost answers, restarts, partitions, holds and approvals."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from shared.maintenance import rules
from shared.maintenance.agent.model import EventPhase
from shared.maintenance.decisions.domain_guard import down_reason
from shared.maintenance.rule_settings import FleetRule, GuardMode, MaintenanceSettings
from shared.maintenance.service.eventgrid import Emitted, merge_delivery
from tests.texts import assert_text
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
    assert_text("guard.too-wide", fleet.nodes["a"].state.events["e1"].reason, number=2, domains="0, 1")


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


def play_without_hooks(settings: MaintenanceSettings, seconds: int, *, alone: bool = False) -> Fleet:
    """Return three nodes without hooks, each with an event. Azure does nothing. alone: the app is not reached by b for the last 30 s."""
    fleet = Fleet(settings, random.Random(0), hooks={})
    for name in fleet.nodes:
        fleet.announce([name], notice=60)
    for second in range(seconds):
        fleet.pass_time(1)
        for node in fleet.nodes.values():
            node.look()
            node.report(lost=alone and second >= seconds - 30 and node.name == "b")
    return fleet


@pytest.mark.parametrize("guard", ["approve", "prepare"])
def test_without_a_prepare_hook_one_fault_domain_is_approved_after_the_other(guard: GuardMode) -> None:
    """Such a node stays in service until Azure takes it down, which is at any moment once it is approved."""
    fleet = play_without_hooks(MaintenanceSettings(hand_off=10_000, guard=guard), 55)
    assert fleet.posts == ["e1"]
    assert fleet.nodes["a"].state.events["e1"].phase is EventPhase.APPROVED
    assert not fleet.nodes["a"].state.disabled


def test_without_a_prepare_hook_leases_stay_away_until_the_impact_is_over() -> None:
    fleet = play_without_hooks(MaintenanceSettings(hand_off=10_000), 55)
    node = fleet.view.nodes["a"]
    assert [entry.phase for entry in node.entries if entry.event_id == "e1"] == ["APPROVED"]
    assert node.leaving
    assert rules.pending(fleet.view, fleet.wall).keys() == {"a", "b", "c"}, "nor does it get a turn"


def test_a_node_that_approved_while_the_app_was_away_counts_once_it_reports() -> None:
    fleet = play_without_hooks(MaintenanceSettings(hand_off=10_000), 55, alone=True)
    assert fleet.posts == ["e1", "e2"]
    fleet.nodes["b"].report(lost=False)
    assert fleet.view.nodes["b"].leaving
    assert fleet.view.events["e2"].cleared


def test_an_event_without_impact_takes_no_node_down() -> None:
    fleet = Fleet(MaintenanceSettings(hand_off=10_000), random.Random(0))
    fleet.announce(["a"], source="User", notice=60)
    for _ in range(5):
        fleet.pass_time(1)
        for node in fleet.nodes.values():
            node.look()
            node.report(lost=False)
    assert fleet.nodes["a"].state.events["e1"].phase is EventPhase.APPROVED
    assert not fleet.view.nodes["a"].leaving
    assert down_reason(fleet.view.nodes["a"], fleet.view, fleet.settings, fleet.wall) is None


def spell_otherwise(fleet: Fleet) -> None:
    """Let the metadata service of the first machine write its resource group and location in capitals, as Azure does for some."""
    first = next(iter(fleet.nodes.values()))
    first.machine = replace(first.machine, scope=first.machine.scope.upper(), location=first.machine.location.upper())
    first.report(lost=False)


def play_seconds(fleet: Fleet, seconds: int) -> None:
    for _ in range(seconds):
        fleet.pass_time(1)
        for node in fleet.nodes.values():
            node.look()
            node.hook(True)
            node.report(lost=False)


def test_scopes_and_locations_are_compared_without_case() -> None:
    fleet = Fleet(MaintenanceSettings(hand_off=10_000), random.Random(0), {"a": "0", "b": "0", "c": "1"})
    spell_otherwise(fleet)
    fleet.announce(("a", "b"), notice=60)
    play_seconds(fleet, 45)
    assert set(fleet.posts) == {"e1"}, "it names two machines of one resource group"
    assert fleet.view.events["e1"].alarms == ()
    assert {node.node for node in fleet.view.named(fleet.view.events["e1"])} == {"a", "b"}
    assert fleet.view.nodes["a"].scope == "SET", "the spelling stays"


def test_fault_domains_of_one_location_are_counted_together_however_it_is_written() -> None:
    fleet = Fleet(MaintenanceSettings(hand_off=10_000), random.Random(0))
    spell_otherwise(fleet)
    for name in ("a", "b"):
        fleet.announce([name], notice=60)
    play_seconds(fleet, 45)
    assert fleet.posts == ["e1"]


def test_event_grid_finds_the_vm_of_a_scope_that_is_written_in_two_ways() -> None:
    fleet = Fleet(MaintenanceSettings(), random.Random(0))
    spell_otherwise(fleet)
    view = replace(fleet.view, nodes={name: replace(node, vm="vm") for name, node in fleet.view.nodes.items()})
    delivery = Emitted("e1", "Freeze", "Scheduled", fleet.wall, "Platform", 9, ("VM",))
    assert merge_delivery(None, delivery, view, fleet.wall) is not None
