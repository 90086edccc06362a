"""Storage pressure: the share of requests that storage refuses, and the factor by which work that can wait is stretched.

Keepers and the app's sweeps ask it how long to wait. Work that keeps a promise (heartbeats, claims, deliveries) never does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MEMORY: Final = 60.0
"""Seconds after which a request counts 1/e of what it counted."""
ASSUMED: Final = 4.0
"""Accepted requests that are assumed beside the observed ones, so that a process that has just started is not misled by its first ones."""
FEW: Final = 3.5
"""Refused requests, weighted by age, up to which no pressure begins: three in a row are repeated as soon as before."""
BEGINS: Final = 0.15
"""Share of refused requests from which there is pressure."""
ENDS: Final = 0.04
"""Share of refused requests below which pressure ends. Between the two it stays as it is."""
FULL: Final = 0.45
"""Share of refused requests from which intervals are stretched as far as possible."""
MAX_FACTOR: Final = 8.0
"""Largest factor on an interval."""


@dataclass(frozen=True, slots=True)
class StoragePressure:
    """The requests of a process as `observe` has counted them. asked, refused: weighted by age. at: steady seconds of the last one.

    high: pressure has begun and not ended.
    """

    asked: float = 0.0
    refused: float = 0.0
    at: float = 0.0
    high: bool = False

    def observe(self, refused: bool, now: float, memory: float = MEMORY) -> StoragePressure:
        """Return the pressure after one more request. now: steady seconds. memory: seconds after which a request counts 1/e."""
        kept = self._kept(now, memory)
        asked_now, refused_now = self.asked * kept + 1.0, self.refused * kept + refused
        share = refused_now / (asked_now + ASSUMED)
        return StoragePressure(asked_now, refused_now, now, share >= ENDS if self.high else share >= BEGINS and refused_now > FEW)

    def share(self, now: float, memory: float = MEMORY) -> float:
        """Return the share of refused requests, 0 to 1. It falls while nothing is asked."""
        kept = self._kept(now, memory)
        return self.refused * kept / (self.asked * kept + ASSUMED)

    def factor(self, now: float, memory: float = MEMORY) -> float:
        """Return the factor on intervals, 1 (no pressure) to `MAX_FACTOR`.

        It follows the smoothed share, so that it falls by degrees when storage recovers, in each process from a moment of its own. The
        square keeps it small while most requests are accepted: then repeating them soon costs little, and takeovers come sooner.
        """
        share = self.share(now, memory)
        return 1.0 + (MAX_FACTOR - 1.0) * min(1.0, share / FULL) ** 2 if self.high and share >= ENDS else 1.0

    def _kept(self, now: float, memory: float) -> float:
        return math.exp(min(0.0, self.at - now) / memory)


class PressureGauge:
    """Counts the requests of one process to one storage account. For one event loop, or one lock around it."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._pressure = StoragePressure()

    def record(self, refused: bool) -> None:
        """Count a request, and whether storage refused it or did not answer."""
        self._pressure = self._pressure.observe(refused, self._steady())

    @property
    def stretch(self) -> float:
        """The factor on intervals of work that can wait; 1 without pressure."""
        return self._pressure.factor(self._steady())

    @property
    def share(self) -> float:
        """The share of refused requests while there is pressure, 0 to 1; 0 without pressure."""
        return self._pressure.share(self._steady()) if self.stretch > 1 else 0.0
