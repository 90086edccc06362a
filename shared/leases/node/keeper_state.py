"""State that a keeper's two loops, its application and its callbacks share.

Each of them may run on its own thread. One lock guards what several of them change; no thread waits while it holds the lock.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from ...core.pressure import StoragePressure
from .. import rules, scan_rules
from ..rows import MAX_ORDERS, Expected, Fleet, event_fields
from ..rules import Claim, HandOff, ServerSession
from .published_loads import PublishedLoads

_NEVER: Final = float("inf")


class PartitionOrders(NamedTuple):
    """Partitions to claim, to hand off, and to claim once their servers are fenced."""

    take: tuple[int, ...] = ()
    drop: tuple[int, ...] = ()
    expect: Expected = ()


class KeeperState:
    """The shared state of one keeper. `wake_beats` and `wake_scans` end the waits of the loops; the runner of the loops sets them.

    fleet: as last read; without partitions before that. session: the incarnation in force. alone: no other server can take this server's
    partitions. failures: failed heartbeats in a row. plan_requested: this server's state has changed, so a plan is needed. draining:
    nothing may be claimed. stopping: nothing may be started. keeping: the partitions stay this server's after the stop.
    """

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        # A signal handler may run on the same thread in between and call in here.
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
        self.loads = PublishedLoads(steady)
        self.session: ServerSession | None = None
        self.fleet = Fleet(0)
        self.failures = 0
        self.alone = False
        self.plan_requested = False
        self._given: dict[int, float] = {}
        self._quarantine = -_NEVER
        self.lost_epochs: dict[int, int] = {}
        """Epochs under which this server acted before a rollback of the storage service, and that the stored rows may not show."""
        self._pressure = StoragePressure()
        self._drained = self._stopped = _NEVER
        self.stopping = self.keeping = False
        self.ended = False
        self.maintenance: tuple[str, ...] | None = None
        """The Scheduled Events for which partitions leave this server; None without maintenance."""

    def about(self) -> dict[str, str]:
        """Return the fields of a log line that name the maintenance of this server."""
        return event_fields(self.maintenance or ())

    # -- from the application and its callbacks

    def drain(self, on: bool) -> None:
        """Begin or end a drain. Repeating it changes nothing, and a stop cannot be revoked."""
        if on != (self._drained != _NEVER):
            # The scan loop must find out again which other servers are available.
            self.alone = self.alone and not on
            self._drained = self._steady() if on else _NEVER
        self.wake_beats()

    @property
    def draining(self) -> bool:
        """Return True if all partitions must be handed off."""
        return self.drained_since != _NEVER

    @property
    def drained_since(self) -> float:
        """The start of the drain or stop in steady seconds; infinity if there is none."""
        return self._stopped if self.stopping else self._drained

    def stop(self, *, keep: bool = False) -> None:
        """Hand off all partitions, and leave. keep: stop serving and leave, but keep the partitions for the next incarnation."""
        if not self.stopping:
            self.keeping = keep
            self._stopped, self.alone = self._steady(), False
            self.stopping = True
        self.wake_beats()

    def drop(self, partition: int) -> None:
        """Record that the application drops the partition."""
        with self._lock:
            self._dropped.append(partition)
        self.wake_beats()

    def finish_hand_off(self, partition: int, hand_off: HandOff) -> None:
        """Record that the application has ended its work under this hand-off."""
        with self._lock:
            self._ready.append((partition, hand_off))
        self.wake_beats()

    # -- for the scan loop

    def current_session(self) -> ServerSession | None:
        """Return the incarnation in force; None if there is none."""
        session = self.session
        return session if session is not None and not session.fenced else None

    def wanted_partitions(self) -> list[int]:
        """Return the partitions to claim as soon as that is possible."""
        now = self._steady()
        with self._lock:
            idle = self.draining or self.quarantined
            return [] if idle else sorted(p for p, until in self._wants.items() if now < until and p not in self._offered)

    def offer_claims(self, claims: Collection[Claim]) -> None:
        """Offer claims that are possible now."""
        with self._lock:
            self._offered |= {claim.partition: claim for claim in claims}
        self.wake_beats()

    def set_plan(self, take: Collection[int], drop: Collection[int]) -> None:
        """Set the plan for this server."""
        with self._lock:
            self._orders = PartitionOrders(tuple(take)[:MAX_ORDERS], tuple(drop)[:MAX_ORDERS])
        self.wake_beats()

    def expected_servers(self) -> list[str]:
        """Return the servers that are expected to end."""
        now = self._steady()
        with self._lock:
            idle = self.draining or self.quarantined
            return [] if idle else sorted(server for server, (_, until) in self._expected.items() if now < until)

    def inherit_partitions(self, server: str, seconds: float) -> None:
        """Want a server's standby partitions for `seconds`, after it has ended."""
        until = self._steady() + seconds
        with self._lock:
            partitions, _ = self._expected.pop(server, ((), 0.0))
            held = self.session.held if self.session is not None else ()
            self._wants |= {partition: until for partition in partitions if partition not in held}

    def forget_server(self, server: str) -> None:
        """Forget the standby partitions of a server."""
        with self._lock:
            self._expected.pop(server, None)

    def update_fleet(self, fleet: Fleet) -> None:
        """Set the fleet, except the profile: the running loops began under the former durations."""
        self.fleet = replace(fleet, profile=self.fleet.profile)

    def shed_duties(self) -> frozenset[scan_rules.ScanDuty]:
        """Return the duties to skip while storage is slow."""
        return scan_rules.duties_to_skip(self.failures)

    def record_request(self, refused: bool) -> None:
        """Count a request to storage, and whether storage refused it or did not answer."""
        with self._lock:
            self._pressure = self._pressure.observe(refused, self._steady(), scan_rules.pressure_memory(self.fleet.profile))

    @property
    def stretch(self) -> float:
        """The factor on the intervals of scans and plans while storage refuses requests; 1 while it does not."""
        return self._pressure.factor(self._steady(), scan_rules.pressure_memory(self.fleet.profile))

    @property
    def refused(self) -> int:
        """The percentage of requests that storage refuses, while these are so many that scans are stretched; else 0."""
        share = self._pressure.share(self._steady(), scan_rules.pressure_memory(self.fleet.profile))
        return round(100 * share) if self.stretch > 1 else 0

    def released_partitions(self) -> dict[int, float]:
        """Return released partitions, and when (steady seconds) to check that a successor has claimed them."""
        with self._lock:
            return dict(self._given)

    def mark_checked(self, partition: int) -> None:
        """Record that a released partition was checked."""
        with self._lock:
            self._given.pop(partition, None)

    # -- for the heartbeat loop

    def watch_released(self, partitions: Collection[int], look: float) -> None:
        """Check these released partitions at `look` (steady seconds)."""
        if partitions:
            with self._lock:
                self._given |= dict.fromkeys(partitions, look)
            self.wake_scans()

    def request_plan(self) -> None:
        """Make the scan loop plan at once."""
        self.plan_requested = True
        self.wake_scans()

    def take_plan(self) -> PartitionOrders | None:
        """Return the plan for this server, once."""
        with self._lock:
            found, self._orders = self._orders, None
        return found

    def take_finished_hand_offs(self) -> list[tuple[int, HandOff]]:
        """Return the hand-offs that the application has finished, once."""
        with self._lock:
            found, self._ready = self._ready, []
        return found

    def take_dropped(self) -> list[int]:
        """Return the partitions that the application dropped, once."""
        with self._lock:
            found, self._dropped = self._dropped, []
        return found

    def set_wanted(self, take: Collection[int], until: float) -> None:
        """Replace the wanted partitions. They are forgotten at the deadline `until` (steady seconds), and the next plan decides."""
        with self._lock:
            self._wants = dict.fromkeys(take, until)
            self._offered = {partition: claim for partition, claim in self._offered.items() if partition in self._wants}
        if take:
            self.wake_scans()

    def set_expected(self, expected: Expected, until: float) -> None:
        """Replace the standby partitions. They are forgotten at the deadline `until` (steady seconds)."""
        with self._lock:
            self._expected = {server: (partitions, until) for server, partitions in expected}
        if expected:
            self.wake_scans()

    def still_expected(self, expected: Expected) -> Expected:
        """Return the entries of `expected` that are still in force."""
        standing = set(self.expected_servers())
        return tuple((server, partitions) for server, partitions in expected if server in standing)

    def still_wanted(self, take: Collection[int]) -> tuple[int, ...]:
        """Return the partitions of `take` that are still wanted."""
        now = self._steady()
        with self._lock:
            return tuple(partition for partition in take if now < self._wants.get(partition, 0.0))

    def offered_claims(self, room: int) -> list[Claim]:
        """Return up to `room` claims of wanted partitions. The scan loop looks again for claims that fail."""
        with self._lock:
            if self.draining or self.quarantined or "claim" in self.shed_duties():
                self._offered.clear()
            return list(self._offered.values())[: max(0, room)]

    def withdraw_claims(self, claims: Collection[Claim]) -> None:
        """Remove claims that are being sent."""
        with self._lock:
            for claim in claims:
                self._offered.pop(claim.partition, None)

    def mark_held(self, claims: Collection[Claim]) -> None:
        """Remove claimed partitions from the wanted ones."""
        with self._lock:
            for claim in claims:
                self._wants.pop(claim.partition, None)

    def record_rollback(self, epochs: Mapping[int, int]) -> None:
        """Record that the storage service has lost acknowledged writes. Nothing is claimed until other servers have noticed it too.

        epochs: of all partitions of the ended incarnation.
        """
        with self._lock:
            self._quarantine = rules.quarantine_end(self._steady(), self.fleet.profile)
            higher = {number: epoch for number, epoch in epochs.items() if epoch > self.lost_epochs.get(number, 0)}
            self.lost_epochs = self.lost_epochs | higher

    @property
    def quarantined(self) -> bool:
        """Return True if nothing may be claimed because the storage service has lost writes."""
        return self._steady() < self._quarantine

    def mark_raised(self, epochs: Mapping[int, int]) -> None:
        """Record that the stored epochs of these partitions are at least as high."""
        with self._lock:
            self.lost_epochs = {number: epoch for number, epoch in self.lost_epochs.items() if epoch > epochs.get(number, -1)}

    def clear(self) -> None:
        """Forget all orders and claims: the incarnation has ended."""
        with self._lock:
            self._wants, self._offered, self._expected, self._orders, self._ready = {}, {}, {}, None, []
