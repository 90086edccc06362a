"""The decision that the app is ready, from observations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from ...core.clock import Millis
from ...scheduler.shard.event_clock import ClockFinding
from ...scheduler.wakes.service import SILENT_FROM, SweepTimes

MAX_SKEW_MS = 10_000
"""Largest proven difference between the app's clock and storage's, in milliseconds."""
LEAST_SILENCE = 300.0
"""Seconds that any timer may be silent: after a crash the platform does not run timers for minutes."""
UNMEASURED = ClockFinding("missing", None, 0)
"""The state of a clock without any measurement."""
SILENT_PERIODS = 3
"""A timer may be silent for this number of its periods, or for the constant above if that is longer."""


class Clocks(NamedTuple):
    """The two clocks of the sweep: seconds since the timer began one, and since one began that a message asked for; None for never.

    running: the clock by which sweeps come, `none` if both are old.
    """

    timer_age_s: float | None
    message_age_s: float | None
    running: Literal["timer", "message", "none"]


class Wakes(NamedTuple):
    """The state of the planned wakes: seconds since the last look at coming events; None for never."""

    look_age_s: float | None


def judge_clocks(times: SweepTimes, now: Millis) -> Clocks:
    """Return the state of both clocks."""
    timer, message = (max(0, now - at) if at else None for at in (times.began, times.answered))
    by_timer = timer is not None and timer <= SILENT_FROM
    by_message = message is not None and message <= 2 * SILENT_FROM
    ages = [None if age is None else age / 1000 for age in (timer, message)]
    return Clocks(ages[0], ages[1], "timer" if by_timer else "message" if by_message else "none")


class HealthObservation(NamedTuple):
    """The observations. `ticks`: last tick by timer; `reachable`: storage has answered."""

    now: Millis
    reachable: bool
    ticks: Mapping[str, Millis]
    up_ms: int
    """Milliseconds since this process started."""
    accounts: Mapping[str, bool] = {}
    """If there are several accounts: True for each place of shards if its account answers."""
    clock: ClockFinding = UNMEASURED
    """The state of the wall clock, as the writes of this process show it."""
    newer: str = ""
    """The sentence that names stored forms of a newer version; '' if this process knows those of its storage."""
    sweeps: SweepTimes = SweepTimes()
    """The times at which sweeps began."""
    looked: Millis | None = None
    """Time of the last look at coming events, by a sweep or a planned wake; 0 for never, None if wakes are off or storage is away."""
    unserved: str = ""
    """The sentence that names functions which are demanded and do not run; '' if all do."""


class TimerHealth(NamedTuple):
    """A timer's state: seconds since its last tick (None: no tick is stored), and True if that is too long."""

    age_s: float | None
    late: bool


class Readiness(NamedTuple):
    """The findings, and a sentence for each fault; the app is ready without faults."""

    reachable: bool
    timers: dict[str, TimerHealth]
    wrong: list[str]
    accounts: Mapping[str, bool] = {}
    clock: ClockFinding = UNMEASURED
    newer: bool = False
    """True if storage has the stored forms of a newer version."""
    clocks: Clocks | None = None
    """The clocks of the sweep; None if storage does not answer."""
    wakes: Wakes | None = None
    """The state of the planned wakes; None if they are off, or storage does not answer."""


def judge(seen: HealthObservation, periods: Mapping[str, float]) -> Readiness:
    """Judge readiness. periods: the deployed timers, with their periods in seconds.

    The jobs count, whichever clock runs them. One without any tick is late only if this process is older than the allowed silence, so that
    a new installation is ready.
    """
    wrong = [each for each in (seen.newer, seen.unserved) if each]
    skew = seen.clock.proven_ms
    if not seen.reachable:
        wrong.append("Storage does not answer.")
    elif skew is not None and abs(skew) > MAX_SKEW_MS:
        wrong.append(f"The app's clock differs from storage's by at least {skew} ms; at most {MAX_SKEW_MS} are accepted.")
    timers: dict[str, TimerHealth] = {}
    if seen.reachable:
        for name, period in periods.items():
            silence = max(SILENT_PERIODS * period, LEAST_SILENCE) * 1000
            at = seen.ticks.get(name)
            age = seen.now - at if at is not None else None
            late = (age if age is not None else seen.up_ms) > silence
            timers[name] = TimerHealth(None if age is None else max(0, age) / 1000, late)
            if late:
                wrong.append(f"Timer {name} is silent.")
    clocks = judge_clocks(seen.sweeps, seen.now) if seen.reachable else None
    wakes = None if seen.looked is None else Wakes(max(0, seen.now - seen.looked) / 1000 if seen.looked else None)
    # One unavailable account of several is reported, but this instance can still serve the calls of the others.
    return Readiness(seen.reachable, timers, wrong, seen.accounts, seen.clock, bool(seen.newer), clocks, wakes)


NOT_BEGUN = judge(HealthObservation(0, reachable=False, ticks={}, up_ms=0), {})
"""The findings in a process that has not begun to serve."""
