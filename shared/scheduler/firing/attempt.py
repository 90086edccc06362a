"""One delivery attempt of a claimed event: wait for a slot, check that it may start, deliver, and decide the outcome."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...core.clock import Clock, Millis
from ...core.errors import StorageError
from ...core.ids import Ids
from ...delivery import circuit_breaker
from ...delivery.channels.event_target import EVENT_TARGET
from ...delivery.channels.model import FleetChannel, HttpChannel, LongWork
from ...delivery.channels.ports import CompletionOffer, OutgoingDelivery, SecondVerdict, Target, Verdict
from ...delivery.flow.lane import Lane
from ...delivery.flow.service import Flow
from ...engine.effects import Steps
from ...storage.ports import Props
from .. import rules
from ..facets.long_work import accepted
from ..failures import UNREACHED, counting, failed_attempt, stale_answer, unreached_owner
from ..keys import Address
from ..properties.attempts import ERROR_LENGTH, history_of, kept, with_attempt
from ..properties.late_reasons import LATE_FROM, LateReason, Span, between_attempts, expected_at, split, with_waits
from ..properties.overlap import KEY
from ..rows import TIMEOUT, content_of
from ..rules import punctual_at
from ..shard.retries import RetryPolicy
from ..timings import CHANNEL_UNREAD_WAIT, HEARTBEAT_EVERY, INTERNAL_FAILURE_WAIT, MOST_LOST_OWNERS, OWNER_MAY_START

if TYPE_CHECKING:
    from ...delivery.fleet_owners import OwnerRouting, PartitionOwner, Routed
    from ..facets.long_work import WorkTokens
    from ..mirror.unmirrored import ShardGuard

log = logging.getLogger(__name__)


class StartPermission:
    """The permission of one owner. A delivery starts only while it holds."""

    def __init__(self, clock: Clock, asked_at: float, guard: ShardGuard) -> None:
        """asked_at: monotonic time at which the request to take the shard was sent."""
        self._clock, self._heartbeat_at, self._guard = clock, asked_at, guard
        self._renewed = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self.ended = False
        """Nothing more may be started: another owner has the shard, or this one has ended."""
        self.shard_lost = False
        """Another owner or the other account has taken the shard."""

    def covers_now(self) -> bool:
        """Return True if the last heartbeat, and the last observation of the fence, cover a delivery that starts now."""
        return not self.ended and self._clock.monotonic() - self._heartbeat_at < OWNER_MAY_START and self._guard.may_start

    async def wait_to_start(self) -> bool:
        """Wait until a delivery may start; return False if none may start any more."""
        while not self.ended:
            if self.covers_now():
                return True
            await self._renewed.wait()
        return False

    def heartbeat_due(self) -> bool:
        """Return True if the owner must send a heartbeat although nothing else is to be written."""
        return self._clock.monotonic() - self._heartbeat_at >= HEARTBEAT_EVERY

    def renew(self, sent: float) -> None:
        """Note a transaction that succeeded. sent: monotonic time at which it was sent; validity counts from there."""
        self._heartbeat_at = sent
        self._guard.note_change()
        self._wake_waiting()

    def lose_shard(self) -> None:
        """Note that another owner or the other account has the shard."""
        self.ended = self.shard_lost = True

    def end(self) -> None:
        """Let nothing more start."""
        self.ended = True
        self._renewed.set()

    def _wake_waiting(self) -> None:
        """Let deliveries that wait for permission check it again."""
        self._renewed.set()
        self._renewed = asyncio.Event()

    async def confirm_side(self) -> bool:
        """Observe the fence and bring the copy up to date; return False if the other account serves the shard."""
        return await self._guard.look()

    def start_watch(self) -> None:
        """Observe the fence and keep the copy up to date in a task of its own."""
        self._watch = self._guard.start_watch(self._overtaken, self._wake_waiting)

    def cancel_watch(self) -> None:
        """Ask the task of `start_watch` to end."""
        if self._watch is not None:
            self._watch.cancel()

    async def watch_ended(self) -> None:
        """Wait for the end of the task of `start_watch`."""
        if self._watch is not None:
            await asyncio.gather(self._watch, return_exceptions=True)

    def _overtaken(self) -> None:
        """Note that the other account serves the shard now."""
        self.lose_shard()
        self._wake_waiting()

    def before_end(self, entry: Props) -> Steps[bool]:
        """Return the steps between a done gate and its ledger row."""
        return self._guard.before_end(entry)


MOST_SPANS = 50
"""Spans of a kind that are remembered, the latest ones."""

type LaneReason = Literal["rate", "concurrency"]


class Waits:
    """The observations of one owner."""

    def __init__(self, clock: Clock, *, succeeds_lost: bool, asked_at: float) -> None:
        """succeeds_lost: the owner before this one disappeared. asked_at: monotonic time at which the request for the shard was sent."""
        self._clock = clock
        before: LateReason = "owner-lost" if succeeds_lost else "not-taken"
        self._before = Span(before, 0, clock.now() - round((clock.monotonic() - asked_at) * 1000))
        self._storage: deque[Span] = deque(maxlen=MOST_SPANS)
        self._full: dict[str, deque[Span]] = {}
        """By channel: when it could take no more."""
        self._keyed: dict[str, Millis] = {}
        """By event: the time since which it waits for its ordering key."""
        self._lost: dict[str, Millis] = {}
        """By event: the time until which it waited for its key at an owner that has disappeared."""
        self._unowned: dict[str, Millis] = {}
        """By event: the time since which it waits for the owner of its partition."""
        self.storage(asked_at)

    def storage(self, began: float) -> None:
        """Note a request to storage that has ended. began: monotonic time."""
        took = round((self._clock.monotonic() - began) * 1000)
        if took >= LATE_FROM:
            now = self._clock.now()
            self._storage.append(Span("storage", now - took, now))

    def keyed(self, event: str, since: Millis, lost: Millis = 0) -> None:
        """Note that an event waits for its ordering key. lost: until when it did so at an owner that has disappeared; 0 for none."""
        self._keyed.setdefault(event, since)
        if lost:
            self._lost.setdefault(event, lost)

    def unowned(self, event: str, since: Millis) -> None:
        """Note that an event waits for the owner of its partition."""
        self._unowned.setdefault(event, since)

    def full(self, channel: str, reason: LaneReason, until: Millis) -> None:
        """Note that the channel takes no more events before `until`, when it is looked at again."""
        now = self._clock.now()
        spans = self._full.setdefault(channel, deque(maxlen=MOST_SPANS))
        if spans and spans[-1].end >= now and spans[-1].reason == reason:
            now = spans.pop().first
        spans.append(Span(reason, now, max(now, until)))

    def parts(self, props: Mapping[str, Any], first: Millis, fired: Millis, target: Target, own: Span | None) -> dict[LateReason, Millis]:
        """Return the reasons for the wait of an attempt that should have started at `first` and started at `fired`, in milliseconds each.

        own: the time for which it waited in line.
        """
        found: dict[LateReason, Millis] = {}
        # Lateness may count from a later time: that of a change to a due time which was past.
        first = max(first, expected_at(props))
        if fired - first < LATE_FROM and "next" not in props:
            return found
        if fired - first >= LATE_FROM:
            event, before = str(props["id"]), self._before
            if event in self._lost:
                before = before._replace(first=self._lost[event])
            alone = [before] if own is None else [before, own]
            if (since := self._keyed.get(event)) is not None:
                alone.append(Span("ordering-key", since, fired))
            if (since := self._unowned.get(event)) is not None:
                alone.append(Span("partition-owner", since, fired))
            found = split(first, fired, alone + self._observed(target, first))
        if "next" in props:
            history = history_of(props)
            if pause := between_attempts(props, history[-1][0] if history else None):
                reason: LateReason = "partition-owner" if history[-1][1] == "stale" or props.get(UNREACHED) else "retry"
                found[reason] = found.get(reason, 0) + pause
        return found

    def _observed(self, target: Target, first: Millis) -> list[Span]:
        """Return the spans that may matter to an event of `first`."""
        found = [Span(hold.reason, hold.first, hold.end) for hold in target.ended_holds]
        # From the latest on: requests end one after the other, and most of them before any of a herd's events is due.
        for span in reversed(self._storage):
            if span.end <= first:
                break
            found.append(span)
        found += self._full.get(target.name, ())
        return found


NOT_HTTP = "the event has a target, and its channel is no http channel any more"
NO_BYTES = "the event's content type is not valid, or its payload is not the base64 of its bytes"
NO_KEY = "the event has no ordering_key, and its channel delivers to the owner of the key's partition"

type SendDelivery = Callable[[Target, OutgoingDelivery], Awaitable[Verdict]]


class TenantDelivery(NamedTuple):
    """The parts of a tenant's settings that its deliveries need."""

    name: str
    policy: Callable[[Mapping[str, Any]], RetryPolicy]
    """Returns the retry policy of an event row."""
    target: Callable[[str], Awaitable[Target | None]]
    """Reads a channel by name; None if it was removed."""
    tokens: Callable[[], WorkTokens]
    """Returns what makes the tokens of receivers that may complete events later."""
    shard: str
    """The shard of the events."""


def unclaimed(props: Mapping[str, Any]) -> rules.RowOutcome:
    """Return the outcome that undoes the claim of an event, as if it had never been made. It is not an attempt."""
    state: Literal["retrying", "scheduled"] = "retrying" if "next" in props else "scheduled"
    return rules.RowOutcome(state, {"tries": int(props["tries"]) - 1})


def long_work_of(target: Target) -> LongWork | None:
    """Return the channel's terms for receivers that complete events later; None if it does not allow that."""
    return target.spec.long_work if isinstance(target.spec, HttpChannel) else None


class DeliveryMeans(NamedTuple):
    """The means of a process to deliver. owners: returns the owners of partitions, for fleet channels."""

    clock: Clock
    ids: Ids
    send: SendDelivery
    flow: Flow
    owners: Callable[[], OwnerRouting]


class DeliveryAttempts:
    """Makes the delivery attempts of one owner."""

    def __init__(
        self,
        tenant: TenantDelivery,
        permission: StartPermission,
        waits: Waits,
        means: DeliveryMeans,
    ) -> None:
        self.tenant, self.permission, self.waits = tenant, permission, waits
        self._clock, self._ids, self._send, self._flow, self.owners = means
        self.waiting: set[str] = set()
        """Row keys of events that wait for a slot; nothing has been started for them."""

    async def prepare(self, channel: str) -> None:
        """Read the settings of a channel shortly before they are needed, so that deliveries need not wait for storage."""
        try:
            await self.tenant.target(channel)
        except StorageError as error:
            log.debug("The settings of a channel could not be read ahead: %s", error, extra={"action": "channel_unprepared"})

    async def attempt(self, rk: str, props: Mapping[str, Any], lane: Lane, held: Millis | None) -> rules.RowOutcome | None:
        """Attempt the delivery once; return the change of its row, or None if nothing was started because the owner has ended.

        held: time since which the event waits for earlier ones of its channel; None if it does not.
        """
        opened = lane.opened
        try:
            target = await self.tenant.target(str(props["channel"]))
        except StorageError as error:
            return self._channel_unread(props, error)
        if target is None:
            return self._channel_removed(props)
        if self._flow.blocks(target):
            return unclaimed(props)
        if isinstance(target.spec, FleetChannel):
            # Read before the slot: nothing waits for storage in one.
            routed = await self._routed(target, target.spec, props)
            if isinstance(routed, rules.RowOutcome):
                return routed
        self.waiting.add(rk)
        lined_up, reason = self._clock.now(), lane.reason_to_wait()
        punctual = punctual_at(props)
        backlog = rules.in_backlog(punctual, lined_up)
        async with self._flow.lanes.slot(lane, backlog=backlog) as slot:
            self.waiting.discard(rk)
            fired = self._clock.now() if slot.waited else lined_up
            in_line = Span(reason, lined_up if held is None else held, fired)
            # After a wait the channel may have been paused, or its breaker may have opened; and the wait for a slot, or for storage, may
            # have taken longer than the last heartbeat covers. An await costs time, so `wait_to_start` is awaited only if it must wait.
            if slot.waited or lane.opened != opened or not self.permission.covers_now():
                if not (self.permission.covers_now() or await self.permission.wait_to_start()):
                    return None
                try:
                    target = await self.tenant.target(target.name)
                except StorageError as error:
                    return self._channel_unread(props, error)
                if target is None:
                    return self._channel_removed(props)
                if not (self.permission.covers_now() or await self.permission.wait_to_start()):
                    return None
                fired = self._clock.now()
            if rules.lapsed(props, fired):
                return rules.lapse(props, {"ended": fired})
            waits = with_waits(props, self.waits.parts(props, punctual, fired, target, in_line))
            trace = props.get("trace")
            offer = self._offer(rk, props, target)
            try:
                body, kind = content_of(props)
            except ValueError:
                return self._failed(props, fired, Verdict("final", error=NO_BYTES), 0)
            delivery = OutgoingDelivery(str(props["id"]), int(props["due"]), fired, int(props["tries"]), body, trace, offer)
            delivery.content_type = kind
            delivery.expected = expected_at(props)
            delivery.ordering_key = props.get(KEY)
            delivery.timeout = int(props[TIMEOUT]) if props.get(TIMEOUT) else None
            if event_target := props.get(EVENT_TARGET):
                if not isinstance(target.spec, HttpChannel):
                    return self._failed(props, fired, Verdict("final", error=NOT_HTTP), 0)
                delivery.event_target = event_target
            if isinstance(target.spec, FleetChannel):
                routed = await self._routed(target, target.spec, props, starts=True)
                if isinstance(routed, rules.RowOutcome):
                    return routed
                if not await self.permission.wait_to_start():
                    return None
                delivery.owner = routed.owner
            if not self._flow.admits(target):
                return unclaimed(props)
            try:
                verdict = await self._send(target, delivery)
            except Exception as error:
                log.exception("A sender raised an unexpected error", extra={"action": "sender_failed", "event": delivery.id})
                verdict = Verdict("retry", error=f"the sender failed: {type(error).__name__}")
            except asyncio.CancelledError:
                self._flow.dropped(target)
                raise
            slot.answered = verdict.outcome != "retry" or verdict.status is not None
            if (owner := delivery.owner) is not None:
                self._owner_answered(target, owner, verdict)
                # A server without an answer does not narrow the window of the others.
                slot.answered = slot.answered or None
        now = self._clock.now()
        probe = self._flow.is_probe(target)
        # The breaker of a fleet channel counts failures by server.
        of = delivery.id if owner is None else owner.server
        if (turn := self._flow.ended(target, lane, of, verdict, now)) is not None:
            await turn
        sends: Props = waits
        if isinstance(verdict, SecondVerdict):
            # Each send is recorded and has a number. The connection failed and not the receiver, so the first send costs no attempt.
            history = with_attempt(props, fired, "retry", None, verdict.first_error, verdict.sent_at - fired)
            sends = {**waits, **rules.send_for_free(props), "tries": int(props["tries"]) + 1}
            props, fired = {**props, **sends, "history": history}, verdict.sent_at
        answer = kept(verdict.answer, fired, int(props["tries"]))
        if verdict.later and (spec := long_work_of(target)) is not None and offer is not None:
            from ..facets.long_work import hash_of

            token_hash = hash_of(offer.token(int(props["tries"])))
            outcome = accepted(props, spec, token_hash, began=fired, now=now, status=verdict.status, kept=answer)
            return outcome._replace(props={**sends, **outcome.props})
        if verdict.outcome == "delivered":
            history = with_attempt(props, fired, "delivered", verdict.status, None, now - fired)
            late = max(0, fired - delivery.expected)
            change: Props = {**sends, "ended": now, "late": late, "history": history}
            return rules.RowOutcome("delivered", change, answer)
        again = None
        if verdict.outcome == "stale":
            again = stale_answer(props, verdict, fired, now)
        elif verdict.unreached and owner is not None:
            again = unreached_owner(props, owner.failover, verdict, fired, now)
        if again is not None:
            return again._replace(props={**sends, **again.props}, answer=answer)
        sends = {**sends, **counting(props)}
        outcome = self._failed(props, fired, verdict, now - fired, free=probe and circuit_breaker.fails_probe(*verdict[:2]))
        return outcome._replace(props={**sends, **outcome.props}, answer=answer)

    async def _routed(
        self, target: Target, spec: FleetChannel, props: Mapping[str, Any], *, starts: bool = False
    ) -> Routed | rules.RowOutcome:
        """Return the owner that gets the delivery, or the outcome of an event that cannot be delivered now."""
        if KEY not in props:
            return self._failed(props, self._clock.now(), Verdict("final", error=NO_KEY), 0)
        try:
            routed = await self.owners().route(target.tenant, spec.fleet, str(props[KEY]), punctual_at(props), starts=starts)
        except StorageError as error:
            return self._channel_unread(props, error)
        if routed.decision.action == "wait":
            return unclaimed(props)
        if routed.decision.action == "fail":
            now = self._clock.now()
            outcome = self._failed(props, now, Verdict("retry", error=routed.decision.why), 0)
            waited = with_waits(props, self.waits.parts(props, punctual_at(props), now, target, None))
            return outcome._replace(props={**waited, **counting(props), **outcome.props})
        return routed

    def _owner_answered(self, target: Target, owner: PartitionOwner, verdict: Verdict) -> None:
        self.owners().ended(target.tenant, owner, answered=verdict.outcome != "retry" or verdict.status is not None)
        if verdict.outcome == "stale":
            self.owners().stale(target.tenant, owner)

    def _offer(self, rk: str, props: Mapping[str, Any], target: Target) -> CompletionOffer | None:
        spec = long_work_of(target)
        if spec is None:
            return None
        return self.tenant.tokens().offer(Address(self.tenant.shard, rk), int(props["epoch"]), spec.within)

    def failed_inside(self, props: Mapping[str, Any], error: Exception) -> rules.RowOutcome:
        """Return the outcome of an attempt that ended with an error of the service itself."""
        now = self._clock.now()
        if int(props["tries"]) < MOST_LOST_OWNERS:
            return rules.RowOutcome("retrying", {"next": now + INTERNAL_FAILURE_WAIT})
        return rules.RowOutcome("dead", {"ended": now, "error": f"the delivery failed inside the service: {type(error).__name__}"})

    def _channel_unread(self, props: Mapping[str, Any], error: StorageError) -> rules.RowOutcome:
        # Not an attempt: no request was sent, and an event must not die because the service's own storage fails.
        log.debug("The settings of a channel could not be read: %s", error, extra={"action": "channel_unread"})
        return rules.RowOutcome("retrying", {"next": self._clock.now() + CHANNEL_UNREAD_WAIT, "tries": int(props["tries"]) - 1})

    def _channel_removed(self, props: Mapping[str, Any]) -> rules.RowOutcome:
        return self._failed(props, self._clock.now(), Verdict("final", error="the channel no longer exists"), 0)

    def _failed(self, props: Mapping[str, Any], at: Millis, verdict: Verdict, took: Millis, *, free: bool = False) -> rules.RowOutcome:
        """Return the outcome of a failed attempt. free: it does not count, because it was the probe of an open circuit breaker."""
        error = (verdict.error or f"answered {verdict.status}")[:ERROR_LENGTH]
        outcome = failed_attempt(
            props,
            self.tenant.policy(props),
            now=self._clock.now(),
            chance=self._ids.chance(),
            # Time that the event waited because of its channel or an outage does not use up the policy's time.
            waited=max(0, at - punctual_at(props)),
            history=with_attempt(props, at, verdict.outcome, verdict.status, verdict.error, took),
            error=error,
            final=verdict.outcome == "final",
            retry_after=verdict.retry_after,
            free=free,
        )
        extra = {"tenant": self.tenant.name, "channel": props["channel"], "event": props["id"], "state": outcome.state, "error": error}
        log.debug("Event %s was not delivered: %s", props["id"], error, extra=extra | {"action": "attempt_failed"})
        return outcome
