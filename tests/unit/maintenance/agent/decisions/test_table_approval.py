"""Rows of the state table: a prepared node approves an event, or holds the approval; results of its POST."""

from __future__ import annotations

from typing import Any

import pytest

from shared.maintenance.agent.decisions import step
from shared.maintenance.agent.effects import Approve, PollNow
from shared.maintenance.agent.model import EventPhase, LeasedApproval
from tests.texts import assert_text
from tests.unit.maintenance.agent.agent_node import SETTINGS, VM, Node, event
from tests.unit.maintenance.agent.decisions.state_table import row

# -- WAITING


SHARED: dict[str, Any] = {"names": (VM, "vm-2"), "EventSource": "User"}


def heard_settings(**change: Any) -> Node:
    """Return a node that has its fleet's settings."""
    node = Node().with_settings(central=True, fleet="db", **change)
    node.answer()
    return node


@row("WAITING", "approved at once, names others too")
def test_an_event_that_needs_no_preparation_is_approved_by_the_agent_whose_turn_it_is() -> None:
    node = heard_settings()
    before = frozenset[str]()
    node.see(event(**SHARED))
    assert (node.posts(), node.record().at_once) == ([], True)
    node.answer(told=before)
    node.answer(approves={"e1": "n2"})
    assert (node.posts(), node.record().reason) == ([], "n2 approves it for all")
    assert node.logged().count("agent_approval_held") == 1
    node.answer()
    assert node.posts() == ["e1"]


@row("WAITING", "approved at once, names others too")
def test_an_event_that_another_agent_has_approved_is_approved_without_a_post() -> None:
    node = heard_settings()
    node.see(event(**SHARED))
    node.answer(approved={"e1": "n2"})
    assert (node.posts(), node.phase(), node.record().reason) == ([], EventPhase.APPROVED, "n2 has approved it for all")
    assert node.record().approved_at == node.wall
    node.see()
    assert (node.phase(), node.record().outcome) == (EventPhase.DONE, "completed or cancelled")


@row("WAITING", "approved at once, names others too")
def test_a_turn_counts_from_the_send_of_the_report_so_an_agent_that_was_stopped_asks_again() -> None:
    node = heard_settings()
    node.see(event(**SHARED))
    sent = node.steady
    node.pass_by(20)
    node.answer(until=sent + 20)
    assert node.posts() == []
    node.answer(until=node.steady + 20)
    assert node.posts() == ["e1"]


@row("WAITING", "approved at once, names others too")
def test_without_the_app_each_agent_approves_at_once_what_needs_no_preparation() -> None:
    node = heard_settings()
    node.see(event(**SHARED))
    node.answer(approves={"e1": "n2"})
    node.app_away()
    node.wait(9)
    assert node.posts() == []
    node.wait(1)
    assert node.posts() == ["e1"]


@row("WAITING", "approved at once, names others too")
def test_an_event_that_names_this_node_alone_waits_for_no_turn() -> None:
    node = heard_settings()
    node.see(event(EventSource="User"))
    assert (node.posts(), node.record().at_once) == (["e1"], True)


@row("WAITING", "approved at once, names others too")
def test_an_agent_that_azure_refuses_asks_for_no_further_turn() -> None:
    node = heard_settings(post_tries=1)
    node.see(event(**SHARED))
    node.answer()
    node.post("refused", 400)
    node.see(event(**SHARED))
    assert not node.record().at_once
    assert step.asked_events(node.state) == frozenset()


# -- PREPARED


@row("PREPARED", "only this node is named, or the fleet says that all named are prepared; and the guard agrees")
def test_the_turn_of_a_prepared_node_ends_too() -> None:
    node = Node().with_settings(central=True)
    node.to_prepared()
    node.answer(until=node.steady)
    assert node.posts() == []
    node.answer(until=node.steady + 20)
    assert node.posts() == ["e1"]


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
    assert node.posts() == []
    assert_text("agent.waits-for-answer", node.record().reason)
    node.answer(told=before)
    assert node.posts() == [], "the app has not heard yet that the node is prepared"
    assert "agent_approval_held" not in node.logged(), "as with every approval"
    node.answer(holds={"e1": "rack 2 is catching up"})
    assert node.logged().count("agent_approval_held") == 1
    assert node.posts() == []
    assert_text("agent.held", node.record().reason, reason="rack 2 is catching up")
    node.answer()
    assert node.posts() == ["e1"]


@row("PREPARED", "only this node is named, or the fleet says that all named are prepared; and the guard agrees")
def test_event_that_names_others_is_approved_once_the_app_has_seen_that_all_are_prepared() -> None:
    node = Node().with_settings(central=True)
    before = frozenset[str]()
    node.to_prepared(names=(VM, "vm-2"))
    node.answer(told=before)
    assert node.posts() == []
    assert_text("agent.waits-for-answer", node.record().reason)
    node.answer(holds={"e1": "vm-2 is preparing"})
    assert node.posts() == []
    assert_text("agent.held", node.record().reason, reason="vm-2 is preparing")
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
    assert node.posts() == []
    assert_text("agent.no-answer-yet", node.record().reason)
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
    assert node.posts() == []
    assert_text("agent.no-answer-but-required", node.record().reason)
    node = Node().with_settings(central=True)
    node.to_prepared(names=(VM, "vm-2"))
    node.app_away()
    node.wait(60)
    reason = "the event names other nodes too, and the app does not answer whether they are prepared"
    assert (node.posts(), node.record().reason) == ([], reason)


@row("PREPARED", "not yet")
def test_held_approval_says_why_and_lets_not_before_pass() -> None:
    node = Node().to_prepared(names=(VM, "vm-2"))
    assert_text("agent.other-nodes-named", node.record().reason)
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
