"""The history of a fleet as drawn from a seed, and the checks at its end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from shared.engine.thread_runner import ThreadRunner
from shared.engine.validity import DRIFT, outlasting
from shared.leases.profiles import MARGIN, Profile
from shared.leases.protocol import takeover
from shared.leases.rows import FLEET, Fleet, Intent, MoveLimits, fleet_key
from shared.leases.scan_rules import LOOK_WITHIN
from shared.storage.blocking import MemoryBlockingTables, run_through
from shared.storage.names import FLEETS
from shared.storage.ports import ANY, Delete, Merge, Upsert
from tests.simulation.checks.truth import Violation

from .node import Application, Disk, Node
from .report import Report, listening
from .rollback import Rollbacks
from .watch import Watch
from .world import Host, Weather, World

KEY = fleet_key("t", "f")
STYLES = ("single", "calm", "stormy")
"""single: one process of a fleet that is well ends or stands still. calm: storage works, processes die and come. stormy: everything at
once."""
ROLLBACK = "rollback"
"""A style that is played on request: as calm, and storage loses acknowledged writes."""
GAP = 2.0
"""Seconds that a planned hand-off may take beyond the callback."""


def simulate(seed: object, style: str | None = None) -> Report:
    """Play one history."""
    dice = random.Random(f"history {seed}")
    style = style or dice.choices(STYLES, (1, 1, 6))[0]
    history = History(seed, style, dice)
    report = Report(seed, style, history.world)
    with listening():
        try:
            history.play(report)
        except Violation as violation:
            report.violation = str(violation)
    return report


class History:
    """One fleet, its processes, its troubles."""

    def __init__(self, seed: object, style: str, dice: random.Random) -> None:
        self.dice, self.style = dice, style
        stormy = style == "stormy"
        beat = dice.choice((1.0, 1.0, 2.0))
        validity = beat * dice.choice((3.0, 3.0, 4.0))
        self.profile = Profile(beat, validity, outlasting(validity) + MARGIN)
        self.partitions = dice.randint(1, 5) if style != "single" else dice.randint(2, 8)
        self.drain = validity * dice.choice((0.2, 0.5, 0.9))
        page_rows = dice.choice((None, None, 1, 2, 3)) if stormy else None
        self.world = World(seed, page_rows=page_rows, tick=dice.choice((0.0, 0.0, 0.05)) if stormy else 0.0)
        limits = MoveLimits(claims_per_cycle=dice.choice((2, 8)) if stormy else 8, drain=self.drain)
        fleet = Fleet(self.partitions, self.profile, limits)
        assert ThreadRunner(MemoryBlockingTables(self.world.store), self.world.time.monotonic, 1.0).run(takeover.create_fleet(KEY, fleet))
        self.watch = Watch(self.world)
        self.nodes: list[Node] = []
        self.disks: dict[str, Disk] = {}
        self.names = ["a", "b", "c", "d"][: dice.choice((2, 2, 3, 3, 4))]
        self.changes = 0
        self.intents: set[str] = set()
        self.healed = self.told = self.dropped = False
        self.writers = dice.random() < 0.4

    # -- processes

    def start(self, name: str, *, disk: bool = True) -> Node:
        """A new process of that name. disk: on the machine it always had, where its predecessor's file is."""
        dice, stormy = self.dice, self.style == "stormy"
        rate = dice.choice((1 - DRIFT, 1 + DRIFT, 1 + DRIFT * (2 * dice.random() - 1))) if stormy or dice.random() < 0.5 else 1.0
        host = Host(self.world, f"{name}{sum(node.server == name for node in self.nodes) + 1}", rate, dice.random() * 1000)
        slow_calls = stormy and dice.random() < 0.3

        def calls() -> float:
            return dice.random() * (2 * self.drain if slow_calls and dice.random() < 0.3 else 0.05)

        application = Application(calls, writes=dice.choice((3, 12)) if self.writers else 0, zombie=dice.random() < 0.5)
        files = self.disks.setdefault(name, Disk()) if disk else None
        endpoint = self.endpoint(name)
        node = Node(self.world, KEY, name, host, self.profile, self.watch.seen, disk=files, application=application, endpoint=endpoint)
        self.nodes.append(node)
        node.start()
        return node

    def endpoint(self, name: str) -> str:
        """Return the address that a server of this name publishes."""
        return ""

    @property
    def running(self) -> list[Node]:
        """Processes that can do something."""
        return [node for node in self.nodes if node.running]

    # -- troubles

    def plan(self, length: float) -> None:
        """Decide what goes wrong until then, and put it into the world."""
        troubles: list[tuple[int, Callable[[], None]]] = [
            (6, self.crash),
            (3, self.stop),
            (5, self.suspend),
            (2, self.add),
            (4, self.both),
        ]
        if self.style == "stormy":
            troubles += [
                (4, self.isolate),
                (4, self.storm),
                (3, self.slow),
                (2, self.namesake),
                (2, self.step_wall),
                (2, self.drain_one),
                (2, self.drop_one),
                (2, self.bump),
                (2, self.forbid),
                (1, self.tell_exit),
            ]
            if self.dice.random() < 0.6:
                rates = [self.dice.choice((0.0, 0.01, 0.05, 0.15)) for _ in range(4)]
                slow_up_to = self.profile.takeover * self.dice.choice((0.3, 1.0, 2.0))
                self.world.weather = Weather(slow=rates[0], slow_up_to=slow_up_to, lose=rates[1], fail=rates[2], refuse=rates[3])
        weights, kinds = [weight for weight, _ in troubles], [trouble for _, trouble in troubles]
        for _ in range(self.dice.randint(1, 3) if self.style == "calm" else self.dice.randint(1, 7)):
            self.world.at(length * self.dice.random(), self.dice.choices(kinds, weights)[0])

    def _one(self) -> Node | None:
        return self.dice.choice(self.running) if self.running else None

    def _span(self, most: float) -> float:
        return self.profile.takeover * most * self.dice.random()

    def _later(self, seconds: float, what: Callable[..., None], *arguments: Any) -> None:
        self.world.at(self.world.time.seconds + seconds, what, *arguments)

    def crash(self) -> None:
        """A process ends; another of its name starts, soon, late or never, on its machine or elsewhere."""
        if (node := self._one()) is not None:
            node.crash()
            if self.dice.random() < 0.6:
                self._later(self._span(1.0), self.restart, node.server)

    def restart(self, name: str) -> None:
        """Start a server of this name again, unless one runs already."""
        if not self.healed and not any(node.server == name for node in self.running):
            self.start(name, disk=self.dice.random() < 0.7)

    def stop(self) -> None:
        """A process ends as it should."""
        if (node := self._one()) is not None:
            node.keeper_state.stop()
            if self.dice.random() < 0.5:
                self._later(self._span(1.0), self.restart, node.server)

    def add(self) -> None:
        """One more, or one again."""
        name = self.dice.choice(self.names)
        self.restart(name)

    def suspend(self) -> None:
        """All of a process's threads stand still."""
        if (node := self._one()) is not None:
            still = self._span(1.0 if self.dice.random() < 0.4 else 2.0)
            if self.dice.random() < 0.6:
                node.host.freeze_with_next, node.host.freeze_with_beat = still, self.dice.random() < 0.5
            else:
                node.host.freeze(self.world.time.seconds + still)

    def both(self) -> None:
        """One stands still with a request under way, and another falls silent meanwhile, or right after."""
        if len(self.running) > 1:
            one, other = self.dice.sample(self.running, 2)
            still = self._span(1.0)
            one.host.freeze_with_next = still
            self._later(still * (0.3 + 0.8 * self.dice.random()), self._fall_silent, other)

    def _fall_silent(self, node: Node) -> None:
        if self.healed or not node.running:
            return
        if self.dice.random() < 0.3:
            node.crash()
        else:
            node.host.freeze(self.world.time.seconds + self.profile.takeover)

    def isolate(self) -> None:
        """Nothing of what a process sends arrives."""
        if (node := self._one()) is not None:
            node.host.cut_until = self.world.time.seconds + self._span(2.0)
            self.world.note(node.host.name, "is cut off until", node.host.cut_until)

    def storm(self) -> None:
        """Storage refuses most requests for a while."""
        before = self.world.weather
        if before.refuse < 0.5:
            self.world.weather = Weather(refuse=0.9, lose=0.05)
            self._later(self._span(1.5), self._weather, before)

    def slow(self) -> None:
        """Requests and answers take very long."""
        before = self.world.weather
        if before.refuse < 0.5:
            self.world.weather = Weather(slow=0.7, slow_up_to=self.profile.validity * 2 * self.dice.random())
            self._later(self._span(1.0), self._weather, before)

    def _weather(self, weather: Weather) -> None:
        if not self.healed:
            self.world.weather = weather

    def namesake(self) -> None:
        """Somebody starts a second process of a name that is in use, elsewhere."""
        if (node := self._one()) is not None:
            self.start(node.server, disk=False)

    def step_wall(self) -> None:
        """Somebody sets a clock."""
        if (node := self._one()) is not None:
            node.host.wall_offset += self.dice.choice((-1, 1)) * self.dice.randint(1, 100_000_000)

    def drain_one(self) -> None:
        """An application drains itself for a while."""
        if (node := self._one()) is not None:
            node.keeper_state.drain(True)
            self._later(self._span(1.0), self._undrain, node)

    def _undrain(self, node: Node) -> None:
        if node.running and not node.keeper_state.stopping:
            node.keeper_state.drain(False)

    def drop_one(self) -> None:
        """An application drops a partition."""
        if (node := self._one()) is not None and node.view.epochs:
            self.dropped = True
            node.keeper_state.drop(self.dice.choice(sorted(node.view.epochs)))

    # -- operators

    def _say(self, intent: Intent, *, on: bool = True) -> None:
        self.changes += 1
        if not on and intent.key not in self.intents:
            return
        op = Upsert(intent.key, intent.props()) if on else Delete(intent.key, ANY)
        (self.intents.add if on else self.intents.discard)(intent.key)
        run_through(self.world.store.write(FLEETS, KEY, [op, Merge(FLEET, {"changes": self.changes}, ANY)]))
        self.world.note("admin", f"{intent.verb} {intent.partition} {intent.server}", "on" if on else "off")

    def bump(self) -> None:
        """Reload a partition."""
        number = self.dice.randrange(self.partitions)
        self._say(Intent("bump", number, epoch=self.watch.epochs.get(number, 0)))

    def forbid(self) -> None:
        """Drain a server, perhaps to another one, prohibit it for a partition, or take a partition offline, for a while."""
        number, name = self.dice.randrange(self.partitions), self.dice.choice(self.names)
        to = self.names[(self.names.index(name) + 1) % len(self.names)] if number % 2 and len(self.names) > 1 else None
        intent = self.dice.choice((Intent("drain", server=name, to=to), Intent("prohibit", number, name), Intent("offline", number)))
        self._say(intent)
        self._later(self._span(1.5), self._allow, intent)

    def _allow(self, intent: Intent) -> None:
        self._say(intent, on=False)

    def tell_exit(self) -> None:
        """An operator wants a server's process to end."""
        if (node := self._one()) is not None:
            self.told = True
            run_through(self.world.store.write(FLEETS, KEY, [Merge(f"s:{node.server}", {"tell": "exit"}, ANY)]))
            self.world.note("admin", f"tells {node.server} to exit")

    # -- the history

    def play(self, report: Report) -> None:
        """Raises `Violation`."""
        dice, profile, world = self.dice, self.profile, self.world
        for name in self.names:
            world.at(profile.beat * 2 * dice.random(), self.start, name)
        if self.style == "single":
            self.one_ends(report)
            return
        length = profile.takeover * (1.5 + 2 * dice.random())
        self.plan(length)
        rollbacks = Rollbacks(self.world, self.watch, KEY, self.profile, self.dice)
        if self.style == ROLLBACK:
            rollbacks.plan(length)
        world.run(length)
        # Trouble ends with the last rollback.
        world.run(max(length, rollbacks.last))
        self.heal()
        began = world.time.seconds
        bound = 1.02 * profile.takeover + 3 * profile.beat + self.drain + 2
        if any(node.keeper_state.stretch > 1 for node in self.running):
            # Storage refused many requests until now, which servers remember: they scan more rarely for a while.
            bound += LOOK_WITHIN * profile.takeover
        if not world.run(began + bound, self.well):
            raise Violation(f"not well {bound:.1f} s after all trouble ended: {self.illness()}")
        report.healed = world.time.seconds - began

    def one_ends(self, report: Report) -> None:
        """One process ends; all that it had must be served again in the time that was promised."""
        profile, world, dice = self.profile, self.world, self.dice
        world.run(3 * profile.beat)
        if not world.run(15 * profile.beat, self.well):
            raise Violation(f"not well at the beginning: {self.illness()}")
        world.run(world.time.seconds + 2 * profile.beat * dice.random())
        node, kind = dice.choice(self.running), dice.choice(("crash", "suspend", "stop", "both"))
        at, known = world.time.seconds, len(self.watch.gaps)
        waits = profile.beat if kind == "suspend" else 0.0
        if kind == "both":
            # First one of those who would notice stands still, with a look or a beat under way.
            witness = dice.choice([each for each in self.running if each is not node])
            waits = profile.takeover * (0.3 + 0.7 * dice.random())
            witness.host.freeze_with_next, witness.host.freeze_with_beat = waits, False
            world.run(at + waits * (0.5 + 0.5 * dice.random()))
        planned = kind == "stop"
        if kind == "crash":
            node.crash()
        elif planned:
            node.keeper_state.stop()
        elif kind == "suspend":
            node.host.freeze_with_next, node.host.freeze_with_beat = float("inf"), dice.random() < 0.7
        else:
            node.host.freeze(float("inf"))
        self.nodes.remove(node)
        if not planned and dice.random() < 0.5:
            # Operators make requests meanwhile, and a planner writes them into the row of the server that ended.
            self._later(self._span(0.9), self.bump)
        promised = waits + profile.takeover / (1 - DRIFT) + profile.beat + 2
        if not world.run(at + promised, lambda: self.served(without=node), every=0.05):
            raise Violation(f"not served {promised:.1f} s after a {kind}")
        for partition, gap, _ in self.watch.gaps[known:]:
            report.gaps.setdefault(kind, []).append(gap)
            if planned and gap > GAP + 0.05:
                raise Violation(f"{partition} was not served for {gap:.2f} s in a planned hand-off")
        if not world.run(world.time.seconds + 3 * profile.beat, self.well):
            raise Violation(f"not well after a {kind}: {self.illness()}")
        if kind in ("suspend", "both"):
            # Whoever was away for that long finds everything changed.
            node.host.thaw(early=True)
            self.nodes.append(node)
            world.run(world.time.seconds + 2 * profile.beat)

    def served(self, without: Node) -> bool:
        """Every partition is served by another."""
        return all(set(self.watch.owners(partition)) - {without} for partition in range(self.partitions))

    def heal(self) -> None:
        """All trouble ends; what is dead stays dead."""
        world = self.world
        self.healed = True
        world.note("admin", "all trouble ends")
        world.weather = Weather()
        for node in self.nodes:
            node.host.thaw(early=True)
            node.host.cut_until = 0.0
            self._undrain(node)
        for key in sorted(self.intents):
            run_through(world.store.write(FLEETS, KEY, [Delete(key, ANY)]))
        self.changes += 1
        run_through(world.store.write(FLEETS, KEY, [Merge(FLEET, {"changes": self.changes}, ANY)]))
        if self.told or not [node for node in self.running if node.keeper_state.session is not None and not node.keeper_state.stopping]:
            # Servers that were asked to exit may not know it yet, and servers that wait to register may find their name in use.
            self.start("z")

    def well(self) -> bool:
        """Every partition is served, by one, and shares are equal."""
        return not self.illness()

    def illness(self) -> str:
        """Return the faults that remain."""
        ready = [node for node in self.nodes if node.running and not node.keeper_state.stopping]
        has = Counter({node.host.name: 0 for node in ready})
        for partition in range(self.partitions):
            owners = self.watch.owners(partition)
            if len(owners) != 1:
                return f"{partition} is served by {[node.host.name for node in owners]}"
            has[owners[0].host.name] += 1
        # What was dropped is not wanted back for a minute.
        unequal = max(has.values()) - min(has.values()) > 1 and not self.dropped
        return f"shares are {dict(has)}" if unequal else ""
