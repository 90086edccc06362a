"""The offset of this machine's wall clock from the storage service's time, as an interval that certainly contains it.

A row that was just written carries the storage service's time of the write. That moment lies between the sending of the write and
the receipt of its answer, both read on the local monotonic clock. So each write bounds the difference between the two clocks: Cristian's
algorithm, with the bounds kept instead of their midpoint, as in Marzullo's. The bounds refer to the monotonic clock, so a step of the
wall clock shows at once.

All functions are pure. Times are milliseconds; monotonic times are float milliseconds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .clock import Millis

DRIFT: Final = 200e-6
"""Bound on the rate error of a machine's monotonic clock against the storage service's: 200 ppm."""
TOO_WIDE: Final = 2_000.0
"""Widest interval, in milliseconds, that may correct the clock. A wider one comes from slow storage and proves too little."""
RESOLUTION: Final = 1.0
"""Granularity of the times that are compared, in milliseconds."""


class ServerTime(NamedTuple):
    """Bounds of `server time - monotonic time` at the monotonic moment `at`. All in milliseconds."""

    low: float
    high: float
    at: float

    @property
    def width(self) -> float:
        """Uncertainty in milliseconds."""
        return self.high - self.low


class Reading(NamedTuple):
    """One reading of the wall clock, in whole milliseconds, between two readings of the monotonic clock.

    The process may be paused between the readings, so their difference is known only to the time that passed.
    """

    before: float
    wall: Millis
    after: float


class Offset(NamedTuple):
    """Bounds of `wall clock - server time` in milliseconds: positive where the wall clock is ahead."""

    low: float
    high: float

    @property
    def contains_zero(self) -> bool:
        """True where the wall clock may be exact."""
        return self.low <= 0.0 <= self.high


def sample(sent: float, received: float, written: Millis) -> ServerTime:
    """Return the bounds that one write proves. `sent` and `received` are monotonic, `written` is the storage service's time of the write.

    Raises `ValueError` where the answer came before the request.
    """
    if received < sent:
        raise ValueError(f"the answer came before the request: {received} < {sent}")
    return ServerTime(written - received - RESOLUTION, written - sent + RESOLUTION, received)


def aged(bounds: ServerTime, at: float) -> ServerTime:
    """Return the bounds as they are at the later moment `at`, widened by the drift since."""
    drift = DRIFT * max(0.0, at - bounds.at)
    return ServerTime(bounds.low - drift, bounds.high + drift, max(at, bounds.at))


def combine(known: ServerTime | None, new: ServerTime) -> ServerTime:
    """Return the bounds that both prove. Where they contradict each other, one clock has stepped: the newer bounds count alone."""
    if known is None:
        return new
    at = max(known.at, new.at)
    one, other = aged(known, at), aged(new, at)
    low, high = max(one.low, other.low), min(one.high, other.high)
    return ServerTime(low, high, at) if low <= high else aged(new, at)


def offset(bounds: ServerTime, reading: Reading) -> Offset:
    """Return the bounds of the wall clock's offset at the reading."""
    return _offset(aged(bounds, reading.after), reading)


def correction(bounds: ServerTime | None, reading: Reading) -> float | None:
    """Return the milliseconds to subtract from the wall clock so that nothing fires early by the storage service's time.

    None where nothing is known: the bounds are missing or too wide. Zero unless the bounds prove that the clock is wrong: where they
    contain zero, nothing is corrected. Otherwise the upper end, which is never early. Slow storage so never stops deliveries.
    """
    return correction_between(bounds, *reading)


def correction_between(bounds: ServerTime | None, before: float, wall: Millis, after: float) -> float | None:
    """Return the `correction` of a reading that is given by its parts."""
    if bounds is None:
        return None
    # `aged` and `_offset` in one step: each delivery asks several times.
    low, high, at = bounds
    drift = DRIFT * max(0.0, after - at)
    low, high = low - drift, high + drift
    if high - low > TOO_WIDE:
        return None
    ahead = wall + RESOLUTION - before - low
    return 0.0 if wall - after - high <= 0.0 <= ahead else ahead


def _offset(now: ServerTime, reading: Reading) -> Offset:
    return Offset(reading.wall - reading.after - now.high, reading.wall + RESOLUTION - reading.before - now.low)
