"""Histories with ordering keys over a mirrored pair: which order is kept when the accounts change sides.

Each account has lines of its own. An event has its ticket in the account that served when it was posted, and owners in the other one make
tickets as they come: an event that was acknowledged after the last change of sides is not passed by later ones of its key. Events that are
not mirrored stay in the lines of their account, so events of a key that are in both accounts have no order.
"""

from __future__ import annotations

from typing import Any

from shared.core.clock import Millis

from ..history import Report, quietly
from .keyed_histories import KeyedEvent, KeyedWorld
from .pair import STOPPED, PairWorld


class KeyedPairWorld(KeyedWorld, PairWorld):
    """One history with ordering keys over two accounts. mirrored: the events with keys are in both."""

    def __init__(self, seed: int, style: str | None, story: str, *, mirrored: bool) -> None:
        self._mirrored = mirrored
        self._changing = False
        self._changed = 0.0
        """Seconds after which every process knows of the last change of sides."""
        super().__init__(seed, style, story=story)
        # If those with keys are not mirrored, the events of the plan ask to be.
        self.durability, self.asked = ("mirrored", None) if mirrored else (None, "mirrored")

    def _forget_reads(self, sides: int | None) -> None:
        super()._forget_reads(sides)
        self._changing = sides is None
        if sides is not None:
            self._changed = self.loop.now + STOPPED

    def _find(self, side: str) -> None:
        super()._find(side)
        # The way back may begin at any time now.
        self._changing = True

    def put_off(self) -> Millis:
        # Most are due when the sides have changed, several at about the same instant.
        return self.fortune.choice((0, 200_000, 400_000, 600_000))

    def posted_at(self) -> float:
        return super().posted_at() + self.fortune.choice((0.0, 0.0, 150.0, 300.0))

    def disordered(self, event: KeyedEvent, other: KeyedEvent, states: list[Any]) -> None:
        assert other.acked is not None
        if self._changing or (other.acked - self.start) / 1000 < self._changed:
            self.counts["out of order after a change of sides"] += 1
        elif not self._mirrored:
            self.counts["out of order over two accounts"] += 1
        else:
            super().disordered(event, other, states)


def simulate_keyed_pair(seed: int, style: str | None = None, story: str = "alarm", *, mirrored: bool = True) -> Report:
    """Play one history with ordering keys over a mirrored pair. The same seed gives the same history."""
    world = KeyedPairWorld(seed, style, story, mirrored=mirrored)
    with quietly(world.profile.group):
        return world.play()
