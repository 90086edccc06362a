"""Balance by load: which partitions move from which server to which, and when balance is good enough. Pure and deterministic.

Each server has a bound: the larger of the fair mean and its own heaviest partition. The fair mean leaves out partitions that are heavier
than it, each with one server: nothing can be done for these servers except to give them nothing else. A server above its bound by more
than `START` of the mean gives partitions up until it is at most `STOP` above. A server with much less than the mean, such as a new one,
gets partitions from the others.

A step is one move, or an exchange of two partitions where no move is possible. After each step the two servers' higher load is lower than
before, so no step makes the maximum worse, and plans come to an end. A step that reverses another one needs loads that have changed by
about `GAIN`: that keeps noise from moving anything.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

START: Final = 0.10
"""Share of the mean by which a server is above its bound when it begins to give partitions up."""
STOP: Final = 0.05
"""Share of the mean above the bound at which it stops, and up to which other servers are filled."""
IDLE: Final = 0.80
"""Share of the mean below which a server gets partitions although no other one is above its bound."""
GAIN: Final = 0.04
"""Share of the giving server's load by which the receiving one's is lower after a step."""
LEAST_MEAN: Final = 0.1
"""Share of the plain mean below which the fair mean does not go: all thresholds are shares of it, and smaller ones would follow noise."""
LEAST_EXCHANGE: Final = 0.02
"""Share of the mean that an exchange moves at least: it costs two hand-offs."""
EXCHANGE_WITH: Final = 8
"""Servers with the least load that are asked for an exchange."""

type Step = tuple[tuple[int, str], ...]
"""Partitions that move together, with the servers that receive them."""


def fair_mean(weights: Iterable[float], servers: int) -> float:
    """Return the mean load of a server, without partitions that are heavier than the mean of all others; each has a server of its own.

    It is at least `LEAST_MEAN` of the plain mean, also if almost nothing is left without these partitions.
    """
    ordered = sorted(weights, reverse=True)
    total, left = math.fsum(ordered), servers
    for weight in ordered:
        if left <= 1 or weight * left <= total:
            break
        total, left = max(0.0, total - weight), left - 1
    return max(total / left, LEAST_MEAN * math.fsum(ordered) / servers) if servers else 0.0


def bound(mean: float, weights: Collection[float], over: float) -> float:
    """Return the load up to which a server with partitions of these weights may be filled. over: `START` or `STOP`."""
    return max(mean, max(weights, default=0.0)) + over * mean


def is_uneven(loads: Mapping[str, Mapping[int, float]]) -> bool:
    """Return True if a server has too much or too little load. loads: partitions of each server with their weights."""
    mean = fair_mean((weight for held in loads.values() for weight in held.values()), len(loads))
    for held in loads.values():
        total = math.fsum(held.values())
        if total > bound(mean, held.values(), START) or total < IDLE * mean:
            return True
    return False


class LoadBalancer:
    """Finds the next step. The caller applies it, as far as its budget goes.

    has: partitions of each server. weights: of all partitions. room: maximum number of partitions of each server. may: True if the server
    may own the partition. free: True if the partition may move for load at all.
    """

    def __init__(
        self,
        has: Mapping[str, Collection[int]],
        weights: Mapping[int, float],
        room: Mapping[str, int],
        may: Callable[[int, str], bool],
        free: Callable[[int], bool],
    ) -> None:
        self._room, self._may, self._free = room, may, free
        self._weights = weights
        self.held = {name: {number: weights[number] for number in sorted(has[name])} for name in sorted(has)}
        self.load = {name: math.fsum(held.values()) for name, held in self.held.items()}
        self.mean = fair_mean((weight for held in self.held.values() for weight in held.values()), len(self.held))
        self._giving: set[str] = set()
        self._getting = {name for name, load in self.load.items() if load < IDLE * self.mean}

    def apply(self, step: Step) -> None:
        """Record that a step is taken."""
        owners = {number: name for number, _ in step for name, held in self.held.items() if number in held}
        for number, _ in step:
            del self.held[owners[number]][number]
        for number, target in step:
            self.held[target][number] = self._weights[number]
        for name in {*owners.values(), *(target for _, target in step)}:
            self.load[name] = math.fsum(self.held[name].values())

    def helps(self, step: Step) -> bool:
        """Return True if there is room for the step, and the highest load of its servers is lower after it than before."""
        owners = {number: name for number, _ in step for name, held in self.held.items() if number in held}
        after = {name: self.load[name] for name in {*owners.values(), *(target for _, target in step)}}
        counts = {name: len(self.held[name]) for name in after}
        before = max(after.values())
        for number, target in step:
            for name, change in ((owners[number], -1), (target, 1)):
                after[name] += change * self._weights[number]
                counts[name] += change
        return max(after.values()) < before and all(count <= self._room[name] for name, count in counts.items())

    def next_step(self, most: int) -> Step | None:
        """Return the next step of at most `most` moves; None if balance is good enough, or no step makes it better."""
        if most < 1 or self.mean <= 0:
            return None
        over = {name: load - self._limit(name, STOP) for name, load in self.load.items()}
        for name in sorted(over, key=lambda name: (-over[name], name)):
            if self.load[name] > self._limit(name, STOP if name in self._giving else START) and (step := self._relieve(name, most)):
                self._giving.add(name)
                return step
        for name in sorted(self.load, key=lambda name: (self.load[name], name)):
            if name in self._getting and self.load[name] < (1 - STOP) * self.mean and (step := self._fill(name)):
                return step
        return None

    def _limit(self, name: str, over: float) -> float:
        return bound(self.mean, self.held[name].values(), over)

    def _movable(self, name: str) -> list[tuple[float, int]]:
        """Return the partitions that the server may give up, by weight. One that is as heavy as the mean stays, alone with its server."""
        held = sorted((weight, number) for number, weight in self.held[name].items())
        if held and held[-1][0] >= self.mean:
            held.pop()
        return [(weight, number) for weight, number in held if weight > 0 and self._free(number)]

    def _others(self, source: str) -> list[str]:
        return sorted((name for name in self.load if name != source), key=lambda name: (self.load[name], name))

    def _relieve(self, source: str, most: int) -> Step | None:
        """Return a step that relieves a server above its bound."""
        own, movable = self.load[source], self._movable(source)
        excess = own - self._limit(source, STOP)
        targets = [name for name in self._others(source) if len(self.held[name]) < self._room[name]]
        for target in targets:
            fits = [each for each in movable if self._fits(each[0], target, own) and self._may(each[1], target)]
            if fits:
                enough = bisect_left(fits, (excess, -1))
                return ((fits[min(enough, len(fits) - 1)][1], target),)
        for target in targets:
            room = (1 - GAIN) * own - self.load[target]
            some = [each for each in movable[: bisect_right(movable, (room, math.inf))] if self._may(each[1], target)]
            if some:
                _, number = min(some, key=lambda each: (max(own - each[0], self.load[target] + each[0]), each))
                return ((number, target),)
        return self._exchange(source, movable, excess) if most >= 2 else None

    def _fits(self, weight: float, target: str, own: float) -> bool:
        after = self.load[target] + weight
        return after <= max(self._limit(target, STOP), weight + STOP * self.mean) and after <= (1 - GAIN) * own

    def _exchange(self, source: str, movable: list[tuple[float, int]], excess: float) -> Step | None:
        """Return the exchange with one of the servers with the least load that lowers the two servers' maximum most."""
        own = self.load[source]
        best: tuple[float, int, int, str] | None = None
        for target in self._others(source)[:EXCHANGE_WITH]:
            other = self.load[target]
            ideal = min(excess, (own - other) / 2)
            theirs = sorted((weight, number) for number, weight in self.held[target].items() if self._free(number))
            for weight, number in movable:
                at = bisect_left(theirs, (weight - ideal, -1))
                for back, returned in theirs[max(0, at - 1) : at + 1]:
                    moved = weight - back
                    if moved < LEAST_EXCHANGE * self.mean or other + moved > (1 - GAIN) * own:
                        continue
                    found = (max(own - moved, other + moved), number, returned, target)
                    if (best is None or found < best) and self._may(number, target) and self._may(returned, source):
                        best = found
        return None if best is None else ((best[1], best[3]), (best[2], source))

    def _fill(self, target: str) -> Step | None:
        """Return a move to a server with little load."""
        if len(self.held[target]) >= self._room[target]:
            return None
        for source in reversed(self._others(target)):
            own = self.load[source]
            # After the move the server that gives still has at least as much as the one that receives.
            most = min((1 + STOP) * self.mean - self.load[target], (1 - GAIN) * own - self.load[target], (own - self.load[target]) / 2)
            movable = self._movable(source)
            for _, number in reversed(movable[: bisect_right(movable, (most, math.inf))]):
                if self._may(number, target):
                    return ((number, target),)
        return None
