"""The keeper's scan loop: reads the other servers' rows, fences silent servers, plans, gives orders, and finds claimable partitions.

The loop has no threads and does no I/O: its runner does both. Everything here may be late or left out without risk, because the
conditions of the writes provide the safety.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from itertools import batched
from typing import Final

from ...core.clock import Millis
from ...core.errors import Rejected, StorageError
from ...engine.effects import Work, get, wait
from ...engine.observed import observed
from ...storage.names import FLEETS
from .. import generations, scan_rules, unreadable_rows
from ..balance import is_uneven
from ..loads import server_loads
from ..planner import PartitionMove, PartitionPlan
from ..planner_input import PlannerInput, read_fleet, read_planner_input
from ..profiles import Profile
from ..protocol import repair, resizing, takeover
from ..rows import MAX_ORDERS, ActiveIntents, Server, parse_partition, parse_server, partition_key
from ..rules import ServerObservation, ServerSession
from .keeper_state import KeeperState
from .standby import StandbyAssignments

log = logging.getLogger(__name__)

POLL = 0.25
"""Seconds between reads of wanted partitions. Without wanted partitions nothing is read."""
PLAN_ANEW, PLAN_EVERY, PLAN_SOON = 192, 12, 2
"""Heartbeat intervals between plans: if nothing seems to have changed, if something may be left to do, and after a plan with moves. A plan
reads all rows."""
CHUNK = 4
"""Partitions that are read one by one before their claims are offered."""
MINUTE = 60.0
HEARD = 1.05
"""Heartbeat intervals after which a server has received an order: its next heartbeat has read it."""
GENTLE = frozenset({"balance", "load", "over capacity", "draining", "pinned"})
"""Reasons of moves for which the owner continues until its successor is ready."""
FEW_OLD = 2
"""Servers with old observations that are read one by one. More are read by one query first."""
MISSES = 2
"""Orders of one plan that may fail before the plan is abandoned."""
ALONE, YOUNG = 0.15, 4
"""ALONE: heartbeat intervals after which a new server plans for itself; it then gets its share one interval sooner than from a scanner.
YOUNG: heartbeats that every other server must have sent for this; where many servers start at once, all of them would plan."""
UNREADABLE: Final = {"action": "lease_rows_unreadable"}
_NEVER: Final = float("inf")


class ScanLoop:
    """Scans the fleet for one keeper. Its observations stay valid over all incarnations of the server."""

    def __init__(
        self,
        key: str,
        server: str,
        keeper_state: KeeperState,
        steady: Callable[[], float],
        wall: Callable[[], Millis],
        chance: Callable[[], float],
    ) -> None:
        self._key, self._server, self._keeper_state = key, server, keeper_state
        self._steady, self._wall, self._chance = steady, wall, chance
        self._sights: dict[str, ServerObservation] = {}
        self._known: frozenset[tuple[str, str, str, int]] | None = None
        self._suspects: set[str] = set()
        self._due, self._incarnation = False, ""
        self._seen_changes = -1
        self._next_fence = self._next_scan = self._next_plan = self._next_poll = 0.0
        self._ordered: dict[tuple[int, str], float] = {}
        self._moves: tuple[PartitionMove, ...] = ()
        self._told: dict[tuple[int, str], float] = {}
        self._patience = PLAN_SOON
        self._drained: frozenset[str] = frozenset()
        self._refused = False
        self._looks, self._generation, self._next_sweep, self._turn = False, 0, _NEVER, 0
        self._came, self._next_ask, self._next_raise = False, 0.0, 0.0
        self._standby = StandbyAssignments(key, server, keeper_state, self._sights, steady, wall)
        self._living: set[str] = set()
        self._living_until = 0.0
        self._unreadable: tuple[str, ...] = ()
        self._next_balance, self._balance_patience, self._uneven = 0.0, PLAN_EVERY, False

    @property
    def _profile(self) -> Profile:
        return self._keeper_state.fleet.profile

    @property
    def _poll_interval(self) -> float:
        """Seconds between reads of wanted partitions, or of servers that are expected to end."""
        return min(POLL * self._keeper_state.stretch, self._profile.beat / 4)

    def run(self) -> Work[None]:
        """Scan, fence, plan and find claims until the keeper has ended."""
        yield from observed(self._run(), self._keeper_state.record_request)

    def _run(self) -> Work[None]:
        self._next_scan = self._steady() + self._profile.beat / 2
        while not self._keeper_state.ended:
            try:
                yield from self._step()
            except StorageError as error:
                self._keeper_state.counts["failed"] += 1
                # A server that may write but not read all rows would otherwise get no partitions without any error.
                level = logging.ERROR if isinstance(error, Rejected) and not self._refused else logging.DEBUG
                self._refused = self._refused or isinstance(error, Rejected)
                log.log(level, "A scan of the fleet failed: %s", error, extra={"action": "lease_scan_failed", **self._keeper_state.about()})
                now, stretch = self._steady(), self._keeper_state.stretch
                # Servers that repeat their scans soon would keep storage busy, and the scans of all of them would fail together again.
                self._next_scan = max(self._next_scan, now + stretch * self._profile.beat * (0.25 + 0.25 * self._chance()))
                self._next_fence = max(self._next_fence, now + stretch * self._profile.beat / 4)
                self._next_poll = max(self._next_poll, now + min(POLL * 4, self._profile.beat / 4))
                self._next_sweep = max(self._next_sweep, now + POLL * 4)
                self._next_ask = max(self._next_ask, now + min(POLL * 4, self._profile.beat / 4))
            except Exception:
                if self._keeper_state.ended:
                    # The application may have closed the tables after it stopped the keeper.
                    return
                # The loop must continue: the next round repeats what failed.
                log.exception("The lease scanner failed", extra={"action": "lease_scanner_failed", **self._keeper_state.about()})
                self._next_scan = self._next_fence = self._next_poll = self._steady() + self._profile.beat
                self._next_sweep = max(self._next_sweep, self._next_scan)
            yield from wait(self._next_step())

    def _next_step(self) -> float:
        if self._keeper_state.current_session() is None:
            # The registration wakes this loop.
            return max(self._next_scan, self._steady() + self._profile.beat / 4)
        steps = [self._next_scan]
        if self._keeper_state.lost_epochs:
            steps.append(self._next_raise)
        if self._keeper_state.wanted_partitions():
            steps.append(self._next_poll)
        if self._keeper_state.expected_servers():
            steps.append(self._next_ask)
        # The row of a silent server is read again when T has passed, not in the next round.
        ripe = [sight.first.ripens(self._profile.takeover) for name, sight in self._sights.items() if name in self._suspects]
        if "scan" not in self._keeper_state.shed_duties():
            steps.append(self._next_sweep)
            foreseen = self._standby.due(self._suspects).values() if self._looks else ()
            if due := [*ripe, *foreseen, *self._keeper_state.released_partitions().values()]:
                steps.append(max(self._next_fence, min(due)))
        return min(steps)

    def _step(self) -> Work[None]:
        session, now, shed = self._keeper_state.current_session(), self._steady(), self._keeper_state.shed_duties()
        if session is None:
            # A server that waits for its registration, possibly for T, has then also observed which other servers were silent.
            if now >= self._next_scan and "scan" not in shed:
                self._next_scan = now + scan_rules.stretched_scan(self._profile.beat, self._keeper_state.stretch, self._profile)
                yield from takeover.observe_servers(self._key, self._sights)
            return
        if session.incarnation != self._incarnation:
            # The partitions of its former incarnation need no other server to stop first.
            after = 0.0 if session.resumed else ALONE * self._profile.beat
            self._incarnation, self._next_scan, self._known = session.incarnation, now + after, None
            self._came, self._due = True, self._due or session.resumed
        if self._keeper_state.plan_requested:
            self._keeper_state.plan_requested, self._next_scan, self._due = False, now, True
        fleet = self._keeper_state.fleet
        if fleet.generation != self._generation:
            # Scanners continue the resize at once.
            self._generation, self._next_scan = fleet.generation, now if self._looks else self._next_scan
            self._due = self._due or self._looks
        if now >= self._next_ask and self._keeper_state.expected_servers():
            self._next_ask = now + self._poll_interval
            if "claim" not in shed and (yield from self._standby.ask()):
                self._next_poll = now
        wants = self._keeper_state.wanted_partitions()
        if wants and now >= self._next_poll:
            self._next_poll = now + self._poll_interval * max(1, len(wants) // takeover.FEW)
            if fleet.former:
                self._next_poll, wants = now + generations.poll_interval(fleet, POLL), self._some(wants)
            if "claim" not in shed:
                yield from self._scout(session, wants, now)
        if self._keeper_state.lost_epochs and "claim" not in shed:
            yield from self._raise_epochs(now)
        if "scan" in shed:
            self._next_scan = max(self._next_scan, now + self._profile.beat / 2)
            return
        yield from self._observe_many(now)
        yield from self._fence(now)
        if self._looks and now >= self._next_fence:
            yield from self._standby.foresee(self._suspects, now)
        yield from self._look_after(now)
        if now >= self._next_sweep:
            yield from self._sweep(now)
        if now >= self._next_scan:
            yield from self._look(now)

    def _scout(self, session: ServerSession, wants: list[int], now: float) -> Work[None]:
        """Find claimable partitions, and offer their claims at once: they need no scan of the servers."""
        if now >= self._living_until:
            self._living, self._living_until = set(), now + self._profile.beat / 2
        for some in [wants] if len(wants) > takeover.FEW else batched(wants, CHUNK):
            if (claims := (yield from takeover.scout(session, some, self._living))) and session is self._keeper_state.current_session():
                self._keeper_state.offer_claims(claims)

    def _raise_epochs(self, now: float) -> Work[None]:
        """Raise the stored epochs of partitions to those that the storage service has lost, until claims begin."""
        if now < self._next_raise:
            return
        self._next_raise = now + min(4 * POLL, self._profile.beat / 4)
        known = dict(self._keeper_state.lost_epochs)
        raised = yield from repair.raise_epochs(self._key, known)
        self._keeper_state.mark_raised(known if not self._keeper_state.quarantined else {number: known[number] for number in raised})

    def _look_after(self, now: float) -> Work[None]:
        """Check that released partitions have been claimed. If one has no owner, plan now."""
        for partition in [partition for partition, at in self._keeper_state.released_partitions().items() if now >= at][: takeover.FEW]:
            row = yield from get(FLEETS, self._key, partition_key(partition))
            self._keeper_state.mark_checked(partition)
            found, _ = unreadable_rows.parse_rows([row] if row is not None else [], parse_partition)
            if any(not partition.owner and not partition.closed for _, partition in found):
                self._due, self._next_scan = True, now

    def _some(self, wants: list[int]) -> list[int]:
        """Return a few wanted partitions in turn: during a resize most are not claimable yet, and all servers read them."""
        self._turn = self._turn + takeover.FEW if self._turn + takeover.FEW < len(wants) else 0
        return wants[self._turn : self._turn + takeover.FEW]

    def _sweep(self, now: float) -> Work[None]:
        """Continue a resize. Plan when it is complete."""
        progress = yield from resizing.sweep(self._key)
        self._keeper_state.counts["sweeps"] += 1
        self._next_sweep = now + generations.poll_interval(self._keeper_state.fleet, POLL)
        if progress is None or progress.done:
            self._next_sweep, self._next_scan, self._due = _NEVER, now, True

    def _observe_many(self, now: float) -> Work[None]:
        """Read all servers at once if many observations are old: after a time without scans most of them have sent heartbeats."""
        foreseen = self._standby.due(self._suspects) if self._looks else {}
        old = {name for name, _ in self._ripe(now)} | {name for name, at in foreseen.items() if now >= at}
        if now >= self._next_fence and len(old) > FEW_OLD:
            yield from takeover.observe_servers(self._key, self._sights)

    def _fence(self, now: float) -> Work[None]:
        """Fence servers that have been silent for T. A fencing makes a scan and a plan due."""
        if now < self._next_fence:
            return
        for name, sight in self._ripe(now):
            found = yield from takeover.fence(self._key, name, self._sights, self._profile.takeover)
            if found == "fenced":
                self._keeper_state.counts["fenced"] += 1
                extra = {"action": "lease_fenced", **self._keeper_state.about()}
                log.warning("Server %s has been silent for too long and is fenced", name, extra=extra)
            if found == "lives":
                self._next_fence = now + self._profile.beat / 4
                if not self._looks and self._sights[name].first != sight.first:
                    self._suspects.discard(name)
            else:
                self._next_scan, self._due = now, True

    def _ripe(self, now: float) -> list[tuple[str, ServerObservation]]:
        """Return the observations that are T old, of servers that are watched."""
        timeout, watched = self._profile.takeover, sorted(self._suspects & self._sights.keys())
        return [(name, self._sights[name]) for name in watched if now >= self._sights[name].first.ripens(timeout)]

    def _look(self, now: float) -> Work[None]:
        self._keeper_state.counts["scans"] += 1
        rows = yield from takeover.observe_servers(self._key, self._sights)
        self._refused = False
        servers = [parse_server(row) for row in rows]
        # Servers that speak HTTP do not scan.
        looking = [server.name for server in servers if server.state != "dead" and server.scans]
        every = scan_rules.scan_interval(self._server, looking, self._profile)
        # Jitter, so that scanners do not read at the same moment.
        self._next_scan = now + scan_rules.stretched_scan(every, self._keeper_state.stretch, self._profile) * (0.9 + 0.2 * self._chance())
        known = frozenset((server.name, server.incarnation, server.state, server.capacity) for server in servers)
        self._looks = every <= self._profile.beat
        ages = {server.name: max(0, row.read_at - row.timestamp) / 1000 for server, row in zip(servers, rows, strict=True)}
        self._suspects = scan_rules.suspects(self._server, looking, ages, self._sights, self._profile, now)
        others = (server.name for server in servers if server.state == "live" and server.name != self._server)
        self._keeper_state.alone = not set(others) - self._drained
        if self._looks:
            # Other servers plan only when they have fenced a server or when their own state has changed: a plan reads all rows.
            self._due = self._due or known != self._known or now >= self._next_plan or self._is_uneven(servers, now)
            self._due = self._due or (yield from self._changes())
        self._known = known
        if self._came:
            young = (server.name for server in servers if server.state != "dead" and server.beat < YOUNG)
            self._came, self._due = False, self._due or not set(young) - {self._server}
        if self._due:
            yield from self._plan(now, {server.name: server for server in servers})

    def _is_uneven(self, servers: Collection[Server], now: float) -> bool:
        """Return True if the published loads make a plan due. If plans find nothing to move, the next one comes later and later."""
        if now < self._next_balance:
            return False
        ready = [server for server in servers if server.state == "live" and server.name not in self._drained]
        loads = server_loads(self._keeper_state.fleet, ready)
        self._uneven = loads is not None and is_uneven(loads)
        if not self._uneven:
            self._balance_patience = PLAN_EVERY
        return self._uneven

    def _changes(self) -> Work[bool]:
        """Return True if an operator has changed the fleet since the last plan."""
        fleet = yield from read_fleet(self._key)
        return fleet is not None and fleet.changes != self._seen_changes

    def _plan(self, now: float, before: Mapping[str, Server]) -> Work[None]:
        if "balance" in self._keeper_state.shed_duties():
            return
        facts = yield from read_planner_input(self._key, self._wall())
        if facts is None:
            return
        self._keeper_state.counts["plans"] += 1
        if facts.unreadable != self._unreadable and facts.unreadable:
            unreadable = ", ".join(facts.unreadable[:10])
            text = "Rows of fleet %s cannot be read, and their subjects stay as they are: %s"
            extra = {**UNREADABLE, **self._keeper_state.about()}
            log.error(text, self._key, unreadable, extra=extra)
        self._unreadable = facts.unreadable
        self._seen_changes = facts.fleet.changes
        self._keeper_state.update_fleet(facts.fleet)
        if facts.fleet.former and self._looks:
            self._next_sweep = min(self._next_sweep, now)
        found = facts.plan(self._budget(facts, now), before)
        # Two servers may have planned at once with conflicting orders: plan again soon, at growing intervals while that does not help.
        self._patience = PLAN_SOON if found.moves != self._moves else min(2 * self._patience, PLAN_EVERY)
        self._moves = found.moves
        # A server can miss an order if two writes got the same ETag. During a resize all servers wait for each order.
        # The moves of the last minute may have used up the budget.
        # A partition of its server's former incarnation does not move, but it has no owner until an order is followed.
        open_ = found.moves or any(facts.orders(found, member.name) != ([], []) for member in facts.members)
        beats = PLAN_SOON if facts.fleet.former else self._patience if open_ else PLAN_EVERY if self._ordered else PLAN_ANEW
        self._next_plan = now + beats * self._profile.beat * self._keeper_state.stretch
        if self._uneven:
            moved = any(move.reason == "load" for move in found.moves)
            self._balance_patience = PLAN_EVERY if moved else min(2 * self._balance_patience, PLAN_ANEW)
            self._next_balance = now + self._balance_patience * self._profile.beat * self._keeper_state.stretch
            self._uneven = False
        later = self._not_yet(found, now)
        ready = [member.name for member in facts.members if not member.draining and member.name not in facts.intents.drained]
        self._keeper_state.alone = not [name for name in ready if name != self._server]
        self._drained = facts.intents.drained
        self._follow_maintenance(facts.intents)
        for move in found.moves:
            if move.reason in ("balance", "load", "over capacity"):
                self._ordered.setdefault((move.partition, move.target), now)
        refused = yield from self._give(facts, found, later)
        self._keeper_state.counts["orders_refused"] += refused
        # A server that missed its order sent a heartbeat in between: plan again soon with the new rows.
        self._due = refused > 0 or bool(later)
        again = [*([now + self._profile.beat / 4] if refused else []), *later.values()]
        self._next_scan = min([self._next_scan, *again])

    def _give(self, facts: PlannerInput, found: PartitionPlan, later: Collection[int]) -> Work[int]:
        """Give the orders of a plan. later: partitions that must not be handed off yet. Return the number of orders that failed."""
        generation = facts.fleet.generation
        given: dict[str, tuple[list[int], list[int]]] = {}
        for member in facts.members:
            row = facts.servers[member.name]
            take, drop = facts.orders(found, member.name)
            # An order that has been given is not delayed again.
            drop = [number for number in drop if number not in later or number in row.drop]
            if member.name == self._server:
                self._standby.planned(facts)
                self._keeper_state.set_plan(take, drop)
            elif (list(row.take), list(row.drop), row.generation) != (take[:MAX_ORDERS], drop[:MAX_ORDERS], generation):
                given[member.name] = take, drop
        props = {name: (takeover.order_props(*each, generation), facts.etags[name]) for name, each in given.items()}
        missed, refused, failed = list(given), 0, 0
        with suppress(StorageError):
            missed = yield from takeover.write_orders(self._key, props)
        for name in missed:
            try:
                heard = yield from takeover.write_order(self._key, name, *given[name], generation)
            except StorageError:
                # One lost answer must not delay the other orders. If most are lost, trying all would take too long.
                self._keeper_state.counts["failed"] += 1
                if (failed := failed + 1) > MISSES:
                    raise
                heard = False
            refused += not heard
        return refused

    def _follow_maintenance(self, intents: ActiveIntents) -> None:
        """Log the beginning and the end of maintenance on this server. Later lines name its events."""
        struck = self._server in intents.struck
        was = self._keeper_state.maintenance is not None
        if struck:
            self._keeper_state.maintenance = intents.events_on(self._server)
        if struck and not was:
            extra = {"action": "lease_maintenance_begins", **self._keeper_state.about()}
            log.info("Partitions leave server %s before its maintenance", self._server, extra=extra)
        elif was and not struck:
            extra = {"action": "lease_maintenance_ends", **self._keeper_state.about()}
            log.info("Server %s may have partitions again after its maintenance", self._server, extra=extra)
            self._keeper_state.maintenance = None

    def _not_yet(self, found: PartitionPlan, now: float) -> dict[int, float]:
        """Return partitions with owners that must continue until their successors know their orders, and when they will.

        A planned hand-off then costs one read of a free partition instead of a heartbeat interval.
        """
        gentle = [(move.partition, move.target) for move in found.moves if move.reason in GENTLE and move.target not in ("", self._server)]
        self._told = {move: self._told.get(move, now + HEARD * self._profile.beat) for move in gentle}
        return {partition: heard for (partition, _), heard in self._told.items() if now < heard}

    def _budget(self, facts: PlannerInput, now: float) -> int:
        """Return how many moves may be ordered: the limit less the completed moves of the last minute. Open moves are planned again."""
        self._ordered = {move: at for move, at in self._ordered.items() if now - at < MINUTE}
        done = sum(facts.has(target, partition) for partition, target in self._ordered)
        return max(0, facts.fleet.limits.moves_per_minute - done)
