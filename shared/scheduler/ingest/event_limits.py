"""The limits of a tenant on its events: how many are open, and how many come in a second."""

from __future__ import annotations

from ...core.errors import Problem
from ...core.readable import count_of
from ...delivery.flow.rate_limiter import RateLimiter, most_at_once
from ...tenants.model import Tenant
from ...web.problem import invalid, too_many
from ..queries.stats import TenantStats
from ..timings import OPEN_EVENTS_RETRY
from .limit_notices import LimitNotices

_NOTHING_REFUSED = too_many(OPEN_EVENTS_RETRY, "a limit is exceeded", "none")


class EventLimits:
    """Lets events in. One per process."""

    def __init__(self, stats: TenantStats, limiter: RateLimiter, notices: LimitNotices) -> None:
        self._stats, self._limiter, self._notices = stats, limiter, notices

    async def admit(self, tenant: str, settings: Tenant, count: int) -> tuple[int, Problem]:
        """Return how many of `count` events the tenant's limits let in now, and the problem for the others."""
        limit = settings.limits.open_events
        fits = count
        if limit is not None and count:
            fits = min(count, max(0, limit - await self._stats.open_events(tenant)))
        grant = await self._limiter.take(tenant, settings.limits.events_per_second, fits)
        if limit is not None and grant.granted:
            self._stats.admitted(tenant, grant.granted)
        if grant.granted == count:
            # The usual case does not pay for a problem that nobody sees.
            return count, _NOTHING_REFUSED
        if grant.granted < fits:
            return grant.granted, await self._too_fast(tenant, grant.retry_after)
        return grant.granted, await self._too_many_open(tenant, limit)

    async def admit_all(self, tenant: str, settings: Tenant, count: int) -> Problem | None:
        """Let in the `count` events of a fan-out, or return the problem if the tenant's limits do not let in all of them now: 429, or 422
        if they never do.
        """
        limit, rate = settings.limits.open_events, settings.limits.events_per_second
        most = min(count, limit if limit is not None else count, most_at_once(rate) if rate is not None else count)
        if most < count > 1:
            return invalid("/channels", f"the tenant's limits let in at most {count_of(most, 'event')} together")
        if limit is not None and await self._stats.open_events(tenant) + count > limit:
            return await self._too_many_open(tenant, limit)
        if wait := await self._limiter.take_all(tenant, rate, count):
            return await self._too_fast(tenant, wait)
        if limit is not None:
            self._stats.admitted(tenant, count)
        return None

    async def noted(self, tenant: str, refusal: Problem) -> Problem:
        """Note the limit that refuses an event of a batch or of a queue, and return the problem."""
        if refusal.limit:
            await self._notices.reached(tenant, refusal.limit, refusal.detail)
        return refusal

    async def _too_many_open(self, tenant: str, limit: int | None) -> Problem:
        return await self.noted(
            tenant, too_many(OPEN_EVENTS_RETRY, f"the tenant may have {count_of(limit or 0, 'open event')}", "open_events")
        )

    async def _too_fast(self, tenant: str, wait: float) -> Problem:
        detail = "the tenant's limit of events per second is exceeded"
        return await self.noted(tenant, too_many(wait, detail, "events_per_second"))
