"""Loads of partitions over time, for simulations of balance: uniform, Zipf, one hot partition, and a daily wave.

Each skew gives the true load of a partition at a second, and all are scaled to 100 per server on average. What a server measures differs
from the truth by noise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MEAN: Final = 100.0
"""Load of a server on average."""
NOISE: Final = 0.2
"""Standard deviation of a measurement, as a share of the load."""
DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Skew:
    """A pattern of loads. load: of a partition at a second since the start. about: the pattern in words."""

    name: str
    about: str
    load: Callable[[int, float], float]

    def measured(self, partition: int, seconds: float, dice: random.Random) -> float:
        """Return what a server measures."""
        return max(0.0, self.load(partition, seconds) * dice.gauss(1.0, NOISE))


def skews(partitions: int, servers: int, day: float = DAY) -> list[Skew]:
    """Return the four patterns. day: seconds of a day; a shorter one is a harder test."""
    total = MEAN * servers
    order = list(range(partitions))
    random.Random("order").shuffle(order)
    scale = total / sum(1 / rank for rank in range(1, partitions + 1))
    zipf = [scale / (order[number] + 1) for number in range(partitions)]
    hot = 2.5 * MEAN
    rest = (total - hot) / (partitions - 1)

    def wave(number: int, seconds: float) -> float:
        # Partitions of four regions have their peaks at different hours; regions are next to one another.
        phase = 4 * number // partitions / 4
        return total / partitions * (1 + 0.8 * math.sin(2 * math.pi * (seconds / day + phase)))

    return [
        Skew("uniform", "all partitions alike", lambda number, seconds: total / partitions),
        Skew("zipf", "the n-th heaviest partition has 1/n of the heaviest", lambda number, seconds: zipf[number]),
        Skew("hot", "one partition has 2.5 times the mean of a server", lambda number, seconds: hot if number == order[0] else rest),
        Skew("wave", "four regions with a daily wave of 80 % each, at different hours", wave),
    ]
