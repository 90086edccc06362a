"""Looks at storage and at the timers' ticks, at most once a second however many ask."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from ..clock import Clock, Millis
from ..errors import StorageError
from ..storage.names import SHARDS, SWEEPS
from ..storage.ports import Tables
from ..tenants.cache import Cached
from . import rules

PK_TICKS = "tick"
"""Partition of `TocsinSweeps` with one row per timer: `at`, the milliseconds of its last tick."""
PERIODS: Mapping[str, float] = {"scheduler_scan": 15.0, "lease_scan": 15.0, "stale_scan": 60.0, "retention_scan": 3600.0}
"""The app's timers (api.md, "Operations") and their periods in seconds."""
PATIENCE = 5.0
"""Seconds storage has to answer a probe."""


class Health:
    """The probe. Anonymous callers use it, so it asks storage once a second at most. `periods`: the timers that are deployed."""

    def __init__(self, tables: Tables, clock: Clock, periods: Mapping[str, float] = PERIODS, places: Iterable[str] = ()) -> None:
        """places: of shards; each has an account that is probed."""
        self._tables, self._clock, self._periods = tables, clock, periods
        self._places = tuple(places) if len(tuple(places)) > 1 else ()
        self._started = clock.monotonic()
        self._cache: Cached[str, rules.Verdict] = Cached(self._look, clock, ttl=1.0, missing_ttl=1.0, size=1)

    async def check(self) -> rules.Verdict:
        """The findings, at most a second old. Does not raise."""
        verdict = await self._cache.get("ready")
        assert verdict is not None
        return verdict

    async def _look(self, _: str) -> rules.Verdict:
        ticks: dict[str, Millis] = {}
        at: Millis | None = None
        try:
            async with asyncio.timeout(PATIENCE):
                page = await self._tables.query(SWEEPS, PK_TICKS, limit=100)
            at = page.read_at
            ticks = {row.rk: int(row.props["at"]) for row in page.rows if "at" in row.props}
        except (StorageError, TimeoutError):
            pass
        accounts = dict(zip(self._places, await asyncio.gather(*map(self._answers, self._places)), strict=True))
        up = int((self._clock.monotonic() - self._started) * 1000)
        return rules.judge(rules.Observed(self._clock.now(), at, ticks, up, accounts), self._periods)

    async def _answers(self, place: str) -> bool:
        """Whether the account that holds a place's shards answers."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._tables.query(SHARDS, f"{place}0", limit=1)
        except (StorageError, TimeoutError):
            return False
        return True
