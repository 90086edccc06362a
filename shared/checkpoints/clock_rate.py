"""Judges whether a replica's clock runs at the right rate, measured against the storage service's time. Pure; milliseconds.

A report's reading of its process's clock and the store's time at its arrival make a mark. Between two marks the clock must have advanced as
far as the store's time, within the fleet's drift. The store's time has steps of a second, and a report may be under way for some seconds.
"""

from __future__ import annotations

from ..core.clock import Millis
from .rows import ClockFault, ReplicaRow
from .timings import MAX_RATE_SPAN, MIN_RATE_SPAN, RATE_UNCERTAINTY

type Mark = tuple[Millis, Millis]
"""A reading of the process's clock, and the store's time when it arrived."""


def judge_rate(before: ReplicaRow, mono: Millis, now: Millis, drift: float) -> tuple[Mark, Mark, ClockFault]:
    """Return the two marks to keep with this report, and the clock's fault. The earlier fault stays while the span is too short to
    judge."""
    mark = (mono, now)
    run, passed = mono - before.first[0], now - before.first[1]
    fault = before.fault if passed < MIN_RATE_SPAN else _fault(run, passed, drift)
    # A leap forward shows at once, however short the span.
    if run > (passed + RATE_UNCERTAINTY) / (1 - drift):
        fault = "fast"
    if passed >= MAX_RATE_SPAN:
        return before.second if now - before.second[1] < MAX_RATE_SPAN else mark, mark, fault
    # The second mark is set half-way, so that a span remains to judge by once the first mark is dropped.
    halfway = before.second == before.first and passed >= MAX_RATE_SPAN // 2
    return before.first, mark if halfway else before.second, fault


def _fault(run: Millis, passed: Millis, drift: float) -> ClockFault:
    if run > (passed + RATE_UNCERTAINTY) / (1 - drift):
        return "fast"
    return "slow" if run < (1 - drift) * (passed - RATE_UNCERTAINTY) else ""
