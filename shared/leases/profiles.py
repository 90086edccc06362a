"""Moments on this process's own steady clock, and the durations that rest on them.

V counts from the SEND of a beat, T from the RECEIPT of the answer that showed it first. Any other combination gives two owners once
requests are slow, so the two moments are types of their own: what needs one refuses the other. No two machines' clocks are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DRIFT: Final = 0.01
"""How much faster or slower than true time a clock may run."""
MARGIN: Final = 1.0
"""Seconds kept free between the last act of an owner and the first of its successor."""



@dataclass(frozen=True, slots=True)
class Profile:
    """How often servers beat (H), how long a beat is valid for its sender (V), after how much silence others take over (T). Seconds."""

    beat: float
    validity: float
    takeover: float

    @property
    def request(self) -> float:
        """Time-out of one lease request."""
        return self.beat / 2


PROFILES: Final[Mapping[str, Profile]] = {
    "economy": Profile(10, 30, 36),
    "default": Profile(5, 15, 18),
    "fast": Profile(2, 6, 7.2),
    "seed": Profile(120, 180, 240),
}


def unsafe_reason(profile: Profile, drain: float = 0.0, *, name: str = "") -> str | None:
    """The inequality that fails, with its numbers, or None. drain: seconds that a hand-off may take. name: that of a known profile."""
    h, v, t = profile.beat, profile.validity, profile.takeover
    if not (0 < h < float("inf") and 0 < v < float("inf") and 0 < t < float("inf")):
        return f"beat, validity and takeover must be positive: {h:g}, {v:g}, {t:g}"
    least = v * (1 + DRIFT) / (1 - DRIFT) + MARGIN
    if t < least:
        return f"takeover >= validity * {1 + DRIFT:g}/{1 - DRIFT:g} + {MARGIN:g} does not hold: {t:g} < {least:.4g}"
    times = 1.5 if name == "seed" else 3
    # Not a nanosecond is worth a refusal: 3 * 0.4 > 1.2 in floating point.
    if v < times * h - 1e-9:
        return f"validity >= {times:g} * beat does not hold: {v:g} < {times * h:g}"
    if drain >= v:
        return f"drain < validity does not hold: {drain:g} >= {v:g}"
    return None
