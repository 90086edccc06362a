"""Rows of the state table: the impact begins and ends, and the node is restored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.maintenance.agent.decisions.step import unready_reason
from shared.maintenance.agent.effects import RunHook
from shared.maintenance.agent.model import EventPhase, Now
from shared.maintenance.agent.policy import FleetPolicy
from tests.unit.maintenance.agent.agent_node import START, VM, Node, event
from tests.unit.maintenance.agent.decisions.state_table import row


def _elapsed(node: Node) -> int:
    """Return the seconds since the start of the test, from which NotBefore of events is counted."""
    return (node.wall - START) // 1000


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
@pytest.mark.parametrize(("restore", "ahead", "restored"), [(20, 261, True), (20, 259, False), (80, 281, False), (None, 301, True)])
def test_near_is_the_lead_the_longest_restore_and_the_catch_up_time(restore: int | None, ahead: int, restored: bool) -> None:
    """ahead: seconds from the end of one event to the preparation for the next. The lead is 120 s, as is the catch-up time; 60 s are
    assumed for the first restore."""
    node = Node().with_settings(central=True, near=None)
    node.answer(policy=FleetPolicy(lead=120.0, catch_up=120.0))
    node.state = replace(node.state, disabled=True, restores=() if restore is None else (5.0, float(restore), 1.0))
    node.restart()
    node.see(event("E2", in_s=_elapsed(node) + ahead + 120))
    assert (node.runs() == ["restore"]) == restored


@row("RESTORING", "new impactful event near")
def test_a_node_remembers_how_long_its_last_restores_took_over_restarts() -> None:
    node = Node().to_prepared()
    node.state = replace(node.state, restores=(1.0, 2.0, 3.0, 4.0, 5.0))
    node.see()
    for _ in range(2):
        node.wait(30)
        node.hook()
    node.restart()
    assert node.state.restores == (2.0, 3.0, 4.0, 5.0, 60.0)


@row("RESTORING", "new impactful event near")
def test_a_node_is_put_back_between_two_events_of_azures_usual_notice() -> None:
    """The next event is 14 minutes away, and the fleet's catch-up time is the usual one."""
    node = Node().with_settings(central=True, near=None).to_prepared()
    node.answer(policy=FleetPolicy(lead=30.0, catch_up=600.0))
    node.see(event("E2", in_s=_elapsed(node) + 840))
    assert node.runs() == ["prepare", "restore"]


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
