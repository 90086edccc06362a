"""The decision that the app is ready, from observations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...core.clock import Millis

MAX_SKEW_MS = 10_000
"""Largest difference between the app's clock and storage's, in milliseconds. `Date` has whole seconds, so up to 1,000 are rounding."""
LEAST_SILENCE = 300.0
"""Seconds that any timer may be silent: after a crash the platform does not run timers for minutes."""
SILENT_PERIODS = 3
"""Periods that a timer may be silent, if that is longer."""


class HealthObservation(NamedTuple):
    """The observations. `ticks`: last tick by timer; `storage_now`: the `Date` of storage's answer, or None without an answer."""

    now: Millis
    storage_now: Millis | None
    ticks: Mapping[str, Millis]
    up_ms: int
    """Milliseconds since this process started."""
    accounts: Mapping[str, bool] = {}
    """If there are several accounts: True for each place of shards if its account answers."""


class TimerHealth(NamedTuple):
    """A timer's state: seconds since its last tick (None: no tick is stored), and True if that is too long."""

    age_s: float | None
    late: bool


class Readiness(NamedTuple):
    """The findings, and a sentence for each fault; the app is ready without faults."""

    skew_ms: int | None
    timers: dict[str, TimerHealth]
    wrong: list[str]
    accounts: Mapping[str, bool] = {}


def judge(seen: HealthObservation, periods: Mapping[str, float]) -> Readiness:
    """Judge readiness. periods: the deployed timers, with their periods in seconds.

    A timer without any tick is late only if this process is older than the allowed silence, so that a new installation is ready.
    """
    wrong: list[str] = []
    skew = seen.now - seen.storage_now if seen.storage_now is not None else None
    if skew is None:
        wrong.append("Storage does not answer.")
    elif abs(skew) > MAX_SKEW_MS:
        wrong.append(f"The app's clock differs from storage's by {skew} ms; at most {MAX_SKEW_MS} are accepted.")
    timers: dict[str, TimerHealth] = {}
    if skew is not None:
        for name, period in periods.items():
            silence = max(SILENT_PERIODS * period, LEAST_SILENCE) * 1000
            at = seen.ticks.get(name)
            age = seen.now - at if at is not None else None
            late = (age if age is not None else seen.up_ms) > silence
            timers[name] = TimerHealth(None if age is None else max(0, age) / 1000, late)
            if late:
                wrong.append(f"Timer {name} is silent.")
    # One unavailable account of several is reported, but this instance can still serve the calls of the others.
    return Readiness(skew, timers, wrong, seen.accounts)
