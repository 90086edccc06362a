"""Slots for deliveries: a bound on how many run at once, where punctual events go before the backlog."""

from __future__ import annotations

import asyncio
from collections import deque

BACKLOG_TURN = 8
"""When both wait, one in so many slots goes to the backlog: it never comes to a stop."""


class WaitingLine:
    """Those who wait for a turn: first come, first served among the punctual, and among the backlog."""

    def __init__(self) -> None:
        self._waiting: tuple[deque[asyncio.Future[None]], deque[asyncio.Future[None]]] = (deque(), deque())
        self._passed = 0
        """Turns given to punctual events, since the last to the backlog, while the backlog waited."""

    def join(self, *, backlog: bool) -> asyncio.Future[None]:
        """Done when the turn has come; who cancels it has left the line."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[backlog].append(turn)
        return turn

    def next(self) -> asyncio.Future[None] | None:
        """Whose turn it is, or None when nobody waits."""
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
        """Whether `acquire` would not wait."""
        return self._free > 0

    async def acquire(self, *, backlog: bool = False) -> None:
        """Wait for a slot."""
        if self._free > 0:
            # Nobody waits while a slot is free: one that is given up goes to who waits.
            self._free -= 1
            return
        turn = self._line.join(backlog=backlog)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # The slot came in the same turn of the loop as the end: pass it on.
                self.release()
            raise

    def take(self) -> None:
        """Take a slot that is free."""
        self._free -= 1

    def release(self) -> None:
        """Give a slot up, to whoever's turn it is."""
        turn = self._line.next()
        if turn is None:
            self._free += 1
        else:
            turn.set_result(None)
