"""How long the next turn may take: more after one that was too short, less after early ends. Pure; milliseconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ..core.clock import Millis

MOST_KEPT: Final = 32
"""Durations of turns that are remembered."""
MARGIN: Final[Millis] = 2000
"""The store's time has steps of a second: so much of a turn is given to nobody."""
GROWTH: Final = 1.5
ROOM: Final = 1.2
"""A turn is to be longer by this than nineteen in twenty have needed."""
STEP: Final = 0.25
"""Of the way to where the time-out should be, a turn that ends in time goes."""


def bounded(timeout: float, least: Millis, most: Millis) -> Millis:
    """Within the fleet's bounds, in whole milliseconds."""
    return round(min(max(timeout, least), most))


def grown(timeout: Millis, least: Millis, most: Millis) -> Millis:
    """After a turn whose holder ran out of time."""
    return bounded(timeout * GROWTH, least, most)


def settled(timeout: Millis, durations: Sequence[Millis], drift: float, least: Millis, most: Millis) -> Millis:
    """After a turn that was done in time. durations: from the grant to the end, of late turns, at least one; drift: as `limit`."""
    return bounded(timeout + (fitting(durations, drift) - timeout) * STEP, least, most)


def fitting(durations: Sequence[Millis], drift: float) -> float:
    """The time-out that late turns would have needed."""
    return percentile(durations, 0.95) * ROOM / (1 - drift) + MARGIN


def percentile(values: Sequence[Millis], part: float) -> Millis:
    """The least of the values that is not below `part` of them."""
    return sorted(values)[math.ceil(part * len(values)) - 1]


def limit(timeout: Millis, age: Millis, drift: float) -> Millis:
    """How long the holder of a turn may take, counted on its own clock from the SEND of the request whose answer brings this; 0 for not at
    all. age: of the turn, by the store. drift: how far a clock may be from true time, as a part of it."""
    return max(0, math.floor((1 - drift) * (timeout - age - MARGIN)))
