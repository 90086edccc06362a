"""A lane: one channel in one process, with this process's observations of it and the number of its deliveries that may run at once.

Its slots limit how many deliveries run at once; punctual events get one before the backlog.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal, NamedTuple

from ..circuit_breaker import Tally
from . import rules
from .rules import LaneLoad
from .shared_limits import Limit, RateLimit, SharedSlots

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
        self.free = limit
        """Number of slots without a holder. While it is above 0, the line is empty, and a caller may take a slot by subtracting 1."""
        self._line = WaitingLine()

    async def acquire(self, *, backlog: bool = False) -> None:
        """Wait for a slot."""
        if self.free:
            self.free -= 1
            return
        turn = self._line.join(backlog=backlog)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # The slot came at the same instant as the cancellation: pass it on.
                self.release()
            raise

    def release(self) -> None:
        """Release a slot to the next in line."""
        if not self.free and (turn := self._line.next()) is not None:
            turn.set_result(None)
        else:
            self.free += 1


WEIGHT = 0.1
"""Weight of the latest delivery in the mean duration of deliveries."""


class Place(NamedTuple):
    """The place of a shard among those whose due events wait for room. until: monotonic time at which it is lost."""

    events: int
    """Due events that the shard may not claim yet."""
    until: float


class Lane:
    """A channel in this process."""

    def __init__(self, tenant: str, name: str, most: int) -> None:
        self.tenant, self.name, self.most = tenant, name, most
        self.window = min(rules.FIRST_WINDOW, most)
        self.in_flight = 0
        self.limits: tuple[Limit, ...] = ()
        self.line = WaitingLine()
        self.in_line = 0
        """Deliveries in line."""
        self.held = 0
        """Due events behind the line: their owners have as many deliveries in flight and in line as the channel can use."""
        self.waits_since = 0.0
        """Monotonic time at which the line began."""
        self.owners: dict[object, int] = {}
        """Owners with claimed events of this channel and their number, in order of arrival. An owner goes by the name of its shard."""
        self.claimed = 0
        """Claimed events of all owners, including deliveries in flight."""
        self.places: dict[object, Place] = {}
        """Owners whose events wait for room, in the order in which they asked first. A shard that rests meanwhile keeps its place."""
        self.promised = float("-inf")
        """Monotonic time at which an owner was last allowed to claim the probe that this process has won."""
        self.probing = False
        """True while the probe runs."""
        self.opened = 0
        """Number of times that this process has opened the breaker: what was read of the channel before may be outdated."""
        self.tally = Tally()
        self._grows = True
        """True until a delivery without an answer narrows the window, and again once the window is as wide as it may be."""
        self._mean = 0.0
        self._begun, self._begun_sum = 0, 0.0
        self._touched = 0.0

    @property
    def waiting(self) -> int:
        """Deliveries that wait for their turn."""
        return self.in_line + self.held

    def enter(self, owner: object) -> None:
        """Note that an event of the channel was claimed."""
        self.claimed += 1
        self.owners[owner] = self.owners.get(owner, 0) + 1

    def leave(self, owner: object, _: object = None) -> None:
        """Note that a delivery has ended, in whatever way."""
        self.claimed -= 1
        left = self.owners[owner] - 1
        if left:
            self.owners[owner] = left
        else:
            del self.owners[owner]

    def wait(self, owner: object, count: int, until: float) -> None:
        """Note that `count` events of the owner's shard wait for room, and that it asks again at `until`."""
        self.places[owner] = Place(count, until + rules.OVERDUE)

    def before(self, owner: object, now: float, enough: int) -> int:
        """Return the number of events without room that come before those of the owner's shard, not counted on from `enough`."""
        events, lost = 0, list[object]()
        for other, place in self.places.items():
            if place.until < now:
                lost.append(other)
            elif other == owner or events >= enough:
                break
            else:
                events += place.events
        for other in lost:
            del self.places[other]
        return events

    def touch(self, now: float) -> None:
        """Note that the lane is used again. After a long rest, earlier observations no longer count."""
        if not self.claimed and now - self._touched > rules.FORGET:
            self.window, self._mean, self._grows = min(rules.FIRST_WINDOW, self.most), 0.0, True
        self._touched = now

    def begin(self, now: float) -> None:
        self._begun += 1
        self._begun_sum += now

    def end(self, begun: float, now: float, *, answered: bool | None) -> None:
        """Note that a delivery has ended. answered: None if it did not reach the receiver."""
        self._begun -= 1
        self._begun_sum -= begun
        if answered is None:
            return
        took = now - begun
        self._mean = took if self._mean == 0.0 else self._mean + WEIGHT * (took - self._mean)
        self.window = rules.widened(self.window, self.most) if answered else rules.narrowed(self.window)
        self._grows = answered and (self._grows or self.window == self.most)
        self._touched = now

    def mean(self, now: float) -> float:
        """Return the mean duration of deliveries in seconds: of those that ended, and at least the mean age of those in flight."""
        ages = now - self._begun_sum / self._begun if self._begun else 0.0
        return max(self._mean, ages)

    def load(self, now: float) -> LaneLoad:
        """Return the lane's load at this moment."""
        window, widest, rate, shut = self.window, self.most, None, 0.0
        for limit in self.limits:
            shut = max(shut, limit.shut_for())
            if isinstance(limit, RateLimit):
                rate = limit.rate if rate is None else min(rate, limit.rate)
            elif isinstance(limit, SharedSlots):
                # Until a share is held, the amount is unknown: one delivery asks for it.
                window, widest = min(window, max(1, limit.held)), min(widest, max(1, limit.held))
        mean = self.mean(now)
        silent = self._mean == 0.0 and mean > rules.SILENT
        # Also before the first answer: a slow receiver's herd must not wait for the time that the first, narrow window would take.
        widest = widest if self._grows else window
        return LaneLoad(window, self.in_flight, self.claimed - self.in_flight, mean, rate, shut, silent, widest)

    def may_start(self) -> bool:
        """Return True if one more delivery may start now."""
        if self.in_flight >= self.window:
            return False
        return not self.limits or all(limit.ready() for limit in self.limits)

    def reason_to_wait(self) -> Literal["rate", "concurrency"]:
        """Return the reason why a delivery that waits now does so."""
        return "rate" if any(isinstance(limit, RateLimit) and not limit.ready() for limit in self.limits) else "concurrency"

    def start(self) -> tuple[Limit, ...]:
        """Start one delivery; return the limits that it counts against."""
        self.in_flight += 1
        for limit in self.limits:
            limit.start()
        return self.limits
