"""The owner of one shard: it serves the shard from load to rest or finish.

Deliveries run side by side, in tasks that begin at the due times. One loop talks to the store: about once a second a transaction
settles the deliveries that ended and claims the events that are due next. The transaction is also the owner's heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...core.clock import Millis
from ...core.errors import Rejected
from ...delivery.flow.lane import Lane
from ...delivery.flow.rules import FREE, ClaimHold
from ...delivery.flow.service import Flow
from ...engine.async_runner import AsyncRunner
from ...storage.ports import Row
from .. import rules
from ..facets.finding import HELD, held_numbers
from ..facets.long_work import silence
from ..key_lines.service import KeyLines
from ..keys import shard_tenant
from ..properties.overlap import has_line
from ..protocol import express, holding, owning
from ..protocol.dispatch import ShardMessage, announce, send
from ..shard.ledger import entry_for
from ..timings import (
    ANNOUNCE_TOGETHER,
    CLAIM_AHEAD,
    EXPRESS_LINGER,
    HEARTBEAT_EVERY,
    OWNER_SERVES_FOR,
    OWNER_TICK,
    REST_BEYOND,
    REST_BEYOND_BUSY,
    SETTLE_WITHIN,
)
from ..wakes.service import Wakes
from .arrivals import Arrivals
from .attempt import DeliveryAttempts, unclaimed
from .keyed import KeyedEvents, UnownedEvents
from .owner_tasks import DueTimes, LaneWorkers, OwedOutcomes

if TYPE_CHECKING:
    from ..outcomes.callbacks import TellOutcomes

log = logging.getLogger(__name__)

KEYED_SETTLE = 0.02
"""Seconds within which an outcome is stored while others wait for its ordering key."""
ANSWER_BYTES = 1024 * 1024
"""Most bytes of answers in one transaction: more than one answer has, and a quarter of what a transaction may have."""


class OwningProcess(NamedTuple):
    """The parts of a process that all its owners use.

    leaving: returns True when the process is about to end and owners must release their shards. busy: returns True while the process serves
    `BUSY_OWNERS` shards or more, so that waiting for an event costs nothing. lines: the lines of ordering keys. wakes: asked for when a
    shard rests.
    """

    runner: AsyncRunner
    flow: Flow
    tell: TellOutcomes
    leaving: Callable[[], bool]
    busy: Callable[[], bool]
    lines: KeyLines
    wakes: Wakes


class Owner:
    """Serves one shard that was just taken."""

    def __init__(
        self,
        session: owning.OwnerSession,
        attempts: DeliveryAttempts,
        process: OwningProcess,
        arrivals: Arrivals,
        earlier: Millis = 0,
    ) -> None:
        """arrivals: the events that this process stores in the shard while it serves it. earlier: time by which the owner's message has
        come earlier than usual."""
        self._earlier = earlier
        # A message that several shards share comes as early as the first of them needs it.
        self._stays = earlier and REST_BEYOND + ANNOUNCE_TOGETHER + earlier
        self._session, self._attempts, self._permission = session, attempts, attempts.permission
        self._runner, self._flow, tell, self._leaving, self._busy, lines, self._wakes = process
        self._clock = clock = self._runner.clock
        self._tenant = shard_tenant(session.shard)
        self._started = clock.monotonic()
        self._running: dict[str, asyncio.Task[None] | Lane] = {}
        """Claimed events whose attempt has not ended, with its task; with its lane until it has one."""
        self._workers: dict[Lane, LaneWorkers] = {}
        self._due_times = DueTimes(clock, self._begin, self._prepare)
        self._preparing: set[asyncio.Task[None]] = set()
        self._paused: set[str] = set()
        """Channels of claimable events that were paused when flow control was last asked."""
        self._holds: Mapping[str, ClaimHold] | None = None
        """The last answer of flow control; None if it was not asked because this owner claims nothing more."""
        self._shed_at = self._started
        """Monotonic time at which to look again for deliveries that cannot start soon."""
        self._outcomes: dict[str, rules.RowOutcome] = {}
        self._oldest_outcome = self._started
        """Monotonic time at which the oldest of the outcomes came."""
        self._woken = asyncio.Event()
        self._owed = OwedOutcomes(clock, tell, self._add_outcome)
        self._keyed = KeyedEvents(session, self._tenant, lines, clock, attempts.waits, self._woken.set)
        self._unowned = UnownedEvents(attempts, clock, succeeds=session.epoch > 1 and not session.succeeds_lost)
        self._express = arrivals.opened_here
        self._arrivals = arrivals
        arrivals.running, arrivals.wake_owner = self._running, self._woken.set

    async def run(self) -> None:
        """Serve until the shard rests, is finished, or is lost. Raises `StorageError` if storage stays away; a sweep then repairs."""
        permission = self._permission
        try:
            # Before anything is started: this observes the fence, and copies the new ownership.
            if not await permission.confirm_side():
                return
            if not self._express:
                # Storage that refuses for a moment costs no take-over, while this owner may still start deliveries.
                began = self._clock.monotonic()
                permission.ended = not await self._runner.insist(lambda: owning.load(self._session), permission.covers_now)
                self._attempts.waits.storage(began)
            else:
                self._start_claimed()
            permission.start_watch()
            while not permission.ended and await self._turn():
                pass
        finally:
            permission.cancel_watch()
            await self._abandon()
            await permission.watch_ended()
            self._keyed.leave()

    async def _turn(self) -> bool:
        """Run one round of the loop; return False when the owner is done with the shard."""
        going = self._leaving() or self._clock.monotonic() - self._started > OWNER_SERVES_FOR
        todo = await self._plan(going)
        if going:
            self._give_back(self._attempts.waiting)
        else:
            self._shed()
            if todo.owed:
                self._owed.start([self._session.rows[rk] for rk in todo.owed if rk not in self._outcomes])
        outcomes, outcome_rows = self._take_outcomes(todo)
        room = max(0, owning.MAX_CHANGES - outcome_rows)
        arrivals = self._arrivals
        if going:
            arrivals.close()
        room -= len(arrivals.take(room))
        claims = [] if going else todo.claim[:room]
        if self._express and outcomes and not claims and self._is_last(arrivals, outcomes):
            return await self._settle_all(arrivals, outcomes)
        if outcomes or claims or arrivals.storing or self._permission.heartbeat_due():
            if not await self._step(outcomes, claims):
                return False
            rows, epoch = self._session.rows, self._session.epoch
            left = any(rk in rows and rules.needs_claim(rows[rk].props, epoch) for rk in claims)
            if outcome_rows + len(claims) < owning.MAX_CHANGES and not left and self._running:
                await self._pause(todo)
            return True
        if todo.finished and not self._running and not arrivals.stays(self._clock.monotonic()):
            self._arrivals.close()
            await self._finish()
            return False
        if not self._running and (todo.rest is not None or going):
            self._arrivals.close()
            await self._rest(self._clock.now() if going else todo.rest, todo)
            return False
        await self._pause(todo)
        return True

    async def _plan(self, going: bool) -> rules.Agenda:
        """Decide what to do next, after asking flow control about the channels of claimable events."""
        rows = self._session.rows.open
        policy = self._attempts.tenant.policy
        patience = max(REST_BEYOND_BUSY if self._busy() else REST_BEYOND, self._stays)
        owed = self._session.owed

        def decide(holds: Mapping[str, ClaimHold] = FREE, blocked: Mapping[str, Millis] = rules.NONE_BLOCKED) -> rules.Agenda:
            return rules.agenda(rows, self._session.epoch, self._clock.now(), policy, holds, patience, blocked, owed)

        todo = decide()
        self._paused.clear()
        self._holds = None if going else FREE
        blocked: dict[str, Millis] = {}
        skips: Mapping[str, rules.RowOutcome] = {}
        self._keyed.begin()
        if todo.claim and not going:
            in_lines = [rk for rk in todo.claim if has_line(rows[rk])]
            blocked = await self._unowned.blocked(self._session.rows, in_lines)
            # Those that wait for an owner ask for no turn, which they could not use.
            blocked |= await self._keyed.blocked([rk for rk in in_lines if rk not in blocked], self._outcomes)
            skips = await self._keyed.skips()
        asked = todo.claim
        if blocked:
            todo = decide(FREE, blocked)
        if todo.claim and not going:
            wanted = Counter([str(rows[rk]["channel"]) for rk in todo.claim])

            def fresh(channel: str) -> bool:
                return any(rows[rk]["state"] == "scheduled" and rows[rk]["channel"] == channel for rk in todo.claim)

            # An owner that claims nothing more does not ask: it might win the breaker's probe and not make it.
            if holds := await self._flow.holds(self._session.shard, self._tenant, wanted, fresh):
                self._holds = holds
                self._paused.update(name for name, hold in holds.items() if hold.paused)
                for name, hold in holds.items():
                    if hold.full:
                        self._attempts.waits.full(name, self._flow.lanes.lane(self._tenant, name).reason_to_wait(), hold.until)
                todo = decide(holds, blocked)
        todo.settle.update({rk: silence(rows[rk], policy(rows[rk]), self._clock.now()) for rk in todo.silent})
        todo.settle.update(skips)
        if todo.claim is not asked:
            # Time has passed since the turns were asked for: an event that can be claimed only now has none.
            todo = todo._replace(claim=[rk for rk in todo.claim if self._keyed.considered(rk)])
        return todo

    def _shed(self) -> None:
        """Undo claims of events that wait for a slot and cannot start soon, the latest due first."""
        now = self._clock.monotonic()
        if not self._attempts.waiting or now < self._shed_at:
            return
        self._shed_at = now + OWNER_TICK / 2
        rows = self._session.rows
        waiting = Counter([str(rows[rk].props["channel"]) for rk in self._attempts.waiting])
        for channel, count in self._flow.surplus(self._session.shard, self._tenant, waiting).items():
            mine = sorted((int(rows[rk].props["due"]), rk) for rk in self._attempts.waiting if rows[rk].props["channel"] == channel)
            self._give_back({rk for _, rk in mine[-count:]})

    def _give_back(self, row_keys: set[str]) -> None:
        """Undo the claims of events that still wait for a slot."""
        self._flow.given_back(len(row_keys))
        for rk in sorted(row_keys):  # a set's own order differs between processes
            self._cancel(rk, self._running.pop(rk))
            self._attempts.waiting.discard(rk)
            self._add_outcome(rk, unclaimed(self._session.rows[rk].props))
        self._arrivals.recount()

    def _take_outcomes(self, todo: rules.Agenda) -> tuple[dict[str, rules.RowOutcome], int]:
        """Take the outcomes of the next transaction; return them, and the most rows that it writes for them."""
        ready = {**self._outcomes, **todo.settle}
        taken: dict[str, rules.RowOutcome] = {}
        rows = size = 0
        for rk, outcome in ready.items():
            more = 1 + self._session.facets.rows_beside(outcome)
            size += 0 if outcome.answer is None else outcome.answer.size
            if taken and (rows + more > owning.MAX_CHANGES or size > ANSWER_BYTES):
                break
            rows += more
            taken[rk] = outcome
        for rk in taken:
            self._outcomes.pop(rk, None)
        # What is left over goes with the next transaction, which follows at once.
        return taken, rows

    def _add_outcome(self, rk: str, outcome: rules.RowOutcome) -> None:
        """Keep an outcome for the next transaction."""
        if not self._outcomes:
            self._oldest_outcome = self._clock.monotonic()
            # Only the first: waking the loop for each delivery took a sixth of a delivery's time.
            self._woken.set()
        self._outcomes[rk] = outcome

    async def _step(self, outcomes: Mapping[str, rules.RowOutcome], claims: list[str]) -> bool:
        sent = self._clock.monotonic()
        entries = self._arrivals.entries
        rows = self._session.rows
        keyed = {rk: rows[rk] for rk in outcomes if rk in rows and has_line(rows[rk].props)}
        try:
            serving = await self._runner.insist(lambda: owning.step(self._session, outcomes, claims, entries), self._permission.covers_now)
        except Rejected as error:
            if not entries:
                raise
            # One event that storage refuses must not fail the others.
            self._arrivals.fail(error)
            self._outcomes = {**outcomes, **self._outcomes}
            return True
        self._arrivals.settle(self._session.rows)
        if not serving:
            return self._lose()
        # Validity counts from the SEND; a step that had to fence and try again only makes this earlier than necessary.
        self._permission.renew(sent)
        self._attempts.waits.storage(sent)
        self._start_claimed()
        if keyed:
            # Only now: whoever gets the turn finds the outcome stored.
            await self._keyed.settled(outcomes, keyed)
        return True

    def _lose(self) -> Literal[False]:
        self._permission.lose_shard()
        log.debug("Shard %s was taken over", self._session.shard, extra={"action": "shard_lost"})
        return False

    def _is_last(self, arrivals: Arrivals, outcomes: Mapping[str, rules.RowOutcome]) -> bool:
        """Return True if the shard is finished with these outcomes, because no event is on its way into it."""
        if self._running or self._outcomes or arrivals.storing or arrivals.pending or arrivals.stays(self._clock.monotonic()):
            return False
        return express.may_settle_all(self._session, outcomes)

    async def _settle_all(self, arrivals: Arrivals, outcomes: dict[str, rules.RowOutcome]) -> bool:
        """Settle the last outcomes and finish the shard; return True if there is more to do."""
        arrivals.close()
        done = await self._runner.insist(lambda: express.settle_all(self._session, outcomes), self._permission.covers_now)
        if done is None:
            # What the store shows as settled is left out by the next step.
            self._outcomes = outcomes | self._outcomes
            return True
        if not done:
            return self._lose()
        entry = entry_for(list(self._session.rows.values()), self._clock.now())
        await self._runner.run(express.close_done(self._session, entry, self._permission.before_end(entry)))
        return False

    def _start_claimed(self) -> None:
        """Start a task for each event with a stored claim."""
        # An event that ended during the transaction is still claimed until the next one settles it: it must not start a second time.
        for rk in owning.claimed(self._session, self._running.keys() | self._outcomes.keys()):
            row = self._session.rows[rk]
            lane = self._flow.lanes.lane(self._tenant, str(row.props["channel"]))
            lane.enter(self._session.shard)
            self._running[rk] = lane
            start = max(int(row.props["due"]), int(row.props.get("next", 0)), self._keyed.start_of(rk))
            self._due_times.add(start, (row, lane))
        self._arrivals.recount()

    def _prepare(self, event: tuple[Row, Lane]) -> None:
        """Begin to read the settings of the channel of an event that is due soon."""
        task = asyncio.create_task(self._attempts.prepare(str(event[0].props["channel"])))
        self._preparing.add(task)
        task.add_done_callback(self._preparing.discard)

    def _begin(self, event: tuple[Row, Lane]) -> None:
        """Attempt the delivery of a claimed event, which is due."""
        row, lane = event
        workers = self._workers.get(lane)
        if workers is None:
            workers = LaneWorkers(lane, self._session.shard, self._clock, self._deliver, self._running, self._attempts.waiting)
            self._workers[lane] = workers
        workers.begin(row)

    def _cancel(self, rk: str, begun: asyncio.Task[None] | Lane) -> None:
        if isinstance(begun, asyncio.Task):
            begun.cancel()
            return
        begun.leave(self._session.shard)
        if begun in self._workers:
            self._workers[begun].drop(rk)

    def _held(self) -> str | None:
        """Return the numbers of events that blocked channels hold, as the held row has them; None if that is not known."""
        if self._holds is None:
            return None
        return held_numbers(self._session.rows.open.values(), self._holds, self._clock.now())

    async def _pause(self, todo: rules.Agenda) -> None:
        """Wait until the next tick, until the oldest outcome must be settled, or until the last running delivery has ended."""
        session = self._session
        if not session.known.get(HELD) and (held := self._held()):
            # An owner that other channels keep busy rests late.
            await self._runner.insist(lambda: holding.note_held(session, held), self._permission.covers_now)
        until = OWNER_TICK
        if todo.look is not None and not self._running:
            until = min(max(0.001, (todo.look - self._clock.now()) / 1000), HEARTBEAT_EVERY)
        ends = self._clock.monotonic() + until
        while not self._all_ended() and not self._arrivals.pending:
            if self._keyed.woken:
                return
            if self._outcomes:
                # Later than the tick too: outcomes that come soon after the first one share its transaction, and so do the next claims.
                ends = self._oldest_outcome + self._settles_within()
            left = ends - self._clock.monotonic()
            if left <= 0:
                return
            self._woken.clear()
            ways = (asyncio.ensure_future(self._clock.sleep(left)), asyncio.ensure_future(self._woken.wait()))
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()

    def _settles_within(self) -> float:
        """Return the seconds after which the oldest outcome is stored."""
        if self._express:
            return EXPRESS_LINGER
        return KEYED_SETTLE if self._keyed.urgent else SETTLE_WITHIN

    def _all_ended(self) -> bool:
        """Return True if outcomes are to be settled before the tick because nothing else runs.

        While deliveries run, they go first and are settled together.
        """
        if self._arrivals.lingers:
            return False
        return bool(self._outcomes) and not self._running

    async def _deliver(self, row: Row, lane: Lane, held: Millis | None) -> None:
        """Attempt the delivery once. held: time since which the event could have started."""
        props = row.props
        try:
            outcome = await self._attempts.attempt(row.rk, props, lane, held)
            if outcome is not None:
                self._add_outcome(row.rk, outcome)
        except Exception as error:
            # Without an outcome the row would stay claimed and be started again with every transaction.
            log.exception("A delivery raised an unexpected error", extra={"action": "delivery_failed", "event": props["id"]})
            self._add_outcome(row.rk, self._attempts.failed_inside(props, error))
        finally:
            if self._running.get(row.rk) is asyncio.current_task():
                del self._running[row.rk]
                self._arrivals.recount()
            if self._all_ended():
                self._woken.set()

    async def _rest(self, wake: Millis | None, todo: rules.Agenda) -> None:
        if wake is None:
            return
        session, now = self._session, self._clock.now()
        events = list(session.rows.open.values())
        retries = todo.retries if wake == todo.rest else all(props["state"] == "retrying" for props in events)
        near = wake <= now + self._wakes.horizons.alone
        await self._keyed.give_back()
        # Again, because a shard that is not released must wait until its owner counts as gone.
        held = self._held()
        rested = await self._runner.insist(
            lambda: holding.rest_holding(session, wake, retries_only=retries, sent=near, held=held), self._permission.covers_now
        )
        # Held events are due before the wake-up.
        first = sum(wake <= rules.due_at(props) <= wake + CLAIM_AHEAD for props in events)
        if rested and (not near or not retries):
            # Express delivery runs in a process that answers requests, and keeps no instance of the shards' queue alive.
            await self._wakes.ask(rules.visible_at(wake, first), sent=near, warm=not self._express)
        if rested and near:
            earlier = 0 if retries else self._earlier
            message = ShardMessage(session.shard, session.held.gate.index, earlier=earlier)
            await self._runner.run(announce(message, rules.visible_at(wake, first) - earlier, retries_only=retries))
        # A user who resumed the channel before the index row said that the shard rests has not woken this shard.
        if self._paused and await self._flow.resumed(self._tenant, self._paused):
            await self._runner.run(send(ShardMessage(session.shard, session.held.gate.index), now, retries_only=True))
        if self._keyed.woken:
            # A turn has come free while the shard was being released.
            await self._runner.run(send(ShardMessage(session.shard, session.held.gate.index), now))
        await self._permission.confirm_side()

    async def _finish(self) -> None:
        rows = list(self._session.rows.values())
        entry = entry_for(rows, self._clock.now())
        await self._runner.run(owning.finish(self._session, entry, self._permission.before_end(entry)))

    async def _abandon(self) -> None:
        """Start nothing more. This owner no longer settles the deliveries that run; they will be made again."""
        self._permission.end()
        self._due_times.close()
        self._owed.cancel()
        for task in self._preparing:
            task.cancel()
        tasks = [task for task in self._running.values() if isinstance(task, asyncio.Task)]
        for rk, begun in self._running.items():
            self._cancel(rk, begun)
        await asyncio.gather(*tasks, return_exceptions=True)
