"""A group of three replicas takes its first turn: the app's protocol and the members' rules on virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any

from shared.checkpoints.rows import LATEST, TURN
from shared.checkpoints.rules import AcceptedReport, Published
from shared.checkpoints.settings import read_turn_settings
from shared.engine.effects import Write
from shared.leases.rows import FLEET, Fleet, fleet_key
from shared.storage.blocking import run_through
from shared.storage.names import FLEETS, TURNS
from shared.storage.ports import Applied, Delete, Insert
from tests.simulation.checkpoints.member import Member
from tests.simulation.checkpoints.world import World

from .drawing import Actor, Scene, Step

KEY = fleet_key("demo", "group")
SETTINGS = {"checkpoints": {"timeout": {"initial": "PT5M", "min": "PT1M", "max": "PT1H"}, "silence": "PT3M"}}
NEEDS, EVERY, ENDS = 40.0, 5.0, 50.0
"""Seconds that a checkpoint takes, between two reports, and of the scene."""
APP, ROW = "app", "TocsinTurns"


class RecordedWorld(World):
    """A world that records requests which change the turn's row, or whose answers bring a turn."""

    def __init__(self) -> None:
        super().__init__("diagram")
        self.steps: list[Step] = []
        self.request = ("", "")
        """The sender of the next request, and its text."""
        self._known = ("", 0, False)

    def ask(self, make: Callable[[], Generator[Any, Any, Any]], heard: Callable[[Any], None] = lambda answer: None) -> None:
        sender, text = self.request
        asked = Step(self.time.seconds, sender, APP, text, "call")
        writes: list[Step] = []

        def recorded() -> Generator[Any, Any, Any]:
            steps, answer = make(), None
            while True:
                try:
                    effect = steps.send(answer)
                except StopIteration as stop:
                    return stop.value
                answer = yield effect
                if isinstance(effect, Write) and effect.pk == KEY and isinstance(answer, Applied):
                    writes.extend(self._changes(effect))

        def answered(answer: Any) -> None:
            said = describe(answer)
            if writes or said:
                self.steps += [asked, *writes, Step(self.time.seconds, APP, sender, said or "answer: accepted", "call")]
            heard(answer)

        super().ask(recorded, answered)

    def _changes(self, effect: Write) -> list[Step]:
        rows = {op.rk: op.props for op in effect.ops if not isinstance(op, Delete)}
        turn = rows.get(TURN)
        if turn is None or self._known == (known := (str(turn["state"]), int(turn["epoch"]), bool(turn["handed"]))):
            return []
        self._known = known
        text = f"turn {turn['epoch']} of {turn['holder']}: {turn['state']}"
        if turn["handed"] and turn["state"] == "granted":
            text += " and handed out"
        if LATEST in rows:
            text += f"; latest:\xa0{rows[LATEST]['sequence']}"
        return [Step(self.time.seconds, APP, ROW, text)]


def describe(answer: Any) -> str:
    """Say what an answer brings."""
    if isinstance(answer, AcceptedReport) and answer.answer.turn is not None:
        epoch, limit = answer.answer.turn
        return f"answer: turn {epoch} for {limit / 1000:.0f} s of your clock"
    return "answer: published" if isinstance(answer, Published) else ""


class RecordedMember(Member):
    """A replica whose requests are recorded."""

    world: RecordedWorld

    def report(self) -> None:
        taking = f", taking turn {self.me.held.epoch}" if self.me.held is not None else ""
        self.world.request = self.name, f"report: {self.role}{taking}"
        super().report()

    def _publish(self, epoch: int, sequence: int, life: int, tries: int) -> None:
        self.world.request = self.name, f"publish checkpoint {sequence} of turn {epoch}"
        super()._publish(epoch, sequence, life, tries)


class Watch:
    """Records what replicas do."""

    def __init__(self, world: RecordedWorld) -> None:
        self.world = world

    def begins(self, member: Member, epoch: int) -> None:
        self._note(member, f"takes its checkpoint in turn {epoch}, serves no readers")

    def ends(self, member: Member, how: str) -> None:
        self._note(member, f"checkpoint {how}, kept on its disk")

    def published(self, member: Member, epoch: int, sequence: int, outcome: Any) -> None:
        assert isinstance(outcome, Published), outcome

    def _note(self, member: Member, text: str) -> None:
        self.world.steps.append(Step(self.world.time.seconds, member.name, member.name, text, "note"))


def play() -> Scene:
    """Let a primary and two secondaries report, until the first turn is over and the second handed out."""
    world = RecordedWorld()
    run_through(world.store.ensure([FLEETS, TURNS]))
    fleet = Fleet(1, rest=json.dumps(SETTINGS))
    run_through(world.store.write(FLEETS, KEY, (Insert(FLEET, fleet.props()),)))
    watch = Watch(world)
    members = [RecordedMember(world, KEY, name, read_turn_settings(fleet), watch, rate=1.0, every=EVERY) for name in ("n0", "n1", "n2")]
    members[0].role = "primary"
    for member in members:
        member.needs = lambda: NEEDS
    world.run(ENDS)
    actors = (
        Actor("n0", "primary: never has a turn"),
        Actor("n1", "secondary"),
        Actor("n2", "secondary"),
        Actor(APP, "any instance"),
        Actor(ROW, "the turn's row"),
    )
    return Scene("A checkpoint turn: reports, answers, and the turn's row", actors, sorted(world.steps, key=lambda step: step.at))
