"""The turn to approve an event: whatever the agents' rules say, one of a fleet sends the approval of an event to Azure."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from shared.maintenance import rules
from shared.maintenance.agent.model import EventPhase
from shared.maintenance.rows import EventRow
from shared.maintenance.rule_settings import FleetRule, GuardMode, MaintenanceSettings
from tests.unit.maintenance.joint_fleet import Fleet, JointNode

AT_ONCE = MaintenanceSettings(catch_up=0, hand_off=10_000)
EIGHT = {f"n{number}": "0" for number in range(8)}


def announced(settings: MaintenanceSettings, *, source: str = "User", notice: int = 900) -> Fleet:
    """Return a fleet of eight nodes that one event names."""
    fleet = Fleet(settings, random.Random(0), EIGHT)
    fleet.announce(tuple(EIGHT), source=source, notice=notice)
    return fleet


def play(fleet: Fleet, seconds: int, nodes: Iterable[JointNode]) -> None:
    """Let time pass. These nodes look and report each second."""
    nodes = list(nodes)
    for _ in range(seconds):
        fleet.pass_time(1)
        for node in nodes:
            node.look()
        for node in nodes:
            node.report(lost=False)


def phases(nodes: Iterable[JointNode]) -> set[EventPhase]:
    return {node.state.events["e1"].phase for node in nodes}


@pytest.mark.parametrize("guard", ["approve", "prepare"])
@pytest.mark.parametrize("early", [False, True])
def test_an_event_that_agents_approve_at_once_is_sent_once_for_all_its_nodes(guard: GuardMode, early: bool) -> None:
    fleet = announced(MaintenanceSettings(catch_up=0, hand_off=10_000, guard=guard, early=early, domains_down=8))
    play(fleet, 60, fleet.nodes.values())
    assert fleet.posts in (["e1"], ["e1.1"])
    assert phases(fleet.nodes.values()) == {EventPhase.APPROVED}


def test_a_short_freeze_that_a_rule_of_the_fleet_approves_is_sent_once() -> None:
    fleet = announced(MaintenanceSettings(catch_up=0, rules=(FleetRule("approve", max_seconds=10),)), source="Platform")
    play(fleet, 60, fleet.nodes.values())
    assert fleet.posts == ["e1"]


def change(fleet: Fleet, made: object) -> None:
    """Store a person's decision."""
    assert isinstance(made, EventRow)
    fleet.view = replace(fleet.view, events={"e1": made})


def give_turn_to_first(fleet: Fleet) -> list[JointNode]:
    """Let the first agent's report arrive, and the agent be lost before the answer does. Return the other nodes."""
    first, *others = fleet.nodes.values()
    del fleet.nodes[first.name]
    first.look()
    first.report(lost=True)
    return others


def test_an_approval_by_a_person_is_not_sent_beside_an_agent_that_may_be_sending_its_own() -> None:
    fleet = announced(AT_ONCE)
    others = give_turn_to_first(fleet)
    change(fleet, rules.approve(fleet.view.events["e1"], "ops", "", fleet.wall))
    play(fleet, 15, others)
    assert fleet.posts == []
    play(fleet, 10, others)
    assert fleet.posts == ["e1.1"]


def test_the_next_agent_approves_when_the_one_whose_turn_it_is_says_nothing_more() -> None:
    fleet = announced(AT_ONCE)
    others = give_turn_to_first(fleet)
    play(fleet, 15, others)
    assert (fleet.posts, phases(others)) == ([], {EventPhase.WAITING})
    assert {node.state.events["e1"].reason for node in others} == {"n0 approves it for all"}
    play(fleet, 10, others)
    assert (fleet.posts, phases(others)) == (["e1"], {EventPhase.APPROVED})


def test_partitions_stay_on_a_node_that_waits_for_its_turn_alone() -> None:
    fleet = announced(AT_ONCE, notice=20)
    others = give_turn_to_first(fleet)
    play(fleet, 3, others)
    assert phases(others) == {EventPhase.WAITING}
    assert not any(node.leaving for node in fleet.view.nodes.values())


def test_a_held_event_is_approved_by_nobody() -> None:
    fleet = announced(AT_ONCE)
    others = give_turn_to_first(fleet)
    change(fleet, rules.hold(fleet.view.events["e1"], "ops", "", fleet.wall))
    play(fleet, 40, others)
    assert fleet.posts == []
