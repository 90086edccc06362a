"""The fleet's policy counts beside the file: the stricter of two rules, the file's lead before the fleet's; it is kept."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from itertools import product
from typing import get_args

import pytest

from shared.maintenance.agent.config.settings import AgentSettings
from shared.maintenance.agent.decisions.event_rules import choose, prepare_at, strictest
from shared.maintenance.agent.journal import Journal, decode, encode
from shared.maintenance.agent.model import EventPhase, NodeState, ScheduledEvent
from shared.maintenance.agent.observations import AppCommand
from shared.maintenance.agent.policy import Action, ActionRule, FleetPolicy
from tests.texts import assert_text
from tests.unit.maintenance.agent.agent_node import SETTINGS, START, VM, Node, event
from tests.unit.maintenance.agent.cuttable_disk import CuttableDisk

CENTRAL = replace(SETTINGS, central=True, fleet="db")
USERS = event(EventType="Reboot", EventSource="User", in_s=900)


def asked(*rules: ActionRule, **more: object) -> FleetPolicy:
    return replace(FleetPolicy(rules=rules), **more)  # type: ignore[arg-type]


def node_with(policy: FleetPolicy, settings: AgentSettings = CENTRAL) -> Node:
    """Return an agent that received these settings of its fleet."""
    node = Node(settings)
    node.answer(policy=policy)
    node.clear()
    return node


@pytest.mark.parametrize(("one", "other"), list(product(get_args(Action.__value__), repeat=2)))
def test_of_two_rules_it_is_prepared_where_one_says_so_and_approved_only_where_both_do(one: Action, other: Action) -> None:
    settings = AgentSettings(vm=VM, rules=(ActionRule(one),)).following(asked(ActionRule(other)))
    found = choose(ScheduledEvent("e1", "E1", "Reboot", "Scheduled", START, resources=(VM,)), settings)
    assert (found in ("prepare", "hold")) == (one in ("prepare", "hold") or other in ("prepare", "hold"))
    assert (found in ("approve", "prepare")) == (one in ("approve", "prepare") and other in ("approve", "prepare"))
    assert found == strictest((other, one))


def test_a_rule_of_one_side_alone_decides_and_without_any_the_house_does() -> None:
    users = ScheduledEvent("e1", "E1", "Reboot", "Scheduled", START, "User", resources=(VM,))
    platforms = replace(users, source="Platform")
    settings = AgentSettings(vm=VM, rules=(ActionRule("approve", source="Platform"),)).following(asked(ActionRule("hold", source="User")))
    assert (choose(users, settings), choose(platforms, settings)) == ("hold", "approve")
    settings = AgentSettings(vm=VM).following(asked(ActionRule("hold", type="Freeze")))
    assert (choose(users, settings), choose(platforms, settings)) == ("approve", "prepare")


@pytest.mark.parametrize(
    ("file", "fleet", "freeze", "reboot"),
    [
        (AgentSettings(VM), FleetPolicy(), 30, 30),
        (AgentSettings(VM), FleetPolicy(lead=60), 60, 60),
        (AgentSettings(VM), FleetPolicy(lead=60, leads={"Reboot": 120.0}), 60, 120),
        (AgentSettings(VM, lead=45), FleetPolicy(lead=60, leads={"Reboot": 120.0}), 45, 45),
        (AgentSettings(VM, leads={"Reboot": 5.0}), FleetPolicy(lead=60, leads={"Reboot": 120.0}), 60, 5),
        (AgentSettings(VM, lead=0), FleetPolicy(lead=60), 0, 0),
    ],
)
def test_lead_is_the_files_where_it_says_one_else_the_fleets(file: AgentSettings, fleet: FleetPolicy, freeze: int, reboot: int) -> None:
    for kind, lead in (("Freeze", freeze), ("Reboot", reboot)):
        found = ScheduledEvent("e1", "E1", kind, "Scheduled", START, resources=(VM,))
        assert prepare_at(found, file.following(fleet)) == START - lead * 1000


def test_timer_runs_by_the_fleets_lead_as_soon_as_that_is_known() -> None:
    node = node_with(asked(lead=60.0))
    node.see(event(in_s=900))
    node.wait(839)
    assert node.phase() is EventPhase.WAITING
    node.answer(policy=asked(lead=90.0))
    assert node.phase() is EventPhase.PREPARING


def test_a_message_is_logged_once_until_it_changes() -> None:
    node = Node(CENTRAL)
    node.answer(policy=asked(ActionRule("hold"), require_central=True))
    node.answer(policy=asked(ActionRule("hold"), require_central=True))
    assert node.logged().count("agent_fleet_settings") == 1
    node.answer(policy=asked())
    assert node.logged().count("agent_fleet_settings") == 2


def test_an_app_without_these_settings_leaves_what_is_known() -> None:
    node = node_with(asked(ActionRule("hold")))
    node.answer()
    node.see(USERS)
    assert (node.posts(), node.state.policy) == ([], asked(ActionRule("hold"), of="db"))


def test_grant_is_required_where_the_fleet_says_so_though_the_file_does_not() -> None:
    node = node_with(asked(require_central=True)).to_prepared()
    node.app_away()
    node.wait(600)
    assert node.posts() == []
    assert_text("agent.no-answer-but-required", node.record().reason)


def test_users_event_that_the_fleet_wants_prepared_for_is_not_approved_before() -> None:
    node = node_with(asked(ActionRule("prepare", source="User")))
    node.see(USERS)
    node.wait(860)
    assert (node.posts(), node.phase()) == ([], EventPhase.WAITING)
    node.wait(11)
    node.hook()
    node.answer()
    assert node.posts() == ["e1"]


def test_what_the_fleet_asks_outlives_a_restart_without_the_app() -> None:
    node = node_with(asked(ActionRule("prepare", source="User"), lead=60.0, leads={"Reboot": 80.0}, require_central=True))
    node.restart()
    node.app_away()
    node.see(USERS)
    node.wait(815)
    assert (node.posts(), node.phase()) == ([], EventPhase.WAITING)
    node.wait(6)
    assert node.phase() is EventPhase.PREPARING
    node.hook()
    node.app_away()
    node.wait(60)
    assert node.posts() == [], "the fleet's word is required"


def test_settings_are_saved_when_nothing_else_has_changed_and_with_every_rule() -> None:
    disk = CuttableDisk()
    journal = Journal(disk)
    state = NodeState("b", policy=FleetPolicy(of="db"))
    assert journal.save(state)
    rule = ActionRule("hold", "Reboot", "User", 30)
    policy = FleetPolicy("db", 1.5, {"Reboot": 2.5}, True, (rule, ActionRule("approve")), "prepare")
    assert journal.save(replace(state, policy=policy)) and not journal.save(replace(state, policy=policy))
    assert Journal(disk).load().state.policy == policy


def test_state_of_an_agent_that_knew_of_no_fleets_settings_is_taken() -> None:
    body = json.loads(encode(NodeState("b", disabled=True)).partition(b"\n")[0])
    for later in ("policy", "in_step", "holds"):
        del body[later]
    data = json.dumps(body).encode()
    assert decode(data + f"\n{zlib.crc32(data):08x}\n".encode()) == NodeState("b", disabled=True)


def test_settings_that_a_former_agent_saved_have_the_guard_approve() -> None:
    policy = FleetPolicy("db", 1.5, guard="prepare")
    body = json.loads(encode(NodeState("b", policy=policy)).partition(b"\n")[0])
    del body["policy"]["guard"]
    data = json.dumps(body).encode()
    assert decode(data + f"\n{zlib.crc32(data):08x}\n".encode()).policy == replace(policy, guard="approve")


def test_settings_of_another_fleet_are_forgotten() -> None:
    node = node_with(asked(ActionRule("hold")))
    node.restart(settings=replace(CENTRAL, fleet="other"))
    assert node.state.policy is None
    node = node_with(asked(ActionRule("hold")))
    node.restart(settings=SETTINGS)
    node.see(USERS)
    assert node.posts() == ["e1"], "an agent that works alone goes by its file"


# -- before the fleet's settings were ever received


def test_nothing_is_approved_before_the_fleet_was_first_asked() -> None:
    node = Node(CENTRAL)
    node.see(USERS)
    assert node.posts() == []
    assert_text("agent.asks-for-settings", node.record().reason)
    node.answer(policy=asked())
    assert node.posts() == ["e1"]


def test_fleet_that_does_not_answer_its_new_agent_is_waited_for_a_little_and_not_for_ever() -> None:
    node = Node(CENTRAL)
    node.see(USERS)
    node.app_away()
    node.wait(9)
    assert node.posts() == []
    node.wait(1)
    assert node.posts() == ["e1"]


def test_app_of_a_release_without_fleet_settings_asks_for_nothing() -> None:
    node = Node(CENTRAL)
    node.see(USERS)
    node.answer()
    assert (node.posts(), node.state.policy) == (["e1"], FleetPolicy(of="db"))


def test_dry_run_which_asks_no_app_shows_what_its_file_comes_to() -> None:
    node = Node(replace(CENTRAL, dry_run=True))
    node.see(USERS)
    assert node.posts() == ["e1"]


def test_approved_event_that_the_fleet_now_wants_prepared_for_is_prepared_for_at_once() -> None:
    node = node_with(asked())
    node.see(USERS)
    node.post()
    node.answer(policy=asked(ActionRule("prepare", source="User")))
    assert (node.phase(), node.runs()) == (EventPhase.PREPARING, ["prepare"])
    node.answer(commands=(AppCommand("c1", "e1", "prepare"),))
    assert node.posts() == ["e1"], "and is not approved twice"


def test_app_grants_nothing_unprepared_and_without_the_app_the_files_own_approvals_go_on() -> None:
    node = node_with(asked(), replace(CENTRAL, approve_failed=True))
    node.see(event(in_s=20))
    node.hook(ok=False)
    node.answer()
    assert node.posts() == []
    assert_text("agent.consent-for-prepared-only", node.record().reason)
    assert node.logged().count("agent_approval_held") == 1
    node.app_away()
    node.wait(10)
    node.hook(ok=False)
    assert node.posts() == ["e1"]


# -- holds


def test_a_known_hold_stays_over_a_restart_without_the_app() -> None:
    node = node_with(asked()).to_prepared()
    node.answer(holds={"e1": "held by ops"})
    node.restart()
    node.see(event())
    node.app_away()
    node.wait(600)
    assert (node.posts(), node.record().reason) == ([], "held by the fleet: held by ops")
    node.answer()
    assert node.posts() == ["e1"]


def test_hold_is_saved_when_nothing_else_has_changed_and_goes_with_the_fleet() -> None:
    node = node_with(asked()).to_prepared()
    journal = Journal(CuttableDisk())
    journal.save(node.state)
    node.answer(holds={"e1": "held by ops"})
    assert journal.save(node.state) and journal.load().state.app.holds == {"e1": "held by ops"}
    node.restart(settings=SETTINGS)
    node.see(event())
    assert node.posts() == ["e1"], "an agent that works alone goes by its file"
