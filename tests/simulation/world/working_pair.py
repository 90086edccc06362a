"""Histories of a mirrored pair whose receivers work on most events while the sides change.

They complete, fail or extend an attempt at whichever side serves, with the token that the other side may have given. What was acknowledged
holds over the change: a completed event is not delivered again.
"""

from __future__ import annotations

from ..history import Report, quietly
from .pair import PairWorld


class WorkingPairWorld(PairWorld):
    """One history over two accounts, with long work."""

    def __init__(self, seed: int, style: str | None = None, story: str | None = None) -> None:
        super().__init__(seed, style, story)
        self.durability, self.asked = "mirrored", None
        # Most of the work takes longer than a change of sides.
        self.works.share, self.works.pace, self.works.within, self.works.at_most = 0.8, 8.0, "PT90S", "PT6M"


def simulate_working_pair(seed: int, style: str | None = None, story: str | None = None) -> Report:
    """Play one history of a mirrored pair with long work. The same seed gives the same history."""
    world = WorkingPairWorld(seed, style, story)
    with quietly(world.profile.group):
        return world.play()
