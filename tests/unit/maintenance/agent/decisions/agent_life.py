"""A node's life played from a script: documents, hooks, POSTs, the app, crashes between any two steps of the disk, reboots, lost state.

The player does what the agent's loop does: a decision, the state saved, the effects carried out. What really happened is kept apart
from what the agent believes, and judged by rules of its own:

    unprepared    a POST went out for an event that needs preparation, and prepare had not succeeded for it in this life of the services
    garbage       a POST or a restore went out though the last look had not brought a whole document, or one against it
    not restored  after all events were gone, and all went well for long enough, the services that we took down were not up
    undone        a restore ran though we had not taken the services down
    ended         something was begun after the process was told to end
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from shared.maintenance.agent import journal
from shared.maintenance.agent.config.settings import AgentSettings
from shared.maintenance.agent.decisions import step
from shared.maintenance.agent.effects import AgentEffect, Approve, RunHook, StopHook
from shared.maintenance.agent.imds import document
from shared.maintenance.agent.model import EventsDocument, LeasedApproval, NodeState, Now
from shared.maintenance.agent.observations import (
    AppAnswer,
    AppCommand,
    ApprovalPosted,
    AppUnreachable,
    DocumentRead,
    HookEnded,
    Observation,
    PollFailed,
    StartUp,
    StopRequested,
    Tick,
)
from shared.maintenance.agent.policy import ActionRule, FleetPolicy
from tests.unit.maintenance.agent.agent_node import HOOKS, START, VM, event
from tests.unit.maintenance.agent.cuttable_disk import Cut, CuttableDisk

type Move = tuple[str, int]
"""The next step, and a number that selects its variant."""

SETTINGS = (
    AgentSettings(vm=VM, hooks=HOOKS),
    AgentSettings(vm=VM, hooks=HOOKS, central=True),
    AgentSettings(vm=VM, hooks=HOOKS, central=True, require_central=True, after_reboot="prepare"),
    AgentSettings(vm=VM, hooks={**HOOKS, "caught_up": 30.0}, idempotent=False, near=30.0),
)
KINDS: tuple[dict[str, Any], ...] = (
    {"in_s": 20},
    {"in_s": 400},
    {"in_s": 20, "names": (VM, "vm-2")},
    {"in_s": 400, "EventSource": "User"},
    {"in_s": 300, "DurationInSeconds": 0},
    {"EventType": "Preempt", "in_s": 30},
    {"in_s": 400, "names": ("vm-2",)},
    {"status": "Started"},
)
ASKED = FleetPolicy(rules=(ActionRule("prepare", source="User", max_seconds=60),))
GARBAGE = (b"", b"null", b'{"DocumentIncarnation": 1', b'{"error": "x"}', b"[]", b'{"Events": null}', b"<html/>", b'"Events"')


class Broken(AssertionError):
    """A property does not hold; the message begins with its name."""


@dataclass
class World:
    """The true state of the node. down: services are out of service, by us or by an operator. ours: we decided to take them down, so they
    may be put back. begun: a hook of ours has begun to, so they must be. asked: the fleet wants users' events prepared for. ready: events
    prepared for."""

    down: bool = False
    ours: bool = False
    begun: bool = False
    asked: bool = False
    ready: frozenset[str] = frozenset()


class Life:
    """One node, from its first start."""

    def __init__(self, settings: AgentSettings, *, drained: bool = False, careless: bool = False) -> None:
        self.settings, self.careless = settings, careless
        self.disk, self.world = CuttableDisk(), World(down=drained)
        self.drained = drained
        self.listed: dict[str, dict[str, Any]] = {}
        self.wall, self.steady, self.boot, self.incarnation = START, 100.0, 1, 1
        self.numbers = 0
        self.running: RunHook | None = None
        self.posting: deque[Approve] = deque()
        self.seen: EventsDocument | None = None
        self.ending = False
        self.start()

    # -- the process

    def start(self) -> None:
        """The process begins with what the disk holds."""
        self.keeper = journal.Journal(self.disk)
        self.running, self.seen, self.ending = None, None, False
        self.posting.clear()
        try:
            loaded = self.keeper.load()
            self.state: NodeState = loaded.state
            self.observe(StartUp(f"boot-{self.boot}", loaded.found, loaded.marker))
        except Cut:
            self.die(0)

    def die(self, number: int, *, reboot: bool = False) -> None:
        """The process, or the machine with it, stops; and starts again."""
        if self.running is not None:
            self._hook_over(self.running, False)
        if reboot or self.disk.cut_after is not None:
            ways = number
            self.disk.crash(lambda choices: ways % choices)
            reboot = True
        self.disk.cut_after = None
        if reboot:
            self.boot += 1
            self.steady = 1.0
            self.world.ready = frozenset()
            if not self.drained:
                self.world.down = False
        self.start()

    def observe(self, observation: Observation) -> None:
        """A step of the loop."""
        found, effects = step.step(self.state, observation, Now(self.wall, self.steady), self.settings)
        self.state = found
        # Once this is saved, it is unknown whether the hook has begun.
        self.world.ours |= any(isinstance(effect, RunHook) and effect.kind in ("prepare", "emergency") for effect in effects)
        if not self.careless:
            self.keeper.save(found)
        for effect in effects:
            self._carry_out(effect)
        if self.careless:
            self.keeper.save(found)

    def _carry_out(self, effect: AgentEffect) -> None:
        if self.ending and isinstance(effect, RunHook | Approve):
            raise Broken(f"ended: {effect}")
        match effect:
            case RunHook():
                self._begin(effect)
            case Approve():
                self._judge_post(effect)
                self.posting.append(effect)
            case StopHook() if self.running is not None:
                if self.running.run != effect.run:
                    raise Broken(f"a hook was stopped that does not run: {effect}")

    def _begin(self, effect: RunHook) -> None:
        if self.running is not None:
            raise Broken(f"two hooks at once: {self.running.kind}, {effect.kind}")
        self.running = effect
        if effect.kind in ("prepare", "emergency"):
            self.world.down = self.world.begun = True
        elif effect.kind == "caught_up":
            if self.world.down and not self.drained:
                raise Broken("not restored: it is asked whether a node has caught up that is out of service")
        elif not self.world.ours:
            raise Broken(f"undone: {effect.kind} though we did not take the services down")
        else:
            self.world.ready = frozenset()
            self._judge_restore()

    def _hook_over(self, effect: RunHook, ok: bool) -> None:
        self.running = None
        if effect.kind == "prepare" and ok and effect.record is not None:
            self.world.ready |= {effect.record.event.event_id}
        if effect.kind == "restore" and ok:
            self.world.down = False

    # -- judges

    def _whole(self, what: str) -> EventsDocument:
        if self.seen is None or self.seen.problems:
            raise Broken(f"garbage: {what} though the last look brought nothing whole")
        return self.seen

    def _judge_post(self, effect: Approve) -> None:
        seen = self._whole("a POST")
        found = next((each for each in seen.events if each.event_id == effect.event_id), None)
        if found is None or found.status != "Scheduled":
            raise Broken("garbage: a POST of what is not Scheduled")
        needs = VM in found.resources and found.duration != 0 and (found.source == "Platform" or self.world.asked)
        if needs and effect.event_id not in self.world.ready:
            raise Broken(f"unprepared: {effect.event_id}")

    def _judge_restore(self) -> None:
        for each in self._whole("a restore").events:
            if VM in each.resources and (each.status == "Started" or each.not_before is None or each.not_before - self.wall < 30_000):
                raise Broken(f"garbage: a restore while {each.event_id} is listed")

    # -- the script

    def play(self, moves: Iterable[Move]) -> None:
        for move, number in moves:
            try:
                MOVES[move](self, number)
            except Cut:
                self.die(number)

    def finish(self) -> None:
        """All goes well from here: the end that every life must come to."""
        self.listed.clear()
        self.drained = self.drained and not self.world.begun
        if self.ending:
            self.die(0)
        for _ in range(60):
            self.play([("time", 2), ("look", 0), ("hook", 1), ("hook", 1), ("hook", 1), ("post", 0), ("answer", 0)])
        if self.world.begun and self.world.down:
            raise Broken("not restored: the services are still down")
        if self.state.disabled:
            raise Broken("not restored: the agent thinks so, at least")
        if self.running is not None or self.state.run is not None:
            raise Broken("not restored: a hook runs for ever")

    def event(self, number: int) -> None:
        kind = KINDS[number % len(KINDS)]
        self.numbers += 1
        begins = {"in_s": kind["in_s"] + (self.wall - START) / 1000} if "in_s" in kind else {}
        self.listed[f"e{self.numbers}"] = event(f"E{self.numbers}", **{**kind, **begins})

    def begin(self, number: int) -> None:
        for raw in self._some(number):
            raw.update(EventStatus="Started", NotBefore="")

    def end(self, number: int) -> None:
        for raw in self._some(number):
            del self.listed[raw["EventId"].lower()]

    def change(self, number: int) -> None:
        for raw in self._some(number):
            raw.update(DurationInSeconds=9 if raw["DurationInSeconds"] == 0 else 0)

    def _some(self, number: int) -> list[dict[str, Any]]:
        found = list(self.listed.values())
        return [found[number % len(found)]] if found else []

    def look(self, number: int) -> None:
        """Mostly a whole document; else a part of one, or nothing to be believed."""
        self.incarnation += 1
        items: list[Any] = list(self.listed.values())
        body = json.dumps({"DocumentIncarnation": self.incarnation, "Events": items}).encode()
        if number == 6:
            body = json.dumps({"DocumentIncarnation": self.incarnation, "Events": [7, *items[1:]]}).encode()
        elif number == 7:
            body = GARBAGE[self.incarnation % len(GARBAGE)]
        found = document.read(body)
        whole = number < 6
        self.seen = found if whole and isinstance(found, EventsDocument) else None
        self.observe(DocumentRead(found) if isinstance(found, EventsDocument) else PollFailed(found.reason))

    def hook(self, number: int) -> None:
        """The hook that runs ends; one that was stopped may say that it did all it had to, and did not."""
        running = self.running
        if running is not None:
            stopped = self.state.run is not None and self.state.run.stopping
            self._hook_over(running, number % 4 != 0 and not stopped)
            self.observe(HookEnded(running.run, number % 4 != 0))

    def post(self, number: int) -> None:
        if self.posting:
            effect = self.posting.popleft()
            outcome: Any = ("accepted", "accepted", "busy", "busy", "refused")[number % 5]
            if number % 5 in (0, 2) and effect.event_id in self.listed:
                self.listed[effect.event_id].update(EventStatus="Started", NotBefore="")
            self.observe(ApprovalPosted(effect.event_id, outcome, 200, effect.grant))

    def answer(self, number: int) -> None:
        ids = list(self.listed)[:1]
        if number == 7:
            self.observe(AppUnreachable("no connection"))
            return
        grants = tuple(LeasedApproval(f"g{number}", each, self.steady + 5, self.wall + 60_000) for each in ids) if number in (3, 4) else ()
        holds = dict.fromkeys(ids, "guard") if number == 5 else {}
        commands = (
            tuple(AppCommand(f"c{number}", each, "prepare" if number == 1 else "restore") for each in ids) if number in (1, 2) else ()
        )
        self.observe(AppAnswer(step.asked_events(self.state), grants, holds, commands, policy=ASKED if number == 6 else None))
        self.world.asked |= number == 6

    def time(self, number: int) -> None:
        seconds = (1, 5, 20, 60, 300, 400, 1, 100)[number]
        self.wall, self.steady = self.wall + 1000 * seconds, self.steady + seconds
        self.observe(Tick())

    def crash(self, number: int) -> None:
        self.die(number, reboot=number >= 4)

    def cut(self, number: int) -> None:
        """The machine will stop some steps of the disk from now."""
        self.disk.cut_after = self.disk.steps + number

    def lose(self, number: int) -> None:
        """The state file is gone, or cannot be read, when the process starts again."""
        if number % 2:
            self.disk.write(journal.STATE, b"\0" * 50)
        else:
            self.disk.remove(journal.STATE)
        self.disk.flush_names()
        self.world.asked = False
        self.die(number)

    def stop(self, number: int) -> None:
        self.observe(StopRequested())
        self.ending = True
        for move in ((("time", 4), ("look", 0)), (("hook", 1), ("look", 0)))[number % 2]:
            MOVES[move[0]](self, move[1])
        self.die(0, reboot=number >= 4)

    def go(self, number: int) -> None:
        """All goes well for a while."""
        self.play([("look", 0), ("time", (0, 1, 2, 3)[number % 4]), ("look", 0), ("hook", 1), ("answer", 0), ("post", 1)])


MOVES: dict[str, Callable[[Life, int], None]] = {
    "event": Life.event,
    "begin": Life.begin,
    "end": Life.end,
    "change": Life.change,
    "look": Life.look,
    "hook": Life.hook,
    "post": Life.post,
    "answer": Life.answer,
    "time": Life.time,
    "crash": Life.crash,
    "cut": Life.cut,
    "lose": Life.lose,
    "stop": Life.stop,
    "go": Life.go,
}
WEIGHED = ["event"] * 3 + ["begin"] * 2 + ["end"] * 3 + ["look"] * 4 + ["hook"] * 3 + ["post"] * 2 + ["answer"] * 2 + ["time"] * 2
WEIGHED += ["go"] * 5 + ["crash", "cut", "cut", "lose", "stop", "change"]


def check(moves: Iterable[Move], which: int, *, drained: bool = False, careless: bool = False) -> Life:
    """A whole life, judged. An operator's drain stays as long as we have no part in it."""
    life = Life(replace(SETTINGS[which % len(SETTINGS)]), drained=drained, careless=careless)
    life.play(moves)
    life.finish()
    return life
