"""Spreads the reads of sweeps over time, so that sweeps over hundreds of large fleets do not exceed the limit of a storage account."""

from __future__ import annotations

from typing import Any, Final

from ..core.clock import Clock
from ..storage.ports import Get, Page, TableRequest, Tables, WrappedTables

ROWS_PER_SECOND: Final = 12_000.0
"""Rows that the sweeps of a process read in a second, on average over the time in which they wait.

Azure serves 20,000 entities a second of an account. Four sweeps with 8 visits each would read far more: 32 fleets of 150 servers are 4,800
rows in a few milliseconds. With this and `BURST`, the busiest second has 12,000 + 3,000 + 4,800 rows. 300 fleets of 150 servers are 45,000
rows, so one sweep alone takes less than 4 s.
"""
BURST: Final = 3_000.0
"""Rows that are read without a wait, after a pause. Small installations never wait."""
LONGEST_WAIT: Final = 2.0
"""Seconds that a visit waits at most, so that background visits, which count but do not wait, cannot stop the sweeps."""


class RowPace:
    """Counts rows, and lets sweeps wait until they may read more. One per process; for one event loop."""

    def __init__(self, clock: Clock, rate: float = ROWS_PER_SECOND, burst: float = BURST) -> None:
        """rate: rows a second. burst: rows without a wait."""
        self._clock, self._rate, self._burst = clock, rate, burst
        self._left, self._at = burst, clock.monotonic()

    def count(self, rows: int) -> None:
        """Count rows that were read."""
        now = self._clock.monotonic()
        left = min(self._burst, self._left + self._rate * (now - self._at)) - rows
        self._left, self._at = max(left, -self._rate * LONGEST_WAIT), now

    async def admit(self) -> None:
        """Wait until the rows that were read before this call are paid for, at most `LONGEST_WAIT`."""
        self.count(0)
        if self._left < 0:
            await self._clock.sleep(-self._left / self._rate)


class CountedTables(WrappedTables):
    """Tables whose reads count for a pace. They never wait themselves: a visit that has begun reads to its end."""

    def __init__(self, tables: Tables, pace: RowPace) -> None:
        super().__init__(tables)
        self.pace = pace

    async def perform(self, request: TableRequest) -> Any:
        """See `Tables`."""
        if isinstance(request, Get):
            self.pace.count(1)
        answer = await self.inner.perform(request)
        if isinstance(answer, Page):
            self.pace.count(len(answer.rows))
        return answer
