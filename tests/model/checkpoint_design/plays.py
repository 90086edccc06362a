"""The plays of the source design of checkpoints: the number of nodes and the bound of the log.

The plays of `make model` have one request more.

Golden numbers, distinct states:

| log bound                     | 1     | 2       | 3       |
| ----------------------------- | ----- | ------- | ------- |
| two nodes, told apart         |       | 968     | 6,960   |
| three nodes, told apart       | 1,280 | 204,224 |         |
| three nodes                   |       | 34,380  | 901,692 |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .world import SEED, CheckpointDesign, Rules


class Play(NamedTuple):
    """A cluster of `size` nodes, requests below `bound`; symmetric: states that differ in the nodes' names alone are one."""

    size: int
    bound: int
    symmetric: bool = True
    rules: Rules = SEED


def world(play: Play) -> CheckpointDesign:
    """Return the world that the checker explores."""
    return CheckpointDesign(play.size, play.bound, play.rules, symmetric=play.symmetric)


PLAYS: dict[str, Callable[[int], Play]] = {
    "two nodes": lambda level: Play(2, 2 + level, symmetric=False),
    "three nodes": lambda level: Play(3, 2 + level),
    "three nodes told apart": lambda level: Play(3, 1 + level, symmetric=False),
}
