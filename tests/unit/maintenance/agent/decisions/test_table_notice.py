"""Rows of the state table: an event is noticed, waited for, prepared for."""

from __future__ import annotations

import pytest

from shared.core.clock import to_text
from shared.maintenance.agent.effects import SendReport, SendResult, WriteLog
from shared.maintenance.agent.model import EventPhase, LeasedApproval
from shared.maintenance.agent.observations import AppCommand
from shared.maintenance.agent.policy import ActionRule
from tests.unit.maintenance.agent.agent_node import SETTINGS, VM, Node, event
from tests.unit.maintenance.agent.decisions.state_table import row

# -- first seen


@row("-", "names others only")
def test_event_of_others_is_logged_and_reported_and_nothing_else() -> None:
    node = Node()
    node.see(event(names=("vm-2",)))
    assert node.phase() is EventPhase.FOREIGN
    assert node.has(SendReport) and node.logged() == ["agent_event_of_others"]
    node.clear()
    node.wait(2000)
    assert (node.runs(), node.posts()) == ([], [])
    node.see()
    assert node.phase() is None


@row("-", "names others only")
def test_names_that_only_look_alike_are_others() -> None:
    node = Node()
    node.see(event(names=("vm-10", "VM-10", "xvm-1", "vm-1.example", " vm-1", "vm")))
    assert node.phase() is EventPhase.FOREIGN


@row("-", "Scheduled, impactful")
def test_names_are_compared_without_case() -> None:
    node = Node().to_prepared(names=("VM-1",))
    assert node.posts() == ["e1"], "it names this node alone"
    node = Node().to_prepared(names=("VM-1", "vm-1"))
    assert (node.posts(), node.record().event.resources) == (["e1"], ("VM-1",))
    node = Node().with_settings(rules=(ActionRule("approve", resources=frozenset({"vm-1"})),))
    node.see(event(names=("VM-1",)))
    assert (node.posts(), node.runs()) == (["e1"], [])


@row("-", "Scheduled, User")
def test_event_of_a_user_is_approved_at_once_without_preparing() -> None:
    node = Node(SETTINGS)
    node.see(event(EventType="Reboot", EventSource="User", DurationInSeconds=-1))
    assert (node.posts(), node.runs()) == (["e1"], [])
    node.post()
    assert node.phase() is EventPhase.APPROVED


@row("-", "Scheduled, User")
def test_event_of_a_user_is_approved_without_the_app_even_where_its_grant_is_required() -> None:
    node = Node().with_settings(central=True, require_central=True)
    node.answer()
    node.app_away()
    node.see(event(EventType="Reboot", EventSource="User"))
    assert node.posts() == ["e1"]


@row("-", "Scheduled, User")
@pytest.mark.parametrize("kind", ["Terminate", "Preempt"])
def test_a_machine_that_a_user_removes_is_drained_first_unless_a_rule_approves(kind: str) -> None:
    node = Node()
    node.see(event(EventType=kind, EventSource="User", DurationInSeconds=-1, in_s=20))
    assert (node.posts(), node.runs()) == ([], ["prepare"])
    node.hook()
    assert node.posts() == ["e1"]
    node = Node().with_settings(rules=(ActionRule("approve", type=kind, source="User"),))
    node.see(event(EventType=kind, EventSource="User", in_s=20))
    assert (node.posts(), node.runs()) == (["e1"], [])


@row("-", "Scheduled, User")
def test_event_of_a_user_is_prepared_for_where_a_rule_says_so() -> None:
    node = Node().with_settings(rules=(ActionRule("prepare", source="User"),))
    node.see(event(EventSource="User", in_s=20))
    assert (node.posts(), node.runs()) == ([], ["prepare"])
    node.hook()
    assert node.posts() == ["e1"]


@row("-", "Scheduled, User")
def test_event_of_a_user_is_prepared_for_and_left_to_the_fleet_where_a_rule_says_hold() -> None:
    node = Node().with_settings(rules=(ActionRule("hold", source="User"),))
    node.see(event(EventSource="User", in_s=20))
    node.hook()
    assert (node.posts(), node.phase(), node.record().reason) == ([], EventPhase.PREPARED, "the rule says hold")


@row("-", "Scheduled, Platform, no impact by rule")
def test_platform_event_of_no_duration_is_approved_unprepared() -> None:
    node = Node()
    node.see(event(DurationInSeconds=0))
    assert (node.posts(), node.runs()) == (["e1"], [])


@row("-", "Scheduled, Platform, no impact by rule")
def test_freeze_shorter_than_the_limit_is_approved_and_one_of_unknown_length_is_not() -> None:
    for duration, posts in ((4, ["e1"]), (5, []), (-1, [])):
        node = Node().with_settings(freeze_limit=5.0)
        node.see(event(DurationInSeconds=duration))
        assert node.posts() == posts, duration


@row("-", "Scheduled, impactful")
def test_impactful_event_waits_until_its_lead_before_not_before() -> None:
    node = Node()
    node.see(event(in_s=900))
    assert node.phase() is EventPhase.WAITING
    node.wait(869)
    assert node.phase() is EventPhase.WAITING and node.runs() == []
    node.wait(1)
    assert node.phase() is EventPhase.PREPARING and node.runs() == ["prepare"]


@row("-", "Scheduled, impactful")
def test_lead_may_differ_by_type() -> None:
    node = Node().with_settings(leads={"Redeploy": 300.0})
    node.see(event(EventType="Redeploy", in_s=600))
    node.wait(299)
    assert node.runs() == []
    node.wait(1)
    assert node.runs() == ["prepare"]


@row("-", "Scheduled, impactful")
def test_event_of_an_unknown_type_is_an_impact() -> None:
    node = Node()
    node.see(event(EventType="Levitate", DurationInSeconds=0, in_s=10))
    assert (node.posts(), node.runs()) == ([], ["prepare"])


@row("-", "Preempt, short notice, unreadable NotBefore")
def test_no_time_to_lose_means_preparing_at_once() -> None:
    unreadable = (event(in_s=None), event(NotBefore="soon"), event(NotBefore=17))
    for raw in (event(EventType="Preempt", in_s=3600), event(in_s=29), event(in_s=-60), *unreadable):
        node = Node()
        node.see(raw)
        assert (node.phase(), node.runs()) == (EventPhase.PREPARING, ["prepare"]), raw


@row("-", "Scheduled, impactful")
@pytest.mark.parametrize(("in_s", "due_in"), [(900, 870), (None, 0)])
def test_log_shows_when_preparing_is_due_in_the_format_of_all_times(in_s: float | None, due_in: int) -> None:
    node = Node()
    node.see(event(in_s=in_s))
    [seen] = [effect for effect in node.did if isinstance(effect, WriteLog) and effect.action == "agent_event_seen"]
    assert seen.fields["due"] == to_text(node.wall + 1000 * due_in)
    node.clear()
    node.see(event(in_s=1000))
    [changed] = [effect for effect in node.did if isinstance(effect, WriteLog) and effect.action == "agent_event_changed"]
    assert changed.fields["due"] == to_text(node.wall + 1000 * 970)


@row("-", "first seen Started")
def test_event_that_had_begun_gets_the_emergency_hook_and_no_approval() -> None:
    node = Node()
    node.see(event(status="Started"))
    assert (node.phase(), node.runs(), node.posts()) == (EventPhase.STARTED, ["emergency"], [])
    assert node.warned() == ["agent_event_first_seen_started"]
    assert node.state.disabled
    node.hook()
    node.see()
    assert (node.phase(), node.runs()[1:]) == (EventPhase.RESTORING, ["restore"])


@row("-", "first seen Started")
def test_event_of_a_user_that_had_begun_is_no_emergency() -> None:
    node = Node()
    node.see(event(status="Started", EventSource="User"))
    assert (node.phase(), node.runs(), node.posts()) == (EventPhase.STARTED, [], [])
    node.see()
    assert (node.phase(), node.runs()) == (EventPhase.DONE, [])


# -- WAITING


@row("WAITING", "details changed")
def test_changed_times_move_the_timer() -> None:
    node = Node()
    node.see(event(in_s=900))
    node.see(event(in_s=2000))
    node.wait(1969)
    assert node.runs() == []
    node.wait(1)
    assert node.runs() == ["prepare"]
    node = Node()
    node.see(event(in_s=900))
    node.see(event(in_s=20))
    assert node.runs() == ["prepare"]


@row("WAITING", "details changed")
def test_changed_details_are_judged_by_the_rules_again() -> None:
    node = Node()
    node.see(event(DurationInSeconds=9))
    assert node.posts() == []
    node.see(event(DurationInSeconds=0))
    assert node.posts() == ["e1"]


@row("WAITING", "details changed")
def test_event_that_becomes_an_impact_after_its_approval_is_prepared_for_at_once() -> None:
    node = Node()
    node.see(event(DurationInSeconds=0))
    node.post()
    assert node.phase() is EventPhase.APPROVED
    node.see(event(DurationInSeconds=30))
    assert (node.phase(), node.runs()) == (EventPhase.PREPARING, ["prepare"])
    node.hook()
    assert (node.phase(), node.posts()) == (EventPhase.APPROVED, ["e1"])


@row("WAITING", "details changed")
def test_event_that_no_longer_names_the_node_is_off() -> None:
    node = Node()
    node.see(event())
    node.see(event(names=("vm-2",)))
    assert (node.phase(), node.record().outcome) == (EventPhase.DONE, "cancelled")
    node.wait(900)
    assert node.runs() == []


@row("WAITING", "its time comes, or the fleet approves early")
def test_early_approval_of_the_fleet_prepares_and_then_approves() -> None:
    node = Node().with_settings(central=True)
    node.see(event(names=(VM, "vm-2")))
    node.answer(grants=(LeasedApproval("g1", "e1", node.steady + 5, node.wall + 900_000),))
    assert (node.runs(), node.posts()) == (["prepare"], [])
    node.pass_by(2)
    node.hook()
    assert node.posts() == ["e1"]
    node.post()
    assert SendResult("g1", "posted", 200) in node.did and node.phase() is EventPhase.APPROVED


@row("WAITING", "its time comes, or the fleet approves early")
def test_fleet_may_ask_to_prepare_early() -> None:
    node = Node().with_settings(central=True)
    node.see(event())
    node.answer(commands=(AppCommand("c1", "e1", "prepare"),))
    assert (node.phase(), node.runs(), node.posts()) == (EventPhase.PREPARING, ["prepare"], [])


# -- PREPARING


@row("PREPARING", "hook succeeds")
def test_successful_hook_prepares() -> None:
    node = Node().to_prepared(names=(VM, "vm-2"))
    assert (node.phase(), node.record().prepared_boot, node.record().prepared_at) == (EventPhase.PREPARED, "boot-1", node.wall)


@row("PREPARING", "hook fails or passes its deadline")
def test_failed_hook_is_tried_again_and_nothing_is_approved() -> None:
    node = Node()
    node.see(event(in_s=60))
    node.wait(30)
    node.hook(ok=False, detail="exit status 3")
    assert (node.phase(), node.record().reason) == (EventPhase.PREPARE_FAILED, "prepare failed: exit status 3")
    assert "agent_prepare_failed" in node.warned()
    node.wait(1)
    assert node.runs() == ["prepare"] * 2
    node.hook(ok=False)
    node.wait(1)
    assert node.runs() == ["prepare"] * 2, "the second wait is longer"
    node.wait(1)
    assert node.runs() == ["prepare"] * 3
    node.hook(ok=True)
    assert (node.phase(), node.posts()) == (EventPhase.PREPARED, ["e1"])


@row("PREPARING", "hook fails or passes its deadline")
def test_after_not_before_preparing_is_given_up_with_an_alarm_and_no_approval() -> None:
    node = Node()
    node.see(event(in_s=10))
    for _ in range(3):
        node.hook(ok=False)
        node.wait(20)
    assert (node.runs(), node.phase()) == (["prepare"] * 3, EventPhase.PREPARE_FAILED)
    node.wait(600)
    assert node.posts() == [] and node.warned().count("agent_prepare_given_up") == 1
    assert len(node.runs()) == 3


@row("PREPARING", "hook fails or passes its deadline")
def test_setting_approves_though_prepare_failed() -> None:
    node = Node().with_settings(approve_failed=True)
    node.see(event(in_s=20))
    node.hook(ok=False)
    assert node.posts() == ["e1"]
    node.post()
    assert node.phase() is EventPhase.APPROVED
    node.wait(60)
    assert (node.phase(), node.runs()) == (EventPhase.APPROVED, ["prepare"])


@row("PREPARING", "becomes Started")
def test_hook_under_way_is_left_to_finish_when_the_impact_begins() -> None:
    node = Node()
    node.see(event(in_s=20))
    node.see(event(status="Started"))
    assert (node.phase(), node.stops()) == (EventPhase.STARTED, 0)
    node.hook()
    assert (node.phase(), node.posts()) == (EventPhase.STARTED, [])


@row("PREPARING", "becomes Started")
def test_hook_that_cannot_be_run_twice_is_stopped_when_the_impact_begins() -> None:
    node = Node().with_settings(idempotent=False)
    node.see(event(in_s=20))
    node.see(event(status="Started"))
    assert (node.phase(), node.stops()) == (EventPhase.STARTED, 1)
    node.hook(ok=False)
    assert node.phase() is EventPhase.STARTED
    node.see()
    assert node.runs() == ["prepare", "restore"]
