"""Read a fleet's rows at about one time, and turn them into a plan and its orders."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..core.clock import Millis
from ..engine.effects import Steps, get, load
from ..storage.names import FLEETS
from . import generations, rules, unreadable_rows
from .loads import fleet_loads
from .planner import FleetToPlan, Member, PartitionMove, PartitionPlan, plan
from .rows import (
    FLEET,
    PARTITIONS,
    SERVERS,
    ActiveIntents,
    Expected,
    Fleet,
    Partition,
    Server,
    active_intents,
    parse_fleet,
    parse_partition,
    parse_server,
)


class PlannerInput:
    """All rows of a fleet at about one time. The partitions were read before the servers.

    etags: of the servers' rows, if they are known. unreadable: keys of rows that cannot be read. now: wall time.
    """

    def __init__(
        self,
        fleet: Fleet,
        intents: ActiveIntents,
        partitions: dict[int, Partition],
        servers: dict[str, Server],
        etags: Mapping[str, str] | None = None,
        unreadable: Sequence[str] = (),
        now: Millis = 0,
    ) -> None:
        self.fleet, self.intents, self.partitions, self.servers = fleet, intents, partitions, servers
        self.etags, self.unreadable, self.now = etags or {}, tuple(unreadable), now
        self._owned = _grouped({number: row.owner for number, row in partitions.items()})
        self._targets: tuple[PartitionPlan, dict[str, list[int]]] | None = None

    @property
    def members(self) -> list[Member]:
        """Return the servers that are not dead."""
        return [
            Member(server.name, self._capacity(server), server.load, server.state == "draining", self._coming(server))
            for server in self.servers.values()
            if server.state != "dead"
        ]

    def _coming(self, server: Server) -> int:
        """Return how many partitions the server is ordered to take from others."""
        return sum(number in self.partitions and not self.has(server.name, number) for number in server.take)

    def _capacity(self, server: Server) -> int:
        """Return the partitions that the server can own. A server that speaks HTTP can own as many as its row can hold."""
        return server.capacity if server.scans or (server.capacity or self.fleet.most) <= rules.MAX_HELD else rules.MAX_HELD

    def has(self, server: str, partition: int) -> bool:
        """Return True if the server's current incarnation owns the partition."""
        found, row = self.partitions.get(partition), self.servers.get(server)
        return found is not None and row is not None and found.owner == server and not rules.has_ended(found.incarnation, row)

    def plan(self, budget: int, before: Mapping[str, Server] | None = None) -> PartitionPlan:
        """Return the plan. During a resize all partitions are claimed again, and no move counts against the budget.

        before: the servers as they were before the partitions were read. A claim removes its order, so each partition has an order or an
        owner by these rows.
        """
        now = self.fleet.generation
        owners = {number: row.owner for number, row in self.partitions.items() if row.owner and not generations.is_behind(row, now)}
        initial = generations.planned_owners(self.partitions, before or self.servers, self.fleet)
        budget = self.fleet.partitions if self.fleet.former else budget
        epochs = {number: partition.epoch for number, partition in self.partitions.items()}
        prohibited, offline = self.intents.prohibited | self._avoided(), self.intents.offline | self._kept()
        intents = replace(self.intents, prohibited=prohibited, offline=offline)
        loads = fleet_loads(self.fleet, self.partitions, self.servers, self.now)
        members, most = self.members, self.fleet.most
        fleet = FleetToPlan(self.fleet.partitions, owners | initial, members, intents, epochs, loads)
        found = plan(fleet, most=most, budget=budget)
        # These partitions have had no owner yet, so placing them is no move from one server to another.
        moves = [move for move in found.moves if move.partition not in initial]
        moves += [PartitionMove(number, "", server, "unowned") for number in initial if (server := found.target.get(number))]
        return replace(found, moves=tuple(sorted(moves)))

    def _kept(self) -> set[int]:
        """Return the partitions that no server may be ordered to take: their rows, or the rows of their owners, cannot be read."""
        return unreadable_rows.undecidable_partitions(self.unreadable, ((number, row.owner) for number, row in self.partitions.items()))

    def _avoided(self) -> set[tuple[int, str]]:
        """Return the (partition, server) pairs that the server avoids and another server may own."""
        ready = {member.name for member in self.members if not member.draining and member.name not in self.intents.drained}
        avoided = {(number, name) for name in ready for number in self.servers[name].avoid}
        return {(number, name) for number, name in avoided if any(self._may(number, other, avoided) for other in ready)}

    def _may(self, partition: int, server: str, avoided: set[tuple[int, str]]) -> bool:
        return (partition, server) not in avoided and (partition, server) not in self.intents.prohibited

    def orders(self, found: PartitionPlan, server: str) -> tuple[list[int], list[int]]:
        """Return the partitions that the server must take and drop to reach the plan.

        A bumped partition is in both lists, and so may be one that is held under a former generation. A server that speaks HTTP may have
        stopped acting on what it was ordered to release, and its release may be lost: the order stays until the release is applied.
        """
        if self._targets is None or self._targets[0] is not found:
            # This method is called for all servers in turn: group the partitions once.
            self._targets = found, _grouped(found.target)
        bumped = {move.partition for move in found.moves if move.reason == "bump"}
        mine = set(self._targets[1].get(server, ()))
        has = {number for number in self._owned.get(server, ()) if self.has(server, number)}
        here = {number for number in has if self.partitions[number].generation >= self.fleet.generation}
        row = self.servers[server]
        twice = bumped if row.scans else bumped | set(row.drop)
        return sorted((mine - here) | (mine & twice & has)), sorted((has - mine) | (has - here) | (has & twice))

    def standby_assignments(self, ending: Collection[str]) -> dict[str, Expected]:
        """Return the standby assignments for servers that have probably ended, by standby server: their partitions in the next plan.

        Servers that speak HTTP get none; they get their orders after the fencing.
        """
        servers = {name: replace(row, state="dead") if name in ending else row for name, row in self.servers.items()}
        # An ordered partition counts as its target's, so that all scanners agree at any moment of a hand-off.
        coming = {number: row.name for row in servers.values() if row.state != "dead" for number in row.take}
        partitions = {number: replace(row, owner=coming.get(number, row.owner)) for number, row in self.partitions.items()}
        found = PlannerInput(self.fleet, self.intents, partitions, servers, unreadable=self.unreadable, now=self.now).plan(0)
        assignments: dict[str, dict[str, list[int]]] = {}
        for number, standby in sorted(found.target.items()):
            owner = self.partitions[number].owner if number in self.partitions else ""
            if owner in ending and self.has(owner, number) and standby in servers and servers[standby].scans:
                assignments.setdefault(standby, {}).setdefault(owner, []).append(number)
        return {standby: tuple((owner, tuple(numbers)) for owner, numbers in sorted(by.items())) for standby, by in assignments.items()}


def _grouped(servers: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the partitions of each server."""
    found: dict[str, list[int]] = {}
    for number, server in servers.items():
        found.setdefault(server, []).append(number)
    return found


def read_planner_input(key: str, now: Millis) -> Steps[PlannerInput | None]:
    """Read the whole fleet, partitions before servers. None if there is no such fleet."""
    rows = yield from load(FLEETS, key, FLEET, PARTITIONS[1])
    servers = yield from load(FLEETS, key, *SERVERS)
    fleet = next((row for row in rows if row.rk == FLEET), None)
    if fleet is None:
        return None
    intents, odd = unreadable_rows.parse_intents(rows)
    partitions, odder = unreadable_rows.parse_rows((row for row in rows if PARTITIONS[0] <= row.rk < PARTITIONS[1]), parse_partition)
    known, oddest = unreadable_rows.parse_rows(servers, parse_server)
    return PlannerInput(
        parse_fleet(fleet.props),
        active_intents(intents, now),
        {partition.number: partition for _, partition in partitions},
        {server.name: server for _, server in known},
        {server.name: row.etag for row, server in known},
        [*odd, *odder, *oddest],
        now,
    )


def read_fleet(key: str) -> Steps[Fleet | None]:
    """Read the fleet's own row; None if there is none."""
    row = yield from get(FLEETS, key, FLEET)
    return parse_fleet(row.props) if row is not None else None
