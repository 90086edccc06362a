"""Turns of a tenant's list requests: some read at once, some wait, and more are refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ...web.problem import too_many

AT_ONCE = 2
"""List requests of one tenant that read side by side in a process."""
WAITING = 8
"""List requests of one tenant that may wait for them."""
RETRY = 1.0
"""Seconds after which a refused request may be repeated."""


class ListTurns:
    """Bounds what one tenant's lists take of a process. One per process."""

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._present: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait for the tenant's turn to read. Raises 429 if too many of its requests read or wait."""
        if self._present[tenant] >= AT_ONCE + WAITING:
            detail = f"the tenant has {AT_ONCE + WAITING} list requests in progress; wait for their answers"
            raise too_many(RETRY, detail, "list_requests")
        self._present[tenant] += 1
        try:
            async with self._turns.setdefault(tenant, asyncio.Semaphore(AT_ONCE)):
                yield
        finally:
            self._present[tenant] -= 1
            if not self._present[tenant]:
                del self._present[tenant]
                self._turns.pop(tenant, None)
