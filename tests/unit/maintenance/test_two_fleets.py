"""Two fleets of one tenant in one scope: events name VMs of both. Agents and app play together by production rules."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

import pytest

from shared.maintenance import rules
from shared.maintenance.agent.effects import Approve
from shared.maintenance.decisions import approvals
from shared.maintenance.decisions.approvals import known_elsewhere
from shared.maintenance.rule_settings import MaintenanceSettings
from tests.unit.maintenance.joint_fleet import Fleet, JointNode

SEEDS: Final = 40
SETTINGS: Final = (
    MaintenanceSettings(catch_up=0, hand_off=20_000),
    MaintenanceSettings(catch_up=0, hand_off=20_000, guard="prepare", domains_down=2),
    MaintenanceSettings(catch_up=0, hand_off=20_000, early=True, domains_down=2),
)
MOVES: Final = ("time", "look", "look", "hook", "hook", "report", "report", "report", "lost", "restart", "event", "azure", "hold")


class HalfOfAScope(Fleet):
    """A fleet beside another one, whose events, Azure and clock it shares. across: approvals that count for nodes of both."""

    beside: HalfOfAScope | None = None
    across = 0

    def receive(self, report: Any) -> rules.AcceptedAgentReport:
        other = self.beside
        if other is not None:
            asked = rules.scopes_to_ask(self.view, [report], self.settings)
            found = {event_id: known_elsewhere({"other": other.view.events.get(event_id)}, scope) for event_id, scope in asked.items()}
            self.view = replace(self.view, others=found)
        return super().receive(report)

    def approved(self, node: JointNode, post: Approve) -> None:
        """The judge of a POST: the nodes of the other fleet are prepared, too."""
        raw, other = self.listed[post.raw_id], self.beside
        again = any(each.partition(".")[0] == post.event_id for each in self.posts)
        super().approved(node, post)
        if other is None or again or raw["EventStatus"] == "Started":
            return
        theirs = [name for name in other.nodes if f"vm_{name}" in raw["Resources"]]
        self.across += bool(theirs)
        for name in theirs:
            assert post.event_id in other.nodes[name].ready, f"unprepared: {node.name} approves {post.event_id} for {name}"


def pair(seed: int) -> tuple[random.Random, HalfOfAScope, HalfOfAScope]:
    dice = random.Random(seed)
    one = HalfOfAScope(SETTINGS[seed % len(SETTINGS)], dice, {"a": "0", "b": "1"})
    two = HalfOfAScope(SETTINGS[seed // 2 % len(SETTINGS)], dice, {"d": "0", "e": "1"})
    two.listed, two.due, two.posts = one.listed, one.due, one.posts
    one.beside, two.beside = two, one
    return dice, one, two


def play(seed: int) -> int:
    """Let anything happen. Return the number of events that were approved for nodes of both fleets."""
    dice, one, two = pair(seed)
    for _ in range(300):
        fleet = dice.choice((one, two))
        node = dice.choice(list(fleet.nodes.values()))
        match dice.choice(MOVES):
            case "time":
                seconds = dice.choice((1, 2, 5, 20))
                one.pass_time(seconds)
                two.pass_time(seconds)
            case "look":
                node.look()
            case "hook":
                node.hook(dice.random() < 0.9)
            case "report":
                node.report(lost=False)
            case "lost":
                node.report(lost=True)
            case "restart" if dice.random() < 0.3:
                node.restart()
            case "event" if len(one.listed) < 3:
                one.made = two.made = max(one.made, two.made)
                named = dice.sample(list("abde"), dice.choice((1, 2, 2, 3)))
                fleet.announce(named, dice.choice(("Freeze", "Reboot")), notice=dice.choice((40, 120, 300)))
            case "azure" if one.listed and dice.random() < 0.3:
                raw = one.listed[dice.choice(list(one.listed))]
                if raw["EventStatus"] == "Started":
                    del one.listed[raw["EventId"]]
                else:
                    raw.update(EventStatus="Started", NotBefore="")
            case "hold" if fleet.view.events and dice.random() < 0.2:
                event = dice.choice(list(fleet.view.events.values()))
                held = rules.hold(event, "ops", "", fleet.wall)
                if not isinstance(held, str):
                    fleet.view = replace(fleet.view, events={**fleet.view.events, event.event_id: held})
            case _:
                pass
    return one.across + two.across


def test_no_agent_approves_for_a_node_of_another_fleet_that_is_not_prepared() -> None:
    assert sum(play(seed) for seed in range(SEEDS)) > SEEDS / 10, "events of both fleets are approved"


@pytest.mark.parametrize(
    "planted",
    [{"strangers_reason": lambda *_: None}, {"may_agree": lambda *_: True}],
    ids=["other fleets are not asked", "a fleet agrees at once"],
)
def test_the_property_can_fail(planted: dict[str, object]) -> None:
    with patch.multiple(approvals, **planted), pytest.raises(AssertionError, match="unprepared: "):
        for seed in range(SEEDS):
            play(seed)
