"""The keeper's heartbeat loop: registers, sends heartbeats, claims, releases and leaves.

The loop has no threads and does no I/O: its runner does both. Time comes from the given `steady` clock, requests of other threads from
`KeeperState`. Changes for the application go to `ApplicationNotifier`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from ...core.clock import Millis
from ...core.errors import StorageError
from ...core.ids import Ids
from ...engine.effects import Work, wait
from ...engine.observed import observed
from .. import rules
from ..planner_input import read_fleet
from ..profiles import Profile
from ..protocol import membership
from ..protocol.membership import MAX_RIDERS, BeatApplied, BeatNotApplied, IncarnationFenced, ServerReport
from ..rows import MAX_ORDERS, Fleet, ServerState
from ..rules import Claim, HandOff, ServerSession
from .failures import RequestFailures
from .keeper_state import KeeperState, PartitionOrders
from .notifications import ApplicationNotifier, KeySpread
from .registration import Registration
from .standby import EXPECTED

log = logging.getLogger(__name__)

_NEVER: Final = float("-inf")
_TOLD: Final = 2.25
"""Heartbeat intervals for which a draining server keeps its partitions, so that its successors are ready."""
_AVOIDED: Final = 60.0
"""Seconds for which a server does not want back a partition that its application dropped, if another server can own it."""


class HeartbeatLoop:
    """Runs one server's side of the protocol. One per keeper: call `open`, then `serve` until it returns True."""

    def __init__(
        self,
        key: str,
        server: str,
        keeper_state: KeeperState,
        notifier: ApplicationNotifier,
        steady: Callable[[], float],
        wall: Callable[[], Millis],
        ids: Ids,
        publish: ServerReport,
    ) -> None:
        self._key, self._server, self._keeper_state, self._notifier = key, server, keeper_state, notifier
        self._steady, self._wall, self._ids = steady, wall, ids
        self.publish = publish
        self._hand_offs: dict[int, HandOff] = {}
        self._avoided: dict[int, float] = {}
        self._obeyed = PartitionOrders()
        self._next_beat = 0.0
        self._last_cycle = _NEVER
        self._claimed_this_cycle = 0
        self._exit = False
        self._said: ServerState = "live"
        self._failures = RequestFailures(server, keeper_state)
        self._registration = Registration(key, server, keeper_state, self._failures, steady, ids)

    def open(self) -> Work[Fleet | None]:
        """Read the fleet, however long it takes. Return None if the keeper is stopped meanwhile. Raises `FleetMissing`."""
        return (yield from observed(self._registration.open(), self._failures.record))

    def serve(self, proof: Callable[[str], tuple[str, ...]]) -> Work[bool]:
        """Register and send heartbeats until the keeper is stopped; register again after each fencing.

        Return False if the fleet has changed since `open`, or the storage service was rolled back: then open it again. proof: records an
        incarnation durably, and returns the incarnations that have certainly ended. Raises `NameInUse`.
        """
        return (yield from observed(self._serve(proof), self._failures.record))

    def _serve(self, proof: Callable[[str], tuple[str, ...]]) -> Work[bool]:
        yield from self._registration.pause(self._ids.chance() * self._profile.beat / 4)
        while (session := (yield from self._registration.join(lambda: self.publish, proof))) is not None:
            if not (yield from self._registration.confirm()):
                yield from self._registration.leave(session)
                return False
            self._joined(session)
            while not session.fenced:
                if (yield from self._turn(session)):
                    return True
            self._registration.record_end(session)
            self._after_fence(session)
            if session.rolled_back:
                return False
        return True

    def end(self, reason: str) -> None:
        """Report to the application that no partition is owned any more, and the reason."""
        self._notifier.report_loss_of_all(reason)
        if self._exit:
            self._notifier.report_exit()

    # -- registration and fencing

    def _joined(self, session: ServerSession) -> None:
        extra = {"action": "lease_joined", **self._keeper_state.about()}
        log.info("Server %s is registered with incarnation %s", self._server, session.incarnation, extra=extra)
        now = self._steady()
        self._keeper_state.failures, self._next_beat = 0, now + self._profile.beat * self._ids.chance()
        self._keeper_state.session, self._obeyed, self._said = session, PartitionOrders(), "live"
        self._keeper_state.loads.inherit(session.loads, session.generation)
        self._go_over(session)
        # The row may already contain orders that another server wrote right after the registration.
        self._obey(session)
        self._keeper_state.wake_scans()
        self._show(session)
        self._notifier.callbacks.joined()

    def _after_fence(self, session: ServerSession) -> None:
        if session.rolled_back:
            text = "Storage has lost writes that it had acknowledged: server %s gives up all partitions and registers again"
            log.warning(text, self._server, extra={"action": "lease_rolled_back", **self._keeper_state.about()})
            self._keeper_state.counts["rolled_back"] += 1
            self._keeper_state.record_rollback(session.epochs)
        else:
            extra = {"action": "lease_was_fenced", **self._keeper_state.about()}
            log.warning("Server %s was fenced because it was silent for too long", self._server, extra=extra)
            self._keeper_state.counts["was_fenced"] += 1
        self._keeper_state.session = None
        self._hand_offs.clear()
        self._keeper_state.clear()
        self._notifier.report_loss_of_all("rolled-back" if session.rolled_back else "fenced")

    # -- one iteration

    def _turn(self, session: ServerSession) -> Work[bool]:
        """Do what is due, or wait. Return True when the loop has ended."""
        now = self._steady()
        yield from self._read(session)
        self._show(session)
        self._hear(session, now)
        if self._keeper_state.keeping:
            return (yield from self._keep(session, now))
        drained = self._keeper_state.drained_since + _TOLD * self._profile.beat
        if self._keeper_state.draining and (now >= drained or self._keeper_state.alone):
            self._give_up(session, set(session.held))
        for partition in rules.releasable(self._hand_offs, now):
            del self._hand_offs[partition]
            if partition in session.held:
                session.leaving[partition] = session.held.pop(partition)
        late = now >= drained + self._limit + self._profile.validity
        if self._keeper_state.stopping and (late or not (session.held or session.leaving or session.open)):
            yield from self._registration.leave(session)
            return True
        claims = self._claims(session, now)
        news = claims or session.leaving or self._state != self._said
        if now >= self._next_beat or (news and not self._keeper_state.failures):
            yield from self._beat(session, claims)
            return False
        waits = [self._next_beat, *(hand_off.until for hand_off in self._hand_offs.values())]
        if self._notifier.serving:
            until = self._notifier.view.until
            waits += [until] if self._notifier.warned else [until, until - self._danger]
        if self._keeper_state.draining and session.held.keys() - self._hand_offs.keys():
            waits.append(min(drained, now + self._profile.beat / 8))
        yield from wait(min(waits))
        return False

    def _keep(self, session: ServerSession, now: float) -> Work[bool]:
        """Stop serving, and leave with all partitions. Return True when that is done."""
        self._give_up(session, set(session.held), "stopped")
        busy = [hand_off.until for hand_off in self._hand_offs.values() if not hand_off.stopped and now < hand_off.until]
        if not busy:
            yield from self._registration.leave(session, keep=True)
            return True
        if now >= self._next_beat:
            yield from self._beat(session, [])
            return False
        yield from wait(min(self._next_beat, *busy))
        return False

    @property
    def _profile(self) -> Profile:
        return self._keeper_state.fleet.profile

    @property
    def _state(self) -> ServerState:
        return "draining" if self._keeper_state.draining and not self._keeper_state.keeping else "live"

    @property
    def _limit(self) -> float:
        """Maximum seconds of a hand-off."""
        return self._keeper_state.fleet.limits.drain

    @property
    def _danger(self) -> float:
        """Seconds of remaining validity at which the application is warned. By then two heartbeats have failed, or one for `seed`."""
        return max(self._profile.validity - 2.25 * self._profile.beat, self._profile.validity / 6)

    def _hear(self, session: ServerSession, now: float) -> None:
        """Apply the requests in `KeeperState`."""
        for partition, hand_off in self._keeper_state.take_finished_hand_offs():
            # The end of an earlier hand-off of this partition does not end the current one.
            if self._hand_offs.get(partition) is hand_off:
                self._hand_offs[partition] = replace(hand_off, stopped=True)
        if (orders := self._keeper_state.take_plan()) is not None:
            # The plan may be for a generation that only the scan loop knows yet.
            self._go_over(session)
            session.take, session.drop = orders.take, orders.drop
        if dropped := set(self._keeper_state.take_dropped()):
            self._avoided |= dict.fromkeys(dropped, now + _AVOIDED)
            session.take = tuple(partition for partition in session.take if partition not in dropped)
            self._give_up(session, dropped)
        if orders is not None or dropped:
            self._obey(session)

    def _claims(self, session: ServerSession, now: float) -> list[Claim]:
        if now - self._last_cycle >= self._profile.beat:
            self._last_cycle, self._claimed_this_cycle = now, 0
        room = self._keeper_state.fleet.limits.claims_per_cycle - self._claimed_this_cycle
        offers = self._keeper_state.offered_claims(MAX_RIDERS - len(session.leaving))
        # These claims were found under an earlier generation.
        self._keeper_state.withdraw_claims([claim for claim in offers if claim.generation != session.generation])
        # A transaction cannot name a row twice: a partition that is still being released is claimed later.
        busy = session.held.keys() | session.leaving.keys()
        open_ = [claim for claim in offers if claim.partition not in busy and claim.generation == session.generation]
        # Handed-over partitions do not count against the limit: the planner limits them, and they have no owner meanwhile.
        planned = self._handed_over(open_)
        return [*planned, *[claim for claim in open_ if claim not in planned][: max(0, room)]]

    def _handed_over(self, claims: Iterable[Claim]) -> list[Claim]:
        now = self._wall()
        return [claim for claim in claims if rules.is_handed_over(claim, now, self._profile)]

    def _beat(self, session: ServerSession, claims: list[Claim]) -> Work[None]:
        state = self._state
        leaving = sorted(session.leaving)[:MAX_RIDERS]
        self._keeper_state.withdraw_claims(claims)
        # Remove expired orders from the row: the planner does not repeat an order that is still there.
        session.take = self._keeper_state.still_wanted(session.take)
        session.drop = tuple(partition for partition in session.drop if partition in self._hand_offs or partition in session.leaving)
        session.expect = self._keeper_state.still_expected(session.expect)
        self._obeyed, ordered = _orders(session), set(session.drop)
        sent, counts = self._steady(), self._keeper_state.counts
        self._avoided = {partition: until for partition, until in self._avoided.items() if sent < until}
        loads = self._keeper_state.loads.text(session.held, session.generation)
        avoid = tuple(sorted(self._avoided))[:MAX_ORDERS]
        publish = replace(self.publish, avoid=avoid, loads=loads, refused=self._keeper_state.refused)
        counts["beats"] += 1
        try:
            done = yield from membership.beat(session, publish, state, claims, leaving, self._wall())
        except StorageError as error:
            self._failures.failed(error)
            self._next_beat = self._steady() + self._soon
            self._scout_again(claims)
            self._show(session)
            return
        match done:
            case BeatApplied(claimed, released):
                self._keeper_state.failures = 0
                self._claimed_this_cycle += len(claimed) - len(self._handed_over(claimed))
                counts["claimed"] += len(claimed)
                counts["released"] += len(released)
                self._keeper_state.mark_held(claimed)
                # The planned successor may have ended, and its planner may not have noticed.
                self._keeper_state.watch_released(released, self._steady() + 2 * self._profile.beat)
                self._next_beat = sent + self._profile.beat * (0.97 + 0.06 * self._ids.chance())
                self._obeyed = _orders(session)
                if state != self._said or (state == "live" and not set(released) <= ordered):
                    # Successors must learn soon that this server drains, or that it released partitions without an order.
                    self._said = state
                    self._keeper_state.request_plan()
                yield from self._collect(session)
            case BeatNotApplied(pushed, refused):
                counts["races_lost"] += len(refused)
                if pushed:
                    # Only the server's own row had changed: the claims are still valid.
                    self._keeper_state.offer_claims(claims)
                else:
                    self._scout_again(claims)
                if session.open:
                    # The answer was lost: storage is slow or unavailable.
                    self._failures.missed()
                    self._next_beat = self._steady() + self._soon
                else:
                    self._next_beat = self._steady() + (self._profile.beat * 0.2 if self._keeper_state.failures else 0.0)
            case IncarnationFenced():
                return
        yield from self._read(session)
        told = _orders(session) != self._obeyed or (session.tell and not self._exit)
        # Orders of a generation that this server does not know yet wait until it does.
        if told and session.heard <= session.generation:
            self._obey(session)
        self._show(session)

    def _scout_again(self, claims: Collection[Claim]) -> None:
        """Wake the scan loop: it believes that these claims are done."""
        if claims:
            self._keeper_state.wake_scans()

    @property
    def _soon(self) -> float:
        """Seconds after which a failed heartbeat is repeated."""
        return self._profile.beat * (0.1 + 0.1 * self._ids.chance())

    def _collect(self, session: ServerSession) -> Work[None]:
        """Collect claims that were applied and could not be read back at once."""
        try:
            yield from membership.collect(session)
        except StorageError as error:
            self._failures.failed(error)

    # -- the generation of the partition count

    def _read(self, session: ServerSession) -> Work[None]:
        """Read the fleet if the server's row names a newer generation, and switch to it."""
        if session.heard > self._keeper_state.fleet.generation:
            try:
                fleet = yield from read_fleet(self._key)
            except StorageError as error:
                self._failures.failed(error)
            else:
                self._keeper_state.update_fleet(fleet if fleet is not None else self._keeper_state.fleet)
                if fleet is not None and fleet.generation < session.generation:
                    # The generation of a fleet only grows.
                    session.fenced = session.rolled_back = True
        self._go_over(session)

    def _go_over(self, session: ServerSession) -> None:
        """Switch to the fleet's generation: partitions claimed under another one are handed off, also those found to be claimed later."""
        fleet = self._keeper_state.fleet
        if fleet.generation > session.generation:
            self._keeper_state.loads.clear()
        session.generation = max(session.generation, fleet.generation)
        if former := set(rules.outdated_holdings(session)) - self._hand_offs.keys():
            self._give_up(session, former, "resized")
        # The scan loop may have read an earlier version of the fleet's row and delivered it later.
        if fleet.generation == session.generation and self._notifier.report_resize(KeySpread(fleet.generation, fleet.partitions)):
            self._keeper_state.wake_scans()

    # -- orders and hand-offs

    def _obey(self, session: ServerSession) -> None:
        """Apply new orders instead of the former ones. Each order has a deadline, after which it is dropped and the next plan decides."""
        if session.expect != self._obeyed.expect:
            self._keeper_state.set_expected(session.expect, self._steady() + EXPECTED * self._profile.beat)
        self._obeyed = _orders(session)
        take = [partition for partition in session.take if partition not in session.held or partition in session.drop]
        self._keeper_state.set_wanted(take, self._steady() + self._limit + self._profile.validity + 2 * self._profile.beat)
        self._give_up(session, set(session.drop))
        if session.tell == "exit" and not self._exit:
            self._exit = True
            self._keeper_state.stop()

    def _give_up(self, session: ServerSession, partitions: Collection[int], reason: str = "handed-off") -> None:
        """Begin a hand-off: stop serving at once, notify the application, and release when it is done or its time is up."""
        now = self._steady()
        going = sorted(session.held.keys() & set(partitions) - self._hand_offs.keys())
        given = {partition: HandOff(now, now + self._limit) for partition in going}
        self._hand_offs |= given
        # `owns` must refuse the partitions before the application is notified.
        self._publish(session)
        for partition, hand_off in given.items():
            self._notifier.hand_off(partition, partial(self._keeper_state.finish_hand_off, partition, hand_off), reason)

    def _publish(self, session: ServerSession) -> float:
        """Publish the view that `owns` reads. Return its end (steady seconds)."""
        epochs = {
            partition: held.epoch
            for partition, held in session.held.items()
            if partition not in self._hand_offs and held.generation == session.generation
        }
        until = rules.valid_until(session, self._profile)
        self._notifier.publish(epochs, until)
        return until

    def _show(self, session: ServerSession) -> None:
        """Publish the view, and notify the application of changes."""
        until, now = self._publish(session), self._steady()
        self._notifier.report_changes(now, "handed-off" if now < until else "expired")
        self._notifier.warn(until - now, self._danger)


def _orders(session: ServerSession) -> PartitionOrders:
    return PartitionOrders(session.take, session.drop, session.expect)
