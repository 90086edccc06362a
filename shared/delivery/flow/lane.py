"""A lane: one channel in one process. What is known of it there, and how many of its deliveries may go on at once."""

from __future__ import annotations

from . import rules
from .circuit_breaker import Tally
from .rules import LaneLoad
from .shared_limits import Limit, RateLimit, SharedSlots
from .slots import WaitingLine

WEIGHT = 0.1
"""Of the latest delivery in the mean time that deliveries take."""


class Lane:
    """A channel in this process."""

    def __init__(self, tenant: str, name: str, most: int) -> None:
        self.tenant, self.name, self.most = tenant, name, most
        self.window = min(rules.FIRST_WINDOW, most)
        self.in_flight = 0
        self.limits: tuple[Limit, ...] = ()
        self.line = WaitingLine()
        self.waiting = 0
        """Deliveries in line."""
        self.waits_since = 0.0
        """Monotonic: when the line began."""
        self.owners: dict[object, int] = {}
        """Owners with claimed events of this channel, and how many; the first to come first."""
        self.claimed = 0
        """Of all owners, those in flight included."""
        self.booked = 0.0
        """Monotonic: until when shards that found no room have been told to come back."""
        self.promised = float("-inf")
        """Monotonic: when an owner was last let claim the probe that this process has won."""
        self.probing = False
        """The probe is under way."""
        self.tally = Tally()
        self._mean = 0.0
        self._begun, self._begun_sum = 0, 0.0
        self._touched = 0.0

    def enter(self, owner: object) -> None:
        """An event of the channel is claimed."""
        self.claimed += 1
        self.owners[owner] = self.owners.get(owner, 0) + 1

    def leave(self, owner: object, _: object = None) -> None:
        """Its delivery has ended, one way or another."""
        self.claimed -= 1
        left = self.owners[owner] - 1
        if left:
            self.owners[owner] = left
        else:
            del self.owners[owner]

    def touch(self, now: float) -> None:
        """It is used again: after a long rest what was known of it counts no more."""
        if not self.claimed and now - self._touched > rules.FORGET:
            self.window, self._mean = min(rules.FIRST_WINDOW, self.most), 0.0
        self._touched = now

    def begin(self, now: float) -> None:
        self._begun += 1
        self._begun_sum += now

    def end(self, begun: float, now: float, *, answered: bool | None) -> None:
        """A delivery has ended. `answered`: None when it did not come to that."""
        self._begun -= 1
        self._begun_sum -= begun
        if answered is None:
            return
        took = now - begun
        self._mean = took if self._mean == 0.0 else self._mean + WEIGHT * (took - self._mean)
        self.window = rules.widened(self.window, self.most) if answered else rules.narrowed(self.window)
        self._touched = now

    def mean(self, now: float) -> float:
        """Seconds that deliveries take: of those that ended, and at least as long as those in flight have taken so far."""
        ages = now - self._begun_sum / self._begun if self._begun else 0.0
        return max(self._mean, ages)

    def load(self, now: float) -> LaneLoad:
        """How things stand."""
        window, rate, shut = self.window, None, 0.0
        for limit in self.limits:
            shut = max(shut, limit.shut_for())
            if isinstance(limit, RateLimit):
                rate = limit.rate if rate is None else min(rate, limit.rate)
            elif isinstance(limit, SharedSlots):
                # Until a part is held, nobody knows how much there will be: one delivery asks for it.
                window = min(window, max(1, limit.held))
        mean = self.mean(now)
        return LaneLoad(window, self.in_flight, self.claimed - self.in_flight, mean, rate, shut, self._mean == 0.0 and mean > rules.SILENT)

    def may_start(self) -> bool:
        """Whether one more delivery may start now."""
        if self.in_flight >= self.window:
            return False
        return not self.limits or all(limit.ready() for limit in self.limits)

    def start(self) -> tuple[Limit, ...]:
        """One does; answers the limits that it counts against."""
        self.in_flight += 1
        for limit in self.limits:
            limit.start()
        return self.limits
