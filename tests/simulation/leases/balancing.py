"""Tocsin's fleets and the algorithm of KCL 3 under the same skewed loads, on virtual time: moves, time to balance, overshoot."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared.leases.balance import START
from shared.leases.profiles import PROFILES

from .kcl import KclFleet
from .measured.fleet import Measured
from .skews import Skew, skews

MEASURE_EVERY = 5.0
SETTLE = 150.0
"""Seconds before servers publish: no partition rests any more, and the claims of the start count against no minute."""


@dataclass(frozen=True, slots=True)
class BalanceRun:
    """Results of one run. series: seconds and the busiest server's load over the bound. moves, late: moves in all, and in the last half of
    the run. overshoot: by how much that was worse at any time than without any move."""

    series: Sequence[tuple[float, float]]
    moves: int
    late: int
    overshoot: float

    @property
    def start(self) -> float:
        """Return the busiest server's load over the bound at the start."""
        return self.series[0][1]

    @property
    def balanced(self) -> float | None:
        """Return the seconds until the busiest server is at most a tenth above the bound for the first time; None if that never happens."""
        return next((at for at, ratio in self.series if ratio <= 1 + START), None)

    @property
    def share(self) -> float:
        """Return the share of the second half of the run in which the busiest server is at most a tenth above the bound."""
        later = [ratio for at, ratio in self.series if at >= self.series[-1][0] / 2]
        return sum(ratio <= 1 + START for ratio in later) / len(later)


def ratio(loads: Mapping[str, float], heaviest: float) -> float:
    """Return the busiest server's load over the bound: the larger of the mean and the heaviest partition."""
    return max(loads.values()) / max(math.fsum(loads.values()) / len(loads), heaviest)


class _Recorder:
    """Collects what `BalanceRun` needs. initial: owners at the start; what they would bear now is what moves are compared with."""

    def __init__(self, skew: Skew, initial: Mapping[int, str]) -> None:
        self._skew, self._initial = skew, dict(initial)
        self.series: list[tuple[float, float]] = []
        self.moves: list[tuple[float, int]] = []
        self._overshoot = 0.0

    def add(self, at: float, loads: Mapping[str, float], moves: int) -> None:
        unmoved = dict.fromkeys(loads, 0.0)
        for number, name in self._initial.items():
            unmoved[name] += self._skew.load(number, at)
        heaviest = max(self._skew.load(number, at) for number in self._initial)
        now = ratio(loads, heaviest)
        self.series.append((at, now))
        self.moves.append((at, moves))
        if moves:
            self._overshoot = max(self._overshoot, now - ratio(unmoved, heaviest))

    def result(self) -> BalanceRun:
        half = next(moves for at, moves in self.moves if at >= self.series[-1][0] / 2)
        return BalanceRun(self.series, self.moves[-1][1], self.moves[-1][1] - half, self._overshoot)


def tocsin(
    skew: Skew, servers: int, partitions: int, seconds: float, seed: object, every: float = 10.0
) -> tuple[BalanceRun, dict[int, str]]:
    """Run the production loops of keepers. Return the results, and the owners at the start."""
    fleet = Measured(PROFILES["default"], servers, partitions, seed=f"balance {seed}", app=False)
    dice = random.Random(f"measure {seed}")
    try:
        fleet.start_all()
        fleet.run(SETTLE)
        began, moved = fleet.now, fleet.moves.total()

        def owners() -> dict[int, str]:
            return {number: name for name, node in fleet.nodes.items() for number in node.view.epochs}

        def measure() -> None:
            for node in fleet.nodes.values():
                for number in node.view.epochs:
                    node.keeper_state.loads.report(number, skew.measured(number, fleet.now - began, dice))
            fleet.world.at(fleet.now + MEASURE_EVERY, measure)

        initial = owners()
        recorder = _Recorder(skew, initial)
        measure()
        while (now := fleet.now - began) <= seconds:
            loads = dict.fromkeys(fleet.names, 0.0)
            for number, name in owners().items():
                loads[name] += skew.load(number, now)
            recorder.add(now, loads, fleet.moves.total() - moved)
            fleet.run(every)
        return recorder.result(), initial
    finally:
        fleet.close()


def kcl(skew: Skew, owners: Mapping[int, str], seconds: float, seed: object) -> BalanceRun:
    """Run the algorithm of KCL 3 from the same owners."""
    recorder = _Recorder(skew, owners)
    fleet = KclFleet(owners, sorted(set(owners.values())), skew, seed)
    for now, loads, moves in fleet.run(seconds):
        recorder.add(now, loads, moves)
    return recorder.result()


def compare(servers: int, partitions: int, seconds: float, day: float, seeds: Sequence[int]) -> dict[str, dict[str, list[BalanceRun]]]:
    """Return the runs of both under each skew. day: seconds of a day of the wave, which runs for one day."""
    found: dict[str, dict[str, list[BalanceRun]]] = {}
    for skew in skews(partitions, servers, day):
        length = day if skew.name == "wave" else seconds
        both = found[skew.name] = {"Tocsin": [], "KCL 3": []}
        for seed in seeds:
            ours, owners = tocsin(skew, servers, partitions, length, seed)
            both["Tocsin"].append(ours)
            both["KCL 3"].append(kcl(skew, owners, length, seed))
    return found
