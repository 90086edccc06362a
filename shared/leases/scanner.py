"""The keeper's second loop: looks at the other servers, fences the silent, plans, gives orders, and finds what can be claimed.

No threads, no I/O: who drives it has those. Everything here may be late, or left out, at no risk: safety is in the conditions of the
writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from ..clock import Millis
from ..errors import Rejected, StorageError
from ..storage.names import FLEETS
from ..storage.ports import Row
from . import generations, rules
from .desk import Desk
from .planner import Member, Move, Plan, plan
from .protocol import resizing, takeover
from .protocol.effects import Get, Load, Steps, Wait, Work
from .rows import FLEET, INTENTS, PARTITIONS, SERVERS, Fleet, Intents, Partition, Server, in_force, parse_fleet, parse_intent, partition_key
from .rows import parse_partition as parse_partition_row
from .rows import parse_server as parse_server_row
from .rules import Sight
from .stamps import Profile

log = logging.getLogger(__name__)

POLL = 0.25
"""Seconds between looks at partitions that are about to be handed over. While nothing is wanted, none is looked at."""
PLAN_ANEW, PLAN_EVERY, PLAN_SOON = 192, 12, 2
"""Beats after which a scanner plans even if nothing seems to have changed; if there may be something left to do; and after a plan that
moves something. A plan reads all rows."""
MINUTE = 60.0
HEARD = 1.05
"""Beats after which a server has heard an order: its next beat found it."""
GENTLE = frozenset({"balance", "over capacity", "draining", "pinned"})
"""Reasons for which the owner goes on until its successor is waiting."""
MISSES = 2
"""Orders in one plan that storage may fail to take before the plan is given up."""
_NEVER: Final = float("inf")


class Facts:
    """All rows of a fleet at about one time: partitions were read before servers."""

    def __init__(self, fleet: Fleet, intents: Intents, partitions: dict[int, Partition], servers: dict[str, Server]) -> None:
        self.fleet, self.intents, self.partitions, self.servers = fleet, intents, partitions, servers
        self._owned = _grouped({number: row.owner for number, row in partitions.items()})
        self._targets: tuple[Plan, dict[str, list[int]]] | None = None

    @property
    def members(self) -> list[Member]:
        """The servers that are not dead."""
        return [
            Member(server.name, self._capacity(server), server.load, server.state == "draining")
            for server in self.servers.values()
            if server.state != "dead"
        ]

    def _capacity(self, server: Server) -> int:
        """What the server can have; one that speaks HTTP no more than its row can hold."""
        return server.capacity if server.scans or (server.capacity or self.fleet.most) <= rules.MAX_HELD else rules.MAX_HELD

    def has(self, server: str, partition: int) -> bool:
        """Whether the server's incarnation of now has the partition."""
        found, row = self.partitions.get(partition), self.servers.get(server)
        return found is not None and row is not None and found.owner == server and not rules.ended(found.incarnation, row)

    def plan(self, budget: int, before: Mapping[str, Server] | None = None) -> Plan:
        """What the planner makes of it. While the partition count changes all is claimed anew, and nothing counts against the budget.

        before: the servers as they were before the partitions were read. An order goes when its claim comes, so that by those rows each
        partition has the one or the other.
        """
        now = self.fleet.generation
        owners = {number: row.owner for number, row in self.partitions.items() if row.owner and not generations.behind(row, now)}
        heirs = generations.heirs(self.partitions, before or self.servers, self.fleet)
        budget = self.fleet.partitions if self.fleet.former else budget
        epochs = {number: partition.epoch for number, partition in self.partitions.items()}
        intents = replace(self.intents, prohibited=self.intents.prohibited | self._avoided())
        found = plan(self.fleet.partitions, owners | heirs, self.members, intents, most=self.fleet.most, budget=budget, epochs=epochs)
        # Nobody has had those yet: whoever is to, it is no move from server to server.
        moves = [move for move in found.moves if move.partition not in heirs]
        moves += [Move(number, "", server, "unowned") for number in heirs if (server := found.target.get(number))]
        return replace(found, moves=tuple(sorted(moves)))

    def _avoided(self) -> set[tuple[int, str]]:
        """What servers would rather not have, and another may."""
        ready = {member.name for member in self.members if not member.draining and member.name not in self.intents.drained}
        avoided = {(number, name) for name in ready for number in self.servers[name].avoid}
        return {(number, name) for number, name in avoided if any(self._may(number, other, avoided) for other in ready)}

    def _may(self, partition: int, server: str, avoided: set[tuple[int, str]]) -> bool:
        return (partition, server) not in avoided and (partition, server) not in self.intents.prohibited

    def orders(self, found: Plan, server: str) -> tuple[list[int], list[int]]:
        """What the server must take, and what it must drop, to get from here to the plan. A bumped partition is in both, and so may be one
        that is held under a former generation."""
        if self._targets is None or self._targets[0] is not found:
            # All servers are asked for, one after the other: partitions are gone through once.
            self._targets = found, _grouped(found.target)
        bumped = {move.partition for move in found.moves if move.reason == "bump"}
        mine = set(self._targets[1].get(server, ()))
        has = {number for number in self._owned.get(server, ()) if self.has(server, number)}
        here = {number for number in has if self.partitions[number].generation >= self.fleet.generation}
        return sorted((mine - here) | (mine & bumped)), sorted((has - mine) | (has - here) | (has & bumped))


def _grouped(servers: Mapping[int, str]) -> dict[str, list[int]]:
    """Partitions by server."""
    found: dict[str, list[int]] = {}
    for number, server in servers.items():
        found.setdefault(server, []).append(number)
    return found


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
    """One per keeper, over all its incarnations: what it has seen of others stays true."""

    def __init__(
        self,
        key: str,
        server: str,
        desk: Desk,
        steady: Callable[[], float],
        wall: Callable[[], Millis],
        chance: Callable[[], float],
    ) -> None:
        self._key, self._server, self._desk = key, server, desk
        self._steady, self._wall, self._chance = steady, wall, chance
        self._sights: dict[str, Sight] = {}
        self._known: frozenset[tuple[str, str, str, int]] | None = None
        self._suspects: set[str] = set()
        self._due, self._incarnation = False, ""
        self._seen_changes = -1
        self._next_fence = self._next_scan = self._next_plan = self._next_poll = 0.0
        self._ordered: dict[tuple[int, str], float] = {}
        self._moves: tuple[Move, ...] = ()
        self._told: dict[tuple[int, str], float] = {}
        self._patience = PLAN_SOON
        self._drained: frozenset[str] = frozenset()
        self._refused = False
        self._looks, self._generation, self._next_sweep, self._turn = False, 0, _NEVER, 0

    @property
    def _profile(self) -> Profile:
        return self._desk.fleet.profile

    def run(self) -> Work[None]:
        """Look, fence, plan, scout until the desk is closed."""
        self._next_scan = self._steady() + self._profile.beat / 2
        while not self._desk.ended:
            try:
                yield from self._step()
            except StorageError as error:
                self._desk.counts["failed"] += 1
                # As with beats: who may write but not read all would never learn why it gets nothing.
                level = logging.ERROR if isinstance(error, Rejected) and not self._refused else logging.DEBUG
                self._refused = self._refused or isinstance(error, Rejected)
                log.log(level, "A look at the fleet failed: %s", error, extra={"action": "lease_scan_failed"})
                now = self._steady()
                self._next_scan = max(self._next_scan, now + self._profile.beat * (0.25 + 0.25 * self._chance()))
                self._next_fence = max(self._next_fence, now + self._profile.beat / 4)
                self._next_poll = max(self._next_poll, now + min(POLL * 4, self._profile.beat / 4))
                self._next_sweep = max(self._next_sweep, now + POLL * 4)
            except Exception:
                if self._desk.ended:
                    # Who stopped the keeper may have closed the tables since.
                    return
                # The loop must go on: what failed is tried again at the next round.
                log.exception("The lease scanner failed", extra={"action": "lease_scanner_failed"})
                self._next_scan = self._next_fence = self._next_poll = self._steady() + self._profile.beat
                self._next_sweep = max(self._next_sweep, self._next_scan)
            yield Wait(self._next_step())

    def _next_step(self) -> float:
        if self._desk.seat() is None:
            # Joining wakes this loop.
            return max(self._next_scan, self._steady() + self._profile.beat / 4)
        steps = [self._next_scan]
        if self._desk.wants():
            steps.append(self._next_poll)
        # A row that stays unchanged is read again when it is ripe, not at the next round.
        ripe = [sight.first.ripens(self._profile.takeover) for name, sight in self._sights.items() if name in self._suspects]
        if "scan" not in self._desk.shed():
            steps.append(self._next_sweep)
            if due := [*ripe, *self._desk.given().values()]:
                steps.append(max(self._next_fence, min(due)))
        return min(steps)

    def _step(self) -> Work[None]:
        session, now, shed = self._desk.seat(), self._steady(), self._desk.shed()
        if session is None:
            # Who waits to join, perhaps for T, has then seen the silence of others too.
            if now >= self._next_scan and "scan" not in shed:
                self._next_scan = now + self._profile.beat
                yield from takeover.look(self._key, self._sights)
            return
        if session.incarnation != self._incarnation:
            self._incarnation, self._next_scan, self._known = session.incarnation, now, None
        if self._desk.hurried:
            self._desk.hurried, self._next_scan, self._due = False, now, True
        fleet = self._desk.fleet
        if fleet.generation != self._generation:
            # Those who look begin at once to carry the change on.
            self._generation, self._next_scan = fleet.generation, now if self._looks else self._next_scan
            self._due = self._due or self._looks
        wants = self._desk.wants()
        if wants and now >= self._next_poll:
            self._next_poll = now + min(POLL, self._profile.beat / 4) * max(1, len(wants) // takeover.FEW)
            if fleet.former:
                self._next_poll, wants = now + generations.pace(fleet, POLL), self._some(wants)
            if "claim" not in shed and (claims := (yield from takeover.scout(session, wants))) and session is self._desk.seat():
                self._desk.offer(claims)
        if "scan" in shed:
            self._next_scan = max(self._next_scan, now + self._profile.beat / 2)
            return
        yield from self._fence(now)
        yield from self._look_after(now)
        if now >= self._next_sweep:
            yield from self._sweep(now)
        if now >= self._next_scan:
            yield from self._look(now)

    def _look_after(self, now: float) -> Work[None]:
        """Look whether somebody took what this server gave up; if not, it is time to plan."""
        for partition in [partition for partition, at in self._desk.given().items() if now >= at][: takeover.FEW]:
            row: Row | None = yield Get(FLEETS, self._key, partition_key(partition))
            self._desk.looked_after(partition)
            found = parse_partition_row(row) if row is not None else None
            if found is not None and not found.owner and not found.closed:
                self._due, self._next_scan = True, now

    def _some(self, wants: list[int]) -> list[int]:
        """A few of them in turn: while the count changes most have to wait, and all servers ask."""
        self._turn = self._turn + takeover.FEW if self._turn + takeover.FEW < len(wants) else 0
        return wants[self._turn : self._turn + takeover.FEW]

    def _sweep(self, now: float) -> Work[None]:
        """Carry a change of the partition count on; plan when it is done."""
        progress = yield from resizing.sweep(self._key)
        self._desk.counts["sweeps"] += 1
        self._next_sweep = now + generations.pace(self._desk.fleet, POLL)
        if progress is None or progress.done:
            self._next_sweep, self._next_scan, self._due = _NEVER, now, True

    def _fence(self, now: float) -> Work[None]:
        """Fence who has been silent for T; then it is time to look, and to plan."""
        if now < self._next_fence:
            return
        for name, sight in sorted(self._sights.items()):
            if name in self._suspects and now >= sight.first.ripens(self._profile.takeover):
                found = yield from takeover.fence(self._key, name, self._sights, self._profile.takeover)
                if found == "fenced":
                    self._desk.counts["fenced"] += 1
                    log.warning("Server %s has been silent for too long and is fenced", name, extra={"action": "lease_fenced"})
                if found == "lives":
                    self._next_fence = now + self._profile.beat / 4
                    if not self._looks and self._sights[name].first != sight.first:
                        self._suspects.discard(name)
                else:
                    self._next_scan, self._due = now, True

    def _look(self, now: float) -> Work[None]:
        self._desk.counts["scans"] += 1
        rows = yield from takeover.look(self._key, self._sights)
        self._refused = False
        servers = [parse_server_row(row) for row in rows]
        # Those that speak HTTP look at nobody.
        looking = [server.name for server in servers if server.state != "dead" and server.scans]
        every = rules.scan_every(self._server, looking, self._profile)
        # Jitter, so that scanners do not look at the same moment.
        self._next_scan = now + every * (0.9 + 0.2 * self._chance())
        known = frozenset((server.name, server.incarnation, server.state, server.capacity) for server in servers)
        self._looks = every <= self._profile.beat
        ages = {server.name: max(0, row.read_at - row.timestamp) / 1000 for server, row in zip(servers, rows, strict=True)}
        self._suspects = rules.suspects(self._server, looking, ages, self._sights, self._profile, now)
        others = (server.name for server in servers if server.state == "live" and server.name != self._server)
        self._desk.alone = not set(others) - self._drained
        if self._looks:
            # For all others a plan is due when they have fenced somebody, or have something to say: it reads all rows.
            self._due = self._due or known != self._known or now >= self._next_plan or (yield from self._changes())
        self._known = known
        if self._due:
            yield from self._plan(now, {server.name: server for server in servers})

    def _changes(self) -> Work[bool]:
        """Whether operators have changed something."""
        fleet = yield from read_fleet(self._key)
        return fleet is not None and fleet.changes != self._seen_changes

    def _plan(self, now: float, before: Mapping[str, Server]) -> Work[None]:
        if "balance" in self._desk.shed():
            return
        facts = yield from read_facts(self._key, self._wall())
        if facts is None:
            return
        self._desk.counts["plans"] += 1
        self._seen_changes = facts.fleet.changes
        self._desk.hear(facts.fleet)
        if facts.fleet.former and self._looks:
            self._next_sweep = min(self._next_sweep, now)
        found = facts.plan(self._budget(facts, now), before)
        # Two may have planned at once, and order what does not fit together: look again soon, and ever less often while that does not help.
        self._patience = PLAN_SOON if found.moves != self._moves else min(2 * self._patience, PLAN_EVERY)
        self._moves = found.moves
        # An order can be overlooked where two writes have got the same ETag; while the partition count changes, all wait for it.
        # What was ordered within the last minute may have used the budget up.
        beats = PLAN_SOON if facts.fleet.former else self._patience if found.moves else PLAN_EVERY if self._ordered else PLAN_ANEW
        self._next_plan = now + beats * self._profile.beat
        later = self._not_yet(found, now)
        ready = [member.name for member in facts.members if not member.draining and member.name not in facts.intents.drained]
        self._desk.alone = not [name for name in ready if name != self._server]
        self._drained = facts.intents.drained
        for move in found.moves:
            if move.reason in ("balance", "over capacity"):
                self._ordered.setdefault((move.partition, move.target), now)
        take, drop = facts.orders(found, self._server)
        self._desk.order(take, [number for number in drop if number not in later])
        refused = failed = 0
        for member in facts.members:
            if member.name != self._server:
                take, drop = facts.orders(found, member.name)
                drop = [number for number in drop if number not in later]
                try:
                    heard = yield from takeover.order(self._key, member.name, take, drop, facts.fleet.generation)
                except StorageError:
                    # One lost answer must not keep the others waiting; where most are lost, to ask so many would take too long.
                    self._desk.counts["failed"] += 1
                    if (failed := failed + 1) > MISSES:
                        raise
                    heard = False
                refused += not heard
        self._desk.counts["orders_refused"] += refused
        # Who was not reached beat in between: plan again soon, from what is there then.
        self._due = refused > 0 or bool(later)
        again = [*([now + self._profile.beat / 4] if refused else []), *later.values()]
        self._next_scan = min([self._next_scan, *again])

    def _not_yet(self, found: Plan, now: float) -> dict[int, float]:
        """Partitions whose owners are to go on until their successors have heard that they are to take over, and when that will be. So a
        planned hand-off costs one look at a free partition, not a beat."""
        gentle = [(move.partition, move.target) for move in found.moves if move.reason in GENTLE and move.target not in ("", self._server)]
        self._told = {move: self._told.get(move, now + HEARD * self._profile.beat) for move in gentle}
        return {partition: heard for (partition, _), heard in self._told.items() if now < heard}

    def _budget(self, facts: Facts, now: float) -> int:
        """Moves that may still be ordered: the limit less those of the last minute that are done; those under way are planned anew."""
        self._ordered = {move: at for move, at in self._ordered.items() if now - at < MINUTE}
        done = sum(facts.has(target, partition) for partition, target in self._ordered)
        return max(0, facts.fleet.limits.moves_per_minute - done)


def read_fleet(key: str) -> Steps[Fleet | None]:
    row: Row | None = yield Get(FLEETS, key, FLEET)
    return parse_fleet(row.props) if row is not None else None
