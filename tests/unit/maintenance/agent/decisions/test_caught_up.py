"""A restored node is asked whether it has caught up with the other nodes, until it has; the app gets the result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.maintenance.agent.app.messages import body_of
from shared.maintenance.agent.effects import SendReport, WriteLog
from shared.maintenance.agent.imds.client import Machine
from shared.maintenance.agent.model import EventPhase
from tests.unit.maintenance.agent.agent_node import HOOKS, SETTINGS, Node, event

ASKING = replace(SETTINGS, hooks={**HOOKS, "caught_up": 10.0})


def said(node: Node) -> bool | None:
    """Return the report of this moment."""
    found: bool | None = body_of(node.state, "n1", Machine("vm-1")).get("caught_up")
    return found


def put_back() -> Node:
    """An event came and went, and the node serves again."""
    node = Node(ASKING)
    node.hook()
    node.to_prepared()
    node.see()
    node.hook()
    node.clear()
    node.hook()
    assert not node.state.disabled
    return node


def test_node_is_asked_once_it_serves_again_and_the_app_learns_when_it_has_caught_up() -> None:
    node = put_back()
    assert (node.runs(), said(node), node.phase()) == (["caught_up"], None, EventPhase.DONE)
    node.clear()
    node.hook()
    assert (said(node), node.has(SendReport), node.logged()) == (True, True, ["agent_hook_ended", "agent_caught_up"])
    node.wait(1000)
    assert node.runs() == [], "it is not asked again"


def test_node_that_has_not_caught_up_is_asked_again_ever_more_seldom_and_nobody_is_warned() -> None:
    node = put_back()
    times = []
    for _ in range(7):
        began = node.wall
        node.hook(ok=False, detail="exit code 1")
        while node.state.run is None:
            node.wait(1)
        times.append((node.wall - began) // 1000)
    assert (times, said(node)) == ([5, 10, 20, 40, 60, 60, 60], None)
    assert node.warned() == []


def test_node_without_the_hook_says_nothing_and_only_time_decides() -> None:
    node = Node().to_prepared()
    assert said(node) is None
    node.see()
    node.hook()
    node.hook()
    node.wait(100)
    assert (said(node), node.runs()) == (None, ["prepare", "restore", "verify"])


def test_question_gives_way_to_a_new_event_and_is_asked_again_afterwards() -> None:
    node = put_back()
    node.see(event("E2", in_s=(node.wall - 1_800_000_000_000) / 1000 + 20))
    assert (node.stops(), node.runs()) == (1, ["caught_up"])
    node.hook()
    assert (node.runs(), said(node)) == (["caught_up", "prepare"], None)
    node.hook()
    assert node.phase("e2") is EventPhase.PREPARED
    node.wait(200)
    assert node.runs() == ["caught_up", "prepare"], "a node out of service is not asked"
    node.see()
    node.hook()
    node.hook()
    assert node.runs()[-1] == "caught_up"


@pytest.mark.parametrize("caught_up", [True, False])
def test_answer_outlives_a_restart(caught_up: bool) -> None:
    node = put_back()
    node.hook(ok=caught_up)
    node.clear()
    node.restart()
    node.see()
    node.wait(1)
    assert (said(node) is True, node.runs() == []) == (caught_up, caught_up)
    assert not caught_up or not any(isinstance(each, WriteLog) and each.action == "agent_caught_up" for each in node.did)


def test_preparing_withdraws_the_permission() -> None:
    node = Node(ASKING)
    node.hook()
    assert said(node) is True
    node.see(event(in_s=20))
    assert (node.runs()[-1], said(node)) == ("prepare", None)
