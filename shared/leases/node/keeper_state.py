"""What a keeper's two loops, its application and its callbacks hand one another.

Each of them may run on a thread of its own: what several of them change is guarded by one lock, which nobody holds while waiting.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, NamedTuple

from .. import rules
from ..rows import MAX_ORDERS, Expected, Fleet
from ..rules import Claim, HandOff, ServerSession

_NEVER: Final = float("inf")


class PartitionOrders(NamedTuple):
    """Partitions to claim, and to hand off; and to claim once others are fenced."""

    take: tuple[int, ...] = ()
    drop: tuple[int, ...] = ()
    expect: Expected = ()


class KeeperState:
    """One per keeper. `wake_beats` and `wake_scans` end the waits of the loops: who runs the loops sets them.

    fleet: as last read; before that, one of no partitions.
    session: the incarnation in force. alone: no other server is there to take what this one gives up. failures: beats that failed in a
    row. hurried: what this server says has changed, and somebody should plan. draining: nothing is to be claimed. stopping: nothing is to
    be begun.
    """

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        # A signal's handler may come in between, on the same thread, and say something too.
        self._lock = threading.RLock()
        self._wants: dict[int, float] = {}
        self._offered: dict[int, Claim] = {}
        self._expected: dict[str, tuple[tuple[int, ...], float]] = {}
        self._orders: PartitionOrders | None = None
        self._ready: list[tuple[int, HandOff]] = []
        self._dropped: list[int] = []
        self.wake_beats: Callable[[], object] = lambda: None
        self.wake_scans: Callable[[], object] = lambda: None
        self.counts: Counter[str] = Counter()
        self.session: ServerSession | None = None
        self.fleet = Fleet(0)
        self.failures = 0
        self.alone = False
        self.plan_requested = False
        self._given: dict[int, float] = {}
        self._drained = self._stopped = _NEVER
        self.stopping = False
        self.ended = False

    # -- from the application and its callbacks

    def drain(self, on: bool) -> None:
        """Hand everything off and take nothing, or take part again; said twice it changes nothing. A stop is not taken back."""
        if on != (self._drained != _NEVER):
            # Who else is there has to be seen anew.
            self.alone = self.alone and not on
            self._drained = self._steady() if on else _NEVER
        self.wake_beats()

    @property
    def draining(self) -> bool:
        """Whether everything is to be handed off."""
        return self.drained_since != _NEVER

    @property
    def drained_since(self) -> float:
        """Since when everything is to be handed off, steady seconds; never: infinity."""
        return self._stopped if self.stopping else self._drained

    def stop(self) -> None:
        """Hand everything off, and leave."""
        if not self.stopping:
            self._stopped, self.alone = self._steady(), False
            self.stopping = True
        self.wake_beats()

    def drop(self, partition: int) -> None:
        """The application does not want the partition any more."""
        with self._lock:
            self._dropped.append(partition)
        self.wake_beats()

    def finish_hand_off(self, partition: int, hand_off: HandOff) -> None:
        """The application has ended what it did under this hand-off."""
        with self._lock:
            self._ready.append((partition, hand_off))
        self.wake_beats()

    # -- for the loop that looks

    def current_session(self) -> ServerSession | None:
        """The incarnation in force, None while there is none."""
        session = self.session
        return session if session is not None and not session.fenced else None

    def wanted_partitions(self) -> list[int]:
        """Partitions to be claimed, once they can be."""
        now = self._steady()
        with self._lock:
            return [] if self.draining else sorted(p for p, until in self._wants.items() if now < until and p not in self._offered)

    def offer_claims(self, claims: Collection[Claim]) -> None:
        """These can be claimed now."""
        with self._lock:
            self._offered |= {claim.partition: claim for claim in claims}
        self.wake_beats()

    def set_plan(self, take: Collection[int], drop: Collection[int]) -> None:
        """The plan for this server itself."""
        with self._lock:
            self._orders = PartitionOrders(tuple(take)[:MAX_ORDERS], tuple(drop)[:MAX_ORDERS])
        self.wake_beats()

    def expected_servers(self) -> list[str]:
        """Servers whose end is expected."""
        now = self._steady()
        with self._lock:
            return [] if self.draining else sorted(server for server, (_, until) in self._expected.items() if now < until)

    def inherit_partitions(self, server: str, seconds: float) -> None:
        """It has ended: what was expected of it is wanted for so long."""
        until = self._steady() + seconds
        with self._lock:
            partitions, _ = self._expected.pop(server, ((), 0.0))
            held = self.session.held if self.session is not None else ()
            self._wants |= {partition: until for partition in partitions if partition not in held}

    def forget_server(self, server: str) -> None:
        """Nothing is expected of it any more."""
        with self._lock:
            self._expected.pop(server, None)

    def update_fleet(self, fleet: Fleet) -> None:
        """What the fleet's row says now. The durations of the profile stay: what runs was begun under them."""
        self.fleet = replace(fleet, profile=self.fleet.profile)

    def shed_duties(self) -> frozenset[rules.ScanDuty]:
        """What storage is too slow for."""
        return rules.duties_to_skip(self.failures)

    def released_partitions(self) -> dict[int, float]:
        """Partitions that were given up, and when (steady seconds) to look whether somebody took them."""
        with self._lock:
            return dict(self._given)

    def mark_checked(self, partition: int) -> None:
        """This one was looked at."""
        with self._lock:
            self._given.pop(partition, None)

    # -- for the loop that beats

    def watch_released(self, partitions: Collection[int], look: float) -> None:
        """These were given up: look after them then (steady seconds)."""
        if partitions:
            with self._lock:
                self._given |= dict.fromkeys(partitions, look)
            self.wake_scans()

    def request_plan(self) -> None:
        """Have the other loop plan at once."""
        self.plan_requested = True
        self.wake_scans()

    def take_plan(self) -> PartitionOrders | None:
        """The plan of one's own, once."""
        with self._lock:
            found, self._orders = self._orders, None
        return found

    def take_finished_hand_offs(self) -> list[tuple[int, HandOff]]:
        """The hand-offs whose user has ended, once."""
        with self._lock:
            found, self._ready = self._ready, []
        return found

    def take_dropped(self) -> list[int]:
        """The partitions that the application dropped, once."""
        with self._lock:
            found, self._dropped = self._dropped, []
        return found

    def set_wanted(self, take: Collection[int], until: float) -> None:
        """Orders replace the ones before; each is forgotten at its deadline (steady seconds), and the next plan decides."""
        with self._lock:
            self._wants = dict.fromkeys(take, until)
            self._offered = {partition: claim for partition, claim in self._offered.items() if partition in self._wants}
        if take:
            self.wake_scans()

    def set_expected(self, expected: Expected, until: float) -> None:
        """Expectations replace the ones before, and are forgotten at their deadline (steady seconds)."""
        with self._lock:
            self._expected = {server: (partitions, until) for server, partitions in expected}
        if expected:
            self.wake_scans()

    def still_expected(self, expected: Expected) -> Expected:
        """Those of `expected` that still are."""
        standing = set(self.expected_servers())
        return tuple((server, partitions) for server, partitions in expected if server in standing)

    def still_wanted(self, take: Collection[int]) -> tuple[int, ...]:
        """Those of `take` that are still wanted."""
        now = self._steady()
        with self._lock:
            return tuple(partition for partition in take if now < self._wants.get(partition, 0.0))

    def offered_claims(self, room: int) -> list[Claim]:
        """Up to `room` claims of what is wanted. What is tried and does not succeed is scouted again."""
        with self._lock:
            if self.draining or "claim" in self.shed_duties():
                self._offered.clear()
            return list(self._offered.values())[: max(0, room)]

    def withdraw_claims(self, claims: Collection[Claim]) -> None:
        """These are under way."""
        with self._lock:
            for claim in claims:
                self._offered.pop(claim.partition, None)

    def mark_held(self, claims: Collection[Claim]) -> None:
        """These are no longer wanted: they are held."""
        with self._lock:
            for claim in claims:
                self._wants.pop(claim.partition, None)

    def clear(self) -> None:
        """The incarnation is over: so is what was ordered and found for it."""
        with self._lock:
            self._wants, self._offered, self._expected, self._orders, self._ready = {}, {}, {}, None, []
