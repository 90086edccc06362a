"""Slots for deliveries: a limit on how many run at once, where punctual events go before the backlog."""

from __future__ import annotations

import asyncio
from collections import deque

BACKLOG_TURN = 8
"""While both wait, one in this many slots goes to the backlog, so that it never stops."""


class WaitingLine:
    """Deliveries that wait for a turn: first come, first served among the punctual ones, and among the backlog."""

    def __init__(self) -> None:
        self._waiting: tuple[deque[asyncio.Future[None]], deque[asyncio.Future[None]]] = (deque(), deque())
        self._passed = 0
        """Turns given to punctual events since the last one to the backlog, while the backlog waited."""

    def join(self, *, backlog: bool) -> asyncio.Future[None]:
        """Return a future that is done when the turn has come; cancelling it leaves the line."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[backlog].append(turn)
        return turn

    def next(self) -> asyncio.Future[None] | None:
        """Return the future of the next turn, or None if the line is empty."""
        if not self._waiting[0] and not self._waiting[1]:
            return None
        for queue in self._waiting:
            while queue and queue[0].cancelled():
                queue.popleft()
        punctual, backlog = self._waiting
        late = bool(backlog) and (not punctual or self._passed >= BACKLOG_TURN - 1)
        queue = backlog if late else punctual
        if not queue:
            return None
        self._passed = self._passed + 1 if backlog and not late else 0
        return queue.popleft()


class Slots:
    """At most `limit` holders at once; belongs to one event loop."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._line = WaitingLine()

    def free(self) -> bool:
        """Return True if `acquire` would not wait."""
        return self._free > 0

    async def acquire(self, *, backlog: bool = False) -> None:
        """Wait for a slot."""
        if self._free > 0:
            # The line is empty while a slot is free, because `release` gives each slot to the next in line.
            self._free -= 1
            return
        turn = self._line.join(backlog=backlog)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # The slot came at the same instant as the cancellation: pass it on.
                self.release()
            raise

    def take(self) -> None:
        """Take a slot that is free."""
        self._free -= 1

    def release(self) -> None:
        """Release a slot to the next in line."""
        turn = self._line.next()
        if turn is None:
            self._free += 1
        else:
            turn.set_result(None)
