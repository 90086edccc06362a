"""Profiles of fleets: heartbeat interval H, validity V and takeover timeout T, and the conditions that make them safe.

V counts from the SEND of a heartbeat, T from the RECEIPT of the answer that showed it first. With any other combination two servers own a
partition when requests are slow, so the two moments are separate types (`engine/validity.py`). Clocks of two machines are never compared.

A fleet stores the numbers of its profile, not the name: a change of a named profile affects new fleets only, and existing fleets then show
their numbers instead of the name (`fleets.definition.fleet_out`). Changing a running fleet's profile needs a PUT without live servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..engine.validity import DRIFT, outlasting

MARGIN: Final = 1.0
"""Seconds between the last act of an owner and the first act of its successor."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Durations in seconds. beat: heartbeat interval (H). validity: of a heartbeat for its sender (V). takeover: silence
    after which other servers take the partitions (T)."""

    beat: float
    validity: float
    takeover: float

    @property
    def request(self) -> float:
        """Timeout of one lease request, seconds."""
        return self.beat / 2


PROFILES: Final[Mapping[str, Profile]] = {
    "economy": Profile(10, 30, 36),
    "default": Profile(5, 15, 18),
    "fast": Profile(2, 6, 7.2),
    "seed": Profile(120, 180, 240),
}


def unsafe_reason(profile: Profile, drain: float = 0.0, *, name: str = "") -> str | None:
    """Return the failing safety condition with its numbers; None if all hold. drain: maximum seconds of a hand-off. name: of the profile.

    The profile `seed` needs V >= 1.5 H instead of 3 H.
    """
    h, v, t = profile.beat, profile.validity, profile.takeover
    if not (0 < h < float("inf") and 0 < v < float("inf") and 0 < t < float("inf")):
        return f"beat, validity and takeover must be positive: {h:g}, {v:g}, {t:g}"
    least = outlasting(v) + MARGIN
    if t < least:
        return f"takeover >= validity * {1 + DRIFT:g}/{1 - DRIFT:g} + {MARGIN:g} does not hold: {t:g} < {least:.4g}"
    times = 1.5 if name == "seed" else 3
    # Tolerate rounding errors: 3 * 0.4 > 1.2 in floating point.
    if v < times * h - 1e-9:
        return f"validity >= {times:g} * beat does not hold: {v:g} < {times * h:g}"
    if drain >= v:
        return f"drain < validity does not hold: {drain:g} >= {v:g}"
    return None
