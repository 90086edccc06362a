"""A dry run does nothing and says what would be done."""

from __future__ import annotations

from shared.maintenance.agent.dry_run import replace_effect
from shared.maintenance.agent.effects import AgentEffect, Approve, PollNow, RunHook, SendReport, SendResult, StopHook, WriteLog
from shared.maintenance.agent.observations import ApprovalPosted, HookEnded
from tests.unit.maintenance.agent.agent_node import Node, event


def test_whole_life_passes_with_nothing_done() -> None:
    node, logged = Node(), []

    def carry_out(effects: tuple[AgentEffect, ...]) -> None:
        for effect in effects:
            found = replace_effect(effect)
            if found is not None:
                logged.append(found.log.text)
                if found.observation is not None:
                    carry_out(node.observe(found.observation))

    for document in ([event(in_s=20)], [event(status="Started")], []):
        carry_out(node.see(*document))
    assert str(node.phase()) == "DONE" and not node.state.disabled
    done = [each for each in logged if each != "would report to the app"]
    assert done == ["would run prepare", "would approve", "would run restore", "would run verify"]


def test_only_looking_and_logging_are_done_in_a_dry_run() -> None:
    assert replace_effect(PollNow()) is None and replace_effect(WriteLog("info", "a", "b")) is None
    effects: list[AgentEffect] = [
        RunHook(3, "verify", None, 1, 9.0),
        StopHook(3),
        Approve("e", "E", 1, "g"),
        SendReport(),
        SendResult("g", "gone"),
    ]
    found = [replace_effect(effect) for effect in effects]
    answers = [each and each.observation for each in found]
    assert answers == [HookEnded(3, True, "dry run"), None, ApprovalPosted("e", "accepted", 0, "g"), None, None]
    assert all(each is not None and each.log.action == "agent_dry_run" for each in found)
