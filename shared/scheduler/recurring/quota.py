"""The limit on a tenant's number of schedules."""

from __future__ import annotations

from ...core.clock import Clock
from ...tenants.model import MOST_SCHEDULES
from ...web.problem import too_many
from ..timings import SCHEDULE_COUNT_FRESH_FOR, SCHEDULE_QUOTA_RETRY
from .store import ScheduleDefinitions

MOST_KNOWN = 10_000


class Quota:
    """Counts schedules before one is made. One per process: several may admit a few too many within `SCHEDULE_COUNT_FRESH_FOR`."""

    def __init__(self, store: ScheduleDefinitions, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._known: dict[tuple[str, str], tuple[float, int]] = {}

    async def check(self, tenant: str, uid: str, limit: int | None) -> None:
        """Raise 429 if the tenant of this incarnation may not have another schedule. limit: None for the product's own limit."""
        most = MOST_SCHEDULES if limit is None else limit
        known = self._known.get((tenant, uid))
        if known is None or self._clock.monotonic() - known[0] >= SCHEDULE_COUNT_FRESH_FOR:
            while len(self._known) >= MOST_KNOWN:
                del self._known[next(iter(self._known))]
            known = self._known[tenant, uid] = self._clock.monotonic(), await self._store.count(tenant, uid)
        if known[1] >= most:
            raise too_many(SCHEDULE_QUOTA_RETRY, f"the tenant may have {most:,} schedules")

    def made(self, tenant: str, uid: str) -> None:
        """Count a schedule that was made, until the next read."""
        if (known := self._known.get((tenant, uid))) is not None:
            self._known[tenant, uid] = known[0], known[1] + 1
