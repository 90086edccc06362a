"""From a shard's message to its owner: the work of the functions `fire_shard` and `fire_retry`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from ...core import tracing
from ...core.clock import Millis
from ...core.errors import Rejected, StorageError
from ...core.process_identity import ProcessIdentity
from ...delivery.channels.ports import OutgoingDelivery, Sender, Target, Verdict
from ...delivery.flow.service import Flow
from ...engine.budget import Budget
from ...engine.leaving import end_within
from ...storage.ports import Row
from ...tenants.model import Retry
from .. import rules
from ..facets import FACETS, facets_for
from ..keys import is_shard, shard_tenant
from ..mirror.unmirrored import UNGUARDED, ShardGuard
from ..protocol import owning
from ..protocol.dispatch import ShardMessage, ended_owner, parse_messages, postpone, send
from ..shard.gate import parse_gate, read_gate
from ..shard.ledger import entry_for
from ..shard.retries import RetryPolicy, policy_of
from ..shard_services import ShardServices
from ..timings import BUSY_OWNERS, MIRROR_ASKED_AGAIN_AFTER, TAKEN_WITHIN
from .arrivals import Arrivals, no_arrivals
from .attempt import DeliveryAttempts, DeliveryMeans, StartPermission, TenantDelivery, Waits
from .invocations import Bursts, SharedInvocation, SmallShard
from .owner import Owner, OwningProcess

if TYPE_CHECKING:
    from ...delivery.fleet_owners import OwnerRouting
    from ..facets.long_work import WorkTokens
    from ..outcomes.callbacks import TellOutcomes

log = logging.getLogger(__name__)

_DEFAULT_RETRY = Retry()
SMALL_SHARE = 0.25
"""The part of the bytes in flight that is kept for small shards: large ones never make them wait."""
CLOSE_WITHIN = 1.0
"""Seconds that owners without a message get at the orderly end of a process."""


class Firing:
    """Takes shards and serves them. One per process; belongs to one event loop."""

    def __init__(
        self,
        services: ShardServices,
        senders: Mapping[str, Sender],
        flow: Flow,
        tell: TellOutcomes,
        owners: Callable[[], OwnerRouting],
        process: ProcessIdentity | None,
    ) -> None:
        """tell: does what is owed to ended events, such as their callbacks. owners: returns the owners of partitions, for fleet channels.
        process: names this process in the gates that it holds; None: the owners' process is not known.
        """
        runner, clock, ids, settings = services.runner, services.clock, services.ids, services.settings
        self._runner, self._clock, self._ids, self._counters = runner, clock, ids, services.counters
        self._mirror, self._directory, self._senders = services.mirror, services.directory, senders
        self._process = process
        self._means = DeliveryMeans(clock, ids, self._send, flow, owners)
        self._owning = OwningProcess(
            runner, flow, tell, lambda: self._leaving, lambda: self.serving >= BUSY_OWNERS, services.lines, services.wakes
        )
        small = round(settings.fire_bytes * SMALL_SHARE)
        self._budget = Budget(settings.fire_bytes - small)
        self._shared = SharedInvocation(clock, small)
        self._settings = settings
        self._bursts = Bursts(services)
        self._at_once: set[asyncio.Task[Exception | None]] = set()
        self._tracing = False
        """True if deliveries are traced."""
        self._leaving = False
        self._owned = set[str]()
        """The shards of messages that owners of this process serve."""
        self.serving = 0
        """Shards in work, and messages of shards that wait for room."""

    @cached_property
    def tokens(self) -> WorkTokens:
        """Makes the tokens of receivers that may complete events later."""
        from ..facets.long_work import WorkTokens

        return WorkTokens(self._settings.master_key, self._settings.base_url)

    @property
    def process_name(self) -> str:
        """Identity of this process for the gates that it holds; '' if it is not known."""
        return self._process.name if self._process is not None else ""

    def leave(self) -> None:
        """Let owners start nothing new and release their shards, because the process is about to end."""
        self._leaving = True

    def serve_now(self, message: ShardMessage) -> bool:
        """Serve a shard with events that are due now, without waiting for its message. Return False if the message must do it."""
        if self._leaving or self.serving >= BUSY_OWNERS:
            return False
        # It serves others' work too: it is no part of the caller's trace.
        with tracing.taking_in(None):
            task = asyncio.create_task(self._serve_of_many(message, retries=False))
        self._at_once.add(task)
        task.add_done_callback(self._at_once.discard)
        return True

    async def close(self) -> None:
        """Let the owners that `serve_now` began release their shards; after `CLOSE_WITHIN` the rest is left to the shards' messages."""
        self.leave()
        await end_within(self._at_once, CLOSE_WITHIN)

    async def serve(self, text: str, *, retries: bool = False) -> None:
        """Serve the shard of a message as far as it can be served now. A small shard may be served by another invocation of this process.

        Retries and backlogs keep their slots, which bound how much of them a process serves beside punctual events.
        """
        messages = parse_messages(text)
        if len(messages) == 1:
            await self._serve_one(messages[0], retries)
            return
        for defect in await asyncio.gather(*(self._serve_of_many(message, retries) for message in messages)):
            if defect is not None:
                raise defect

    async def _serve_of_many(self, message: ShardMessage, retries: bool) -> Exception | None:
        """Serve one shard of a message for several, which the host does not repeat for one of them. Return a defect in it."""
        try:
            await self._serve_one(message, retries)
        except Exception as error:
            await self._failed(message, error)
            return None if isinstance(error, StorageError) else error
        return None

    async def _serve_one(self, message: ShardMessage, retries: bool) -> None:
        with ExitStack() as counted:
            if message.wake and not retries:
                if await self._bursts.leave(message):
                    return
                counted.enter_context(self._bursts.serving(message))
            began = self._clock.monotonic()
            row = await self._runner.insist(lambda: read_gate(message.shard), lambda: self._patient(began))
            tenant, size = shard_tenant(message.shard), int(row.props["bytes"]) if row else 0
            if not retries and self._shared.admits(tenant, size):
                # Another invocation may do the work.
                work = partial(self._counted, message, row, retries, counted.pop_all())
                await self._shared.serve(SmallShard(tenant, size, work, partial(self._failed, message)))
            else:
                await self._counted(message, row, retries, counted.pop_all(), self._budget.hold(size))

    def _patient(self, since: float) -> bool:
        """Return True while a shard whose storage refuses is worth a further try. Later the host repeats the message."""
        return not self._leaving and self._clock.monotonic() - since < TAKEN_WITHIN

    async def _counted(
        self,
        message: ShardMessage,
        seen: Row | None,
        retries: bool,
        counted: ExitStack,
        room: AbstractAsyncContextManager[None] | None = None,
    ) -> None:
        """Serve a shard once there is `room` for its bytes. counted: ends with it."""
        self.serving += 1
        try:
            with counted:
                async with room or nullcontext():
                    await self._serve(message, seen, retries)
        finally:
            self.serving -= 1

    async def _failed(self, message: ShardMessage, error: Exception) -> None:
        """Leave a shard to the sweep, as the handler of a message that failed for good does: the host has no message to repeat."""
        extra = {"action": "shard_failed", "shard": message.shard}
        log.error("Serving shard %s failed: %s", message.shard, error, exc_info=error, extra=extra)
        self._counters["shards_failed"] += 1
        try:
            await self._runner.run(postpone(message, self._clock.now()))
        except StorageError as unmarked:
            log.debug("The failure of shard %s was not noted: %s", message.shard, unmarked, extra={"action": "failure_unnoted"})

    async def _serve(self, message: ShardMessage, seen: Row | None, retries: bool) -> None:
        try:
            guard = await self._mirror.guard(message.shard)
        except StorageError as error:
            # This is no failure of the shard: the pause between its messages must not grow.
            log.debug("It is unknown which account serves shard %s: %s", message.shard, error, extra={"action": "side_unknown"})
            self._counters["shards_unsure"] += 1
            guard = MIRROR_ASKED_AGAIN_AFTER
        if guard is None:
            # The other side's own sweep sends its own messages.
            self._counters["shards_elsewhere"] += 1
            return
        if not isinstance(guard, ShardGuard):
            await self._runner.run(send(message.alone(), self._clock.now() + round(guard * 1000), retries_only=retries))
            return
        owner = f"o{self._ids.name()}"
        asked_at, stopped = self._clock.monotonic(), guard.stopped
        name, ended = "", message.ended
        if self._process is not None:
            name = self._process.name
            if seen is not None and (found := ended_owner(parse_gate(seen.props), self._process.has_ended)):
                # The message's proof may be of an owner before that one.
                ended = found
                log.debug("The owner %s of shard %s has ended with its process", ended, message.shard, extra={"action": "owner_ended"})
        taken = await self._runner.insist(
            lambda: owning.take(message.shard, message.index, owner, FACETS, seen, stopped, process=name, ended=ended),
            lambda: self._patient(asked_at),
        )
        if taken == "gone":
            return
        if taken == "done":
            await self._runner.run(
                owning.tidy(message.shard, message.index, lambda rows: entry_for(rows, self._clock.now()), FACETS, guard.before_end)
            )
            return
        if isinstance(taken, owning.ShardBusy):
            if message.shared and message.shard in self._owned:
                # Two looks have sent this message. If this process ends, a look sends further messages for its shards.
                self._counters["shards_doubled"] += 1
                return
            # Another owner was alive a moment ago. The message comes back when that owner would be silent for too long.
            self._counters["shards_busy"] += 1
            await self._runner.run(send(message.alone(), self._clock.now() + taken.wait + 1_000, retries_only=retries))
            return
        self._counters["shards_taken"] += 1
        self._owned.add(message.shard)
        try:
            await self._own(taken, asked_at, guard, no_arrivals(taken.shard), message.earlier)
        finally:
            self._owned.discard(message.shard)

    async def serve_own(self, session: owning.OwnerSession, arrivals: Arrivals, opened_at: float) -> None:
        """Serve a shard that this process has opened as its owner. opened_at: monotonic time at which its first transaction was sent."""
        self._counters["shards_express"] += 1
        self.serving += 1
        try:
            await self._own(session, opened_at, UNGUARDED, arrivals)
        finally:
            self.serving -= 1

    async def _own(self, session: owning.OwnerSession, asked_at: float, guard: ShardGuard, arrivals: Arrivals, earlier: Millis = 0) -> None:
        """Serve a shard as its owner. asked_at: monotonic time at which the request that made this process its owner was sent. earlier: see
        `ShardMessage`."""
        # Taking the shard was a write, so the clock was measured a moment ago.
        self._clock.check()
        # Asked once per shard, because the check costs more than one delivery should pay.
        self._tracing = tracing.on()
        tenant = shard_tenant(session.shard)
        policy = await self.policies(tenant)
        settings = await self._directory.tenant(tenant)
        searchable = settings.searchable if settings is not None else ()
        session.facets = facets_for(searchable, notices=await self.notices_of_dead(tenant))
        view = TenantDelivery(tenant, policy, lambda channel: self._directory.target(tenant, channel), lambda: self.tokens, session.shard)
        permission = StartPermission(self._clock, asked_at, guard)
        waits = Waits(self._clock, succeeds_lost=session.succeeds_lost, asked_at=asked_at)
        serving = Owner(session, DeliveryAttempts(view, permission, waits, self._means), self._owning, arrivals, earlier)
        try:
            with tracing.serving_shard(session.shard) if self._tracing else nullcontext():
                await serving.run()
        finally:
            # The parts of an owner refer to each other, so its payloads would stay in memory until the garbage collector runs.
            session.rows.clear()
        if permission.shard_lost:
            self._counters["shards_lost"] += 1

    async def notices_of_dead(self, tenant: str) -> bool:
        """Return True if the tenant is to be told of events that end without a delivery."""
        settings = await self._directory.tenant(tenant)
        return settings is not None and settings.notices is not None and "event.dead" in settings.notices.kinds

    async def knows(self, tenant: str) -> bool:
        """Return True if the tenant exists. Raises `StorageError`."""
        return await self._directory.tenant(tenant) is not None

    async def policies(self, tenant: str) -> Callable[[Mapping[str, Any]], RetryPolicy]:
        """Return the function that returns the retry policy of a row of the tenant's events."""
        settings = await self._directory.tenant(tenant)
        retry = settings.retry if settings is not None else _DEFAULT_RETRY
        return lambda props: policy_of(retry, props.get("retry"), props.get("pauses"))

    async def _send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        send = self._senders[target.spec.type].send
        if self._tracing:
            from ...delivery import tracing as delivery_tracing

            with delivery_tracing.delivering(target, delivery) as span:
                verdict = await send(target, delivery)
                delivery_tracing.delivered(span, verdict)
        else:
            # A traceparent that came with the event is passed on unchanged.
            verdict = await send(target, delivery)
        self._counters[f"deliveries_{verdict.outcome}"] += 1
        return verdict

    async def poisoned(self, text: str) -> None:
        """Handle a shard's message that failed five times: log it, and leave the shard to the index, which sends messages ever
        less often.
        """
        try:
            messages = parse_messages(text)
            if not all(is_shard(message.shard) for message in messages):
                raise ValueError("not a shard's name")
        except ValueError:
            log.error("A message without a shard's name was dropped", extra={"action": "poison_dropped", "text": text[:200]})
            return
        for message in messages:
            try:
                await self._poisoned(message)
            except Rejected as refused:
                # Its names are none that storage takes, so it has no index row.
                extra = {"action": "poison_dropped", "text": text[:200]}
                log.error("A message whose shard storage does not take was dropped: %s", refused, extra=extra)

    async def _poisoned(self, message: ShardMessage) -> None:
        rounds = await self._runner.run(postpone(message, self._clock.now()))
        if rounds is None:
            # The shard was served through another message since, or is filed for another minute: that index row will send its message.
            log.info("Shard %s is no longer filed under the message that failed", message.shard, extra={"action": "poison_outlived"})
            return
        self._counters["poisoned"] += 1
        again = rules.pause_after(rounds) // 1000
        extra = {"action": "poison_redispatched", "shard": message.shard, "rounds": rounds}
        log.error("Serving shard %s failed repeatedly (%d messages); the next try is in %d s", message.shard, rounds, again, extra=extra)
