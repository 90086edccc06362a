"""The clock of events: the machine's wall clock, corrected where storage's time proves it wrong.

"Never early" compares a due time with a clock, and machines' clocks can be wrong by minutes. Everything of the scheduler reads this
clock, because the times of an event are compared with each other. Everything else keeps the wall clock: leases, turns and maintenance
measure durations, or compare with times that other machines and Azure name.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ...core import clock
from ...core.clock import Clock, Millis, Offset, Reading
from ...storage.server_time import ServerTimeEstimator, steady_of

log = logging.getLogger(__name__)

ALARM_AGAIN = 600.0
"""Seconds after which a state of the clock that lasts is logged again."""
WORTH_A_WARNING = 1_000.0
"""Least proven offset, in milliseconds, that is logged as a warning. A smaller one is corrected and counted; no person is needed."""

LONG_READING = 1.0
"""A reading is repeated if its two monotonic times are at least this many milliseconds apart. Usually they are some microseconds apart."""
MORE_READINGS = 3
"""Greatest number of repetitions of a reading."""

type ClockState = Literal["good", "wrong", "wide", "missing"]


class ClockFinding(NamedTuple):
    """The state of the wall clock.

    good: the clock may be exact. wrong: it is proven wrong, and corrected. wide: the bounds are too wide to correct anything. missing: no
    write of this process has given bounds. offset: bounds of wall clock minus storage's time, in milliseconds. correction: what is
    subtracted from the wall clock, in milliseconds.
    """

    state: ClockState
    offset: Offset | None
    correction: Millis

    @property
    def proven_ms(self) -> int | None:
        """The least offset that the bounds allow, in milliseconds; 0 where the clock may be exact, None without bounds."""
        if self.offset is None:
            return None
        low, high = self.offset
        return 0 if self.offset.contains_zero else math.floor(low) if low > 0 else math.ceil(high)


class EventClock:
    """A `Clock` whose wall time is never ahead of storage's time where that can be proven. One per process and side."""

    def __init__(self, clock: Clock, times: Sequence[ServerTimeEstimator], counters: Counter[str]) -> None:
        """times: the observed time of each account. The first with narrow enough bounds judges; the home account comes first."""
        self._clock, self._times, self._counters = clock, times, counters
        self._steady = steady_of(clock)
        self._logged: dict[ClockState, float] = {}

    def now(self) -> Millis:
        """Return the corrected wall time."""
        if not self._times:
            return self._clock.now()
        # No `Reading` is made in the usual case, to save time: each event asks several times.
        before, wall, after = 1000 * self._steady(), self._clock.now(), 1000 * self._steady()
        if after - before > LONG_READING:
            before, wall, after = self._shortest(Reading(before, wall, after))
        for time in self._times:
            correction = clock.correction_between(time.bounds, before, wall, after)
            if correction is not None:
                return wall - math.ceil(correction)
        return wall

    def _read(self) -> Reading:
        """Return a reading of the wall clock, repeated where the process was paused during it."""
        return self._shortest(self._read_once())

    def _shortest(self, best: Reading) -> Reading:
        """Repeat a reading that is long; return the shortest one.

        The offset of such a reading is only known to the length of the pause, so that it might contain zero and leave a wrong clock as it
        is, for one decision. If all readings are long, the shortest one counts: a decision is never held up.
        """
        for _ in range(MORE_READINGS):
            if best.after - best.before <= LONG_READING:
                break
            again = self._read_once()
            if again.after - again.before < best.after - best.before:
                best = again
        return best

    def _read_once(self) -> Reading:
        return Reading(1000 * self._steady(), self._clock.now(), 1000 * self._steady())

    def monotonic(self) -> float:
        """See `Clock`."""
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        await self._clock.sleep(seconds)

    def finding(self) -> ClockFinding:
        """Return the state of the wall clock now."""
        reading = self._read()
        known = [time.bounds for time in self._times if time.bounds is not None]
        if not known:
            return ClockFinding("missing", None, 0)
        for bounds in known:
            correction = clock.correction(bounds, reading)
            if correction is not None:
                found = clock.offset(bounds, reading)
                return ClockFinding("good" if found.contains_zero else "wrong", found, math.ceil(correction))
        return ClockFinding("wide", clock.offset(known[0], reading), 0)

    def check(self) -> ClockFinding:
        """Count the clock's state, and log one that a person should look at. Owners call it when they have taken a shard."""
        found = self.finding()
        if found.state == "good" or not self._times:
            return found
        self._counters[f"clock_{found.state}"] += 1
        if found.proven_ms is not None and found.state == "wrong" and abs(found.proven_ms) < WORTH_A_WARNING:
            return found
        now = self._clock.monotonic()
        if now - self._logged.get(found.state, -math.inf) >= ALARM_AGAIN:
            self._logged[found.state] = now
            if found.state == "wrong":
                text = "This machine's clock differs from storage's by at least %d ms; deliveries follow storage's time"
                log.warning(text, found.proven_ms, extra={"action": "clock_wrong", "offset_ms": found.proven_ms})
            else:
                text = "Storage's answers do not prove this machine's clock right (bounds: %s); deliveries follow the clock as it is"
                log.warning(text, found.state, extra={"action": "clock_unproved", "bounds": found.state})
        return found
