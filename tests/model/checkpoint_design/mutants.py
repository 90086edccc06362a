"""Each switches off one rule of the source design, its attempted optimization first; the checker must find what that leads to."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.checking.checker import Report, explore

from .plays import Play, world
from .world import Rules


class Mutant(NamedTuple):
    """The changed rule, and the log bound at which it shows among three nodes."""

    name: str
    rules: Rules
    bound: int = 2

    @property
    def play(self) -> str:
        """The play in which the mutant is hunted."""
        return f"three nodes, bound {self.bound}"


def hunt(mutant: Mutant) -> Report:
    """Explore the mutant's play with the rule switched."""
    return explore(world(Play(3, mutant.bound, rules=mutant.rules)))


PREEMPTION = Mutant("pre-emption", Rules(preempt=True), bound=3)

MUTANTS = [
    PREEMPTION,
    Mutant("the leader may lag", Rules(leader_may_lag=True)),
    Mutant("elect while taking", Rules(elect_while_taking=True)),
    Mutant("no timeout test", Rules(ignore_timeout=True)),
    Mutant("a new leader keeps its permission", Rules(keep_permission=True)),
]
