"""The durations of a run, in seconds, and the kinds of the events of its long measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Plan:
    """The durations of the checks. The defaults take about six minutes."""

    soon: float = 10.0
    """An event is due that long after it was stored; so are the next two."""
    middle: float = 60.0
    far: float = 300.0
    idle: float = 180.0
    """Time without any request to the service."""
    pause: float = 5.0
    """Silence after each event that is due now."""
    batch: int = 100
    """Events of the batch."""
    batch_ahead: float = 20.0
    """Time until the first of them is due. All are due within a quarter of it."""
    cancel_ahead: float = 30.0
    """Time until the cancelled event would be due."""
    patience: float = 60.0
    """Time after its due time at which an event counts as missing."""
    shortened: bool = False
    """True if the waits are too short for instances to become idle."""


SHORT: Final = Plan(3.0, 4.0, 6.0, 2.0, 0.5, 20, 3.0, 4.0, 10.0, shortened=True)
"""For a local host."""


@dataclass(frozen=True, slots=True)
class FlexPlan:
    """The durations of the long measures. The defaults take about 33 minutes."""

    lead: float = 130.0
    """Time between storing events and the first one's due time: more than the two minutes from which on events are punctual."""
    gaps: tuple[float, ...] = (10.0, 15.0, 20.0, 25.0, 30.0, 45.0, 60.0, 120.0)
    """Times between lone events."""
    passes: int = 3
    crowd: int = 400
    """Events of many seconds, which may start further instances."""
    crowd_span: float = 60.0
    silence: float = 150.0
    """Time without a request before an event from zero."""
    near: float = 5.0
    """Time until such an event is due."""
    zeros: int = 4
    look: float = 60.0
    """Time between two looks at the clocks."""
    patience: float = 60.0


FLEX_SHORT: Final = FlexPlan(2.0, (1.0, 2.0), 1, 20, 1.0, 1.0, 1.0, 1, 2.0, 10.0)
"""For a local host."""

CROWD, ZERO, QUIET = "crowd", "zero", "quiet"


def gap_kind(gap: float) -> str:
    """Return the kind of the events that follow another one after `gap` seconds."""
    return f"gap {gap:g}"
