"""The limits on a tenant's number of schedules, and on their occurrences per second."""

from __future__ import annotations

import asyncio
from itertools import islice

from ...core.clock import Clock, Millis
from ...core.readable import count_of
from ...tenants.model import MOST_SCHEDULES
from ...web.problem import too_many
from ..timings import SCHEDULE_COUNT_FRESH_FOR, SCHEDULE_LIMIT_RETRY
from .model import Recurrence
from .store import ScheduleDefinitions
from .timing import occurrences

MOST_KNOWN = 10_000
SAMPLE = 3
"""Fewest occurrences from which a schedule's rate is estimated."""
MOST_SAMPLED = 26
"""Most occurrences from which it is estimated. Fewer suffice if they span a day; before that, dense minutes may follow rare occurrences."""
_DAY: Millis = 86_400_000


class ScheduleLimits:
    """Counts schedules before one is made. One per process: several may admit a few too many within `SCHEDULE_COUNT_FRESH_FOR`."""

    def __init__(self, store: ScheduleDefinitions, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._known: dict[tuple[str, str], tuple[float, int]] = {}
        self._rates: dict[tuple[str, str], tuple[float, dict[str, float]]] = {}

    async def check(self, tenant: str, uid: str, limit: int | None) -> None:
        """Raise 429 if the tenant of this incarnation may not have another schedule. limit: None for the product's own limit."""
        most = MOST_SCHEDULES if limit is None else limit
        known = self._known.get((tenant, uid))
        if known is None or self._clock.monotonic() - known[0] >= SCHEDULE_COUNT_FRESH_FOR:
            while len(self._known) >= MOST_KNOWN:
                del self._known[next(iter(self._known))]
            known = self._known[tenant, uid] = self._clock.monotonic(), await self._store.count(tenant, uid)
        if known[1] >= most:
            raise too_many(SCHEDULE_LIMIT_RETRY, f"the tenant may have {count_of(most, 'schedule')}", "schedules")

    def made(self, tenant: str, uid: str) -> None:
        """Count a schedule that was made, until the next read."""
        if (known := self._known.get((tenant, uid))) is not None:
            self._known[tenant, uid] = known[0], known[1] + 1

    async def check_rate(self, tenant: str, uid: str, limit: float | None, schedule: str, spec: Recurrence) -> None:
        """Raise 429 if the tenant's schedules would have more occurrences per second than `limit` with this content of `schedule`.

        Paused schedules count, because a resume does not ask. A limit that was lowered later stops no schedule.
        """
        if limit is None:
            return
        now = self._clock.now()
        known = self._rates.get((tenant, uid))
        if known is None or self._clock.monotonic() - known[0] >= SCHEDULE_COUNT_FRESH_FOR:
            while len(self._rates) >= MOST_KNOWN:
                del self._rates[next(iter(self._rates))]
            rates: dict[str, float] = {}
            async for name, each, created in self._store.specs(tenant, uid):
                rates[name] = rate_of(each, created, now)
                await asyncio.sleep(0)
            known = self._rates[tenant, uid] = self._clock.monotonic(), rates
        rate = rate_of(spec, now, now)
        total = sum(known[1].values()) - known[1].get(schedule, 0.0) + rate
        if rate > known[1].get(schedule, 0.0) and total > limit * (1 + 1e-9):
            detail = f"the tenant's schedules would have {total:.3g} occurrences per second; its limit of events per second is {limit:g}"
            raise too_many(SCHEDULE_LIMIT_RETRY, detail, "events_per_second")
        known[1][schedule] = rate

    def ended(self, tenant: str, uid: str | None, schedule: str) -> None:
        """Count a deleted schedule no more."""
        if uid is not None and (known := self._rates.get((tenant, uid))) is not None:
            known[1].pop(schedule, None)


def rate_of(spec: Recurrence, created: Millis, now: Millis) -> float:
    """Return the events per second of a schedule's next few occurrences; 0 for fewer than two."""
    soon: list[Millis] = []
    for each in islice(occurrences(spec.timing(created), now), MOST_SAMPLED):
        soon.append(each.at)
        if len(soon) >= SAMPLE and each.at - soon[0] >= _DAY:
            break
    return (len(soon) - 1) * 1000 * len(spec.channels or "1") / (soon[-1] - soon[0]) if len(soon) > 1 else 0.0
