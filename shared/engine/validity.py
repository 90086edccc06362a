"""Validity: how long who holds something may act on it, and when others may take it, by clocks that run at slightly different speeds.

A holder counts from the SEND of the request that gave or renewed what it holds; whoever waits for its end counts from a later moment, the
write or the RECEIPT (`moments`). So no clock readings of two machines are compared, and only the speeds of the clocks can differ.
"""

from __future__ import annotations

from typing import Final

DRIFT: Final = 0.01
"""Largest relative error of a clock's speed."""


def outlasting(validity: float) -> float:
    """Return the shortest time on a fast clock that is certainly not shorter than `validity` on a slow one, in its unit."""
    return validity * (1 + DRIFT) / (1 - DRIFT)
