"""The days of a replica group as drawn from a seed, its promises, and its measurements.

Always: no two checkpoints at once, none on a primary, `latest` never goes backwards, every turn ends. In calm weather also: of replicas
alike in health nobody is three turns ahead, and everybody has one within 2N turns whatever its health. After trouble every secondary gets
its turn again.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from shared.checkpoints import protocol
from shared.checkpoints.rows import LATEST, TURN, parse_group, parse_latest
from shared.checkpoints.settings import read_turn_settings
from shared.leases.rows import FLEET, Fleet, fleet_key
from shared.storage.blocking import run_through
from shared.storage.names import FLEETS, TURNS
from shared.storage.ports import Insert
from tests.simulation.checks.truth import Violation

from .member import Member
from .world import Weather, World

KEY = fleet_key("demo", "group")
STYLES = ("calm", "health", "steps", "trouble")
SETTINGS = {"checkpoints": {"timeout": {"initial": "PT10M", "min": "PT1M", "max": "PT1H"}, "silence": "PT3M"}}
HOUR, DAY = 3600.0, 86_400.0
MINUTES = 60.0
SCAN = 60.0
"""Seconds between two sweeps."""
ROUGH = Weather(lose=0.05, slow=0.04, unknown=0.03)
SHORT, LONG = 60.0, 900.0
"""Seconds that a checkpoint takes in style `steps`: short, long, short again, a third of the time each."""


@dataclass(slots=True)
class Report:
    """The result of a seed. order: the replicas that began a turn, one after the other. useful: seconds in which a checkpoint was taken
    that finished. timeouts: (true second, seconds) of each grant."""

    seed: object
    style: str
    world: World
    seconds: float = 0.0
    violation: str | None = None
    order: list[str] = field(default_factory=list)
    useful: float = 0.0
    timeouts: list[tuple[float, float]] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)

    @property
    def utilisation(self) -> float:
        """The part of all time in which a checkpoint was taken that finished."""
        return self.useful / self.seconds

    @property
    def spread(self) -> int:
        """Between who had most turns and who had fewest."""
        counts = Counter(self.order).values()
        return max(counts) - min(counts)


class History:
    """A group of `members`, the first of them primary."""

    def __init__(self, seed: object, style: str, *, members: int = 5, every: float = 30.0) -> None:
        self.world = World((seed, style))
        self.style, self.seed = style, seed
        world = self.world
        run_through(world.store.ensure([FLEETS, TURNS]))
        fleet = Fleet(1, rest=json.dumps(SETTINGS))
        run_through(world.store.write(FLEETS, KEY, (Insert(FLEET, fleet.props()),)))
        self.settings = read_turn_settings(fleet)
        rough = style == "trouble"
        dice = world.dice
        self.members = [
            Member(world, KEY, f"n{number}", self.settings, self, rate=dice.uniform(0.72, 1.4) if rough else 1.0, every=every)
            for number in range(members)
        ]
        self.members[0].role = "primary"
        self.term = 1
        self.report = Report(seed, style, world)
        self.taking: dict[str, tuple[float, int]] = {}
        """By member: since when, and the epoch."""
        self.highest = 0
        self.rough = rough
        for member in self.members:
            member.needs = lambda: dice.uniform(0.5, 1.5) * self.needed()
        world.at(0, self._scan)

    def needed(self) -> float:
        """True seconds of a checkpoint now, more or less."""
        if self.style != "steps":
            return 120.0
        return LONG if self.length / 3 <= self.world.time.seconds < self.length * 2 / 3 else SHORT

    # -- what members tell

    def begins(self, member: Member, epoch: int) -> None:
        """A checkpoint begins."""
        self.world.note(member.name, f"begins turn {epoch}")
        self.report.order.append(member.name)
        if self.taking:
            raise Violation(f"two take: {member.name} begins turn {epoch} while {self.taking}")
        if member.role == "primary":
            raise Violation(f"the primary takes: {member.name} in turn {epoch}")
        self.taking[member.name] = (self.world.time.seconds, epoch)

    def ends(self, member: Member, how: str) -> None:
        """It is over."""
        since, epoch = self.taking.pop(member.name)
        self.world.note(member.name, f"turn {epoch}: {how}")
        self.report.ends[how] += 1
        if how == "finished":
            self.report.useful += self.world.time.seconds - since

    def published(self, member: Member, epoch: int, sequence: int, outcome: Any) -> None:
        """An answer to a publish."""
        self.world.note(member.name, f"publish of {sequence} in turn {epoch}: {type(outcome).__name__}")

    # -- the app

    def _scan(self) -> None:
        draw = self.world.dice.random()
        self.world.ask(lambda: protocol.scan(KEY, draw))
        self.world.after(SCAN, self._scan)
        self._look()

    def _look(self) -> None:
        row = run_through(self.world.store.get(TURNS, KEY, LATEST))
        if row is not None:
            found = parse_latest(row.props).sequence
            if found < self.highest:
                raise Violation(f"latest goes backwards: {self.highest}, {found}")
            self.highest = found
        row = run_through(self.world.store.get(TURNS, KEY, TURN))
        if row is None:
            return
        turn = parse_group(row.props).turn
        if turn.epoch and (not self.report.timeouts or self.report.timeouts[-1][0] != turn.granted):
            self.report.timeouts.append((turn.granted, turn.timeout / 1000))
        age = self.world.time.now() - turn.granted
        if turn.open and age > turn.timeout + (SCAN + 60) * 1000:
            raise Violation(f"turn {turn.epoch} of {turn.holder} does not end: {age // 1000} s old, of {turn.timeout // 1000}")

    # -- trouble

    def _trouble(self) -> None:
        dice, world = self.world.dice, self.world
        if not self.rough:
            return
        world.after(dice.expovariate(1 / (10 * MINUTES)), self._trouble)
        member = dice.choice(self.members)
        what = dice.random()
        if what < 0.4 and member.up:
            member.crash(orphan=dice.random() < 0.5)
            world.counts["crashes"] += 1
            world.after(dice.choice([2.0, 30.0, 20 * MINUTES]) * dice.random(), member.restart)
        elif what < 0.6 and member.up and member.role == "secondary":
            former = [each for each in self.members if each.role == "primary"]
            self.term += 1
            member.promote(self.term)
            world.counts["promotions"] += 1
            for each in former:
                # It learns of it later, or by the answer to its next report.
                world.after(dice.random() * 2 * MINUTES, lambda e=each: setattr(e, "role", "secondary") if e is not member else None)
        elif what < 0.7 and self.taking:
            epoch = next(iter(self.taking.values()))[1]
            world.counts["revocations"] += 1
            world.ask(lambda: protocol.revoke(KEY, epoch, "", ""))
        elif what < 0.8:
            world.weather = ROUGH if dice.random() < 0.7 else Weather(lose=0.4, slow=0.3, unknown=0.2)

    def _change_health(self) -> None:
        dice = self.world.dice
        for member in self.members:
            member.lag, member.load = dice.choice([0, 10, 10_000]), dice.choice([0.0, 0.3, 3.0])
        self.world.after(7 * MINUTES, self._change_health)

    def _heal(self) -> None:
        self.rough = False
        self.world.weather = Weather()
        for member in self.members:
            if not member.up:
                member.restart()
            member.rate = min(1.3, max(0.8, member.rate))

    # -- a history

    length = DAY

    def play(self, seconds: float) -> Report:
        """The whole of it."""
        self.length, report = seconds, self.report
        try:
            if self.style == "health":
                self._change_health()
            if self.rough:
                self.world.weather = ROUGH
                self._trouble()
            self.world.run(seconds)
            if self.style == "trouble":
                self._after_trouble()
            self._judge()
        except Violation as found:
            report.violation = str(found)
        report.seconds = self.world.time.seconds
        return report

    def _after_trouble(self) -> None:
        self._heal()
        # Whoever is down when it ends has restarted, and the longest turn is over.
        self.world.run(self.world.time.seconds + 2 * HOUR)
        begun = len(self.report.order)
        ready = {member.name for member in self.members if member.role == "secondary"}
        self.world.run(self.world.time.seconds + 2 * HOUR)
        missing = ready - set(self.report.order[begun:])
        if missing:
            raise Violation(f"no turn after all trouble: {sorted(missing)}")

    def _judge(self) -> None:
        count = len(self.members) - 1
        secondaries = [member.name for member in self.members[1:]]
        if self.style == "calm" and (self.report.spread > 2 or len(set(self.report.order)) < count):
            raise Violation(f"unfair: {Counter(self.report.order)}")
        if self.style in ("calm", "health"):
            for name in secondaries:
                waited = longest(self.report.order, name)
                if waited >= 2 * count:
                    raise Violation(f"{name} waited for {waited} turns of {count} secondaries")


def longest(order: list[str], name: str) -> int:
    """The longest run of turns that went to others."""
    most = waited = 0
    for each in order:
        waited = 0 if each == name else waited + 1
        most = max(most, waited)
    return most


def simulate(seed: int, style: str | None = None, *, hours: float = 8.0, members: int = 5, every: float = 30.0) -> Report:
    """The history of a seed. every: seconds between two reports of a member."""
    chosen = style or STYLES[seed % len(STYLES)]
    return History(seed, chosen, members=members, every=every).play(hours * HOUR)
