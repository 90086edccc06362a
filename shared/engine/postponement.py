"""Leaves fleets out of runs of a sweep while storage refuses requests, so that the sweeps ask for less."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from zlib import crc32

from ..core.clock import Millis
from ..core.pressure import PressureGauge

MAX_POSTPONED: Final = 4
"""While storage refuses requests, a sweep visits each fleet in one of this number of runs on average, or in more of them."""
SCAN_PERIOD: Final = 15.0
"""Seconds between runs of the sweeps of the job `lease_scan` while they have work."""
RUNS_A_SWEEP: Final = 4
"""Runs of such a sweep in a minute. Only the first of them is certain to take place: messages plan the others, and storage may refuse the
messages too."""


def postponed_fleets(keys: Iterable[str], stretch: float, period: float, now: Millis, *, sure: int = 1) -> set[str]:
    """Return the fleets that this run of a sweep leaves out because storage refuses requests.

    stretch: factor on intervals, 1 or more; each fleet is visited in about one of so many runs (1, 2 or 4), and others in each run, so that
    neither the pressure nor its end makes a wave. period: seconds between runs. now: wall time. sure: only each run of this number is
    certain to take place. The turns shift by one at each of those, so that they reach all fleets if the runs in between are missing.
    """
    every = 1 if stretch < 1.5 else 2 if stretch < 3.0 else MAX_POSTPONED
    turn = int((now + period * 500) // (period * 1000))
    if sure > 1:
        turn -= turn // sure
    return {key for key in keys if (crc32(key.encode()) + turn) % every} if every > 1 else set()


class Postponement:
    """Decides for one sweep of this process. Without a gauge, it postpones nothing."""

    def __init__(self, pressure: PressureGauge | None, period: float, *, sure: int = 1, most: float = MAX_POSTPONED) -> None:
        """pressure: of the requests of this process to storage. most: the largest factor on the time between two visits to a fleet. period,
        sure: see `postponed_fleets`."""
        self._pressure, self._period, self._sure, self._most = pressure, period, sure, most

    @property
    def stretch(self) -> float:
        """The factor on the time between two visits, 1 to `most`."""
        return min(self._pressure.stretch, self._most) if self._pressure is not None else 1.0

    def of(self, keys: Iterable[str], now: Millis) -> set[str]:
        """Return those of the fleets that a run at `now`, wall time, leaves out."""
        return postponed_fleets(keys, self.stretch, self._period, now, sure=self._sure)
