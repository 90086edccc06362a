"""Plan the server of each partition: a pure, deterministic decision that moves as little as possible.

All servers get equal shares within their capacities: shares differ by at most one. If servers publish the loads of their partitions, load
is balanced instead (`balance`). A partition stays where it is unless its server is gone, draining or prohibited, or has more than its
share. A partition that must be placed goes to the server with room and the highest rendezvous score (a hash of partition and server,
weighted by capacity), so that all planners agree, and a partition always prefers the same servers.
Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates" (1998), bounded as in Mirrokni et al. (2018).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from .balance import STOP, LoadBalancer, Step, bound, fair_mean
from .loads import FleetLoads
from .rows import ActiveIntents

HOT: Final = 1.25
"""A server with more than this times the mean load is hot: if shares differ by one, it gets the smaller one."""


@dataclass(frozen=True, slots=True)
class Member:
    """A living server. capacity: 0 for no limit of its own. draining: keeps its partitions until other servers are ordered to take them.
    coming: number of partitions that it is ordered to take and does not own yet."""

    name: str
    capacity: int = 0
    load: float = 0.0
    draining: bool = False
    coming: int = 0


type MoveReason = Literal[
    "unowned", "owner gone", "draining", "prohibited", "pinned", "over capacity", "balance", "load", "offline", "bump"
]


type DiversionReason = Literal["gone", "drained", "prohibited", "full"]
"""The reason why a partition cannot go to its drain's destination: that server is gone, drained, prohibited from owning it, or full."""


class PartitionMove(NamedTuple):
    """One change. source: '' if the partition has no owner. target: '' if it must have none."""

    partition: int
    source: str
    target: str
    reason: MoveReason


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """A plan. target: server of each partition, '' for none. moves: differences from now, by partition. unplaced: reasons, by partition.
    diverted: partitions of a drained server that do not go to its destination, with the reason."""

    target: dict[int, str]
    moves: tuple[PartitionMove, ...]
    unplaced: dict[int, str] = field(default_factory=dict)
    diverted: dict[int, DiversionReason] = field(default_factory=dict)


def score(partition: int, server: str, weight: float) -> float:
    """Return the weighted rendezvous score. The highest score wins, with a chance in proportion to the weight."""
    digest = hashlib.blake2b(f"{partition}:{server}".encode(), digest_size=8).digest()
    # The value is in (0, 1): the logarithm of 0 does not exist.
    unit = (int.from_bytes(digest) + 0.5) / 2**64
    return -weight / math.log(unit)


class FleetToPlan(NamedTuple):
    """The fleet as the planner sees it. partitions: their number. owners: current owners, including servers that are gone. epochs: of the
    partitions, for bumps. loads: what is known about load; None for equal shares."""

    partitions: int
    owners: Mapping[int, str]
    members: Sequence[Member]
    intents: ActiveIntents
    epochs: Mapping[int, int] = MappingProxyType({})
    loads: FleetLoads | None = None


def plan(fleet: FleetToPlan, *, most: int, budget: int) -> PartitionPlan:
    """Return the plan.

    most: maximum partitions of one server. budget: maximum voluntary moves, which only balance. A partition whose server is gone or must
    give it up moves whatever the budget is.

    `most` limits what a server is given. A server that drains keeps partitions that no other server can take, also more than `most`: a
    partition with too full an owner is better than a partition without one.

    The partitions of a server that is drained to a destination go there, as far as it may own them and has room; the others are placed like
    those of any drained server. While that drain is in force, its destination gives up nothing for balance.
    """
    return _Planner(fleet._replace(members=sorted(fleet.members, key=lambda member: member.name)), most, budget).run()


class _Planner:
    def __init__(self, fleet: FleetToPlan, most: int, budget: int) -> None:
        partitions, owners, members, intents, epochs, loads = fleet
        self.intents, self.budget, self.owners, self.epochs, self.loads = intents, budget, owners, epochs, loads
        self.had = Counter(owners.values())
        self.present = {member.name for member in members}
        self.open = [m for m in members if not m.draining and m.name not in intents.drained]
        self.names = [member.name for member in self.open]
        self.cap = {m.name: min(most, m.capacity) if m.capacity else most for m in self.open}
        self.weight = {m.name: float(m.capacity or most) for m in self.open}
        self.online = [number for number in range(partitions) if number not in intents.offline]
        self.offline = sorted(number for number in intents.offline if number < partitions)
        self.pins = dict(intents.pins)
        self.placed: dict[int, str] = {}
        self.has: dict[str, set[int]] = {name: set() for name in self.names}
        self.share: dict[str, int] = {}
        self.forbidden: dict[int, set[str]] = {}
        for number, name in intents.prohibited:
            self.forbidden.setdefault(number, set()).add(name)
        self.shut: tuple[set[str], set[str]] = set(), set()
        self.destinations = dict(intents.destinations)
        self.steady = set(self.destinations.values())
        self.diverted: dict[int, DiversionReason] = {}
        self.load = dict.fromkeys(self.names, 0.0)
        self.mean = fair_mean((loads.weights[number] for number in self.online), len(self.names)) if loads is not None else 0.0
        self.relieved: set[int] = set()

    def allowed(self, partition: int, server: str) -> bool:
        return server not in self.forbidden.get(partition, ())

    def fits(self, partition: int) -> list[str]:
        """Return the servers that may own the partition: the server of its pin if that one may, else all that are not prohibited."""
        pin = self.pins.get(partition)
        if pin in self.has and self.allowed(partition, pin):
            return [pin]
        forbidden = self.forbidden.get(partition, ())
        return [name for name in self.names if name not in forbidden]

    def among(self, partition: int, servers: set[str]) -> set[str]:
        """Return those of the open `servers` that `fits` names."""
        pin = self.pins.get(partition)
        if pin in self.has and self.allowed(partition, pin):
            return servers & {pin}
        return servers - self.forbidden.get(partition, set())

    def may(self, partition: int, server: str) -> bool:
        """Return True if `fits` names the open server."""
        pin = self.pins.get(partition)
        return server == pin if pin in self.has and self.allowed(partition, pin) else self.allowed(partition, server)

    def put(self, partition: int, server: str) -> None:
        self.placed[partition] = server
        self.has[server].add(partition)
        if self.loads is not None:
            self.load[server] += self.loads.weights[partition]

    def take(self, partition: int) -> None:
        server = self.placed.pop(partition)
        self.has[server].discard(partition)
        if self.loads is not None:
            self.load[server] -= self.loads.weights[partition]

    def prefer(self, partition: int, servers: Iterable[str]) -> list[str]:
        return sorted(servers, key=lambda name: (-score(partition, name, self.weight[name]), name))

    def run(self) -> PartitionPlan:
        self._pin()
        for number in self.online:
            owner = self.owners.get(number, "")
            if number not in self.placed and owner in self.has and self.may(number, owner):
                self.put(number, owner)
        self._follow_drains()
        self._shares()
        self._shed()
        unplaced: dict[int, str] = {}
        weights = self.loads.weights if self.loads is not None else {}
        for number in sorted(self.online, key=lambda number: -weights.get(number, 0.0)):
            if number not in self.placed and not self._place(number):
                unplaced[number] = "no server" if not self.names else "prohibited" if not self.fits(number) else "no capacity"
        if self.loads is None:
            self._level()
        spent = self._spend()
        if self.loads is not None:
            self._balance(self.loads, self.budget - spent)
        return self._result(unplaced)

    def _pin(self) -> None:
        for number in self.online:
            pin = self.pins.get(number)
            if pin in self.has and self.allowed(number, pin) and len(self.has[pin]) < self.cap[pin]:
                self.put(number, pin)

    def _follow_drains(self) -> None:
        """Place the partitions of drained servers on the destinations of their drains."""
        for number in self.online if self.destinations else ():
            destination = self.destinations.get(self.owners.get(number, ""))
            if destination is None or number in self.placed:
                continue
            reason = self._diversion(number, destination)
            if reason is None:
                self.put(number, destination)
            else:
                self.diverted[number] = reason

    def _diversion(self, partition: int, destination: str) -> DiversionReason | None:
        """Return why the partition cannot go to the destination; None if it can."""
        if destination not in self.has:
            return "drained" if destination in self.present else "gone"
        if not self.may(partition, destination):
            return "prohibited"
        return "full" if len(self.has[destination]) >= self.cap[destination] else None

    def _shares(self) -> None:
        """Set the shares by water-filling under the capacities. The remainder goes to servers with the most partitions, hot ones last.

        Ordered partitions count, so that two planners agree at any moment of a hand-off. Where load is balanced, capacities alone bound
        the shares.
        """
        if self.loads is not None:
            self.share = dict(self.cap)
            return
        loads = [member.load for member in self.open]
        mean = sum(loads) / len(loads) if loads else 0.0
        coming = {member.name: member.coming for member in self.open}
        hot = {member.name for member in self.open if mean > 0 and member.load > HOT * mean}
        left, waiting = len(self.online), set(self.names)
        self.share = dict.fromkeys(self.names, 0)
        while left and waiting:
            each = left // len(waiting)
            tight = {name for name in waiting if self.cap[name] <= each}
            if not tight:
                order = sorted(waiting, key=lambda name: (name in hot, -len(self.has[name]) - coming[name], name))
                extra = left - each * len(waiting)
                for place, name in enumerate(order):
                    self.share[name] = each + (place < extra)
                break
            for name in tight:
                self.share[name] = self.cap[name]
                left -= self.cap[name]
            waiting -= tight

    def _shed(self) -> None:
        """Take partitions with the lowest scores from servers above their share. Pinned partitions stay, and those of destinations."""
        for name in self.names:
            if name in self.steady and len(self.has[name]) <= self.cap[name]:
                continue
            over = len(self.has[name]) - self.share[name]
            if over > 0:
                movable = [number for number in self.has[name] if self.pins.get(number) != name]
                movable.sort(key=lambda number: (score(number, name, 1.0), number))
                for number in movable[:over]:
                    self.take(number)

    def _place(self, partition: int) -> bool:
        """Place a partition: within a share, else by passing others on (a shortest augmenting path), else within a capacity."""
        fits = self.fits(partition)
        if self.loads is not None:
            return self._place_by_load(partition, fits, self.loads.weights[partition])
        for name in self.prefer(partition, fits):
            if len(self.has[name]) < self.share[name]:
                self.put(partition, name)
                return True
        if self._augment(partition, self.share, self.shut[0]):
            return True
        roomy = [name for name in fits if len(self.has[name]) < self.cap[name]]
        if roomy:
            fewest = min(len(self.has[name]) for name in roomy)
            self.put(partition, self.prefer(partition, (name for name in roomy if len(self.has[name]) == fewest))[0])
            return True
        return self._augment(partition, self.cap, self.shut[1])

    def _place_by_load(self, partition: int, fits: Sequence[str], weight: float) -> bool:
        """Place a partition on the preferred server whose load stays within the bound, else on the one with the least load."""
        room = [name for name in fits if len(self.has[name]) < self.cap[name]]
        within = [name for name in room if self.load[name] + weight <= bound(self.mean, (weight,), STOP)]
        if room:
            self.put(partition, self.prefer(partition, within)[0] if within else min(room, key=lambda name: (self.load[name], name)))
            return True
        return self._augment(partition, self.cap, self.shut[1])

    def _augment(self, partition: int, bound: Mapping[str, int], shut: set[str]) -> bool:
        """Place `partition` by passing partitions on from server to server until one has room within `bound`. Visits each server once.

        shut: full servers with partitions that fit on no other server; results are added, so that the search is not repeated for each of
        thousands of partitions. The servers stay shut: partitions that they receive fit nowhere else either.
        """
        if all(len(self.has[name]) >= bound[name] for name in self.names):
            return False
        came: dict[str, tuple[int, str]] = {}
        queue: deque[str] = deque()
        rest = self.among(partition, set(self.names))
        if rest <= shut:
            return False
        for name in self.prefer(partition, rest):
            came[name] = (partition, "")
            queue.append(name)
        while queue:
            name = queue.popleft()
            if len(self.has[name]) < bound[name]:
                while True:
                    number, before = came[name]
                    if before:
                        self.take(number)
                    self.put(number, name)
                    if not before:
                        return True
                    name = before
            rest = set(self.names) - came.keys()
            for number in sorted(self.has[name]) if rest else ():
                for other in self.prefer(number, self.among(number, rest)):
                    came[other] = (number, name)
                    queue.append(other)
                    rest.discard(other)
        shut.update(came)
        return False

    def _level(self) -> None:
        """Even out where prohibitions or pins make shares unreachable: move from the fullest server to one with two partitions fewer."""
        while True:
            for source in sorted(set(self.names) - self.steady, key=lambda name: (-len(self.has[name]), name)):
                room = {
                    name for name in self.names if len(self.has[name]) + 1 < len(self.has[source]) and len(self.has[name]) < self.cap[name]
                }
                step = next(
                    (
                        (number, self.prefer(number, targets)[0])
                        for number in (sorted(self.has[source]) if room else ())
                        if (targets := self.among(number, room))
                    ),
                    None,
                )
                if step is not None:
                    self.take(step[0])
                    self.put(*step)
                    break
            else:
                return

    def _voluntary(self, partition: int) -> bool:
        """Return True if the current owner could also keep the partition."""
        owner = self.owners.get(partition, "")
        return owner in self.has and self.may(partition, owner)

    def _spend(self) -> int:
        """Postpone voluntary moves beyond the budget: their partitions stay where they are, if there is room. Return how many are left."""
        moved = [p for p in self.online if p in self.placed and self.placed[p] != self.owners.get(p, "") and self._voluntary(p)]
        # Relieve the fullest servers first.
        moved.sort(key=lambda number: (-self.had[self.owners[number]], number))
        for number in moved[self.budget :]:
            if len(self.has[self.owners[number]]) < self.cap[self.owners[number]]:
                self.take(number)
                self.put(number, self.owners[number])
        return min(len(moved), self.budget)

    def _balance(self, loads: FleetLoads, budget: int) -> None:
        """Move partitions for load. Moves that are ordered already come first, as long as they help, so that all planners agree."""

        def free(number: int) -> bool:
            server = self.placed[number]
            pinned = self.pins.get(number) == server or number in loads.resting
            return not pinned and server not in self.steady and self.owners.get(number) == server

        balancer = LoadBalancer(self.has, loads.weights, self.cap, self.may, free)
        ordered = tuple(
            (number, server)
            for number, server in sorted(loads.coming.items())
            if server in self.has and number in self.placed and self.placed[number] != server and free(number) and self.may(number, server)
        )
        steps = [ordered] if ordered and balancer.helps(ordered) else [(each,) for each in ordered]
        left = min(budget, loads.budget)
        for step in steps:
            if balancer.helps(step):
                balancer.apply(step)
                self._carry_out(step)
                left -= len(step)
        while (following := balancer.next_step(left)) is not None:
            balancer.apply(following)
            self._carry_out(following)
            left -= len(following)

    def _carry_out(self, step: Step) -> None:
        for number, _ in step:
            self.take(number)
        for number, server in step:
            self.put(number, server)
            self.relieved.add(number)

    def _result(self, unplaced: dict[int, str]) -> PartitionPlan:
        target: dict[int, str] = dict.fromkeys(self.offline, "")
        moves: list[PartitionMove] = [
            PartitionMove(p, self.owners[p], "", "offline") for p in self.offline if self.owners.get(p, "") in self.present
        ]
        bumped = {p for p, epoch in self.intents.bumps if self.epochs.get(p) == epoch}
        for number in self.online:
            server, owner = self.placed.get(number, ""), self.owners.get(number, "")
            # No server can take it: a living owner that may keep it does so, which is better than no service.
            if not server and owner in self.present and self.allowed(number, owner) and owner not in self.has:
                server = owner
            target[number] = server
            if server != owner and (server or owner in self.present):
                moves.append(PartitionMove(number, owner, server, self._reason(number)))
            elif server and number in bumped:
                moves.append(PartitionMove(number, owner, server, "bump"))
        diverted = {p: reason for p, reason in self.diverted.items() if target[p] != self.destinations[self.owners[p]]}
        return PartitionPlan(target, tuple(sorted(moves)), unplaced, diverted)

    def _reason(self, partition: int) -> MoveReason:
        owner = self.owners.get(partition, "")
        if not owner:
            return "unowned"
        if owner not in self.present:
            return "owner gone"
        if not self.allowed(partition, owner):
            return "prohibited"
        if owner not in self.has:
            return "draining"
        if self.pins.get(partition) == self.placed.get(partition):
            return "pinned"
        if partition in self.relieved:
            return "load"
        return "over capacity" if self.had[owner] > self.cap[owner] else "balance"
