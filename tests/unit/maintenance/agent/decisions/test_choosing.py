"""The rule that decides, the time when preparing is due, and the times when the agent has to be awake."""

from __future__ import annotations

import pytest

from shared.maintenance.agent.config.settings import AgentSettings
from shared.maintenance.agent.decisions.event_rules import choose, prepare_at
from shared.maintenance.agent.decisions.step import next_wake
from shared.maintenance.agent.effects import Approve, RunHook, WriteLog
from shared.maintenance.agent.model import EventPhase, LeasedApproval, Now, ScheduledEvent
from shared.maintenance.agent.observations import ApprovalPosted
from shared.maintenance.agent.policy import ActionRule, FleetPolicy
from tests.unit.maintenance.agent.agent_node import HOOKS, SETTINGS, START, VM, Node, event


def one(type: str = "Freeze", duration: int = 9, source: str = "Platform", names: tuple[str, ...] = (VM,)) -> ScheduledEvent:
    return ScheduledEvent("e1", "E1", type, "Scheduled", START, source, duration, names)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "action"),
    [
        (one(), "prepare"),
        (one(duration=0), "approve"),
        (one("Reboot", 0), "approve"),
        (one("Terminate", 0), "prepare"),
        (one("Preempt", 0), "prepare"),
        (one("", 0), "prepare"),
        (one(duration=-1), "prepare"),
        (one("Reboot", -1, "User"), "approve"),
        (one("Terminate", -1, "User"), "prepare"),
        (one("Preempt", -1, "User"), "prepare"),
    ],
)
def test_without_rules_users_and_what_is_no_impact_are_approved(found: ScheduledEvent, action: str) -> None:
    assert choose(found, SETTINGS) == action


def test_rule_early_prepares_at_once_and_approves_as_soon_as_the_node_is_prepared() -> None:
    node = Node().with_settings(rules=(ActionRule("prepare", type="Redeploy", early=True),))
    node.see(event("E2"), event(in_s=3 * 86_400, EventType="Redeploy"))
    assert (node.runs(), node.phase("e2"), node.posts()) == (["prepare"], EventPhase.WAITING, [])
    node.hook()
    assert node.posts() == ["e1"]


def test_rule_early_of_the_file_gives_way_to_a_stricter_one_of_the_fleet() -> None:
    settings = AgentSettings(vm=VM, rules=(ActionRule("prepare", type="Redeploy", early=True),), hooks=HOOKS)
    held = settings.following(FleetPolicy(rules=(ActionRule("hold"),)))
    assert choose(one("Redeploy"), held) == "hold"
    first = AgentSettings(vm=VM, rules=(ActionRule("prepare"), ActionRule("prepare", type="Redeploy", early=True)))
    assert prepare_at(one("Redeploy"), first) == START - 30_000, "the first rule that matches decides"


def test_first_rule_that_fits_decides() -> None:
    rules = (
        ActionRule("ignore", resources=frozenset({"vm-9"})),
        ActionRule("hold", type="reboot", source="User"),
        ActionRule("approve", type="Freeze", max_seconds=5),
        ActionRule("hold", max_seconds=60),
        ActionRule("prepare"),
    )
    settings = AgentSettings(vm=VM, rules=rules)
    for found, action in (
        (one(names=(VM, "vm-9"), duration=1), "ignore"),
        (one("Reboot", -1, "User"), "hold"),
        (one("Freeze", 5), "approve"),
        (one("Freeze", 6), "hold"),
        (one("Freeze", -1), "prepare"),
        (one("Redeploy", -1, "User"), "prepare"),
    ):
        assert choose(found, settings) == action, found
        rehearsed = ScheduledEvent(found.event_id, found.raw_id, found.type, "Scheduled", duration=found.duration, rehearsal=True)
        assert choose(rehearsed, settings) == "prepare"


def test_preparing_is_due_by_the_lead_of_its_type() -> None:
    settings = AgentSettings(vm=VM, lead=30, leads={"Reboot": 120.0, "Preempt": 5.0})
    assert prepare_at(one(), settings) == START - 30_000
    assert prepare_at(one("Reboot"), settings) == START - 120_000
    assert prepare_at(one("Preempt"), settings) == 0, "a Preempt gives too little time to wait"


def test_ignored_event_is_neither_prepared_for_nor_approved_nor_keeps_the_node_away() -> None:
    node = Node().with_settings(rules=(ActionRule("ignore", type="Reboot"),))
    node.see(event(in_s=20), event("E2", EventType="Reboot", in_s=400))
    node.hook()
    node.post()
    node.see(event("E2", EventType="Reboot", in_s=400))
    node.hook()
    node.hook()
    node.wait(500)
    assert (node.runs(), node.posts(), node.state.disabled) == (["prepare", "restore", "verify"], ["e1"], False)
    node.see(event("E2", EventType="Reboot", status="Started"))
    node.see()
    assert node.runs() == ["prepare", "restore", "verify"]


def test_ignored_event_is_approved_where_the_fleet_grants_it() -> None:
    node = Node().with_settings(rules=(ActionRule("ignore"),), central=True)
    node.see(event())
    node.answer(grants=(LeasedApproval("g1", "e1", node.steady + 5, node.wall + 60_000),))
    assert node.posts() == ["e1"]


def test_agent_wakes_when_the_next_thing_is_due() -> None:
    def wake() -> float | None:
        return next_wake(node.state, Now(node.wall, node.steady), node.settings)

    node = Node()
    assert wake() is None
    node.see(event(in_s=900), event("E2", in_s=600))
    assert wake() == 570
    node.wait(570)
    node.hook(ok=False)
    assert wake() == 1
    node.wait(1)
    node.hook()
    assert wake() == 299
    node.post("busy", 0, id="e2")
    assert wake() == 1
    node.see()
    assert node.runs()[-1] == "restore" and wake() is None
    node.hook(ok=False)
    assert wake() == 1
    node = Node().with_settings(central=True)
    node.to_prepared()
    node.app_away()
    assert wake() == 10


# -- hooks that are not configured


def test_without_a_prepare_hook_the_node_is_prepared_at_once_and_never_put_back() -> None:
    node = Node(AgentSettings(vm=VM, hooks={"restore": 60.0, "emergency": 5.0}))
    node.see(event(in_s=20))
    assert (node.posts(), node.runs(), node.state.disabled) == (["e1"], [], False)
    node.post()
    node.see()
    assert node.runs() == []


def test_without_an_emergency_hook_an_operators_drain_is_not_undone_by_a_failure_of_hardware() -> None:
    node = Node(AgentSettings(vm=VM, hooks={key: HOOKS[key] for key in ("prepare", "restore", "verify")}))
    node.see(event(status="Started"))
    node.see()
    assert node.runs() == []


@pytest.mark.parametrize("runs", [[], ["restore"], ["verify"], ["restore", "verify"]])
def test_putting_back_goes_by_the_hooks_that_there_are(runs: list[str]) -> None:
    node = Node(AgentSettings(vm=VM, hooks={key: HOOKS[key] for key in ("prepare", *runs)}))
    node.see(event(in_s=20))
    node.hook()
    node.clear()
    node.see()
    for _ in runs:
        node.hook()
    assert (node.runs(), node.state.disabled) == (runs, False)


# -- hooks and answers out of turn


def test_hook_that_does_not_end_is_reported_and_stopped() -> None:
    node = Node()
    node.see(event(in_s=20))
    node.wait(89)
    assert node.stops() == 0
    node.wait(60)
    assert (node.stops(), node.warned().count("agent_hook_overdue")) == (1, 1)
    node.hook(ok=True)
    assert node.runs() == ["prepare", "prepare"], "what was stopped does not count"


def test_post_that_is_answered_after_the_event_began_or_went_changes_no_phase() -> None:
    node = Node().to_prepared()
    node.see(event(status="Started"))
    node.post()
    assert str(node.phase()) == "STARTED"
    node.see()
    node.hook()
    node.hook()
    node.observe(ApprovalPosted("e1", "busy", 503))
    assert str(node.phase()) == "DONE"
    node.observe(ApprovalPosted("nobody", "accepted", 200))


def test_lines_about_an_event_name_it() -> None:
    node = Node().to_prepared()
    node.post()
    lines = [each for each in node.did if isinstance(each, WriteLog) and each.action != "agent_gap_observed"]
    assert len(lines) >= 6 and all(each.event_id == "e1" and each.fields["type"] == "Freeze" for each in lines)


def test_effects_come_with_what_they_need() -> None:
    node = Node().to_prepared()
    (run,) = [each for each in node.did if isinstance(each, RunHook)]
    (post,) = [each for each in node.did if isinstance(each, Approve)]
    assert run.record is not None and (run.kind, run.deadline, run.attempt, run.record.event.type) == ("prepare", 60.0, 1, "Freeze")
    assert (post.raw_id, post.attempt, post.grant) == ("E1", 1, "")
