"""Probes storage and the timers' ticks, at most once a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from ...core.clock import Clock, Millis
from ...core.errors import StorageError
from ...engine.stored_forms import StoredForms, sentence
from ...scheduler.shard.event_clock import ClockFinding
from ...scheduler.wakes.service import SWEEP_ROW, times_of
from ...storage.names import PK_TICKS, SHARDS, SWEEPS
from ...storage.ports import Page, RowQuery, Tables
from ...tenants.cache import Cached
from . import rules

PATIENCE = 5.0
"""Seconds to wait for storage's answer to a probe."""


class ExpectedWork(NamedTuple):
    """The work that this deployment does by itself.

    periods: seconds between the ticks of each deployed timer. looked: returns the time of the last look at coming events, 0 for never; None
    if planned wakes are off. unserved: the sentence that names functions which are demanded and do not run; '' if all do. started: start of
    the application by the monotonic clock; by default that of the probe.
    """

    periods: Mapping[str, float]
    looked: Callable[[], Awaitable[Millis]] | None = None
    unserved: str = ""
    started: float | None = None


class HealthProbe:
    """The probe. Anonymous callers use it, so it reads storage at most once a second."""

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        work: ExpectedWork,
        places: Sequence[str] = (),
        measured: Callable[[], ClockFinding] = lambda: rules.UNMEASURED,
        forms: StoredForms | None = None,
    ) -> None:
        """places: the places of shards; if there are several, each account is probed. measured: returns the state of the wall clock. forms:
        the number of the stored forms, which each probe looks at."""
        self._measured, self._forms = measured, forms or StoredForms(tables, clock)
        self._tables, self._clock, self._work = tables, clock, work
        self._places = places if len(places) > 1 else ()
        self._started = clock.monotonic() if work.started is None else work.started
        self._cache: Cached[str, rules.Readiness] = Cached(self._look, clock, ttl=1.0, missing_ttl=1.0, size=1)

    async def check(self) -> rules.Readiness:
        """Return the findings, at most a second old. Raises nothing."""
        verdict = await self._cache.get("ready")
        assert verdict is not None
        return verdict

    async def _look(self, _: str) -> rules.Readiness:
        page = await self._asked(SWEEPS, PK_TICKS, 100)
        # After it, not beside it: of an account that was away one call at a time finds out whether it is back.
        found = await asyncio.gather(*(self._asked(SHARDS, f"{place}0", 1) for place in self._places))
        self._forms.watch(page.rows if page is not None else ())
        ticks = {row.rk: int(row.props["at"]) for row in page.rows if "at" in row.props} if page is not None else {}
        accounts = {place: each is not None for place, each in zip(self._places, found, strict=True)}
        newer = sentence(self._forms) if self._forms.newer else ""
        times = times_of(next((row for row in page.rows if row.rk == SWEEP_ROW), None)) if page is not None else times_of(None)
        looked = await self._when_looked() if page is not None else None
        up = int((self._clock.monotonic() - self._started) * 1000)
        now, measured = self._clock.now(), self._measured()
        seen = rules.HealthObservation(now, page is not None, ticks, up, accounts, measured, newer, times, looked, self._work.unserved)
        return rules.judge(seen, self._work.periods)

    async def _when_looked(self) -> Millis | None:
        if self._work.looked is None:
            return None
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._work.looked()
        except (StorageError, TimeoutError):
            return None

    async def _asked(self, table: str, pk: str, limit: int) -> Page | None:
        """Return the first rows of a partition; None if its account does not answer."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._tables.query(RowQuery(table, pk, limit=limit))
        except (StorageError, TimeoutError):
            return None
