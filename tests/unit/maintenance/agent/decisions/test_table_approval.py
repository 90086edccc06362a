"""Rows of the state table: a prepared node approves, or holds; the impact comes, and is over; the node is put back."""

from __future__ import annotations

from typing import Any

import pytest

from shared.maintenance.agent.decisions.step import unready_reason
from shared.maintenance.agent.effects import Approve, PollNow, RunHook
from shared.maintenance.agent.model import EventPhase, LeasedApproval, Now
from tests.unit.maintenance.agent.agent_node import SETTINGS, VM, Node, event
from tests.unit.maintenance.agent.decisions.state_table import row

# -- PREPARED


@row("PREPARED", "only this node is named, or the fleet says that all named are prepared; and the guard agrees")
def test_intent_is_recorded_with_the_post_when_only_this_node_is_named() -> None:
    node = Node().to_prepared()
    assert (node.posts(), node.record().approve_intent, node.record().approved_at) == (["e1"], node.wall, None)
    node.post()
    assert (node.phase(), node.record().approved_at) == (EventPhase.APPROVED, node.wall)


@row("PREPARED", "only this node is named, or the fleet says that all named are prepared; and the guard agrees")
def test_with_an_app_the_approval_waits_for_an_answer_without_a_hold() -> None:
    node = Node().with_settings(central=True)
    before = frozenset[str]()
    node.to_prepared()
    assert (node.posts(), node.record().reason) == ([], "the agent waits for the fleet's answer")
    node.answer(told=before)
    assert node.posts() == [], "the app has not heard yet that the node is prepared"
    assert "agent_approval_held" not in node.logged(), "as with every approval"
    node.answer(holds={"e1": "rack 2 is catching up"})
    assert node.logged().count("agent_approval_held") == 1
    assert (node.posts(), node.record().reason) == ([], "held by the fleet: rack 2 is catching up")
    node.answer()
    assert node.posts() == ["e1"]


@row("PREPARED", "only this node is named, or the fleet says that all named are prepared; and the guard agrees")
def test_event_that_names_others_is_approved_once_the_app_has_seen_that_all_are_prepared() -> None:
    node = Node().with_settings(central=True)
    before = frozenset[str]()
    node.to_prepared(names=(VM, "vm-2"))
    node.answer(told=before)
    assert (node.posts(), node.record().reason) == ([], "the agent waits for the fleet's answer")
    node.answer(holds={"e1": "vm-2 is preparing"})
    assert (node.posts(), node.record().reason) == ([], "held by the fleet: vm-2 is preparing")
    node.answer()
    assert node.posts() == ["e1"]


@row("PREPARED", "only this node is named, or the fleet says that all named are prepared; and the guard agrees")
def test_event_that_names_others_is_approved_under_a_lease_of_the_fleet() -> None:
    node = Node().with_settings(central=True)
    node.to_prepared(names=(VM, "vm-2"))
    node.answer(holds={"e1": "held by ops"})
    assert node.posts() == []
    node.answer(grants=(LeasedApproval("g1", "e1", node.steady + 5, node.wall + 20_000),))
    assert [each.grant for each in node.did if isinstance(each, Approve)] == ["g1"]


@row("PREPARED", "the app is unreachable")
def test_without_the_app_the_node_approves_what_names_only_itself() -> None:
    node = Node().with_settings(central=True)
    node.to_prepared()
    assert node.posts() == []
    node.app_away()
    assert (node.posts(), node.record().reason) == ([], "the fleet does not answer; the agent waits a little longer for it")
    node.wait(6)
    node.app_away()
    node.wait(3)
    assert node.posts() == []
    node.wait(1)
    assert node.posts() == ["e1"]


@row("PREPARED", "the app is unreachable")
def test_one_lost_call_does_not_get_round_the_guard() -> None:
    node = Node().with_settings(central=True)
    node.to_prepared()
    node.app_away()
    node.wait(9)
    node.answer(holds={"e1": "rack 2 is catching up"})
    node.wait(600)
    assert node.posts() == []
    node.app_away()
    node.wait(600)
    assert node.posts() == [], "a hold that was told stays while the app is away"


@row("PREPARED", "the app is unreachable")
def test_without_the_app_it_holds_where_a_grant_is_required_or_other_nodes_are_named() -> None:
    node = Node().with_settings(central=True, require_central=True)
    node.to_prepared()
    node.app_away()
    node.wait(60)
    assert (node.posts(), node.record().reason) == ([], "the fleet does not answer, and its consent is required")
    node = Node().with_settings(central=True)
    node.to_prepared(names=(VM, "vm-2"))
    node.app_away()
    node.wait(60)
    reason = "the event names other nodes too, and the app does not answer whether they are prepared"
    assert (node.posts(), node.record().reason) == ([], reason)


@row("PREPARED", "not yet")
def test_held_approval_says_why_and_lets_not_before_pass() -> None:
    node = Node().to_prepared(names=(VM, "vm-2"))
    assert node.record().reason == "the event names other nodes too, and no app knows whether they are prepared"
    node.wait(600)
    assert (node.phase(), node.posts(), node.logged().count("agent_approval_held")) == (EventPhase.PREPARED, [], 1)
    node.see(event(names=(VM, "vm-2"), status="Started"))
    assert node.phase() is EventPhase.STARTED


@row("PREPARED", "NotBefore cannot be read")
@pytest.mark.parametrize("raw", ["soon", "", None, "Mon, 31 Feb 2033 18:29:47 GMT"])
@pytest.mark.parametrize("central", [False, True])
def test_event_without_a_readable_not_before_is_prepared_for_and_waits_for_its_start(raw: Any, central: bool) -> None:
    node = Node().with_settings(central=central)
    node.answer()
    node.see(event(NotBefore=raw))
    assert (node.phase(), node.runs()) == (EventPhase.PREPARING, ["prepare"])
    node.hook()
    if central:
        node.answer()
    node.wait(1000)
    if central:
        node.app_away()
        node.wait(60)
    assert (node.phase(), node.posts()) == (EventPhase.PREPARED, [])
    assert "NotBefore cannot be read" in node.record().reason
    node.see(event(status="Started"))
    assert (node.phase(), node.posts()) == (EventPhase.STARTED, [])


@row("PREPARED", "NotBefore cannot be read")
def test_event_without_a_readable_not_before_is_approved_by_a_person_or_once_it_can_be_read() -> None:
    for asked in (True, False):
        node = Node().with_settings(central=True)
        node.answer()
        node.see(event(NotBefore="soon"))
        node.hook()
        node.answer(holds={"e1": "its NotBefore cannot be read"})
        assert node.posts() == []
        if asked:
            node.answer(grants=(LeasedApproval("g1", "e1", node.steady + 5, node.wall + 60_000),))
        else:
            node.see(event(in_s=60))
            node.answer()
        assert node.posts() == ["e1"]


# -- POST


@row("POST", "time-out, 429, 5xx")
def test_unanswered_post_is_followed_by_a_look_and_tried_again_while_scheduled() -> None:
    node = Node().to_prepared()
    node.post("busy", 503)
    assert node.has(PollNow)
    node.wait(5)
    assert node.posts() == ["e1"], "first the document is read again"
    node.see(event(), same=True)
    assert node.posts() == ["e1"] * 2
    node.post("busy", 0)
    node.see(event(), same=True)
    assert node.posts() == ["e1"] * 2, "and the back-off passes"
    node.wait(2)
    assert node.posts() == ["e1"] * 3
    node.post("busy", 0)
    node.wait(60)
    node.see(event(), same=True)
    assert node.posts() == ["e1"] * 3, "NotBefore has passed"
    assert node.phase() is EventPhase.PREPARED


@row("POST", "time-out, 429, 5xx")
def test_post_without_an_answer_that_was_applied_goes_the_normal_way() -> None:
    node = Node().to_prepared()
    node.post("busy", 0)
    node.see(event(status="Started"))
    node.wait(60)
    assert (node.phase(), node.posts()) == (EventPhase.STARTED, ["e1"])


@row("POST", "400, 404")
def test_refused_post_of_an_event_that_is_gone_or_begun_goes_the_normal_way() -> None:
    node = Node().to_prepared()
    node.post("refused", 404)
    node.see()
    assert (node.phase(), node.posts()) == (EventPhase.RESTORING, ["e1"])


@row("POST", "400, 404")
def test_refused_post_of_an_event_still_scheduled_raises_an_alarm_and_stops_after_a_few() -> None:
    node = Node().to_prepared()
    node.see(event(in_s=5000))
    for _ in range(10):
        if node.record().posting:
            node.post("refused", 400)
        node.wait(16)
        node.see(event(in_s=5000))
    assert len(node.posts()) == SETTINGS.post_tries
    assert node.warned().count("agent_approval_given_up") == 1
    assert node.phase() is EventPhase.PREPARED


# -- APPROVED and STARTED


@row("APPROVED", "still Scheduled")
def test_approved_event_stays_prepared_and_warns_once_when_it_is_late() -> None:
    node = Node().to_prepared()
    node.post()
    node.wait(320)
    assert "agent_event_late" not in node.warned()
    node.wait(300)
    assert (node.phase(), node.runs(), node.posts()) == (EventPhase.APPROVED, ["prepare"], ["e1"])
    assert node.warned().count("agent_event_late") == 1


@row("any", "Started")
def test_started_ends_all_waiting() -> None:
    for ready in (False, True):
        node = Node()
        node.see(event())
        if ready:
            node.wait(871)
            node.hook()
            node.post()
        node.clear()
        node.see(event(status="Started"))
        assert node.phase() is EventPhase.STARTED
        assert ("agent_event_started" in node.warned()) is not ready, "a warning when it begins unprepared"
        node.wait(1000)
        assert (node.runs(), node.posts()) == ([], [])


@row("STARTED", "node is back, event still listed")
def test_node_is_not_put_back_while_the_event_is_listed() -> None:
    node = Node().to_prepared()
    node.post()
    node.see(event(status="Started"))
    node.pass_by(9)
    node.wait(1700)
    assert (node.phase(), node.runs(), "agent_event_lasts" in node.warned()) == (EventPhase.STARTED, ["prepare"], False)
    node.wait(100)
    assert node.warned().count("agent_event_lasts") == 1
    assert node.runs() == ["prepare"]


@row("STARTED", "gone")
def test_node_that_we_took_out_is_put_back_when_the_event_is_over() -> None:
    node = Node().to_prepared()
    node.post()
    node.see(event(status="Started"))
    node.see()
    assert (node.phase(), node.record().outcome, node.runs()) == (EventPhase.RESTORING, "completed", ["prepare", "restore"])


@row("STARTED", "gone")
def test_node_that_we_did_not_take_out_is_left_alone() -> None:
    node = Node()
    node.see(event())
    node.see(event(status="Started"))
    node.see()
    assert (node.phase(), node.record().outcome, node.runs()) == (EventPhase.DONE, "completed", [])


@row("APPROVED", "gone, Started never seen")
def test_approved_event_that_vanishes_may_have_been_either() -> None:
    node = Node().to_prepared()
    node.post()
    node.see()
    assert (node.phase(), node.record().outcome) == (EventPhase.RESTORING, "completed or cancelled")
    node = Node()
    node.see(event(EventSource="User"))
    node.post()
    node.see()
    assert (node.phase(), node.record().outcome, node.runs()) == (EventPhase.DONE, "completed or cancelled", [])


@row("WAITING", "gone")
def test_event_that_is_called_off_before_its_time_leaves_nothing_to_do() -> None:
    node = Node()
    node.see(event())
    node.see()
    assert (node.phase(), node.record().outcome, node.runs()) == (EventPhase.DONE, "cancelled", [])


@row("PREPARING, PREPARED, PREPARE_FAILED", "gone")
def test_hook_is_stopped_and_the_node_put_back_when_the_event_is_called_off() -> None:
    node = Node()
    node.see(event(in_s=20))
    node.see()
    assert (node.phase(), node.stops(), node.runs()) == (EventPhase.RESTORING, 1, ["prepare"]), "not before the hook has ended"
    node.hook(ok=False)
    assert (node.runs(), node.record().outcome) == (["prepare", "restore"], "cancelled")


@row("PREPARING, PREPARED, PREPARE_FAILED", "gone")
def test_prepared_or_half_prepared_node_is_put_back_when_the_event_is_called_off() -> None:
    for ok in (True, False):
        node = Node()
        node.see(event(in_s=20, names=(VM, "vm-2")))
        node.hook(ok=ok)
        node.see()
        assert (node.phase(), node.record().outcome, node.runs()) == (EventPhase.RESTORING, "cancelled", ["prepare", "restore"])


# -- RESTORING


@row("RESTORING", "hook and verify succeed")
def test_verified_node_is_done_and_its_id_known_for_a_day() -> None:
    node = Node().to_prepared()
    node.see()
    node.hook()
    assert (node.runs(), node.phase(), node.state.disabled) == (["prepare", "restore", "verify"], EventPhase.RESTORING, True)
    node.hook()
    assert (node.phase(), node.state.disabled) == (EventPhase.DONE, False)
    node.pass_by(86_000)
    node.wait(1)
    assert node.phase() is EventPhase.DONE
    node.pass_by(400)
    node.wait(1)
    assert node.phase() is None


@row("RESTORING", "hook and verify succeed")
def test_event_that_comes_back_is_prepared_for_again_and_not_approved_again() -> None:
    node = Node().to_prepared()
    node.post()
    node.see()
    node.hook()
    node.hook()
    node.clear()
    node.see(event())
    assert (node.phase(), node.runs()) == (EventPhase.PREPARING, ["prepare"])
    node.hook()
    assert (node.phase(), node.posts()) == (EventPhase.APPROVED, [])


@row("RESTORING", "fails")
def test_failed_restore_is_tried_for_ever_with_longer_waits_and_an_alarm() -> None:
    node = Node().to_prepared()
    node.see()
    node.clear()
    for number in range(1, 30):
        node.hook(ok=False, detail="exit status 1") if number % 2 else (node.hook(), node.hook(ok=False))
        assert (node.phase(), node.state.disabled) == (EventPhase.RESTORE_FAILED, True)
        assert node.warned().count("agent_restore_failed") == number
        why = unready_reason(node.state, Now(node.wall, node.steady), node.settings)
        assert why.startswith(f"the node is not restored after {number} attempt") and "out of service" in why
        wait = min(300.0, 2.0 ** (number - 1))
        node.wait(wait - 0.5)
        assert node.state.run is None
        node.wait(0.5)
        assert node.state.run is not None and node.phase() is EventPhase.RESTORING
    node.hook()
    node.hook()
    assert (node.phase(), node.state.disabled) == (EventPhase.DONE, False)
    node.see()
    assert unready_reason(node.state, Now(node.wall, node.steady), node.settings) == ""


@row("RESTORING", "fails")
def test_agent_that_restarts_before_the_restore_succeeds_is_not_ready() -> None:
    node = Node().to_prepared()
    node.see()
    node.hook(ok=False, detail="exit code 1")
    node.restart()
    node.blind()
    node.see()
    assert "restore failed: exit code 1" in unready_reason(node.state, Now(node.wall, node.steady), node.settings)
    node.hook()
    node.hook()
    assert unready_reason(node.state, Now(node.wall, node.steady), node.settings) == ""


@row("RESTORING", "new impactful event near")
def test_node_stays_out_of_service_for_an_event_that_comes_while_it_is_put_back() -> None:
    node = Node().to_prepared()
    node.see()
    assert node.runs() == ["prepare", "restore"]
    node.see(event("E2", in_s=1500))
    assert (node.stops(), node.phase("e1"), node.phase("e2")) == (1, EventPhase.DONE, EventPhase.WAITING)
    node.hook(ok=True)
    assert node.state.disabled, "what a stopped hook says does not count"
    node.wait(600)
    assert node.runs() == ["prepare", "restore", "prepare"]
    node.hook()
    node.see()
    assert (node.phase("e2"), node.runs()[3:]) == (EventPhase.RESTORING, ["restore"])


@row("RESTORING", "new impactful event near")
def test_node_is_put_back_when_the_next_event_is_far_off() -> None:
    node = Node().to_prepared()
    node.see()
    node.see(event("E2", in_s=7200))
    assert node.stops() == 0
    node.hook()
    node.hook()
    assert (node.state.disabled, node.phase("e1"), node.phase("e2")) == (False, EventPhase.DONE, EventPhase.WAITING)


@row("two or more events on this node", "one is gone")
def test_node_is_put_back_only_when_the_last_is_gone() -> None:
    node = Node()
    first, second = event("E1", in_s=20), event("E2", in_s=600, EventType="Reboot", DurationInSeconds=-1)
    node.see(first, second)
    node.hook()
    node.see(event("E1", status="Started"), second)
    node.see(second)
    assert (node.phase("e1"), node.state.disabled, node.runs()) == (EventPhase.DONE, True, ["prepare"])
    assert "e2" in node.record("e1").reason
    node.wait(571)
    assert (node.phase("e2"), node.runs()) == (EventPhase.PREPARING, ["prepare", "prepare"])
    node.hook()
    node.see()
    assert node.runs() == ["prepare", "prepare", "restore"]


@row("two or more events on this node", "one is gone")
def test_last_event_puts_the_node_back_though_it_was_never_prepared_for() -> None:
    node = Node()
    node.see(event("E1", in_s=20), event("E2", in_s=600))
    node.hook()
    node.see(event("E2", in_s=600))
    assert node.runs() == ["prepare"]
    node.see()
    assert (node.phase("e2"), node.runs()) == (EventPhase.RESTORING, ["prepare", "restore"])


@row("two or more events on this node", "one is gone")
def test_hooks_never_run_beside_each_other() -> None:
    node = Node()
    node.see(event("E1", in_s=20), event("E2", in_s=15))
    assert node.runs() == ["prepare"]
    assert [each.record.event.event_id for each in node.did if isinstance(each, RunHook) and each.record] == ["e2"], "the sooner first"
    node.hook()
    assert node.runs() == ["prepare", "prepare"]
    node.hook()
    assert node.phase("e1") is node.phase("e2") is EventPhase.PREPARED
