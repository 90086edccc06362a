"""The choice of the storage account in which the next shard is opened."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.clock import Clock
from ..timings import ACCOUNT_AVOIDED_FOR


class AccountRotation:
    """The places that take new shards, in turn. Places that did not answer are skipped for a while, unless none is left."""

    def __init__(self, places: Sequence[str], clock: Clock) -> None:
        self._places, self._clock = tuple(places), clock
        self._away: dict[str, float] = {}
        self._turn = 0

    def next(self) -> str:
        """Return the place of the next shard."""
        ready = self._ready() or self._places
        self._turn += 1
        return ready[self._turn % len(ready)]

    def avoid(self, place: str) -> bool:
        """Skip the account for a while, because it did not answer. Return True if another one is left to try."""
        if place not in self._places:
            return False
        self._away[place] = self._clock.monotonic() + ACCOUNT_AVOIDED_FOR
        return bool(self._ready())

    def _ready(self) -> tuple[str, ...]:
        if not self._away:
            return self._places
        now = self._clock.monotonic()
        return tuple(place for place in self._places if self._away.get(place, now) <= now)
