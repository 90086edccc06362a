"""Which secondary gets the next turn: at random, by health, with a debt that makes it fair. Pure; chance comes as an argument.

Each turn owes every candidate its part, `weight / sum of weights`, and the one that gets it pays 1. Only those that something is owed to
may be drawn, in proportion to what is owed; who is owed a whole turn goes before any draw. And before all that, nobody waits for longer
than 2N turns of N candidates (`forced`). So of candidates alike in health nobody is ever three turns ahead of another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

LEAST: Final = 0.25
"""The weight of a candidate in the worst health: it gets its turns, more rarely."""


class Candidate(NamedTuple):
    """A secondary that may get the turn. weight: its health, `LEAST` to 1."""

    node: str
    weight: float


class Share(NamedTuple):
    """What is owed to a node. debt: turns. waited: turns that went to others since it became a candidate or had one."""

    node: str
    debt: float = 0.0
    waited: int = 0


def health(lag: int, failures: int, load: float, max_lag: int | None) -> float:
    """The weight of a secondary, `LEAST` to 1. lag: entries it is behind; against max_lag where the fleet has one, else by its order of
    magnitude. failures: of its late checkpoints. load: any measure that is alike on all, 0 for none."""
    behind = lag / (2 * max_lag) if max_lag else math.log10(1 + lag) / 8
    return max(LEAST, (1 - min(1.0, behind)) / (1 + failures) / (1 + load))


def choose(
    candidates: Sequence[Candidate], shares: Iterable[Share], draw: float, resting: Sequence[Candidate] = ()
) -> tuple[str, tuple[Share, ...]]:
    """Who gets the turn, of at least one candidate, and the shares after it. draw: in [0, 1). resting: who would be a candidate in another
    moment, such as the last holder until it says that it has finished; each turn owes them their part too, or those would be behind in the
    end who happen to be passed over more often.

    Shares of all other nodes keep their debt, and begin to wait anew.
    """
    known = {share.node: share for share in shares}
    weights = {each.node: each.weight for each in (*candidates, *resting)}
    total = math.fsum(weights.values())
    before = {node: known.get(node, Share(node)) for node in weights}
    owed = {node: share.debt + weights[node] / total for node, share in before.items()}
    free = [each.node for each in candidates]
    chosen = forced({node: share.waited for node, share in before.items()}, free) or _drawn({node: owed[node] for node in free}, draw)
    after = {node: Share(node, debt - (node == chosen), 0 if node == chosen else before[node].waited + 1) for node, debt in owed.items()}
    after |= {node: share._replace(waited=0) for node, share in known.items() if node not in after}
    # What some are owed the others owe, also where one has come or is gone; who is ahead of whom stays as it is.
    mean = math.fsum(share.debt for share in after.values()) / len(after)
    return chosen, tuple(sorted(share._replace(debt=share.debt - mean) for share in after.values()))


def forced(waited: Mapping[str, int], free: Sequence[str] | None = None) -> str | None:
    """Who must be chosen, so that all of N can still have a turn within 2N; None when there is time. waited: of each. free: who can be.

    The k-th of those that have waited longest gets its turn at the latest as the k-th from now: it must not be later than that already.
    """
    order = sorted(waited.items(), key=lambda each: (-each[1], each[0]))
    within = 2 * len(order)
    tight = any(within - turns <= place for place, (_, turns) in enumerate(order, 1))
    return next(node for node, _ in order if free is None or node in free) if tight else None


def _drawn(owed: Mapping[str, float], draw: float) -> str:
    first = max(owed.items(), key=lambda each: (each[1], each[0]))
    if first[1] >= 1:
        return first[0]
    creditors = [(node, debt) for node, debt in sorted(owed.items()) if debt > 0]
    at = draw * math.fsum(debt for _, debt in creditors)
    for node, debt in creditors:
        at -= debt
        if at < 0:
            return node
    return first[0]
