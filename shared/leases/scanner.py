"""The keeper's second thread: looks at the other servers, fences the silent, plans, gives orders, and finds what can be claimed.

Everything here may be late, or left out, at no risk: safety is in the conditions of the writes.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection
from typing import Protocol

from ..clock import Millis
from ..errors import StorageError
from ..storage.names import FLEETS
from ..storage.ports import Row
from . import rules
from .driver import Driver
from .planner import Member, Plan, plan
from .protocol import takeover
from .protocol.effects import Get, Load, Steps
from .rows import FLEET, INTENTS, PARTITIONS, SERVERS, Fleet, Intents, Partition, Server, in_force, parse_fleet, parse_intent
from .rows import parse_partition as parse_partition_row
from .rows import parse_server as parse_server_row
from .rules import Claim, Session, Sight
from .stamps import Profile

log = logging.getLogger(__name__)

POLL = 0.25
"""Seconds between looks at partitions that are about to be handed over. While nothing is wanted, none is looked at."""
PLAN_EVERY = 12
"""Beats after which a scanner plans even if nothing seems to have changed."""
MINUTE = 60.0


class Seat(Protocol):
    """What the scanner needs of its keeper."""

    def session(self) -> Session | None:
        """The incarnation in force, None while there is none."""

    def wants(self) -> list[int]:
        """Partitions to be claimed, once they can be."""

    def offer(self, claims: Collection[Claim]) -> None:
        """These can be claimed now."""

    def orders(self, take: Collection[int], drop: Collection[int]) -> None:
        """The plan for this server itself."""

    def shed(self) -> frozenset[rules.Duty]:
        """What storage is too slow for."""


class Facts:
    """All rows of a fleet at about one time: partitions were read before servers."""

    def __init__(self, fleet: Fleet, intents: Intents, partitions: dict[int, Partition], servers: dict[str, Server]) -> None:
        self.fleet, self.intents, self.partitions, self.servers = fleet, intents, partitions, servers

    @property
    def members(self) -> list[Member]:
        """The servers that are not dead."""
        return [
            Member(server.name, server.capacity, server.load, server.state == "draining")
            for server in self.servers.values()
            if server.state != "dead"
        ]

    def has(self, server: str, partition: int) -> bool:
        """Whether the server's incarnation of now has the partition."""
        found, row = self.partitions.get(partition), self.servers.get(server)
        return found is not None and row is not None and found.owner == server and not rules.ended(found.incarnation, row)

    def plan(self, budget: int) -> Plan:
        """What the planner makes of it."""
        owners = {number: partition.owner for number, partition in self.partitions.items() if partition.owner}
        epochs = {number: partition.epoch for number, partition in self.partitions.items()}
        return plan(self.fleet.partitions, owners, self.members, self.intents, most=self.fleet.most, budget=budget, epochs=epochs)

    def orders(self, found: Plan, server: str) -> tuple[list[int], list[int]]:
        """What the server must take, and what it must drop, to get from here to the plan. A bumped partition is in both."""
        bumped = {move.partition for move in found.moves if move.reason == "bump"}
        mine = {number for number, target in found.target.items() if target == server}
        has = {number for number in self.partitions if self.has(server, number)}
        return sorted((mine - has) | (mine & bumped)), sorted((has - mine) | (has & bumped))


def read_facts(key: str, now: Millis) -> Steps[Facts | None]:
    """Read the whole fleet, partitions before servers. None when there is no such fleet."""
    rows: list[Row] = yield Load(FLEETS, key, FLEET, PARTITIONS[1])
    servers: list[Row] = yield Load(FLEETS, key, *SERVERS)
    fleet = next((row for row in rows if row.rk == FLEET), None)
    if fleet is None:
        return None
    intents = [parse_intent(row.props) for row in rows if INTENTS[0] <= row.rk < INTENTS[1]]
    partitions = [parse_partition_row(row) for row in rows if PARTITIONS[0] <= row.rk < PARTITIONS[1]]
    return Facts(
        parse_fleet(fleet.props),
        in_force(intents, now),
        {partition.number: partition for partition in partitions},
        {server.name: server for server in map(parse_server_row, servers)},
    )


class Scanner:
    """The thread's body. `counts` tells what it did; the keeper may read it at any time."""

    def __init__(
        self,
        key: str,
        server: str,
        profile: Profile,
        seat: Seat,
        driver: Driver,
        steady: Callable[[], float],
        wall: Callable[[], Millis],
        chance: Callable[[], float],
    ) -> None:
        self._key, self._server, self._profile = key, server, profile
        self._seat, self._driver, self._steady, self._wall, self._chance = seat, driver, steady, wall, chance
        self._sights: dict[str, Sight] = {}
        self._known: frozenset[tuple[str, str, str]] | None = None
        self._due = True
        self._next_fence = steady()
        self._seen_changes = -1
        self._next_scan = steady()
        self._next_plan = steady()
        self._next_poll = steady()
        self._ordered: dict[tuple[int, str], float] = {}
        self._wake = threading.Event()
        self._stopped = False
        self.counts: Counter[str] = Counter()
        self.alone = False
        """No other server is there to take what this one gives up."""

    def poke(self) -> None:
        """There is something to claim, or to plan: look at once."""
        self._next_poll = self._steady()
        self._wake.set()

    def stop(self) -> None:
        """End after what is under way."""
        self._stopped = True
        self._wake.set()

    def run(self) -> None:
        """Look, fence, plan, scout until stopped."""
        while not self._stopped:
            try:
                self._step()
            except StorageError as error:
                self.counts["failed"] += 1
                log.debug("A look at the fleet failed: %s", error, extra={"action": "lease_scan_failed"})
                now = self._steady()
                self._next_scan = max(self._next_scan, now + self._profile.beat * (0.25 + 0.25 * self._chance()))
                self._next_poll = max(self._next_poll, now + POLL * 4)
            except Exception:
                # The thread must go on: what failed is tried again at the next round.
                log.exception("The lease scanner failed", extra={"action": "lease_scanner_failed"})
                self._next_scan = self._steady() + self._profile.beat
                self._next_poll = self._next_scan
            self._wake.wait(max(0.0, self._next_step() - self._steady()))
            self._wake.clear()

    def _next_step(self) -> float:
        steps = [self._next_scan]
        if self._seat.wants():
            steps.append(self._next_poll)
        # A row that stays unchanged is read again when it is ripe, not at the next round.
        ripe = [sight.first.ripens(self._profile.takeover) for name, sight in self._sights.items() if name != self._server]
        steps += [max(self._next_fence, min(ripe))] if ripe else []
        return min(steps) if "scan" not in self._seat.shed() else self._next_scan

    def _step(self) -> None:
        session, now, shed = self._seat.session(), self._steady(), self._seat.shed()
        if session is None:
            self._next_scan = max(self._next_scan, now + self._profile.beat / 8)
            return
        wants = self._seat.wants()
        if wants and now >= self._next_poll:
            self._next_poll = now + min(POLL, self._profile.beat / 4) * max(1, len(wants) // takeover.FEW)
            if "claim" not in shed and (claims := self._driver.drive(takeover.scout(session, wants))):
                self._seat.offer(claims)
        if "scan" in shed:
            self._next_scan = max(self._next_scan, now + self._profile.beat / 2)
            return
        self._fence(now)
        if now >= self._next_scan:
            self._look(now)

    def _fence(self, now: float) -> None:
        """Fence who has been silent for T; then it is time to look, and to plan."""
        if now < self._next_fence:
            return
        for name, sight in sorted(self._sights.items()):
            if name != self._server and now >= sight.first.ripens(self._profile.takeover):
                found = self._driver.drive(takeover.fence(self._key, name, self._sights, self._profile.takeover))
                if found == "fenced":
                    self.counts["fenced"] += 1
                    log.warning("Server %s has been silent for too long and is fenced", name, extra={"action": "lease_fenced"})
                if found == "lives":
                    self._next_fence = now + self._profile.beat / 4
                else:
                    self._next_scan = now

    def _look(self, now: float) -> None:
        self.counts["scans"] += 1
        rows = self._driver.drive(takeover.look(self._key, self._sights))
        servers = [parse_server_row(row) for row in rows]
        living = [server.name for server in servers if server.state != "dead"]
        every = rules.scan_every(self._server, living, self._profile)
        # Jitter, so that scanners do not look at the same moment.
        self._next_scan = now + every * (0.9 + 0.2 * self._chance())
        known = frozenset((server.name, server.incarnation, server.state) for server in servers)
        looks = every <= self._profile.beat
        self._due = self._due or known != self._known or (looks and now >= self._next_plan) or self._changes()
        self._known = known
        if self._due:
            self._plan(now)

    def _changes(self) -> bool:
        """Whether operators have changed something."""
        facts = self._driver.drive(read_fleet(self._key))
        return facts is not None and facts.changes != self._seen_changes

    def _plan(self, now: float) -> None:
        if "balance" in self._seat.shed():
            return
        self._next_plan = now + PLAN_EVERY * self._profile.beat
        facts = self._driver.drive(read_facts(self._key, self._wall()))
        if facts is None:
            return
        self.counts["plans"] += 1
        self._due = False
        self._seen_changes = facts.fleet.changes
        found = facts.plan(self._budget(facts, now))
        ready = [member.name for member in facts.members if not member.draining and member.name not in facts.intents.drained]
        self.alone = not [name for name in ready if name != self._server]
        for move in found.moves:
            if move.reason in ("balance", "over capacity"):
                self._ordered.setdefault((move.partition, move.target), now)
        self._seat.orders(*facts.orders(found, self._server))
        for member in facts.members:
            if member.name != self._server:
                take, drop = facts.orders(found, member.name)
                if not self._driver.drive(takeover.order(self._key, member.name, take, drop)):
                    self.counts["orders_refused"] += 1
                    # It beat in between: plan again soon, from what is there then.
                    self._due = True
                    self._next_scan = min(self._next_scan, now + self._profile.beat / 4)

    def _budget(self, facts: Facts, now: float) -> int:
        """Moves that may still be ordered: the limit less those of the last minute that are done; those under way are planned anew."""
        self._ordered = {move: at for move, at in self._ordered.items() if now - at < MINUTE}
        done = sum(facts.has(target, partition) for partition, target in self._ordered)
        return max(0, facts.fleet.limits.moves_per_minute - done)


def read_fleet(key: str) -> Steps[Fleet | None]:
    row: Row | None = yield Get(FLEETS, key, FLEET)
    return parse_fleet(row.props) if row is not None else None
