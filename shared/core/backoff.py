"""The one back-off formula. Callers add jitter, and the pause that a receiver asked for; units are theirs."""

from __future__ import annotations

import math


def exponential[N: (int, float)](first: N, doublings: int, longest: N, most_doublings: int = 1000) -> N:
    """Return `first` doubled `doublings` times, at most `longest`. Doublings beyond `most_doublings` are not made."""
    factor: int = 2 ** min(doublings, most_doublings)
    return min(longest, first * factor)


def unbounded(first: float, doublings: int) -> float:
    """Return `first` doubled `doublings` times."""
    return exponential(first, doublings, math.inf)
