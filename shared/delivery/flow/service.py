"""Flow control: owners ask it before they claim events and report to it after deliveries. One per process."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from ...core.clock import Clock, Millis, to_text
from ...core.errors import Problem, StorageError
from ...core.ids import Ids
from ...core.readable import count_of
from ...core.settings import Settings
from ...storage.ports import Tables
from .. import circuit_breaker
from ..channels.ports import Target, Verdict
from ..notices import NoticeKind, Notify, notify_nobody
from . import rules
from .lane import Lane
from .lanes import Lanes
from .rules import ClaimHold
from .shared_limits import Limit, RateLimit, RateLimiter, SharedSlots

log = logging.getLogger(__name__)

UNREAD: Millis = 2_000
"""Hold of a channel whose settings could not be read."""
PROBE_PENDING: Millis = 2_000
"""Hold of a channel while a probe runs."""
PROMISE = 5.0
"""Seconds within which an owner that was allowed to claim the probe is expected to start it."""
SPREAD: Millis = 3_000
"""Shards that wait for the same instant come back spread over this time."""
GRACE: Millis = SPREAD + 1_000
"""Time for which only an event that has not failed yet may be the probe."""


class DeliveryLimits(Protocol):
    """A tenant's limits on deliveries; None means no limit."""

    @property
    def deliveries_per_second(self) -> float | None: ...
    @property
    def concurrency(self) -> int | None: ...


class NoLimits(NamedTuple):
    """The limits of a tenant that has none."""

    deliveries_per_second: float | None = None
    concurrency: int | None = None


NO_LIMITS = NoLimits()


class TenantSettings(Protocol):
    """The settings of a tenant."""

    @property
    def limits(self) -> DeliveryLimits: ...


class ChannelStates(Protocol):
    """Changes of the stored state of channels."""

    async def hold(self, target: Target, reason: str) -> bool:
        """Pause the channel because its receiver is gone. False if it is paused, was deleted, or has changed since `target` was read."""

    async def turn(self, target: Target, change: circuit_breaker.BreakerChange) -> circuit_breaker.Breaker | None:
        """Change the circuit breaker. Return its new state, or None when `change` found nothing to do."""


class ChannelDirectory(Protocol):
    """Reads of tenants and channels."""

    @property
    def channels(self) -> ChannelStates: ...

    async def tenant(self, name: str) -> TenantSettings | None:
        """Return the tenant's settings, at most 5 s old. Raises `StorageError`."""

    async def target(self, tenant: str, channel: str) -> Target | None:
        """Return the channel with its secrets and state, at most 1 s old. Raises `StorageError`."""

    async def target_now(self, tenant: str, channel: str) -> Target | None:
        """Return the channel as it is stored now. Raises `StorageError`."""


class Flow:
    """Flow control of one process. Belongs to one event loop."""

    def __init__(
        self,
        settings: Settings,
        tables: Tables,
        clock: Clock,
        ids: Ids,
        directory: ChannelDirectory,
        counters: Counter[str],
        notify: Notify = notify_nobody,
    ) -> None:
        self._notify = notify
        self._tables, self._clock, self._ids, self._directory, self._counters = tables, clock, ids, directory, counters
        self._me = f"f{ids.name()}"
        self._limiter = RateLimiter(tables, clock)
        self._owners = settings.owners
        self.lanes = Lanes(clock, settings.deliver_concurrency, settings.tenant_concurrency, settings.target_concurrency)
        self._limits: dict[tuple[str, str], RateLimit | SharedSlots] = {}

    async def close(self) -> None:
        """End the background tasks."""
        await self.lanes.close()

    async def holds(self, owner: object, tenant: str, wanted: Mapping[str, int], fresh: Callable[[str], bool]) -> dict[str, ClaimHold]:
        """Return what keeps `owner` from claiming `wanted` events of each channel; {} if nothing does. owner: the name of its shard.

        fresh: returns True if some of a channel's events have not failed yet.
        """
        if len(wanted) == 1:
            [(name, count)] = wanted.items()
            hold = await self._hold(owner, tenant, name, count, fresh)
            return {} if hold is None else {name: hold}
        found = await asyncio.gather(*(self._hold(owner, tenant, name, count, fresh) for name, count in wanted.items()))
        return {name: hold for name, hold in zip(wanted, found, strict=True) if hold is not None}

    async def _hold(self, owner: object, tenant: str, name: str, count: int, fresh: Callable[[str], bool]) -> ClaimHold | None:
        try:
            target = await self._directory.target(tenant, name)
            spec = await self._directory.tenant(tenant)
        except StorageError as error:
            # Not an attempt: no request was sent, and an event must not die because the service's own storage fails.
            log.debug("The settings of a channel could not be read: %s", error, extra={"action": "channel_unread"})
            return ClaimHold(self._clock.now() + UNREAD)
        if target is None:
            return None
        now = self._clock.now()
        if target.paused:
            return ClaimHold(self._spread(rules.look_again(target.paused_at, now)), paused=True, blocked=True)
        lane = self.lanes.lane(tenant, name)
        self._set_limits(lane, target, spec.limits if spec is not None else NO_LIMITS)
        if target.breaker.state != "closed":
            return await self._behind(lane, target, now, fresh(name))
        lane.touch(self._clock.monotonic())
        return self._throttled(owner, lane, count, now)

    async def takes_now(self, tenant: str, name: str, count: int) -> bool:
        """Return True if `count` more events of the channel can be claimed at once. Unlike `holds`, it promises and books nothing."""
        try:
            target = await self._directory.target(tenant, name)
            spec = await self._directory.tenant(tenant)
        except StorageError as error:
            log.debug("The settings of a channel could not be read: %s", error, extra={"action": "channel_unread"})
            return False
        if target is None or target.paused or target.breaker.state != "closed":
            return False
        lane = self.lanes.lane(tenant, name)
        self._set_limits(lane, target, spec.limits if spec is not None else NO_LIMITS)
        now = self._clock.monotonic()
        lane.touch(now)
        return not lane.waiting and rules.room(lane.load(now)) >= count

    async def resumed(self, tenant: str, channels: Iterable[str]) -> bool:
        """Return True if one of these formerly paused channels is no longer paused, as stored now."""
        try:
            found = [await self._directory.target_now(tenant, name) for name in channels]
        except StorageError as error:
            log.debug("The settings of a channel could not be read: %s", error, extra={"action": "channel_unread"})
            return False
        return any(target is None or not target.paused for target in found)

    def _spread(self, at: Millis) -> Millis:
        return at + round(self._ids.chance() * SPREAD)

    def _throttled(self, owner: object, lane: Lane, count: int, now: Millis) -> ClaimHold | None:
        """Return the hold that follows from the lane's load, or None."""
        clock = self._clock.monotonic()
        load = lane.load(clock)
        room = rules.room(load)
        turn = rules.turn(load, lane.waiting)
        if owner not in lane.owners and turn > rules.CROWDED:
            share = max(1, self._owners // rules.OWNERS_SHARE)
            if len(lane.owners) >= share or (lane.owners and self.lanes.crowded(clock) >= self._owners // 2):
                room = 0
        if room >= count:
            lane.places.pop(owner, None)
            return None
        if room > 0 or owner in lane.owners:
            wait = 1 + min(turn, rules.AHEAD)
            lane.wait(owner, count - max(0, room), clock + wait)
            return ClaimHold(now + round(1000 * wait), max(0, room), full=True)
        # Each shard that is sent away waits behind those sent away before it. It comes back half-way to its end: its estimate is better
        # then, and other deliveries may have been faster. It keeps its place, or its events would count twice.
        ends = rules.drained(load, lane.waiting + lane.before(owner, clock, rules.far(load)) + count)
        wait = max(rules.SOONEST, load.shut, min(ends / 2, rules.LATEST))
        lane.wait(owner, count, clock + wait)
        return ClaimHold(now + round(wait * 1000), full=True)

    async def _behind(self, lane: Lane, target: Target, now: Millis, fresh: bool) -> ClaimHold:
        """Return the hold of a channel whose breaker is not closed: no event, or the probe."""
        state = target.breaker
        if state.state == "half-open" and state.probe == self._me and now < state.until:
            # This process has won the probe and perhaps not started it: the owner that was allowed to claim it may have lost its shard.
            pass
        elif now < state.until:
            return ClaimHold(self._spread(state.until if state.state == "open" else now + PROBE_PENDING), blocked=True)
        elif not fresh and now < state.until + GRACE:
            # An event that failed before may fail for its own reasons and keep the breaker open for all. Shards with better events will
            # come.
            return ClaimHold(state.until + GRACE, blocked=True)
        elif not await self._win(target):
            return ClaimHold(self._spread(now + PROBE_PENDING), blocked=True)
        clock = self._clock.monotonic()
        if lane.probing or clock - lane.promised < PROMISE:
            return ClaimHold(self._spread(now + PROBE_PENDING), blocked=True)
        lane.promised = clock
        return ClaimHold(self._spread(now + PROBE_PENDING), 1, fresh_first=True, blocked=True)

    async def _win(self, target: Target) -> bool:
        """Return True if this process may probe."""
        now = self._clock.now()
        won = await self._turn(target, lambda old: circuit_breaker.probing(old, now, self._me))
        if won is not None:
            self._counters["breaker_probes"] += 1
            extra = {"action": "breaker_half_open", "tenant": target.tenant, "channel": target.name}
            log.info("The breaker of %s/%s is half-open: one probe", target.tenant, target.name, extra=extra)
        return won is not None

    def _set_limits(self, lane: Lane, target: Target, tenant: DeliveryLimits) -> None:
        own = target.spec.limits
        if own is None and tenant.deliveries_per_second is None and tenant.concurrency is None:
            lane.limits = ()
            return
        found: list[Limit] = []
        for suffix, limits in ((f":{lane.name}", own), ("", tenant)):
            if limits is not None and limits.deliveries_per_second is not None:
                found.append(self._rate(lane.tenant, f"rate:deliveries{suffix}", limits.deliveries_per_second))
            if limits is not None and limits.concurrency is not None:
                found.append(self._slots(lane.tenant, f"slots{suffix}", limits.concurrency))
        lane.limits = tuple(found)

    def _rate(self, tenant: str, row: str, rate: float) -> RateLimit:
        limit = self._limits.get((tenant, row))
        if not isinstance(limit, RateLimit):
            limit = self._limits[tenant, row] = RateLimit(self._limiter, self._clock, tenant, row, rate)
        limit.rate = rate
        return limit

    def _slots(self, tenant: str, row: str, slots: int) -> SharedSlots:
        limit = self._limits.get((tenant, row))
        if not isinstance(limit, SharedSlots):
            limit = self._limits[tenant, row] = SharedSlots(self._tables, self._clock, tenant, row, slots, self._me)
        limit.limit = slots
        return limit

    def surplus(self, owner: object, tenant: str, waiting: Mapping[str, int]) -> dict[str, int]:
        """Return how many of the owner's waiting events are to be given back, per channel, because they cannot start soon."""
        found: dict[str, int] = {}
        now = self._clock.monotonic()
        for name, count in waiting.items():
            lane = self.lanes.lane(tenant, name)
            load = lane.load(now)
            too_many = -rules.room(load, rules.PATIENCE)
            if too_many <= 0 or (now - lane.waits_since < rules.SETTLED and not load.silent):
                continue
            share = max(1, self._owners // rules.OWNERS_SHARE)
            first = list(lane.owners).index(owner) < share if owner in lane.owners else False
            found[name] = min(count, too_many) if first else count
        return found

    def given_back(self, count: int) -> None:
        """Count claims that were undone."""
        self._counters["given_back"] += count

    def blocks(self, target: Target) -> bool:
        """Return True if a delivery need not even wait for its turn."""
        return target.paused or (target.breaker.state != "closed" and target.breaker.probe != self._me)

    def admits(self, target: Target) -> bool:
        """Return True if a delivery may start now; for a probe exactly once."""
        if target.paused:
            return False
        state = target.breaker
        if state.state == "closed":
            return True
        lane = self.lanes.lane(target.tenant, target.name)
        if state.state != "half-open" or state.probe != self._me or lane.probing:
            return False
        lane.probing = True
        return True

    def is_probe(self, target: Target) -> bool:
        """Return True if a delivery that was admitted for `target` was the probe of its breaker."""
        return target.breaker.state != "closed"

    def dropped(self, target: Target) -> None:
        """Note that an admitted delivery ended without a verdict, because its owner was stopped."""
        if target.breaker.state != "closed":
            self.lanes.lane(target.tenant, target.name).probing = False

    def ended(self, target: Target, lane: Lane, event: str, verdict: Verdict, now: Millis) -> Awaitable[None] | None:
        """Note the verdict of a delivery. Returns something to await only if the breaker changes or the receiver is gone.

        event: id of the event, or the server for a fleet channel. The breaker opens only after failures of several different ones.
        """
        if target.breaker.state == "closed" and not verdict.gone:
            if circuit_breaker.is_failure(verdict.outcome, verdict.status):
                failures = lane.tally.failed(event, now)
            elif circuit_breaker.is_refusal(verdict.outcome, verdict.status):
                failures = lane.tally.refusal(event, now)
            else:
                lane.tally.answered(now, delivered=verdict.outcome == "delivered")
                failures = 0
            if not failures:
                return None
            lane.tally = circuit_breaker.Tally()
            return self._open(target, lane, failures, verdict)
        return self._turned(target, lane, verdict)

    async def _turned(self, target: Target, lane: Lane, verdict: Verdict) -> None:
        if target.breaker.state != "closed":
            lane.probing = False
            lane.promised = float("-inf")
            await self._probed(target, verdict, circuit_breaker.fails_probe(verdict.outcome, verdict.status))
        if verdict.gone:
            await self._gone(target)

    async def _open(self, target: Target, lane: Lane, failures: int, verdict: Verdict) -> None:
        error, now = verdict.error or f"answered {verdict.status}", self._clock.now()

        def change(old: circuit_breaker.Breaker) -> circuit_breaker.Breaker | None:
            return circuit_breaker.opened(old, now, failures, error, verdict.retry_after)

        turned = await self._turn(target, change, "breaker.opened", f"{count_of(failures, 'failure')}, the last: {error}")
        lane.opened += 1
        if turned is not None:
            self._counters["breaker_opened"] += 1
            extra = {"action": "breaker_opened", "tenant": target.tenant, "channel": target.name, "failures": failures}
            log.warning("The breaker of %s/%s opens after %d failures: %s", target.tenant, target.name, failures, error, extra=extra)

    async def _probed(self, target: Target, verdict: Verdict, failed: bool) -> None:
        error, now = verdict.error or f"answered {verdict.status}", self._clock.now()

        def change(old: circuit_breaker.Breaker) -> circuit_breaker.Breaker | None:
            return circuit_breaker.probed(old, now, self._me, failed, error, verdict.retry_after)

        turned = await self._turn(target, change, None if failed else "breaker.closed", "a delivery succeeded")
        if turned is None:
            return
        extra = {"tenant": target.tenant, "channel": target.name}
        if turned.state == "closed":
            self._counters["breaker_closed"] += 1
            log.info("The breaker of %s/%s closes", target.tenant, target.name, extra=extra | {"action": "breaker_closed"})
        else:
            self._counters["breaker_reopened"] += 1
            extra["action"] = "breaker_reopened"
            log.info("The probe of %s/%s failed; open until %s", target.tenant, target.name, to_text(turned.until), extra=extra)

    async def _gone(self, target: Target) -> None:
        """Pause the channel after an answer 410: the receiver wants no more deliveries."""
        reason = f"the receiver answered 410 Gone at {to_text(self._clock.now())}"
        try:
            if not target.paused:
                await self._notify(target.tenant, "channel.paused", target.name, reason)
            paused = await self._directory.channels.hold(target, reason)
        except (StorageError, Problem) as error:
            log.warning("A channel whose receiver is gone could not be paused: %s", error, extra={"action": "channel_gone_unwritten"})
            return
        if paused:
            self._counters["channels_gone"] += 1
            extra = {"action": "channel_gone", "tenant": target.tenant, "channel": target.name}
            log.warning("Channel %s/%s is paused: %s", target.tenant, target.name, reason, extra=extra)

    async def _turn(
        self, target: Target, change: circuit_breaker.BreakerChange, kind: NoticeKind | None = None, detail: str = ""
    ) -> circuit_breaker.Breaker | None:
        """Change the breaker, after what it becomes was noted for the tenant. kind: of that notice."""
        try:
            if kind is not None:
                await self._notify(target.tenant, kind, target.name, detail)
            return await self._directory.channels.turn(target, change)
        except (StorageError, Problem) as error:
            # The next failure, or the next instance that asks, tries again. After a lost answer, the next read shows the state.
            log.debug("A breaker could not be turned: %s", error, extra={"action": "breaker_unturned"})
            return None
