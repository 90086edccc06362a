"""The limits of a tenant on its events: how many are open, and how many come in a second.

The number of open events, as one process knows it, is a count of storage and what was let in since the count began. A count is used for
`OPEN_COUNT_FRESH_FOR` seconds. The first request after that counts again, and those that come meanwhile wait for it, so that nothing is let
in that the new number lacks. What is being stored while storage is counted may be counted twice: before such a number refuses an event, all
of that is awaited and storage counted again. Other processes let in events too, which the next count has.

A tenant that subscribes is told once an hour of each of its limits that refuses a call.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from ...core.clock import Clock
from ...core.errors import Problem, StorageError
from ...core.readable import count_of
from ...delivery.flow.shared_limits import RateLimiter, most_at_once
from ...delivery.notices import Notify
from ...tenants.model import Tenant
from ...tenants.store import TenantDirectory
from ...web.problem import invalid, too_many
from ..timings import OPEN_COUNT_FRESH_FOR, OPEN_EVENTS_RETRY, UNSETTLED_WAIT

log = logging.getLogger(__name__)

TOLD_EVERY: Final = 3600.0
"""Seconds in which a process notes a limit of a tenant once. The stored notice refuses what other processes note in this time."""
MOST_KNOWN: Final = 10_000
"""Limits of tenants of which a process remembers when it noted them."""
_NOTHING_REFUSED = too_many(OPEN_EVENTS_RETRY, "a limit is exceeded", "none")


@dataclass(slots=True)
class _Known:
    """The figures of one tenant in this process."""

    total: int = 0
    at: float = -math.inf
    """Monotonic time at which storage began to count."""
    storing: int = 0
    """Events that are let in and not yet stored, or known not to be."""
    doubled: int = 0
    """Most events that the total has twice."""
    count: asyncio.Future[int] | None = None
    """The count that is under way."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while nothing is being stored."""


class OpenEvents:
    """The numbers of open events, and the decision on further ones. One per process; belongs to one event loop."""

    def __init__(self, count: Callable[[str], Awaitable[int]], clock: Clock) -> None:
        """count: reads the number of a tenant's open events. Raises `StorageError`."""
        self._count, self._clock = count, clock
        self._tenants: dict[str, _Known] = {}

    async def take(self, tenant: str, limit: int, wanted: int, *, whole: bool = False, own: int = 0) -> int:
        """Let in as many of `wanted` events as the limit admits; whole: all or none. Return their number. Raises `StorageError`.

        own: events that the caller was let in with before, and has not begun to store. Call `stored` afterwards.
        """
        known = self._tenants.setdefault(tenant, _Known())
        if self._clock.monotonic() - known.at >= OPEN_COUNT_FRESH_FOR or known.count is not None:
            await self._counted(tenant, known)
        if known.total + wanted > limit and known.doubled > own and known.total - known.doubled < limit:
            if known.storing > own:
                await self._settled(known)
            if known.doubled > own:
                await self._counted(tenant, known)
        while known.count is not None:
            # Another caller has begun it meanwhile.
            await self._counted(tenant, known)
        granted = min(wanted, max(0, limit - known.total))
        if whole and granted < wanted:
            granted = 0
        known.total += granted
        known.storing += granted
        if granted:
            known.settled.clear()
        return granted

    def stored(self, tenant: str, taken: int, unused: int = 0) -> None:
        """Note that events which were let in are stored. unused: number of those that are not: they were refused, or stored before."""
        known = self._tenants[tenant]
        known.total -= unused
        known.storing -= taken
        if not known.storing:
            known.settled.set()

    async def _counted(self, tenant: str, known: _Known) -> None:
        """Count again, or wait for the count that is under way. Raises `StorageError`, for all that wait."""
        if known.count is None:
            known.count = asyncio.ensure_future(self._count_again(tenant, known))
            # Its callers may all be cancelled before it ends.
            known.count.add_done_callback(lambda count: count.cancelled() or count.exception())
        # A caller that is cancelled must not end the count of the others.
        await asyncio.shield(known.count)

    async def _count_again(self, tenant: str, known: _Known) -> int:
        began, doubled = self._clock.monotonic(), known.storing
        try:
            # While it is counted, nothing is let in; `unused` of those that are being stored is taken off here.
            known.total = 0
            counted = await self._count(tenant)
            known.total += counted + doubled
            known.at, known.doubled = began, doubled
            return counted
        except BaseException:
            known.at = -math.inf
            raise
        finally:
            known.count = None

    async def _settled(self, known: _Known) -> None:
        """Wait until everything that was let in is stored, but no longer than `UNSETTLED_WAIT`."""
        if not known.storing:
            return
        ways = (asyncio.ensure_future(known.settled.wait()), asyncio.ensure_future(self._clock.sleep(UNSETTLED_WAIT)))
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()


class LimitNotices:
    """Notes limits that were reached. One per process."""

    def __init__(self, directory: TenantDirectory, notify: Notify, clock: Clock) -> None:
        self._directory, self._notify, self._clock = directory, notify, clock
        self._told: OrderedDict[tuple[str, str], float] = OrderedDict()
        """Monotonic time at which a limit of a tenant was last noted."""

    async def reached(self, tenant: str, limit: str, detail: str) -> None:
        """Note that a limit refused a call. What cannot be noted is noted at the next refusal; nothing is raised.

        limit: its name, such as `open_events`.
        """
        now = self._clock.monotonic()
        if now < self._told.get((tenant, limit), -math.inf) + TOLD_EVERY:
            return
        try:
            settings = await self._directory.tenant(tenant)
            if settings is None or settings.notices is None or "limit.reached" not in settings.notices.kinds:
                return
            # Before the write: calls that are refused meanwhile note nothing.
            self._told[tenant, limit] = now
            self._told.move_to_end((tenant, limit))
            if len(self._told) > MOST_KNOWN:
                self._told.popitem(last=False)
            await self._notify(tenant, "limit.reached", limit, detail)
        except StorageError as error:
            self._told.pop((tenant, limit), None)
            log.debug("A limit that was reached could not be noted: %s", error, extra={"action": "notice_postponed", "tenant": tenant})


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
        if settings.limits.open_events is None and settings.limits.events_per_second is None:
            return count, _NOTHING_REFUSED
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
