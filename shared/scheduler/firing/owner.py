"""An owner at work: one shard, from load to rest or finish.

Deliveries run side by side, each a task that waits for its instant. One loop talks to the store: about once a second a transaction settles
what has ended, claims what is due next, and is the beat.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Literal

from ...core.clock import Clock, Millis
from ...core.errors import StorageError
from ...core.ids import Ids
from ...delivery.channels.ports import Delivery, Target, Verdict
from ...delivery.flow.lane import Lane
from ...delivery.flow.service import Flow
from ...engine.effects import Driver
from ...storage.ports import Row
from .. import rules
from ..attempts import ERROR_LENGTH, with_attempt
from ..keys import shard_tenant
from ..mirror.pair import Guard
from ..protocol import owning
from ..protocol.dispatch import ShardMessage, announce, send
from ..queries.ledger import entry_for
from ..rows import body_of

log = logging.getLogger(__name__)

TICK = 1.0
"""Seconds between transactions while deliveries go on."""
HOLD = 240.0
"""Seconds after which an owner lets go and has itself called again: an invocation must stay well under the platform's limit."""
UNREAD: Millis = 2_000
"""How long an event waits when its channel's settings could not be read."""
BROKEN: Millis = 60_000
"""How long an event waits after a failure that is the service's own."""

type Carry = Callable[[Target, Delivery], Awaitable[Verdict]]


def punctual_at(props: Mapping[str, Any]) -> Millis:
    """When a delivery of the event that starts now would have been punctual: what came in overdue, or waits for its next attempt, is not
    late for that."""
    return max(int(props["due"]), int(props.get("next", 0)), int(props["created"]))


class Owner:
    """Serves one shard that was just taken."""

    def __init__(
        self,
        session: owning.Session,
        *,
        driver: Driver,
        clock: Clock,
        ids: Ids,
        policy: Callable[[Mapping[str, Any]], rules.RetryPolicy],
        target: Callable[[str], Awaitable[Target | None]],
        send: Carry,
        flow: Flow,
        taken_at: float,
        leaving: Callable[[], bool] = lambda: False,
        guard: Guard | None = None,
    ) -> None:
        self._session, self._driver, self._clock, self._ids = session, driver, clock, ids
        self._policy, self._target, self._send, self._flow = policy, target, send, flow
        self._tenant = shard_tenant(session.shard)
        self._started, self._beat = clock.monotonic(), taken_at
        self._leaving = leaving
        self._guard = guard
        """Of a mirrored shard: leave to serve it, and its copy."""
        self._running: dict[str, asyncio.Task[None]] = {}
        self._queued: set[str] = set()
        """Of the running ones, those that wait for a slot: nothing has been started for them."""
        self._paused: set[str] = set()
        """Channels that were paused when they were last asked about, of those that something was to be claimed for."""
        self._shed_at = self._started
        """Monotonic: when to look again whether they wait in vain."""
        self._outcomes: dict[str, rules.Outcome] = {}
        self._stir = asyncio.Event()
        self._beaten = asyncio.Event()
        self.lost = False
        """Nothing more may be started: the shard is someone else's, or this owner has ended."""
        self.lost_shard = False
        """The shard turned out to be someone else's."""

    async def run(self) -> None:
        """Until the shard rests, is finished, or is lost. Raises `StorageError` when storage stays away: repair takes over."""
        watch: asyncio.Task[None] | None = None
        try:
            # Before anything is started: this is the look at the fence, and puts the taking into the copy.
            if self._guard is not None and not await self._guard.look():
                return
            self.lost = not await self._driver.drive(owning.load(self._session))
            if self._guard is not None:
                watch = asyncio.create_task(self._guard.watch(self._overtaken, self._wake))
            while not self.lost and await self._turn():
                pass
        finally:
            if watch is not None:
                watch.cancel()
            await self._abandon()
            if watch is not None:
                await asyncio.gather(watch, return_exceptions=True)

    def _overtaken(self) -> None:
        """The other account serves the shard now."""
        self.lost = self.lost_shard = True
        self._wake()

    def _wake(self) -> None:
        """Let whoever waits for leave to start look again."""
        self._beaten.set()
        self._beaten = asyncio.Event()

    async def _turn(self) -> bool:
        """One round of the loop; False when the owner is done with the shard."""
        going = self._leaving() or self._clock.monotonic() - self._started > HOLD
        todo = await self._todo(going)
        if going:
            self._give_back(self._queued)
        else:
            self._shed()
        outcomes = self._take_outcomes(todo)
        room = owning.MAX_CHANGES - len(outcomes)
        claims = [] if going else todo.claim[:room]
        if outcomes or claims or self._beat_due():
            if not await self._step(outcomes, claims):
                return False
            rows, epoch = self._session.rows, self._session.epoch
            left = any(rk in rows and rules.needs_claim(rows[rk].props, epoch) for rk in claims)
            if len(outcomes) + len(claims) < owning.MAX_CHANGES and not left and self._running:
                await self._pause(todo)
            return True
        if todo.finished and not self._running:
            await self._finish()
            return False
        if not self._running and (todo.rest is not None or going):
            await self._rest(self._clock.now() if going else todo.rest, todo)
            return False
        await self._pause(todo)
        return True

    async def _todo(self, going: bool) -> rules.Agenda:
        """What to do next, with what flow control says of the channels that something is to be claimed for."""
        rows = {rk: row.props for rk, row in self._session.rows.items()}
        todo = rules.agenda(rows, self._session.epoch, self._clock.now(), self._policy)
        self._paused.clear()
        if todo.claim and not going:
            wanted = Counter([str(rows[rk]["channel"]) for rk in todo.claim])

            def fresh(channel: str) -> bool:
                return any(rows[rk]["state"] == "scheduled" and rows[rk]["channel"] == channel for rk in todo.claim)

            # Not by one that claims nothing any more: it might win the probe, and not make it.
            if holds := await self._flow.holds(self, self._tenant, wanted, fresh):
                self._paused.update(name for name, hold in holds.items() if hold.paused)
                todo = rules.agenda(rows, self._session.epoch, self._clock.now(), self._policy, holds)
        return todo

    def _shed(self) -> None:
        """Give back what waits for a slot and cannot be started soon, the latest due first."""
        now = self._clock.monotonic()
        if not self._queued or now < self._shed_at:
            return
        self._shed_at = now + TICK / 2
        rows = self._session.rows
        waiting = Counter([str(rows[rk].props["channel"]) for rk in self._queued])
        for channel, count in self._flow.surplus(self, self._tenant, waiting).items():
            mine = sorted((int(rows[rk].props["due"]), rk) for rk in self._queued if rows[rk].props["channel"] == channel)
            self._give_back({rk for _, rk in mine[-count:]})

    def _give_back(self, some: set[str]) -> None:
        """Undo the claims of deliveries that still wait for a slot."""
        self._flow.given_back(len(some))
        for rk in list(some):
            self._queued.discard(rk)
            self._running.pop(rk).cancel()
            self._outcomes[rk] = self._unclaimed(self._session.rows[rk].props)

    @staticmethod
    def _unclaimed(props: Mapping[str, Any]) -> rules.Outcome:
        """Not an attempt: the claim is taken back, as if it had never been made."""
        state: Literal["retrying", "scheduled"] = "retrying" if "next" in props else "scheduled"
        return rules.Outcome(state, {"tries": int(props["tries"]) - 1})

    def _take_outcomes(self, todo: rules.Agenda) -> dict[str, rules.Outcome]:
        ready = {**self._outcomes, **todo.settle}
        taken = {rk: ready[rk] for rk in list(ready)[: owning.MAX_CHANGES]}
        for rk in taken:
            self._outcomes.pop(rk, None)
        return taken

    def _beat_due(self) -> bool:
        return self._clock.monotonic() - self._beat >= rules.BEAT_EVERY

    async def _step(self, outcomes: Mapping[str, rules.Outcome], claims: list[str]) -> bool:
        sent = self._clock.monotonic()
        if not await self._driver.drive(owning.step(self._session, outcomes, claims)):
            self.lost = self.lost_shard = True
            log.debug("Shard %s was taken over", self._session.shard, extra={"action": "shard_lost"})
            return False
        # Validity counts from the SEND; a step that had to fence and try again only makes this earlier than need be.
        self._beat = sent
        if self._guard is not None:
            self._guard.dirty = True
        self._wake()
        # What ended meanwhile is claimed still, until the next transaction settles it: it must not start a second time.
        for rk in owning.claimed(self._session, self._running.keys() | self._outcomes.keys()):
            row = self._session.rows[rk]
            lane = self._flow.lanes.lane(self._tenant, str(row.props["channel"]))
            lane.enter(self)
            self._running[rk] = task = asyncio.create_task(self._deliver(row, lane))
            # Not by the task itself: one that is cancelled before it has begun does nothing at all.
            task.add_done_callback(partial(lane.leave, self))
        return True

    async def _pause(self, todo: rules.Agenda) -> None:
        """Wait until the next tick; sooner when nothing is left to wait for."""
        until = TICK
        if todo.look is not None and not self._running:
            until = min(max(0.001, (todo.look - self._clock.now()) / 1000), rules.BEAT_EVERY)
        timer = asyncio.ensure_future(self._clock.sleep(until))
        try:
            while not timer.done():
                self._stir.clear()
                if self._gathered():
                    return
                stir = asyncio.ensure_future(self._stir.wait())
                await asyncio.wait((timer, stir), return_when=asyncio.FIRST_COMPLETED)
                stir.cancel()
        finally:
            timer.cancel()

    def _gathered(self) -> bool:
        """Whether to settle before the tick: nothing else is under way. Else a herd's deliveries go first, and are settled after."""
        return bool(self._outcomes) and not self._running

    async def _deliver(self, row: Row, lane: Lane) -> None:
        """Wait for the instant, then attempt the delivery once."""
        props = row.props
        try:
            start = max(int(props["due"]), int(props.get("next", 0)))
            while (wait := start - self._clock.now()) > 0:
                await self._clock.sleep(wait / 1000)
            outcome = await self._attempt(row.rk, props, lane)
            if outcome is not None:
                self._outcomes[row.rk] = outcome
        except Exception as error:
            # Or the row would stay claimed, and be started again with every transaction.
            log.exception("A delivery failed in a way it should not", extra={"action": "delivery_failed", "event": props["id"]})
            self._outcomes[row.rk] = self._broken(props, error)
        finally:
            if self._running.get(row.rk) is asyncio.current_task():
                del self._running[row.rk]
            if self._gathered():
                # Not after each delivery: to wake the loop for nothing took a sixth of a delivery's time.
                self._stir.set()

    def _broken(self, props: Mapping[str, Any], error: Exception) -> rules.Outcome:
        now = self._clock.now()
        if int(props["tries"]) < rules.CRASH_TRIES:
            return rules.Outcome("retrying", {"next": now + BROKEN})
        return rules.Outcome("dead", {"ended": now, "error": f"the delivery failed inside the service: {type(error).__name__}"})

    def _covered(self) -> bool:
        """Whether the last beat covers a delivery that starts now."""
        if self.lost or self._clock.monotonic() - self._beat >= rules.OWNER_MAY_START:
            return False
        return self._guard is None or self._guard.may_start

    async def _may_start(self) -> bool:
        """Whether a delivery may start now; waits for the next beat if the last one does not cover it."""
        while not self.lost:
            if self._covered():
                return True
            await self._beaten.wait()
        return False

    def _unread(self, props: Mapping[str, Any], error: StorageError) -> rules.Outcome:
        # Not an attempt: the target was never asked, and an event must not die of our own storage's weakness.
        log.debug("The settings of a channel could not be read: %s", error, extra={"action": "channel_unread"})
        return rules.Outcome("retrying", {"next": self._clock.now() + UNREAD, "tries": int(props["tries"]) - 1})

    def _removed(self, props: Mapping[str, Any]) -> rules.Outcome:
        return self._failed(props, self._clock.now(), Verdict("final", error="the channel no longer exists"), 0)

    async def _attempt(self, rk: str, props: Mapping[str, Any], lane: Lane) -> rules.Outcome | None:
        try:
            target = await self._target(str(props["channel"]))
        except StorageError as error:
            return self._unread(props, error)
        if target is None:
            return self._removed(props)
        if self._flow.blocks(target):
            return self._unclaimed(props)
        self._queued.add(rk)
        backlog = rules.in_backlog(punctual_at(props), self._clock.now())
        async with self._flow.lanes.slot(lane, backlog=backlog) as slot:
            self._queued.discard(rk)
            # After a wait it may have been paused, or its breaker may have opened; and waiting for a slot, or for storage, may have taken
            # longer than the last beat covers.
            waited = slot.waited or not self._covered()
            if not await self._may_start():
                return None
            if waited:
                try:
                    target = await self._target(target.name)
                except StorageError as error:
                    return self._unread(props, error)
                if target is None:
                    return self._removed(props)
                if not await self._may_start():
                    return None
            fired = self._clock.now()
            if rules.lapsed(props, fired):
                return rules.Outcome("lapsed", {"ended": fired})
            trace = props.get("trace")
            delivery = Delivery(str(props["id"]), int(props["due"]), fired, int(props["tries"]), body_of(props), trace)
            if not self._flow.admits(target):
                return self._unclaimed(props)
            try:
                verdict = await self._send(target, delivery)
            except Exception as error:
                log.exception("A sender failed in a way it should not", extra={"action": "sender_failed", "event": delivery.id})
                verdict = Verdict("retry", error=f"the sender failed: {type(error).__name__}")
            except asyncio.CancelledError:
                self._flow.dropped(target)
                raise
            slot.answered = verdict.outcome != "retry" or verdict.status is not None
        now = self._clock.now()
        took = now - fired
        if (turn := self._flow.ended(target, lane, delivery.id, verdict, now)) is not None:
            await turn
        if verdict.outcome == "delivered":
            history = with_attempt(props, fired, "delivered", verdict.status, None, took)
            return rules.Outcome("delivered", {"ended": now, "late": delivery.late_ms, "history": history})
        return self._failed(props, fired, verdict, took)

    def _failed(self, props: Mapping[str, Any], at: Millis, verdict: Verdict, took: Millis) -> rules.Outcome:
        # Attempts that are known to have failed; claims whose owner died do not use up the policy.
        failed = int(props.get("failed", 0)) + 1
        # What it waited beyond its time, held by its channel or by an outage, uses up nothing of the policy's time.
        waited = int(props.get("waited", 0)) + max(0, at - punctual_at(props))
        again = rules.after_failure(
            self._policy(props),
            # An event that was overdue when it came in is tried again like any other.
            max(int(props["due"]), int(props["created"])) + waited,
            failed,
            self._clock.now(),
            self._ids.chance(),
            final=verdict.outcome == "final",
            retry_after=verdict.retry_after,
        )
        history = with_attempt(props, at, verdict.outcome, verdict.status, verdict.error, took)
        error = (verdict.error or f"answered {verdict.status}")[:ERROR_LENGTH]
        until = rules.last_call(props)
        if again is None or (until is not None and again > until):
            # No attempt would be in time any more: that is known now, and is told now.
            ended: Literal["dead", "lapsed"] = "dead" if again is None else "lapsed"
            outcome = rules.Outcome(ended, {"ended": self._clock.now(), "history": history, "error": error, "failed": failed})
        else:
            outcome = rules.Outcome("retrying", {"next": again, "history": history, "failed": failed, "waited": waited})
        extra = {"tenant": self._tenant, "channel": props["channel"], "event": props["id"], "state": outcome.state, "error": error}
        log.debug("Event %s was not delivered: %s", props["id"], error, extra=extra | {"action": "attempt_failed"})
        return outcome

    async def _rest(self, wake: Millis | None, todo: rules.Agenda) -> None:
        if wake is None:
            return
        session, now = self._session, self._clock.now()
        open_rows = [row for row in session.rows.values() if row.props["state"] not in rules.FINAL]
        retries = todo.retries if wake == todo.rest else all(row.props["state"] == "retrying" for row in open_rows)
        near = wake <= now + rules.DISPATCH_AHEAD
        if await self._driver.drive(owning.rest(session, wake, retries_only=retries, sent=near)) and near:
            message = ShardMessage(session.shard, session.held.gate.index)
            await self._driver.drive(announce(message, wake - rules.WAKE_EARLY, retries_only=retries))
        # Who resumed the channel before the index row said that the shard rests has not called it back.
        if self._paused and await self._flow.resumed(self._tenant, self._paused):
            await self._driver.drive(send(ShardMessage(session.shard, session.held.gate.index), now, retries_only=True))
        if self._guard is not None:
            await self._guard.look()

    async def _finish(self) -> None:
        rows = list(self._session.rows.values())
        entry = entry_for(rows, self._clock.now())
        before = self._guard.before_end(entry) if self._guard is not None else None
        await self._driver.drive(owning.finish(self._session, entry, before))

    async def _abandon(self) -> None:
        """Nothing more is started; what is under way is not settled by this owner any more, and will be delivered again."""
        self.lost = True
        self._beaten.set()
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
