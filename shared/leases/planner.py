"""Which server should have which partition: a pure, deterministic decision that moves as little as it can.

Every server gets an equal share, as far as its capacity allows: shares differ by at most one. A partition stays where it is unless its
server is gone, draining or prohibited, or has more than its share. What must be placed goes to the server with the highest rendezvous
score (a hash of partition and server, weighted by capacity) that has room: so any two planners agree, and the same partition prefers the
same servers always. Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates" (1998), bounded as in Mirrokni et
al. (2018).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from .rows import ActiveIntents

HOT: Final = 1.25
"""A server whose load is over this times the mean is hot: where shares differ by one, it gets the smaller."""


@dataclass(frozen=True, slots=True)
class Member:
    """A living server. capacity: 0 for no bound of its own. draining: it keeps what it has until others have been told to take it."""

    name: str
    capacity: int = 0
    load: float = 0.0
    draining: bool = False


type MoveReason = Literal["unowned", "owner gone", "draining", "prohibited", "pinned", "over capacity", "balance", "offline", "bump"]


class PartitionMove(NamedTuple):
    """One change. source '' when nobody has the partition, target '' when nobody is to have it."""

    partition: int
    source: str
    target: str
    reason: MoveReason


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """target: the server each partition should have ('' for none). moves: what differs from now, by partition. unplaced: why not, by
    partition."""

    target: dict[int, str]
    moves: tuple[PartitionMove, ...]
    unplaced: dict[int, str] = field(default_factory=dict)


def score(partition: int, server: str, weight: float) -> float:
    """Weighted rendezvous: the server with the highest score wins the partition with a chance proportional to its weight."""
    digest = hashlib.blake2b(f"{partition}:{server}".encode(), digest_size=8).digest()
    # In (0, 1): never 0, whose logarithm is none.
    unit = (int.from_bytes(digest) + 0.5) / 2**64
    return -weight / math.log(unit)


def plan(
    partitions: int,
    owners: Mapping[int, str],
    members: Iterable[Member],
    intents: ActiveIntents,
    *,
    most: int,
    budget: int,
    epochs: Mapping[int, int] | None = None,
) -> PartitionPlan:
    """Decide. owners: who has which partition now, gone servers included. most: partitions one server may have. budget: voluntary moves,
    which only balance, at most. epochs: of the partitions, for bumps.

    A partition whose server must give it up, or is gone, moves whatever the budget.
    """
    return _Planner(partitions, owners, sorted(members, key=lambda member: member.name), intents, most, budget, epochs or {}).run()


class _Planner:
    def __init__(
        self,
        partitions: int,
        owners: Mapping[int, str],
        members: Sequence[Member],
        intents: ActiveIntents,
        most: int,
        budget: int,
        epochs: Mapping[int, int],
    ) -> None:
        self.intents, self.budget, self.owners, self.epochs = intents, budget, owners, epochs
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

    def allowed(self, partition: int, server: str) -> bool:
        return server not in self.forbidden.get(partition, ())

    def fits(self, partition: int) -> list[str]:
        """Servers that may have the partition: its pin's, when that one may, else all that are not prohibited."""
        pin = self.pins.get(partition)
        if pin in self.has and self.allowed(partition, pin):
            return [pin]
        forbidden = self.forbidden.get(partition, ())
        return [name for name in self.names if name not in forbidden]

    def among(self, partition: int, servers: set[str]) -> set[str]:
        """Those of `servers`, open ones, that `fits` names."""
        pin = self.pins.get(partition)
        if pin in self.has and self.allowed(partition, pin):
            return servers & {pin}
        return servers - self.forbidden.get(partition, set())

    def may(self, partition: int, server: str) -> bool:
        """Whether the server, an open one, is one of those that `fits` names."""
        pin = self.pins.get(partition)
        return server == pin if pin in self.has and self.allowed(partition, pin) else self.allowed(partition, server)

    def put(self, partition: int, server: str) -> None:
        self.placed[partition] = server
        self.has[server].add(partition)

    def take(self, partition: int) -> None:
        self.has[self.placed.pop(partition)].discard(partition)

    def prefer(self, partition: int, servers: Iterable[str]) -> list[str]:
        return sorted(servers, key=lambda name: (-score(partition, name, self.weight[name]), name))

    def run(self) -> PartitionPlan:
        self._pin()
        for number in self.online:
            owner = self.owners.get(number, "")
            if number not in self.placed and owner in self.has and self.may(number, owner):
                self.put(number, owner)
        self._shares()
        self._shed()
        unplaced: dict[int, str] = {}
        for number in self.online:
            if number not in self.placed and not self._place(number):
                unplaced[number] = "no server" if not self.names else "prohibited" if not self.fits(number) else "no capacity"
        self._level()
        self._spend()
        return self._result(unplaced)

    def _pin(self) -> None:
        for number in self.online:
            pin = self.pins.get(number)
            if pin in self.has and self.allowed(number, pin) and len(self.has[pin]) < self.cap[pin]:
                self.put(number, pin)

    def _shares(self) -> None:
        """Water-filling under the capacities; what does not divide goes to those that have the most now, hot ones last."""
        loads = [member.load for member in self.open]
        mean = sum(loads) / len(loads) if loads else 0.0
        hot = {member.name for member in self.open if mean > 0 and member.load > HOT * mean}
        left, waiting = len(self.online), set(self.names)
        self.share = dict.fromkeys(self.names, 0)
        while left and waiting:
            each = left // len(waiting)
            tight = {name for name in waiting if self.cap[name] <= each}
            if not tight:
                order = sorted(waiting, key=lambda name: (name in hot, -len(self.has[name]), name))
                extra = left - each * len(waiting)
                for place, name in enumerate(order):
                    self.share[name] = each + (place < extra)
                break
            for name in tight:
                self.share[name] = self.cap[name]
                left -= self.cap[name]
            waiting -= tight

    def _shed(self) -> None:
        """Servers over their share give up what scores lowest with them; pinned partitions stay."""
        for name in self.names:
            over = len(self.has[name]) - self.share[name]
            if over > 0:
                movable = [number for number in self.has[name] if self.pins.get(number) != name]
                movable.sort(key=lambda number: (score(number, name, 1.0), number))
                for number in movable[:over]:
                    self.take(number)

    def _place(self, partition: int) -> bool:
        """Where there is room within the share; else by moving others along (a shortest augmenting path); else up to the capacity."""
        fits = self.fits(partition)
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

    def _augment(self, partition: int, bound: Mapping[str, int], shut: set[str]) -> bool:
        """Place `partition` by passing partitions on from server to server until one has room within `bound`. Each server is passed
        once. shut: servers that are full, and whose partitions fit nowhere but there; what is found is added. They stay so: what comes in
        fits nowhere else either. So it is not found out anew for each of thousands of partitions."""
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
        """Where prohibitions or pins made shares unreachable, even out what is left: a move from the fullest to one with two fewer."""
        while True:
            for source in sorted(self.names, key=lambda name: (-len(self.has[name]), name)):
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
        """Whether the present owner could as well keep the partition."""
        owner = self.owners.get(partition, "")
        return owner in self.has and self.may(partition, owner)

    def _spend(self) -> None:
        """Put off the voluntary moves beyond the budget: their partitions stay where they are, for now, if there is room for them there."""
        moved = [p for p in self.online if p in self.placed and self.placed[p] != self.owners.get(p, "") and self._voluntary(p)]
        # The fullest servers are relieved first.
        moved.sort(key=lambda number: (-self.had[self.owners[number]], number))
        for number in moved[self.budget :]:
            if len(self.has[self.owners[number]]) < self.cap[self.owners[number]]:
                self.take(number)
                self.put(number, self.owners[number])

    def _result(self, unplaced: dict[int, str]) -> PartitionPlan:
        target: dict[int, str] = dict.fromkeys(self.offline, "")
        moves: list[PartitionMove] = [
            PartitionMove(p, self.owners[p], "", "offline") for p in self.offline if self.owners.get(p, "") in self.present
        ]
        bumped = {p for p, epoch in self.intents.bumps if self.epochs.get(p) == epoch}
        for number in self.online:
            server, owner = self.placed.get(number, ""), self.owners.get(number, "")
            # Nobody can take it: a living owner that may keep it does so rather than leave it alone.
            if not server and owner in self.present and self.allowed(number, owner) and owner not in self.has:
                server = owner
            target[number] = server
            if server != owner and (server or owner in self.present):
                moves.append(PartitionMove(number, owner, server, self._reason(number)))
            elif server and number in bumped:
                moves.append(PartitionMove(number, owner, server, "bump"))
        return PartitionPlan(target, tuple(sorted(moves)), unplaced)

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
        return "over capacity" if self.had[owner] > self.cap[owner] else "balance"
