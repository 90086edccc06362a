"""The keeper's second loop: looks at the other servers, fences the silent, plans, gives orders, and finds what can be claimed.

No threads, no I/O: who drives it has those. Everything here may be late, or left out, at no risk: safety is in the conditions of the
writes.
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
from ...storage.names import FLEETS
from .. import generations, rules, unreadable_rows
from ..planner import PartitionMove, PartitionPlan
from ..planner_input import PlannerInput, read_fleet, read_planner_input
from ..profiles import Profile
from ..protocol import resizing, takeover
from ..rows import MAX_ORDERS, Server, parse_partition, parse_server, partition_key
from ..rules import Observation, ServerSession
from .keeper_state import KeeperState
from .standby import StandbyAssignments

log = logging.getLogger(__name__)

POLL = 0.25
"""Seconds between looks at partitions that are about to be handed over. While nothing is wanted, none is looked at."""
PLAN_ANEW, PLAN_EVERY, PLAN_SOON = 192, 12, 2
"""Beats after which a scanner plans even if nothing seems to have changed; if there may be something left to do; and after a plan that
moves something. A plan reads all rows."""
CHUNK = 4
"""Partitions, read one by one, after which those that are free are told."""
MINUTE = 60.0
HEARD = 1.05
"""Beats after which a server has heard an order: its next beat found it."""
GENTLE = frozenset({"balance", "over capacity", "draining", "pinned"})
"""Reasons for which the owner goes on until its successor is waiting."""
MISSES = 2
"""Orders in one plan that storage may fail to take before the plan is given up."""
ALONE, YOUNG = 0.15, 4
"""Beats after which a server that came plans for itself, since its share is ordered a beat sooner then than by those who look; and the
writes that each other one must have behind it: where many come at once, it would be a stampede. One that stops for it says so meanwhile."""
UNREADABLE: Final = {"action": "lease_rows_unreadable"}
_NEVER: Final = float("inf")


class ScanLoop:
    """One per keeper, over all its incarnations: what it has seen of others stays true."""

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
        self._sights: dict[str, Observation] = {}
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
        self._came, self._next_ask = False, 0.0
        self._standby = StandbyAssignments(key, server, keeper_state, self._sights, steady, wall)
        self._living: set[str] = set()
        self._living_until = 0.0
        self._unreadable: tuple[str, ...] = ()

    @property
    def _profile(self) -> Profile:
        return self._keeper_state.fleet.profile

    def run(self) -> Work[None]:
        """Look, fence, plan, scout until the keeper_state is closed."""
        self._next_scan = self._steady() + self._profile.beat / 2
        while not self._keeper_state.ended:
            try:
                yield from self._step()
            except StorageError as error:
                self._keeper_state.counts["failed"] += 1
                # As with beats: who may write but not read all would never learn why it gets nothing.
                level = logging.ERROR if isinstance(error, Rejected) and not self._refused else logging.DEBUG
                self._refused = self._refused or isinstance(error, Rejected)
                log.log(level, "A look at the fleet failed: %s", error, extra={"action": "lease_scan_failed"})
                now = self._steady()
                self._next_scan = max(self._next_scan, now + self._profile.beat * (0.25 + 0.25 * self._chance()))
                self._next_fence = max(self._next_fence, now + self._profile.beat / 4)
                self._next_poll = max(self._next_poll, now + min(POLL * 4, self._profile.beat / 4))
                self._next_sweep = max(self._next_sweep, now + POLL * 4)
                self._next_ask = max(self._next_ask, now + min(POLL * 4, self._profile.beat / 4))
            except Exception:
                if self._keeper_state.ended:
                    # Who stopped the keeper may have closed the tables since.
                    return
                # The loop must go on: what failed is tried again at the next round.
                log.exception("The lease scanner failed", extra={"action": "lease_scanner_failed"})
                self._next_scan = self._next_fence = self._next_poll = self._steady() + self._profile.beat
                self._next_sweep = max(self._next_sweep, self._next_scan)
            yield from wait(self._next_step())

    def _next_step(self) -> float:
        if self._keeper_state.current_session() is None:
            # Joining wakes this loop.
            return max(self._next_scan, self._steady() + self._profile.beat / 4)
        steps = [self._next_scan]
        if self._keeper_state.wanted_partitions():
            steps.append(self._next_poll)
        if self._keeper_state.expected_servers():
            steps.append(self._next_ask)
        # A row that stays unchanged is read again when it is ripe, not at the next round.
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
            # Who waits to join, perhaps for T, has then seen the silence of others too.
            if now >= self._next_scan and "scan" not in shed:
                self._next_scan = now + self._profile.beat
                yield from takeover.observe_servers(self._key, self._sights)
            return
        if session.incarnation != self._incarnation:
            self._incarnation, self._next_scan, self._known = session.incarnation, now + ALONE * self._profile.beat, None
            self._came = True
        if self._keeper_state.plan_requested:
            self._keeper_state.plan_requested, self._next_scan, self._due = False, now, True
        fleet = self._keeper_state.fleet
        if fleet.generation != self._generation:
            # Those who look begin at once to carry the change on.
            self._generation, self._next_scan = fleet.generation, now if self._looks else self._next_scan
            self._due = self._due or self._looks
        if now >= self._next_ask and self._keeper_state.expected_servers():
            self._next_ask = now + min(POLL, self._profile.beat / 4)
            if "claim" not in shed and (yield from self._standby.ask()):
                self._next_poll = now
        wants = self._keeper_state.wanted_partitions()
        if wants and now >= self._next_poll:
            self._next_poll = now + min(POLL, self._profile.beat / 4) * max(1, len(wants) // takeover.FEW)
            if fleet.former:
                self._next_poll, wants = now + generations.poll_interval(fleet, POLL), self._some(wants)
            if "claim" not in shed:
                yield from self._scout(session, wants, now)
        if "scan" in shed:
            self._next_scan = max(self._next_scan, now + self._profile.beat / 2)
            return
        yield from self._fence(now)
        if self._looks and now >= self._next_fence:
            yield from self._standby.foresee(self._suspects, now)
        yield from self._look_after(now)
        if now >= self._next_sweep:
            yield from self._sweep(now)
        if now >= self._next_scan:
            yield from self._look(now)

    def _scout(self, session: ServerSession, wants: list[int], now: float) -> Work[None]:
        """Look which of them can be claimed, and say so at once: what is free waits for no look at others."""
        if now >= self._living_until:
            self._living, self._living_until = set(), now + self._profile.beat / 2
        for some in [wants] if len(wants) > takeover.FEW else batched(wants, CHUNK):
            if (claims := (yield from takeover.scout(session, some, self._living))) and session is self._keeper_state.current_session():
                self._keeper_state.offer_claims(claims)

    def _look_after(self, now: float) -> Work[None]:
        """Look whether somebody took what this server gave up; if not, it is time to plan."""
        for partition in [partition for partition, at in self._keeper_state.released_partitions().items() if now >= at][: takeover.FEW]:
            row = yield from get(FLEETS, self._key, partition_key(partition))
            self._keeper_state.mark_checked(partition)
            found, _ = unreadable_rows.parse_rows([row] if row is not None else [], parse_partition)
            if any(not partition.owner and not partition.closed for _, partition in found):
                self._due, self._next_scan = True, now

    def _some(self, wants: list[int]) -> list[int]:
        """A few of them in turn: while the count changes most have to wait, and all servers ask."""
        self._turn = self._turn + takeover.FEW if self._turn + takeover.FEW < len(wants) else 0
        return wants[self._turn : self._turn + takeover.FEW]

    def _sweep(self, now: float) -> Work[None]:
        """Carry a change of the partition count on; plan when it is done."""
        progress = yield from resizing.sweep(self._key)
        self._keeper_state.counts["sweeps"] += 1
        self._next_sweep = now + generations.poll_interval(self._keeper_state.fleet, POLL)
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
                    self._keeper_state.counts["fenced"] += 1
                    log.warning("Server %s has been silent for too long and is fenced", name, extra={"action": "lease_fenced"})
                if found == "lives":
                    self._next_fence = now + self._profile.beat / 4
                    if not self._looks and self._sights[name].first != sight.first:
                        self._suspects.discard(name)
                else:
                    self._next_scan, self._due = now, True

    def _look(self, now: float) -> Work[None]:
        self._keeper_state.counts["scans"] += 1
        rows = yield from takeover.observe_servers(self._key, self._sights)
        self._refused = False
        servers = [parse_server(row) for row in rows]
        # Those that speak HTTP look at nobody.
        looking = [server.name for server in servers if server.state != "dead" and server.scans]
        every = rules.scan_interval(self._server, looking, self._profile)
        # Jitter, so that scanners do not look at the same moment.
        self._next_scan = now + every * (0.9 + 0.2 * self._chance())
        known = frozenset((server.name, server.incarnation, server.state, server.capacity) for server in servers)
        self._looks = every <= self._profile.beat
        ages = {server.name: max(0, row.read_at - row.timestamp) / 1000 for server, row in zip(servers, rows, strict=True)}
        self._suspects = rules.suspects(self._server, looking, ages, self._sights, self._profile, now)
        others = (server.name for server in servers if server.state == "live" and server.name != self._server)
        self._keeper_state.alone = not set(others) - self._drained
        if self._looks:
            # For all others a plan is due when they have fenced somebody, or have something to say: it reads all rows.
            self._due = self._due or known != self._known or now >= self._next_plan or (yield from self._changes())
        self._known = known
        if self._came:
            young = (server.name for server in servers if server.state != "dead" and server.beat < YOUNG)
            self._came, self._due = False, self._due or not set(young) - {self._server}
        if self._due:
            yield from self._plan(now, {server.name: server for server in servers})

    def _changes(self) -> Work[bool]:
        """Whether operators have changed something."""
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
            odd = ", ".join(facts.unreadable[:10])
            log.error("Rows of fleet %s cannot be read, and what they are about stays as it is: %s", self._key, odd, extra=UNREADABLE)
        self._unreadable = facts.unreadable
        self._seen_changes = facts.fleet.changes
        self._keeper_state.update_fleet(facts.fleet)
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
        self._keeper_state.alone = not [name for name in ready if name != self._server]
        self._drained = facts.intents.drained
        for move in found.moves:
            if move.reason in ("balance", "over capacity"):
                self._ordered.setdefault((move.partition, move.target), now)
        refused = yield from self._give(facts, found, later)
        self._keeper_state.counts["orders_refused"] += refused
        # Who was not reached beat in between: plan again soon, from what is there then.
        self._due = refused > 0 or bool(later)
        again = [*([now + self._profile.beat / 4] if refused else []), *later.values()]
        self._next_scan = min([self._next_scan, *again])

    def _give(self, facts: PlannerInput, found: PartitionPlan, later: Collection[int]) -> Work[int]:
        """Give the orders of a plan. later: what is not to be handed off yet. Returns how many were not told: they beat in between."""
        generation = facts.fleet.generation
        given: dict[str, tuple[list[int], list[int]]] = {}
        for member in facts.members:
            row = facts.servers[member.name]
            take, drop = facts.orders(found, member.name)
            # What somebody has ordered already is not put off again.
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
                # One lost answer must not keep the others waiting; where most are lost, to ask so many would take too long.
                self._keeper_state.counts["failed"] += 1
                if (failed := failed + 1) > MISSES:
                    raise
                heard = False
            refused += not heard
        return refused

    def _not_yet(self, found: PartitionPlan, now: float) -> dict[int, float]:
        """Partitions whose owners are to go on until their successors have heard that they are to take over, and when that will be. So a
        planned hand-off costs one look at a free partition, not a beat."""
        gentle = [(move.partition, move.target) for move in found.moves if move.reason in GENTLE and move.target not in ("", self._server)]
        self._told = {move: self._told.get(move, now + HEARD * self._profile.beat) for move in gentle}
        return {partition: heard for (partition, _), heard in self._told.items() if now < heard}

    def _budget(self, facts: PlannerInput, now: float) -> int:
        """Moves that may still be ordered: the limit less those of the last minute that are done; those under way are planned anew."""
        self._ordered = {move: at for move, at in self._ordered.items() if now - at < MINUTE}
        done = sum(facts.has(target, partition) for partition, target in self._ordered)
        return max(0, facts.fleet.limits.moves_per_minute - done)
