"""Histories in which the partition count changes repeatedly while everything else goes wrong, too.

Beside what `watch` checks of partitions: at each moment at most one server owns a key, and a key's epochs grow, whatever the counts.
"""

from __future__ import annotations

import random
from math import lcm

from shared.engine.thread_runner import ThreadRunner
from shared.leases.protocol import resizing
from shared.leases.protocol.resizing import ResizeBegun
from shared.leases.rows import FLEET, parse_fleet
from shared.storage.blocking import MemoryBlockingTables, run_through
from shared.storage.names import FLEETS
from tests.simulation.checks.truth import Violation

from .history import KEY, History, Report, listening
from .node import Node
from .world import World

COUNTS = (1, 2, 3, 4, 5, 6)
KEYS = lcm(*COUNTS)


class KeyWatch:
    """Give `seen` to the nodes. A node owns the keys of the partitions in its view, by the last count that it learned."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._until: list[dict[Node, float]] = [{} for _ in range(KEYS)]
        self._highest: list[tuple[int, str]] = [(0, "")] * KEYS
        self._known: dict[Node, object] = {}

    def seen(self, node: Node) -> None:
        """The node's view may have changed. Raises `Violation`."""
        spread = node.notifier.spread
        state = (node.view, spread, node.running)
        if self._known.get(node) == state:
            return
        self._known[node] = state
        now, (epochs, until) = self.world.time.seconds, node.view
        end = node.host.true(until) if epochs and node.running else 0.0
        for key, owners in enumerate(self._until):
            partition = key % spread.partitions if spread is not None else -1
            if now >= end or partition not in epochs:
                owners.pop(node, None)
                continue
            for other, theirs in owners.items():
                if other is not node and now < theirs and other.running:
                    raise Violation(f"two owners of key {key}: {other.host.name} until {theirs:.4f}, {node.host.name} until {end:.4f}")
            mine, (highest, who) = epochs[partition], self._highest[key]
            if mine < highest or (mine == highest and who != node.host.name):
                raise Violation(f"{node.host.name} owns key {key} under {mine}, and {who} did under {highest}")
            self._highest[key] = mine, node.host.name
            owners[node] = end

    def unowned(self) -> list[int]:
        """The keys without an owner now."""
        now = self.world.time.seconds
        return [key for key, owners in enumerate(self._until) if not any(now < end and node.running for node, end in owners.items())]


class Resizes(History):
    """A history with changes of the partition count."""

    def __init__(self, seed: object, style: str, dice: random.Random) -> None:
        super().__init__(seed, style, dice)
        self.keys = KeyWatch(self.world)
        plain = self.watch.seen

        def seen(node: Node) -> None:
            plain(node)
            self.keys.seen(node)

        self.watch.seen = seen  # type: ignore[method-assign]
        self._runner = ThreadRunner(MemoryBlockingTables(self.world.store), self.world.time.monotonic, 1.0)

    @property
    def changes(self) -> int:
        """Write the fleet's row, on which other servers rely too."""
        row = run_through(self.world.store.get(FLEETS, KEY, FLEET))
        return max(self._changes, parse_fleet(row.props).changes if row is not None else 0)

    @changes.setter
    def changes(self, changes: int) -> None:
        self._changes = changes

    def plan(self, length: float) -> None:
        """See `History.plan`."""
        super().plan(length)
        for _ in range(self.dice.randint(1, 4)):
            self.world.at(length * self.dice.random(), self.resize)

    def resize(self) -> None:
        """An operator wants another count, and may have to wait."""
        found = self._runner.run(resizing.begin(KEY, self.dice.choice(COUNTS), self.world.time.now()))
        if isinstance(found, ResizeBegun):
            self.partitions = found.fleet.partitions
            self.world.counts["resizes"] += not found.again
        self.world.note("admin", "resize", found)

    def play(self, report: Report) -> None:
        """Raises `Violation`."""
        dice, profile, world = self.dice, self.profile, self.world
        for name in self.names:
            world.at(profile.beat * 2 * dice.random(), self.start, name)
        length = profile.takeover * (1.5 + 2.5 * dice.random())
        self.plan(length)
        world.run(length)
        self.heal()
        began = world.time.seconds
        # Servers must learn of a change that was begun at the end and hand over, after a takeover.
        bound = 1.02 * profile.takeover + 8 * profile.beat + 2 * self.drain + 4
        if not world.run(began + bound, self.well):
            raise Violation(f"not well {bound:.1f} s after all trouble ended: {self.illness()}")
        report.healed = world.time.seconds - began

    def illness(self) -> str:
        """Return the faults that remain."""
        row = run_through(self.world.store.get(FLEETS, KEY, FLEET))
        assert row is not None
        fleet = parse_fleet(row.props)
        if fleet.former:
            return f"the change from {fleet.former} to {fleet.partitions} is not done"
        return super().illness() or (f"keys {keys} have no owner" if (keys := self.keys.unowned()) else "")


def simulate_resizes(seed: object) -> Report:
    """Play one history."""
    dice = random.Random(f"resizes {seed}")
    style = dice.choice(("calm", "stormy", "stormy"))
    history = Resizes(seed, style, dice)
    report = Report(seed, style, history.world)
    with listening():
        try:
            history.play(report)
        except Violation as violation:
            report.violation = str(violation)
    return report
