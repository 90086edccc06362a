"""Rows of the state table: with the fleet's guard `prepare`, a node waits for permission, and never too long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.clock import to_text
from shared.maintenance.agent.decisions.permission import latest_start
from shared.maintenance.agent.decisions.step import next_wake
from shared.maintenance.agent.model import EventPhase, Now, ScheduledEvent
from shared.maintenance.agent.observations import AppCommand
from shared.maintenance.agent.policy import FleetPolicy
from tests.texts import assert_text
from tests.unit.maintenance.agent.agent_node import SETTINGS, START, VM, Node, Raw, event
from tests.unit.maintenance.agent.decisions.state_table import row

HOOKS = {**SETTINGS.hooks, "prepare": 10.0}
GUARDED = FleetPolicy(lead=60.0, guard="prepare")
BUSY = {"e1": "n2 of fault domain 1 is prepared"}


def asking(policy: FleetPolicy = GUARDED, raw: Raw | None = None) -> Node:
    """Return a node with an event whose NotBefore is 900 s away. It prepares 60 s before, and 10 s before at the latest."""
    node = Node(replace(SETTINGS, central=True, fleet="db", hooks=HOOKS))
    node.answer(policy=policy)
    node.see(event() if raw is None else raw)
    node.clear()
    return node


@row("WAITING", "its time comes; the guard is `prepare`, and permits")
def test_with_permission_the_node_prepares_at_not_before_minus_the_lead() -> None:
    node = asking()
    node.answer(permitted=frozenset({"e1"}))
    node.wait(839)
    assert node.phase() is EventPhase.WAITING
    node.wait(1)
    assert (node.phase(), node.runs(), node.warned()) == (EventPhase.PREPARING, ["prepare"], [])


@row("WAITING", "its time comes; the guard is `prepare`, and permits")
def test_permission_counts_while_the_app_is_away() -> None:
    node = asking()
    node.answer(permitted=frozenset({"e1"}))
    node.wait(839)
    node.app_away()
    node.wait(1)
    assert node.phase() is EventPhase.PREPARING


@row("WAITING", "its time comes; the guard is `prepare`, and refuses")
def test_refused_the_node_waits_until_its_prepare_hook_needs_the_rest_of_the_time() -> None:
    node = asking()
    node.answer(refused=BUSY)
    assert_text("agent.prepare-refused", node.record().reason, reason="n2 of fault domain 1 is prepared")
    node.wait(889)
    assert (node.phase(), node.logged()) == (EventPhase.WAITING, ["agent_prepare_refused"])
    node.wait(1)
    assert (node.phase(), node.warned()) == (EventPhase.PREPARING, ["agent_prepare_forced"])


@row("WAITING", "its time comes; the guard is `prepare`, and refuses")
def test_permission_after_a_refusal_is_used_at_once() -> None:
    node = asking()
    node.answer(refused=BUSY)
    node.wait(870)
    node.answer(permitted=frozenset({"e1"}))
    assert (node.phase(), node.warned(), node.record().reason) == (EventPhase.PREPARING, [], "")


@row("WAITING", "its time comes; the guard is `prepare`, and refuses")
def test_permission_can_be_withdrawn_until_the_node_begins() -> None:
    node = asking()
    node.answer(permitted=frozenset({"e1"}))
    node.answer(refused=BUSY)
    node.wait(860)
    assert node.phase() is EventPhase.WAITING


@row("WAITING", "its time comes; the guard is `prepare`, and refuses")
def test_a_person_or_an_early_approval_ends_the_wait() -> None:
    node = asking()
    node.answer(refused=BUSY, commands=(AppCommand("c1", "e1", "prepare"),))
    assert (node.phase(), node.warned()) == (EventPhase.PREPARING, [])


@row("WAITING", "its time comes; the guard is `prepare`, and refuses")
def test_a_refused_event_does_not_keep_a_node_out_of_service() -> None:
    node = asking()
    node.answer(permitted=frozenset({"e1"}))
    node.wait(840)
    node.hook()
    node.answer(refused={"e2": "n2 goes first"})
    node.see(event("E2", in_s=1500))
    node.answer(refused={"e2": "n2 goes first"})
    assert node.runs() == ["prepare", "restore"], "others wait until this node is back"


@row("WAITING", "its time comes; the guard is `prepare`, and the app is silent")
def test_without_an_answer_the_node_prepares_at_not_before_minus_the_lead() -> None:
    node = asking()
    node.app_away()
    node.wait(839)
    assert node.phase() is EventPhase.WAITING
    node.wait(1)
    assert (node.phase(), "agent_prepare_forced" in node.warned()) == (EventPhase.PREPARING, False)


@row("WAITING", "its time comes; the guard is `prepare`, and the app is silent")
def test_one_lost_call_does_not_end_a_refusal() -> None:
    node = asking()
    node.answer(refused=BUSY)
    node.wait(850)
    node.app_away()
    node.wait(9)
    assert node.phase() is EventPhase.WAITING
    node.wait(1)
    assert node.phase() is EventPhase.PREPARING


@row("WAITING", "its time comes; the guard is `prepare`, and the app is silent")
def test_short_notice_waits_for_the_first_answer_for_the_patience() -> None:
    node = asking(raw=event(in_s=50))
    assert node.phase() is EventPhase.WAITING
    node.wait(9)
    assert node.phase() is EventPhase.WAITING
    node.wait(1)
    assert node.phase() is EventPhase.PREPARING


@row("WAITING", "its time comes; the guard is `prepare`, and the app is silent")
def test_a_started_agent_asks_again_before_it_prepares() -> None:
    node = asking()
    node.answer(refused=BUSY)
    node.wait(850)
    node.restart()
    node.see(event())
    node.wait(5)
    assert node.phase() is EventPhase.WAITING
    node.answer(refused=BUSY)
    node.wait(20)
    assert node.phase() is EventPhase.WAITING


@row("WAITING", "its time comes; the guard is `prepare`, and the app is silent")
def test_an_event_without_a_readable_not_before_is_prepared_for_at_once() -> None:
    node = asking(raw=event(in_s=None))
    assert node.runs() == []
    assert node.phase() is EventPhase.PREPARING


@row("WAITING", "its time comes, or the fleet approves early")
@pytest.mark.parametrize(("kind", "wait"), [("Preempt", 0), ("Terminate", 240)])
def test_an_event_that_removes_the_machine_waits_for_no_permission(kind: str, wait: int) -> None:
    """It cannot be delayed, and a Preempt leaves 30 s. A Terminate begins at its lead."""
    node = asking()
    node.answer(refused={"e2": BUSY["e1"]})
    node.see(event("E2", in_s=300, EventType=kind))
    if wait:
        node.answer(refused={"e2": BUSY["e1"]})
        node.wait(wait - 1)
        assert node.phase("e2") is EventPhase.WAITING
        node.wait(1)
    assert (node.phase("e2"), node.warned()) == (EventPhase.PREPARING, [])


@row("WAITING", "its time comes, or the fleet approves early")
def test_with_the_guard_approve_refusals_mean_nothing() -> None:
    node = asking(FleetPolicy(lead=60.0))
    node.answer(refused=BUSY)
    node.wait(840)
    assert node.phase() is EventPhase.PREPARING


@row("WAITING", "its time comes, or the fleet approves early")
def test_an_app_that_goes_back_to_a_former_release_ends_the_wait() -> None:
    node = asking()
    node.answer(refused=BUSY)
    node.wait(850)
    node.answer(policy=FleetPolicy(lead=60.0))
    assert node.phase() is EventPhase.PREPARING


@pytest.mark.parametrize(("lead", "deadline", "seconds"), [(60.0, 10.0, 10), (30.0, 60.0, 15), (30.0, 30.0, 15), (0.0, 60.0, 0)])
def test_a_deadline_that_does_not_fit_into_the_lead_counts_as_half_of_it(lead: float, deadline: float, seconds: int) -> None:
    found = ScheduledEvent("e1", "E1", "Freeze", "Scheduled", START, resources=(VM,))
    settings = replace(SETTINGS, lead=lead, hooks={"prepare": deadline})
    assert to_text(latest_start(found, settings)) == to_text(START - 1000 * seconds)


def test_the_next_timer_of_a_refused_node_is_its_latest_start() -> None:
    node = asking()
    node.answer(refused=BUSY)
    assert next_wake(node.state, Now(node.wall, node.steady), node.settings) == 890
    node.answer(permitted=frozenset({"e1"}))
    assert next_wake(node.state, Now(node.wall, node.steady), node.settings) == 840
