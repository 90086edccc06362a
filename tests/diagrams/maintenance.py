"""Two machines in two fault domains have maintenance at about the same time: agents and app by their production rules."""

from __future__ import annotations

import random
from typing import Any, Final

from shared.maintenance.agent.effects import Approve
from shared.maintenance.agent.observations import AppAnswer, Observation
from shared.maintenance.rule_settings import MaintenanceSettings
from tests.unit.maintenance.joint_fleet import START, Fleet, JointNode

from .drawing import Actor, Scene, Step

AZURE, APP = "Azure", "app"
HOOKS: Final[dict[Any, float]] = {"prepare": 20.0, "emergency": 20.0, "restore": 20.0, "verify": 20.0}
SETTINGS = MaintenanceSettings(guard="prepare", domains_down=1, lead=60_000, catch_up=10_000, hand_off=10_000)
NOTICES: Final = {"a": 90, "b": 120}
"""Seconds from the announcement to NotBefore, by node."""
TAKES: Final = 5
"""Seconds that a hook takes, that Azure takes from an approval to the impact, and that the impact takes."""
ENDS: Final = 80


class RecordedNode(JointNode):
    """A node whose reports, phases and hooks are recorded."""

    fleet: RecordedFleet

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.phases = ""
        self.told, self.hook_since, self.seen = ("", ""), 0, ""
        super().__init__(fleet, name)

    def observe(self, observation: Observation) -> None:
        """Record an answer of the app that says something new, and what the agent does next."""
        if isinstance(observation, AppAnswer):
            said = describe(observation)
            told = self.phases or "no open event", said.partition(":")[0]
            if told != self.told:
                self.told = told
                self.fleet.record(self.name, APP, f"report: {told[0]}", "call")
                if said:
                    self.fleet.record(APP, self.name, f"answer: {said}", "call")
        before = self.run
        at = len(self.fleet.steps)
        super().observe(observation)
        phases = ", ".join(f"{name} {each.phase.name}" for name, each in self.state.events.items() if each.phase.name != "FOREIGN")
        does = f"{phases or 'no event'}" if phases != self.phases else ""
        if self.run is not None and self.run is not before:
            self.hook_since = self.fleet.wall
            does = f"{does + ': ' if does else ''}hook {self.run.kind} runs"
        self.phases = phases
        if does:
            self.fleet.steps.insert(at, Step(self.fleet.seconds, self.name, self.name, does, "note"))

    def look(self) -> None:
        """Read Azure's document."""
        named = [each for each in self.fleet.listed.values() if f"vm_{self.name}" in each["Resources"]]
        seen = ", ".join(f"{each['EventId']} {each['EventStatus']}" for each in named) or "no event of this node"
        if seen != self.seen and (named or self.seen):
            self.fleet.record(AZURE, self.name, f"document: {seen}", "call")
        self.seen = seen
        super().look()


def describe(answer: AppAnswer) -> str:
    """Say what the app permits, refuses and holds; nothing if the answer has none of these."""
    parts = [
        *(f"prepare for {name}" for name in sorted(answer.permitted)),
        *(f"wait with {name}: {reason}" for name, reason in sorted(answer.refused.items())),
        *(f"do not approve {name}: {reason}" for name, reason in sorted(answer.holds.items())),
    ]
    return "; ".join(parts)


class RecordedFleet(Fleet):
    """A fleet whose effects are recorded."""

    nodes: dict[str, Any]

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.wall = START
        super().__init__(SETTINGS, random.Random(0), {"a": "0", "b": "1"}, HOOKS)

    def make_node(self, name: str) -> JointNode:
        """Return a node that is recorded."""
        return RecordedNode(self, name)

    @property
    def seconds(self) -> float:
        """Seconds since the scene began."""
        return (self.wall - START) / 1000

    def record(self, source: str, target: str, text: str, kind: Any) -> None:
        """Keep a step."""
        self.steps.append(Step(self.seconds, source, target, text, kind))

    def approved(self, node: JointNode, post: Approve) -> None:
        """Record a POST to Azure, which begins some seconds later."""
        self.record(node.name, AZURE, f"POST: approve {post.event_id}", "call")
        self.due[post.raw_id] = self.wall + 1000 * TAKES
        super().approved(node, post)

    def play_azure(self) -> None:
        """Begin events whose time has come, and end them when they have taken theirs."""
        for name, raw in list(self.listed.items()):
            if self.wall < self.due[name]:
                continue
            if raw["EventStatus"] == "Started":
                del self.listed[name]
            else:
                raw.update(EventStatus="Started", NotBefore="")
                self.due[name] = self.wall + 1000 * TAKES


def play() -> Scene:
    """Announce an event of each node, and let agents and app work until the second has begun."""
    fleet = RecordedFleet()
    fleet.steps.clear()
    for name, notice in NOTICES.items():
        fleet.announce([name], notice=notice)
    for second in range(ENDS):
        fleet.play_azure()
        for node in fleet.nodes.values():
            node.look()
            if node.run is not None and fleet.wall >= node.hook_since + 1000 * TAKES:
                node.hook(True)
            if node.waiting or second % 5 == 0:
                node.report(lost=False)
        fleet.pass_time(1)
    assert fleet.posts == ["e1", "e2"]
    actors = (
        Actor(AZURE, "metadata service"),
        Actor("a", "agent, fault domain 0"),
        Actor(APP, "one fault domain at a time"),
        Actor("b", "agent, fault domain 1"),
    )
    return Scene("Maintenance: Azure, two agents and the app", actors, fleet.steps)
