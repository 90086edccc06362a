"""When the app counts as ready: a pure decision on what was observed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...core.clock import Millis

MAX_SKEW_MS = 10_000
"""Most that own clock and storage's may differ. `Date` has whole seconds, so up to one of them is rounding."""
LEAST_SILENCE = 300.0
"""Seconds any timer may be silent: the platform lets timers rest for minutes after a crash."""
SILENT_PERIODS = 3


class HealthObservation(NamedTuple):
    """What was seen. `ticks`: last tick by timer; `storage_now`: the storage answer's `Date`, or None when it did not answer."""

    now: Millis
    storage_now: Millis | None
    ticks: Mapping[str, Millis]
    up_ms: int
    """How long this process has run."""
    accounts: Mapping[str, bool] = {}
    """Where there are several: whether each place's account answers."""


class TimerHealth(NamedTuple):
    """A timer's state: seconds since its last tick (None: never seen), and whether that is too long."""

    age_s: float | None
    late: bool


class Readiness(NamedTuple):
    """The findings, and what is wrong in words (none: ready)."""

    skew_ms: int | None
    timers: dict[str, TimerHealth]
    wrong: list[str]
    accounts: Mapping[str, bool] = {}


def judge(seen: HealthObservation, periods: Mapping[str, float]) -> Readiness:
    """Judge readiness. `periods`: the timers there should be, with their periods in seconds.

    A timer nobody ever saw is late only once this process is older than the silence it may keep: a new installation is not ill.
    """
    wrong: list[str] = []
    skew = seen.now - seen.storage_now if seen.storage_now is not None else None
    if skew is None:
        wrong.append("storage does not answer")
    elif abs(skew) > MAX_SKEW_MS:
        wrong.append(f"the clock differs from storage's by {skew} ms")
    timers: dict[str, TimerHealth] = {}
    if skew is not None:
        for name, period in periods.items():
            silence = max(SILENT_PERIODS * period, LEAST_SILENCE) * 1000
            at = seen.ticks.get(name)
            age = seen.now - at if at is not None else None
            late = (age if age is not None else seen.up_ms) > silence
            timers[name] = TimerHealth(None if age is None else max(0, age) / 1000, late)
            if late:
                wrong.append(f"timer {name} is silent")
    # One account of several that is away is told, and no reason to take the others' calls away from this instance.
    return Readiness(skew, timers, wrong, seen.accounts)
