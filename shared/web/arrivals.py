"""The order in which requests were received, wherever they were served.

A process numbers its requests. Requests of two processes are compared in storage's time, of which each process knows bounds: those of its
own writes (`core.clock`). Where the bounds of two arrivals overlap, nobody knows which of them was first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..core.clock import DRIFT, Clock, Millis, SystemClock
from ..storage.server_time import ServerTimeEstimator, elapsed_ms

EVER: Final[Millis] = 10**15
"""A time after every other one: the upper bound of an arrival of which nothing is known."""


class Receipt(NamedTuple):
    """The arrival of a request, as rows keep it.

    low, high: bounds of the arrival in storage's time, in milliseconds. number: of the request in its process.
    """

    low: Millis
    high: Millis
    process: str
    number: int

    def is_after(self, other: Receipt) -> bool:
        """Return True if this request was certainly received after the other one."""
        return self.number > other.number if self.process == other.process else self.low > other.high

    def is_same(self, other: Receipt) -> bool:
        """Return True for two receipts of one request."""
        return (self.process, self.number) == (other.process, other.number)

    @property
    def is_known(self) -> bool:
        """True if the bounds say anything."""
        return self.high < EVER


class Arrivals:
    """Numbers the requests of this process, and knows when they came. One per process and side."""

    def __init__(self, clock: Clock, times: Sequence[ServerTimeEstimator], process: str) -> None:
        """times: the observed time of each account; the first that has bounds counts. process: a name that no other process has."""
        self._times, self._process = times, process
        self._elapsed = elapsed_ms(clock)
        self._last = 0

    def next(self, waited: float = 0.0) -> Arrival:
        """Return the arrival of a request that came `waited` seconds ago."""
        at = self._elapsed() - waited * 1000
        number = round(at * 1_000_000)
        if not waited:
            # Several at one instant of a clock that stands still. A request that has waited may have come before the last one.
            number = max(number, self._last + 1)
        self._last = max(number, self._last)
        return Arrival(self, at, number)

    def age(self, at: float) -> float:
        """Return the seconds since the moment `at` of the monotonic clock."""
        return max(0.0, self._elapsed() - at) / 1000

    def receipt(self, at: float, number: int) -> Receipt:
        """Return what is known now of an arrival at the moment `at`."""
        bounds = next((time.bounds for time in self._times if time.bounds is not None), None)
        if bounds is None:
            return Receipt(0, EVER, self._process, number)
        # The moment may be before the write that gave the bounds.
        drift = DRIFT * abs(at - bounds.at)
        return Receipt(math.floor(at + bounds.low - drift), math.ceil(at + bounds.high + drift), self._process, number)


class Arrival(NamedTuple):
    """The arrival of one request: the moment `at` of its process's monotonic clock, in milliseconds, and its number."""

    arrivals: Arrivals
    at: float
    number: int

    @property
    def age(self) -> float:
        """Seconds since the arrival."""
        return self.arrivals.age(self.at)

    def receipt(self) -> Receipt:
        """Return the receipt, with the bounds that are known now."""
        return self.arrivals.receipt(self.at, self.number)


NOT_NOTED: Final = Arrivals(SystemClock(), (), "").next()
"""The arrival of a call to an anonymous route, which changes no event."""
