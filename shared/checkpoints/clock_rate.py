"""Whether a replica's clock runs at the rate it should, as the storage service's time tells. Pure; milliseconds.

A report's reading of its process's clock, and the store's time when it came, make a mark. Between two marks the clock must have run as
long as the store's, within the fleet's drift; the store's time has steps of a second, and a report may be under way for a while.
"""

from __future__ import annotations

from typing import Final

from ..core.clock import Millis
from .rows import ClockFault, ReplicaRow

SHORTEST: Final[Millis] = 30_000
"""Between marks closer than this nothing can be judged."""
LONGEST: Final[Millis] = 120_000
"""Marks further apart are let go of: what was amiss before says nothing of now."""
UNSURE: Final[Millis] = 6000
"""A second of the store's time, and five on the way."""

type Mark = tuple[Millis, Millis]
"""The process's clock, and the store's time."""


def rated(before: ReplicaRow, mono: Millis, now: Millis, drift: float) -> tuple[Mark, Mark, ClockFault]:
    """The marks to keep with this report, and whether the clock runs too fast or too slow; as before while nothing can be judged."""
    mark = (mono, now)
    run, passed = mono - before.first[0], now - before.first[1]
    fault = before.fault if passed < SHORTEST else _fault(run, passed, drift)
    # A leap shows at once.
    if run > (passed + UNSURE) / (1 - drift):
        fault = "fast"
    if passed >= LONGEST:
        return before.second if now - before.second[1] < LONGEST else mark, mark, fault
    # The second mark is set half-way, so that there is something to judge by once the first is let go of.
    halfway = before.second == before.first and passed >= LONGEST // 2
    return before.first, mark if halfway else before.second, fault


def _fault(run: Millis, passed: Millis, drift: float) -> ClockFault:
    if run > (passed + UNSURE) / (1 - drift):
        return "fast"
    return "slow" if run < (1 - drift) * (passed - UNSURE) else ""
