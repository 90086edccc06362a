"""Validity: the time for which a holder may act, and after which another may take over, on clocks that run at slightly different speeds.

A holder measures from the SENDING of the request that gave or renewed its right; a process that waits for its end measures from a later
moment, the write or the RECEIPT (`moments`). So readings of two machines' clocks are never compared; only the clocks' speeds matter.
"""

from __future__ import annotations

from typing import Final

DRIFT: Final = 0.01
"""Largest relative error of a clock's speed."""


def outlasting(validity: float) -> float:
    """Return the shortest time on a fast clock that lasts at least as long as `validity` on a slow clock, in the unit of `validity`."""
    return validity * (1 + DRIFT) / (1 - DRIFT)
