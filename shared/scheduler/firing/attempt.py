"""One delivery attempt of a claimed event: wait for a slot, check that it may start, send, and decide what becomes of the event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...core.clock import Clock, Millis
from ...core.errors import StorageError
from ...core.ids import Ids
from ...delivery import circuit_breaker
from ...delivery.channels.event_target import STORED
from ...delivery.channels.model import FleetChannel, HttpChannel, LongWork
from ...delivery.channels.ports import CompletionOffer, OutgoingDelivery, SecondVerdict, Target, Verdict
from ...delivery.flow.lane import Lane
from ...delivery.flow.service import Flow
from ...storage.ports import Props
from .. import rules
from ..answer_rows import kept
from ..attempt_history import ERROR_LENGTH, with_attempt
from ..facets.long_work.rules import accepted
from ..failures import counting, failed_attempt, stale_answer, unreached_owner
from ..keys import Address
from ..late_reasons import Span, expected_at, with_waits
from ..overlap import KEY
from ..rows import TIMEOUT, content_of
from ..rules import punctual_at
from ..shard.retries import RetryPolicy
from ..timings import CHANNEL_UNREAD_WAIT, INTERNAL_FAILURE_WAIT, MOST_LOST_OWNERS
from .permission import StartPermission
from .waits import Waits

if TYPE_CHECKING:
    from ...delivery.fleet_owners.model import PartitionOwner
    from ...delivery.fleet_owners.routing import OwnerRouting, Routed
    from ..facets.long_work.tokens import WorkTokens

log = logging.getLogger(__name__)

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
            in_line = Span(reason, lined_up if held is None else held, self._clock.now() if slot.waited else lined_up)
            # After a wait the channel may have been paused, or its breaker may have opened; and the wait for a slot, or for storage, may
            # have taken longer than the last heartbeat covers.
            if slot.waited or lane.opened != opened or not self.permission.covers_now():
                if not await self.permission.wait_to_start():
                    return None
                try:
                    target = await self.tenant.target(target.name)
                except StorageError as error:
                    return self._channel_unread(props, error)
                if target is None:
                    return self._channel_removed(props)
                if not await self.permission.wait_to_start():
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
            if event_target := props.get(STORED):
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
            from ..facets.long_work.tokens import hash_of

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
