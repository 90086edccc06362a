"""A limit for the sum of the sizes of what is under way at once, such as bytes in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Budget:
    """Lets in what fits. Anything is let in alone, however large. What is small may overtake what is large."""

    def __init__(self, limit: int) -> None:
        self._limit, self._used = limit, 0
        self._released = asyncio.Event()
        """Set, and replaced, whenever something is given back."""

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Wait until `size` fits, and hold it."""
        while self._used and self._used + size > self._limit:
            await self._released.wait()
        self._used += size
        try:
            yield
        finally:
            # Nothing is awaited here: a task that is cancelled gives back what it holds, and wakes those that wait, in any case.
            self._used -= size
            self._released.set()
            self._released = asyncio.Event()
