"""Which storage account the next shard is opened in."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.clock import Clock
from ..timings import ACCOUNT_AVOIDED_FOR


class Rota:
    """The places that take new shards, in turn; those that did not answer are left out for a while, unless none is left."""

    def __init__(self, places: Sequence[str], clock: Clock) -> None:
        self._places, self._clock = tuple(places), clock
        self._away: dict[str, float] = {}
        self._turn = 0

    def next(self) -> str:
        """Where the next shard is opened."""
        ready = self._ready() or self._places
        self._turn += 1
        return ready[self._turn % len(ready)]

    def avoid(self, place: str) -> bool:
        """The account did not answer; True when another is left to try."""
        if place not in self._places:
            return False
        self._away[place] = self._clock.monotonic() + ACCOUNT_AVOIDED_FOR
        return bool(self._ready())

    def _ready(self) -> tuple[str, ...]:
        if not self._away:
            return self._places
        now = self._clock.monotonic()
        return tuple(place for place in self._places if self._away.get(place, now) <= now)
