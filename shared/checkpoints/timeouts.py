"""Computes the timeout of the next turn: longer after a turn that was too short, shorter after turns that ended early. Pure;
milliseconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ..core.clock import Millis
from .timings import MARGIN

MAX_DURATIONS: Final = 32
"""Durations of the latest turns that are kept."""
GROWTH: Final = 1.5
"""Factor by which the timeout grows after a turn that reached its limit."""
HEADROOM: Final = 1.2
"""Factor between the duration that 19 of 20 turns kept to and the timeout that is aimed at."""
ADJUSTMENT: Final = 0.25
"""Part of the distance to the timeout that is aimed at which one punctual turn covers."""


def clamp(timeout: float, least: Millis, most: Millis) -> Millis:
    """Return the timeout within the fleet's bounds, in whole milliseconds."""
    return round(min(max(timeout, least), most))


def lengthen(timeout: Millis, least: Millis, most: Millis) -> Millis:
    """Return the timeout that follows a turn whose holder ran out of time."""
    return clamp(timeout * GROWTH, least, most)


def adjust(timeout: Millis, durations: Sequence[Millis], drift: float, least: Millis, most: Millis) -> Millis:
    """Return the timeout that follows a turn done in time.

    durations: of the latest turns, from grant to end; at least one. drift: as in `turn_limit`.
    """
    return clamp(timeout + (needed_timeout(durations, drift) - timeout) * ADJUSTMENT, least, most)


def needed_timeout(durations: Sequence[Millis], drift: float) -> float:
    """Return the timeout that the latest turns would have needed."""
    return percentile(durations, 0.95) * HEADROOM / (1 - drift) + MARGIN


def percentile(values: Sequence[Millis], part: float) -> Millis:
    """Return the smallest value that is not below `part` (0 to 1) of the values."""
    return sorted(values)[math.ceil(part * len(values)) - 1]


def turn_limit(timeout: Millis, age: Millis, drift: float) -> Millis:
    """Return how long the holder of a turn may take its checkpoint; 0 when it must not begin.

    The holder counts on its own clock, from the SEND of the request whose answer brings this limit. age: of the turn, by the store's time.
    drift: largest relative deviation of a clock from true time.
    """
    return max(0, math.floor((1 - drift) * (timeout - age - MARGIN)))
