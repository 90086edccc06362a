"""Notices of limits: a tenant that subscribes is told once an hour of each of its limits that refuses a call."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from typing import Final

from ...core.clock import Clock
from ...core.errors import StorageError
from ...delivery.notices import Notify
from ...tenants.store import TenantDirectory

log = logging.getLogger(__name__)

TOLD_EVERY: Final = 3600.0
"""Seconds in which a process notes a limit of a tenant once. The stored notice refuses what other processes note in this time."""
MOST_KNOWN: Final = 10_000


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
