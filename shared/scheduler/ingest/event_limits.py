"""The limits of a tenant on its events: how many are open, and how many come in a second."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ...core.errors import Problem
from ...core.readable import count_of
from ...delivery.flow.rate_limiter import RateLimiter, most_at_once
from ...tenants.model import Tenant
from ...web.problem import invalid, too_many
from ..timings import OPEN_EVENTS_RETRY
from .limit_notices import LimitNotices
from .open_events import OpenEvents

_NOTHING_REFUSED = too_many(OPEN_EVENTS_RETRY, "a limit is exceeded", "none")


class Admission:
    """Lets in events of one tenant for one call, as a context that ends when they are stored."""

    def __init__(self, limits: EventLimits, tenant: str) -> None:
        self._limits, self._tenant = limits, tenant
        self._taken = self._unused = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._taken:
            self._limits.open_events.stored(self._tenant, self._taken, min(self._unused, self._taken))

    def unused(self, count: int) -> None:
        """Note that some of the events are not stored for certain, or were stored before."""
        self._unused += count

    async def admit(self, settings: Tenant, count: int) -> tuple[int, Problem]:
        """Return how many of `count` events the tenant's limits let in now, and the problem for the others."""
        fits = await self._take(settings, count)
        grant = await self._limits.limiter.take(self._tenant, settings.limits.events_per_second, fits)
        self.unused(fits - grant.granted)
        if grant.granted == count:
            # The usual case does not pay for a problem that nobody sees.
            return count, _NOTHING_REFUSED
        if grant.granted < fits:
            return grant.granted, await self._limits.too_fast(self._tenant, grant.retry_after)
        return grant.granted, await self._limits.too_many_open(self._tenant, settings)

    async def admit_all(self, settings: Tenant, count: int) -> Problem | None:
        """Let in the `count` events of a fan-out, or return the problem if the tenant's limits do not let in all of them now: 429, or 422
        if they never do.
        """
        if (never := self._limits.never_fits(settings, count)) is not None:
            return never
        if count and await self._take(settings, count, whole=True) < count:
            return await self._limits.too_many_open(self._tenant, settings)
        if (refusal := await self._limits.take_rate(self._tenant, settings, count)) is not None:
            self.unused(count)
        return refusal

    async def admit_open(self, settings: Tenant) -> Problem | None:
        """Let in one event that the tenant's rate has let in."""
        return None if await self._take(settings, 1) else await self._limits.too_many_open(self._tenant, settings)

    async def _take(self, settings: Tenant, count: int, *, whole: bool = False) -> int:
        limit = settings.limits.open_events
        if limit is None or not count:
            return count
        taken = await self._limits.open_events.take(self._tenant, limit, count, whole=whole, own=self._taken)
        self._taken += taken
        return taken


class EventLimits:
    """Lets events in. One per process."""

    def __init__(self, open_events: OpenEvents, limiter: RateLimiter, notices: LimitNotices) -> None:
        self.open_events, self.limiter, self._notices = open_events, limiter, notices

    def admitting(self, tenant: str) -> Admission:
        """Return the context in which a call lets in and stores events."""
        return Admission(self, tenant)

    def never_fits(self, settings: Tenant, count: int) -> Problem | None:
        """Return the problem of a fan-out that the tenant's limits never let in."""
        limit, rate = settings.limits.open_events, settings.limits.events_per_second
        most = min(count, limit if limit is not None else count, most_at_once(rate) if rate is not None else count)
        if most < count > 1:
            return invalid("/channels", f"the tenant's limits let in at most {count_of(most, 'event')} together")
        return None

    async def take_rate(self, tenant: str, settings: Tenant, count: int) -> Problem | None:
        """Let in all `count` events by the rate, or return the problem. They may not be open ones."""
        wait = await self.limiter.take_all(tenant, settings.limits.events_per_second, count)
        return await self.too_fast(tenant, wait) if wait else None

    async def noted(self, tenant: str, refusal: Problem) -> Problem:
        """Note the limit that refuses an event of a batch or of a queue, and return the problem."""
        if refusal.limit:
            await self._notices.reached(tenant, refusal.limit, refusal.detail)
        return refusal

    async def too_many_open(self, tenant: str, settings: Tenant) -> Problem:
        """Return the problem of an event over the limit of open events."""
        most = count_of(settings.limits.open_events or 0, "open event")
        return await self.noted(tenant, too_many(OPEN_EVENTS_RETRY, f"the tenant may have {most}", "open_events"))

    async def too_fast(self, tenant: str, wait: float) -> Problem:
        """Return the problem of an event over the rate. wait: seconds after which it fits."""
        detail = "the tenant's limit of events per second is exceeded"
        return await self.noted(tenant, too_many(wait, detail, "events_per_second"))
