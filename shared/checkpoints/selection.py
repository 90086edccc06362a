"""Chooses the secondary that gets the next turn: at random, weighted by health, with a debt that makes the choice fair. Pure.

Each turn credits every candidate with its part, `weight / sum of weights`, and the chosen one pays 1. Only candidates with a positive debt
may be drawn, in proportion to it. A candidate with a debt of a whole turn is chosen before any draw. Before all that, no candidate waits
for more than 2N turns of N candidates (`overdue`). So among candidates of equal health none is ever three turns ahead of another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

MIN_WEIGHT: Final = 0.25
"""The weight of a candidate in the worst health. It still gets turns, but fewer."""


class Candidate(NamedTuple):
    """A secondary that may get the turn. weight: its health, `MIN_WEIGHT` to 1."""

    node: str
    weight: float


class Share(NamedTuple):
    """A node's share of the turns. debt: turns that it is due. waited: turns of other nodes since it became a candidate or had one."""

    node: str
    debt: float = 0.0
    waited: int = 0


def health_weight(lag: int, failures: int, load: float, max_lag: int | None) -> float:
    """Return the weight of a secondary, `MIN_WEIGHT` to 1.

    lag: entries that it is behind, measured against `max_lag` where the fleet has one, else by its order of magnitude. failures: of its
    late checkpoints. load: a measure that is comparable between replicas, 0 for idle.
    """
    behind = lag / (2 * max_lag) if max_lag else math.log10(1 + lag) / 8
    return max(MIN_WEIGHT, (1 - min(1.0, behind)) / (1 + failures) / (1 + load))


def choose(
    candidates: Sequence[Candidate], shares: Iterable[Share], draw: float, resting: Sequence[Candidate] = ()
) -> tuple[str, tuple[Share, ...]]:
    """Return the candidate that gets the turn, and the shares after it. There must be a candidate.

    draw: a random number in [0, 1). resting: nodes that would be candidates at another moment, such as the last holder until it reports
    that it has finished. Each turn credits them too; else nodes that happen to be passed over more often would fall behind. The shares of
    all other nodes keep their debt, and their waiting starts again at 0.
    """
    known = {share.node: share for share in shares}
    weights = {each.node: each.weight for each in (*candidates, *resting)}
    total = math.fsum(weights.values())
    before = {node: known.get(node, Share(node)) for node in weights}
    debts = {node: share.debt + weights[node] / total for node, share in before.items()}
    free = [each.node for each in candidates]
    chosen = overdue({node: share.waited for node, share in before.items()}, free) or _draw({node: debts[node] for node in free}, draw)
    after = {node: Share(node, debt - (node == chosen), 0 if node == chosen else before[node].waited + 1) for node, debt in debts.items()}
    after |= {node: share._replace(waited=0) for node, share in known.items() if node not in after}
    # The debts sum to zero, also after a node came or went. Subtracting the mean leaves their order as it is.
    mean = math.fsum(share.debt for share in after.values()) / len(after)
    return chosen, tuple(sorted(share._replace(debt=share.debt - mean) for share in after.values()))


def overdue(waited: Mapping[str, int], free: Sequence[str] | None = None) -> str | None:
    """Return the node that must be chosen so that all of N can have a turn within 2N turns; None while there is time.

    waited: turns that each node has waited. free: the nodes that can be chosen; None for all. The node with the k-th longest wait gets its
    turn at the latest as the k-th from now, and that must not exceed its bound.
    """
    order = sorted(waited.items(), key=lambda each: (-each[1], each[0]))
    within = 2 * len(order)
    tight = any(within - turns <= place for place, (_, turns) in enumerate(order, 1))
    return next(node for node, _ in order if free is None or node in free) if tight else None


def _draw(debts: Mapping[str, float], draw: float) -> str:
    first = max(debts.items(), key=lambda each: (each[1], each[0]))
    if first[1] >= 1:
        return first[0]
    creditors = [(node, debt) for node, debt in sorted(debts.items()) if debt > 0]
    at = draw * math.fsum(debt for _, debt in creditors)
    for node, debt in creditors:
        at -= debt
        if at < 0:
            return node
    return first[0]
