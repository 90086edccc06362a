"""Rows of the state table: the agent starts again, cannot read, cannot ask, is asked by the fleet, ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared.maintenance.agent.decisions.step import unready_reason
from shared.maintenance.agent.effects import SendReport, SendResult, StopHook
from shared.maintenance.agent.model import ElectedMonitors, EventPhase, EventsDocument, LeasedApproval, Now, ScheduledEvent
from shared.maintenance.agent.observations import DocumentRead, StartUp
from shared.maintenance.agent.policy import FleetPolicy
from tests.texts import assert_text
from tests.unit.maintenance.agent.agent_node import START, VM, Node, event
from tests.unit.maintenance.agent.decisions.state_table import row

# -- start-up


@row("start-up", "listed Started")
def test_restart_of_the_machine_was_expected_where_its_event_has_begun() -> None:
    node = Node().to_prepared()
    node.post()
    node.restart(boot="boot-2")
    node.clear()
    node.see(event(status="Started"))
    assert (node.phase(), "agent_restart_expected" in node.logged(), node.runs()) == (EventPhase.STARTED, True, [])


@row("start-up", "listed Started")
def test_restart_of_the_agent_alone_is_unexpected() -> None:
    node = Node().to_prepared()
    node.post()
    node.see(event(status="Started"))
    node.restart()
    node.clear()
    node.see(event(status="Started"))
    assert (node.phase(), "agent_restart_unexpected" in node.warned()) == (EventPhase.STARTED, True)


@row("start-up", "listed Started")
def test_services_that_came_up_at_boot_are_taken_down_again_where_the_setting_says_so() -> None:
    for boot, after, runs in (("boot-2", "prepare", ["prepare"]), ("boot-2", "keep", []), (None, "prepare", [])):
        node = Node().with_settings(after_reboot=after)
        node.to_prepared()
        node.post()
        node.restart(boot=boot)
        node.clear()
        node.see(event(status="Started"))
        assert (node.runs(), node.posts(), node.phase()) == (runs, [], EventPhase.STARTED)
        if runs:
            node.hook()
        node.see()
        assert node.runs() == [*runs, "restore"], "and put back in any case"


@row("start-up", "listed Scheduled, was PREPARED")
def test_node_prepared_before_its_boot_is_prepared_again() -> None:
    for approved in (False, True):
        node = Node()
        names = (VM,) if approved else (VM, "vm-2")
        node.to_prepared(names=names)
        if approved:
            node.post()
        node.restart(boot="boot-2")
        node.clear()
        node.wait(5)
        assert node.runs() == [], "the document tells first"
        node.see(event(names=names))
        assert (node.phase(), node.runs()) == (EventPhase.PREPARING, ["prepare"])
        node.hook()
        assert (node.phase(), node.posts()) == (EventPhase.APPROVED if approved else EventPhase.PREPARED, [])


@row("start-up", "listed Scheduled, was PREPARED")
def test_node_prepared_in_this_boot_is_still_prepared_after_the_agent_restarts() -> None:
    node = Node().to_prepared()
    node.restart()
    node.clear()
    assert node.posts() == []
    node.see(event())
    assert (node.phase(), node.runs(), node.posts()) == (EventPhase.PREPARED, [], ["e1"])


@row("any", "metadata service unreachable, or nonsense")
def test_timers_known_from_before_a_start_wait_for_a_look_but_not_for_long() -> None:
    for told in ("a look", "a failed look", "time"):
        node = Node()
        node.see(event(in_s=60))
        node.restart(away=40)
        assert node.runs() == []
        if told == "a look":
            node.see(event(in_s=60))
        elif told == "a failed look":
            node.blind()
        else:
            node.wait(5)
        assert node.runs() == ["prepare"]


@row("start-up", "gone")
def test_node_that_was_waiting_when_it_booted_is_not_taken_down_before_a_document_arrives() -> None:
    node = Node()
    node.see(event(in_s=60))
    node.restart(boot="boot-2", away=120)
    node.blind()
    node.wait(60)
    assert node.runs() == []
    node.see()
    assert (node.phase(), node.runs()) == (EventPhase.DONE, [])


@row("start-up", "gone")
def test_node_is_put_back_when_the_event_went_while_the_agent_was_down() -> None:
    for boot in (None, "boot-2"):
        node = Node().to_prepared()
        node.restart(boot=boot)
        node.clear()
        node.wait(5)
        assert node.runs() == []
        node.see()
        assert (node.phase(), node.record().outcome, node.runs()) == (EventPhase.RESTORING, "completed or cancelled", ["restore"])
    node = Node()
    node.see(event())
    node.restart()
    node.clear()
    node.see()
    assert (node.phase(), node.runs()) == (EventPhase.DONE, [])


@row("start-up", "state corrupt or lost")
def test_node_is_put_back_only_where_our_mark_is_found() -> None:
    for found in ("corrupt", "none"):
        for marker in (True, False):
            node = Node(started=False)
            node.observe(StartUp("boot-1", found, marker))  # type: ignore[arg-type]
            node.wait(5)
            assert node.runs() == [], "not before a document tells that nothing is coming"
            node.see(event(in_s=600))
            assert node.runs() == []
            node.see()
            assert node.runs() == (["restore"] if marker else []), (found, marker)
            assert ("agent_state_unreadable" in node.warned()) is (found == "corrupt")
            if marker:
                node.hook()
                node.hook()
            assert not node.state.disabled


# -- any


@row("any", "metadata service unreachable, or nonsense")
def test_timers_run_on_what_is_known_while_nothing_can_be_read() -> None:
    node = Node()
    node.see(event(in_s=60))
    node.blind("HTTP 500")
    node.wait(30)
    assert (node.phase(), node.runs()) == (EventPhase.PREPARING, ["prepare"])
    node.hook()
    assert (node.phase(), node.posts()) == (EventPhase.PREPARED, [])
    node.see(event(in_s=60), same=True)
    assert node.posts() == ["e1"]


@row("any", "metadata service unreachable, or nonsense")
def test_nothing_is_put_back_while_nothing_can_be_read() -> None:
    node = Node().to_prepared()
    node.see()
    node.hook(ok=False)
    node.blind("the body is empty")
    node.wait(300)
    assert node.runs() == ["prepare", "restore"]
    node.see(same=True)
    assert node.runs() == ["prepare", "restore", "restore"]


@row("any", "metadata service unreachable, or nonsense")
def test_agent_is_not_ready_when_nothing_could_be_read_for_a_while() -> None:
    node = Node(started=False)
    assert "no document yet" in unready_reason(node.state, Now(node.wall, node.steady), node.settings)
    node = Node()
    node.blind("HTTP 500")
    assert unready_reason(node.state, Now(node.wall, node.steady), node.settings) == ""
    node.wait(61)
    assert "HTTP 500" in unready_reason(node.state, Now(node.wall, node.steady), node.settings)


@row("any", "same document")
def test_same_document_changes_nothing_and_timers_still_run() -> None:
    node = Node()
    node.see(event(in_s=60))
    before = node.state.events
    node.see(event(in_s=60), same=True)
    assert node.state.events is before
    node.pass_by(31)
    node.see(event(in_s=60), same=True)
    assert node.runs() == ["prepare"]


@row("any", "same document")
@pytest.mark.parametrize("outage", [False, True])
def test_same_incarnation_with_other_events_is_a_new_document(outage: bool) -> None:
    node = Node().to_prepared()
    node.post()
    node.see(event(status="Started"), same=True)
    assert node.phase() is EventPhase.STARTED
    node.clear()
    if outage:
        node.blind()
    node.see(same=True)
    assert node.runs() == ["restore"], "the event is gone, and the node goes back into service"
    node.hook()
    node.hook()
    assert (node.phase(), node.state.disabled) == (EventPhase.DONE, False)


@row("any", "same document")
def test_event_that_changes_under_one_incarnation_is_prepared_for_in_time() -> None:
    node = Node()
    node.see(event(in_s=900))
    node.see(event(in_s=20), same=True)
    assert node.runs() == ["prepare"]


@row("any", "same document")
def test_incarnation_that_fell_back_is_a_new_document() -> None:
    node = Node()
    node.incarnation = 40
    node.see(event())
    node.incarnation = 2
    node.see()
    assert node.phase() is EventPhase.DONE


@row("any", "clock differs")
def test_clock_that_differs_from_the_services_is_warned_about_once_until_it_agrees() -> None:
    node = Node()
    found = EventsDocument(9, ())

    def warned(*errors: float | None) -> tuple[list[str], list[str]]:
        node.clear()
        for error in errors:
            node.observe(DocumentRead(found, error))
        return node.warned(), [each for each in node.logged() if each.startswith("agent_clock")]

    assert warned(None, 0, 5, -5) == ([], [])
    assert warned(5.1, 5.1, None, 3, -60, 5.1) == (["agent_clock_wrong"], ["agent_clock_wrong"])
    assert "ahead of" in str(node.did)
    assert warned(2.5, 0, 4) == ([], ["agent_clock_right"])
    assert warned(-5.1) == (["agent_clock_wrong"], ["agent_clock_wrong"]) and "behind" in str(node.did)


@row("any", "gap between ticks")
def test_gap_is_recorded_as_the_impact_of_the_event_and_timers_are_looked_at_again() -> None:
    node = Node().to_prepared()
    node.post()
    node.see(event(status="Started"), event("E2", in_s=960))
    node.wait(1)
    node.clear()
    node.pass_by(58)
    node.wait(1)
    assert (node.record().observed_ms, "agent_impact_observed" in node.logged(), node.has(SendReport)) == (59_000, True, True)
    assert node.record("e2").observed_ms == 0
    assert (node.phase("e2"), node.runs()) == (EventPhase.PREPARING, ["prepare"])
    node.pass_by(1.5)
    node.wait(1)
    assert node.record().observed_ms == 59_000, "a short gap is none"


@row("any", "gap between ticks")
def test_frozen_machine_whose_steady_clock_stood_still_is_seen_by_its_wall_clock() -> None:
    node = Node().to_prepared()
    node.see(event(status="Started"))
    node.wait(1)
    node.wall += 9_000
    node.wait(1)
    assert node.record().observed_ms == 10_000


@row("Preempt, Terminate", "gone, and the node lives")
def test_node_that_outlived_its_end_is_put_back() -> None:
    for kind in ("Preempt", "Terminate"):
        node = Node()
        node.see(event(EventType=kind, in_s=20))
        node.hook()
        node.post()
        node.see(event(EventType=kind, status="Started"))
        node.see()
        assert node.runs() == ["prepare", "restore"]


@row("any", "the app is unreachable")
def test_local_rules_prepare_in_time_though_a_grant_is_required() -> None:
    node = Node().with_settings(central=True, require_central=True)
    node.app_away()
    node.app_away()
    assert node.logged().count("agent_app_away") == 1
    node.see(event(in_s=60))
    node.wait(30)
    assert node.runs() == ["prepare"]
    node.hook()
    assert (node.phase(), node.posts()) == (EventPhase.PREPARED, [])
    node.answer(monitors=ElectedMonitors("n1", "n2", 3))
    assert node.posts() == ["e1"] and "agent_app_back" in node.logged()


@row("any", "the app refuses this agent")
@pytest.mark.parametrize("kind", [{}, {"EventSource": "User"}, {"DurationInSeconds": 0}], ids=["prepared", "user", "harmless"])
def test_an_agent_that_the_app_refuses_prepares_in_time_and_approves_nothing(kind: dict[str, Any]) -> None:
    """A wrong key is no outage: nobody orders this node among the others until a person has acted."""
    node = Node().with_settings(central=True)
    node.answer(policy=FleetPolicy(lead=30.0, guard="prepare"))
    node.app_refuses()
    node.app_refuses()
    assert node.warned().count("agent_refused") == 1 and "agent_app_away" not in node.logged()
    node.see(event(in_s=60, **kind))
    node.wait(30)
    assert node.runs() == ([] if kind else ["prepare"])
    if not kind:
        node.hook()
    node.app_away()
    node.wait(29)
    assert (node.posts(), unready_reason(node.state, Now(node.wall, node.steady), node.settings)) == (
        [],
        "the app refuses this agent: status 401: unknown key",
    )
    assert_text("agent.refused", node.record().reason)
    node.answer()
    assert node.posts() == ["e1"] and unready_reason(node.state, Now(node.wall, node.steady), node.settings) == ""


@row("any", "the app refuses this agent")
def test_a_leased_approval_ends_when_the_app_refuses_the_agent() -> None:
    node = Node().with_settings(central=True)
    node.see(event(names=("vm-2",)))
    until = node.steady + 5
    node.state = replace(node.state, sighted=False)
    node.answer(grants=(LeasedApproval("g1", "e1", until, node.wall + 100_000),))
    assert "e1" in node.state.app.grants
    node.app_refuses()
    node.see(event(names=("vm-2",)))
    assert (node.state.app.grants, node.posts()) == ({}, [])


@row("any", "SIGTERM")
def test_ending_agent_puts_nothing_back_and_approves_nothing() -> None:
    node = Node().with_settings(central=True)
    node.to_prepared()
    node.clear()
    node.stop()
    node.answer()
    node.wait(60)
    node.see()
    node.wait(60)
    assert (node.posts(), node.runs()) == ([], [])
    node = Node()
    node.see(event(in_s=20))
    node.stop()
    assert node.stops() == 1
    node.hook(ok=True)
    assert (node.phase(), node.posts()) == (EventPhase.PREPARING, []), "begun again with the next start"
    node.restart()
    assert node.runs() == ["prepare"]
    node.blind()
    assert node.runs() == ["prepare", "prepare"]


# -- from the fleet


@row("FOREIGN", "the fleet leases its approval to this agent")
def test_agent_relays_the_approval_of_an_event_of_others() -> None:
    node = Node().with_settings(central=True)
    node.see(event(names=("vm-2",)))
    node.answer(grants=(LeasedApproval("g1", "e1", node.steady + 5, node.wall + 900_000),))
    assert (node.posts(), node.runs()) == (["e1"], [])
    node.post()
    assert (node.phase(), [each for each in node.did if isinstance(each, SendResult)]) == (
        EventPhase.FOREIGN,
        [SendResult("g1", "posted", 200)],
    )


@row("FOREIGN", "the fleet leases its approval to this agent")
def test_lease_of_what_is_gone_begun_or_run_out_is_not_used() -> None:
    node = Node().with_settings(central=True)
    node.see(event("E2", names=("vm-2",), status="Started"))
    node.answer(
        grants=(
            LeasedApproval("g1", "e1", node.steady + 5, node.wall + 900_000),
            LeasedApproval("g2", "e2", node.steady + 5, node.wall + 900_000),
        )
    )
    assert [each for each in node.did if isinstance(each, SendResult)] == [SendResult("g1", "gone"), SendResult("g2", "gone")]
    node.see(event("E3", names=("vm-2",)))
    node.answer(grants=(LeasedApproval("g3", "e3", node.steady, node.wall + 900_000),))
    node.answer(grants=(LeasedApproval("g4", "e3", node.steady + 5, node.wall),))
    assert node.posts() == []


@row("rehearsal", "the app sends one")
def test_rehearsal_runs_all_hooks_by_the_clock_and_is_never_posted() -> None:
    node = Node().with_settings(central=True)
    rehearsed = ScheduledEvent("r1", "r1", "Freeze", "Scheduled", START + 300_000, duration=9, rehearsal=True)
    node.answer(rehearsals=(rehearsed,))
    node.see()
    assert node.phase("r1") is EventPhase.WAITING, "documents say nothing of rehearsals"
    node.wait(270)
    node.hook()
    node.answer(rehearsals=(rehearsed,), grants=(LeasedApproval("g1", "r1", node.steady + 5, node.wall + 900_000),))
    assert (node.phase("r1"), node.posts()) == (EventPhase.PREPARED, [])
    node.wait(30)
    assert node.phase("r1") is EventPhase.STARTED
    node.wait(9)
    node.hook()
    node.hook()
    node.answer(rehearsals=(rehearsed,))
    node.wait(60)
    assert (node.phase("r1"), node.runs(), node.posts()) == (EventPhase.DONE, ["prepare", "restore", "verify"], [])


def test_effects_to_stop_a_hook_name_the_run() -> None:
    node = Node()
    node.see(event(in_s=20))
    run = node.state.run
    node.see()
    assert run is not None and [each for each in node.did if isinstance(each, StopHook)] == [StopHook(run.number)]
