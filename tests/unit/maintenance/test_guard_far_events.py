"""The guard `prepare`, and events that are announced days ahead: while nobody prepares for one, it delays no other."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final
from unittest.mock import patch

import pytest

from shared.maintenance import rules
from shared.maintenance.decisions import reservations
from shared.maintenance.rows import EventRow
from shared.maintenance.rule_settings import FleetRule, MaintenanceSettings
from shared.maintenance.timings import IDLE_SILENCE
from tests.unit.maintenance.decisions.test_reservations import FLEETS, GUARD_MOVES, play
from tests.unit.maintenance.joint_fleet import HOOKS, Fleet

DAY: Final = 86_400
QUICK: Final = {**HOOKS, "prepare": 10.0}
PREPARE: Final = MaintenanceSettings(guard="prepare", lead=60_000, catch_up=0, hand_off=20_000)
EARLY: Final = replace(PREPARE, rules=(FleetRule("prepare", "Redeploy", early=True),))


def decide(fleet: Fleet, event_id: str, word: str) -> None:
    """Let a person approve or hold an event."""
    made = getattr(rules, word)(fleet.view.events[event_id], "ops", "", fleet.wall)
    assert isinstance(made, EventRow)
    fleet.view = replace(fleet.view, events={**fleet.view.events, event_id: made})


def pass_seconds(fleet: Fleet, seconds: int) -> None:
    for _ in range(seconds):
        fleet.pass_time(1)
        for node in fleet.nodes.values():
            node.look()
            node.hook(True)
            node.report(lost=False)


def assert_next_is_in_time(fleet: Fleet, name: str) -> None:
    """Announce an event of a node, and expect that it gets permission before its time comes."""
    event_id = fleet.announce([name], notice=120)
    announced = fleet.wall
    pass_seconds(fleet, 70)
    node = fleet.nodes[name]
    assert node.began_at == {event_id: announced + 60_000}, "NotBefore minus the lead"
    assert "agent_prepare_forced" not in node.state.events[event_id].notes


def test_an_early_event_that_is_held_delays_no_other() -> None:
    fleet = Fleet(EARLY, random.Random(0), hooks=QUICK)
    fleet.announce(["a"], "Redeploy", notice=DAY)
    fleet.nodes["b"].look()
    fleet.nodes["b"].report(lost=False)
    decide(fleet, "e1", "hold")
    pass_seconds(fleet, 60)
    assert_next_is_in_time(fleet, "b")


def test_an_early_event_with_a_silent_node_delays_no_other() -> None:
    fleet = Fleet(EARLY, random.Random(0), {"a": "0", "b": "0", "c": "1"}, QUICK)
    del fleet.nodes["b"]
    fleet.pass_time(IDLE_SILENCE // 1000)
    pass_seconds(fleet, 1)
    fleet.announce(["a", "b"], "Redeploy", notice=DAY)
    pass_seconds(fleet, 60)
    assert fleet.nodes["a"].began_at == {}
    assert_next_is_in_time(fleet, "c")


def test_a_person_who_holds_what_was_approved_frees_its_place_once_nobody_can_have_begun() -> None:
    fleet = Fleet(PREPARE, random.Random(0), hooks=QUICK)
    fleet.announce(["a"], "Redeploy", notice=DAY)
    pass_seconds(fleet, 1)
    # Partitions must leave first, so the agent is not yet asked to prepare.
    fleet.nodes["a"].partitions = 2
    decide(fleet, "e1", "approve")
    fleet.nodes["b"].report(lost=False)
    assert list(fleet.view.guard.reserved) == ["e1"]
    decide(fleet, "e1", "hold")
    pass_seconds(fleet, 25)
    assert list(fleet.view.guard.reserved) == ["e1"], "an answer on its way may have asked the node to prepare"
    pass_seconds(fleet, 15)
    assert_next_is_in_time(fleet, "b")


def test_an_early_event_that_a_node_prepared_for_keeps_its_place_while_it_is_held() -> None:
    fleet = Fleet(EARLY, random.Random(0), {"a": "0", "b": "0", "c": "1"}, QUICK)
    fleet.announce(["a", "b"], "Redeploy", notice=DAY)
    fleet.nodes["b"].look()
    fleet.nodes["b"].report(lost=False)
    del fleet.nodes["b"]
    pass_seconds(fleet, 3)
    decide(fleet, "e1", "hold")
    pass_seconds(fleet, 60)
    assert fleet.nodes["a"].began_at != {}
    assert list(fleet.view.guard.reserved) == ["e1"]


def test_an_event_that_comes_near_waits_for_the_one_that_took_its_place() -> None:
    fleet = Fleet(EARLY, random.Random(0), hooks=QUICK)
    fleet.announce(["a"], "Redeploy", notice=2_000)
    fleet.nodes["b"].look()
    fleet.nodes["b"].report(lost=False)
    decide(fleet, "e1", "hold")
    pass_seconds(fleet, 1)
    fleet.announce(["b"], notice=1_900)
    pass_seconds(fleet, 45)
    for _ in range(61):
        fleet.pass_time(29)
        pass_seconds(fleet, 1)
        assert list(fleet.view.guard.reserved) == ["e2"]
    assert fleet.nodes["b"].began_at != {}
    assert fleet.nodes["a"].began_at == {}


@pytest.mark.parametrize("ahead", [5_000, 40_000])
def test_no_two_fault_domains_go_out_at_once_although_events_are_far_away(ahead: int) -> None:
    """Plays at random, with persons who approve and hold. Events are far away until shortly before their nodes prepare."""
    fleets = (*FLEETS, replace(PREPARE, rules=(FleetRule("prepare", "Reboot", early=True), FleetRule("prepare"))))
    moves = (*GUARD_MOVES, "person")
    guarded = 0
    with patch.object(reservations, "RESERVE_AHEAD", ahead):
        for seed in range(24):
            guarded += play(Fleet(fleets[seed % len(fleets)], random.Random(seed), hooks=QUICK), moves).guarded
    assert guarded > 24
