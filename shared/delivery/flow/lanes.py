"""The deliveries of one process: which may start, so that a slow channel delays only itself.

A *lane* (`lane.py`) is a channel in this process. Its window is the number of deliveries that it may have in flight: narrow until the
receiver has answered, wider with every answer, narrower with every delivery without an answer. Prompt deliveries hold slots of their tenant
and of the process. A delivery that takes longer than `rules.SLOW` moves to a pool for slow ones; deliveries of a slow lane start there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any

from ...core.clock import Clock
from ...core.errors import StorageError
from . import rules
from .lane import Lane, Slots
from .shared_limits import LEAST_PAUSE, Limit, SharedSlots

log = logging.getLogger(__name__)

MOST_LANES = 10_000


class Slot:
    """Permission to deliver to a channel: entered when its turn has come, held while the delivery runs."""

    __slots__ = ("_backlog", "_lanes", "_limits", "answered", "begun", "lane", "pools", "slow", "waited")

    def __init__(self, lanes: Lanes, lane: Lane, backlog: bool) -> None:
        self._lanes, self.lane, self._backlog = lanes, lane, backlog
        self.waited = False
        """True if the turn did not come at once: earlier reads of the channel may be outdated."""
        self.answered: bool | None = None
        """Set by the holder: True if the receiver gave any answer."""
        self.begun = 0.0
        self.slow = False
        """True if it holds slots of the slow pool."""
        self.pools: tuple[Slots, Slots]
        """The slots of the tenant and those of the process. It holds one of each."""
        self._limits: tuple[Limit, ...] = ()

    async def __aenter__(self) -> Slot:
        lanes, lane = self._lanes, self.lane
        if lane.in_line or not lane.may_start():
            self.waited = True
            self._limits = await lanes.turn(lane, self._backlog)
        else:
            self._limits = lane.start()
            if self._limits:
                lanes.keep(lane)
        if not lanes.pool_now(self):
            self.waited = True
            try:
                await lanes.pool_in(self, self._backlog)
            except BaseException:
                lanes.leave(lane, self._limits)
                raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lanes.pool_out(self)
        self._lanes.leave(self.lane, self._limits)


class Lanes:
    """All lanes of a process, and the slots that they share. Belongs to one event loop."""

    def __init__(self, clock: Clock, whole: int, tenant: int, channel: int) -> None:
        self._clock, self._per_tenant, self._per_channel = clock, tenant, channel
        self._all = (Slots(whole), Slots(whole))
        """For prompt deliveries, and for slow ones."""
        self._tenants: dict[str, tuple[Slots, Slots]] = {}
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._limited: dict[str, dict[Lane, None]] = {}
        """Lanes with limits and waiting deliveries, by tenant: another lane may want what one gives up. The lane with the next turn is
        first."""
        self._prompt: dict[Slot, None] = {}
        """Deliveries in flight in prompt slots, the oldest first."""
        self._mover: asyncio.Task[None] | None = None
        self._keepers: dict[Lane, asyncio.Event] = {}
        self._granted: dict[asyncio.Future[None], tuple[Limit, ...]] = {}
        """Turns that have come and were not taken up yet."""
        self._tasks: set[asyncio.Task[None]] = set()

    def lane(self, tenant: str, name: str) -> Lane:
        """Return the channel's lane."""
        found = self._lanes.get((tenant, name))
        if found is None:
            if len(self._lanes) >= MOST_LANES:
                self._forget()
            found = self._lanes[tenant, name] = Lane(tenant, name, self._per_channel)
        return found

    def _forget(self) -> None:
        idle = [key for key, lane in self._lanes.items() if not lane.claimed and not lane.in_flight]
        for key in idle[: MOST_LANES // 10]:
            del self._lanes[key]

    def crowded(self, now: float) -> int:
        """Return the number of owners that serve channels whose deliveries wait too long for their turn."""
        return sum(len(lane.owners) for lane in self._lanes.values() if lane.waiting and self.turn_after(lane, now) > rules.CROWDED)

    @staticmethod
    def turn_after(lane: Lane, now: float) -> float:
        """Return the seconds that a new delivery of the lane would wait for its turn."""
        return rules.turn(lane.load(now), lane.waiting)

    def slot(self, lane: Lane, *, backlog: bool) -> Slot:
        """Return a context that waits for the lane's turn and for slots."""
        return Slot(self, lane, backlog)

    async def turn(self, lane: Lane, backlog: bool) -> tuple[Limit, ...]:
        """Wait in line. The delivery then counts as started; return the limits that it counts against."""
        turn = lane.line.join(backlog=backlog)
        if not lane.waiting:
            lane.waits_since = self._clock.monotonic()
        lane.in_line += 1
        if lane.limits:
            self._limited.setdefault(lane.tenant, {})[lane] = None
            self.keep(lane)
        # All earlier ones may have gone, or their limits been lifted, with nothing in flight whose end would call the next.
        self._pump(lane)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                lane.in_line -= 1
            else:
                # The turn came at the same instant as the cancellation: pass it on.
                self.leave(lane, self._granted.pop(turn))
            raise
        return self._granted.pop(turn)

    def leave(self, lane: Lane, limits: Sequence[Limit]) -> None:
        """End a delivery and give its place to the next one."""
        lane.in_flight -= 1
        for limit in limits:
            limit.end()
        if limits:
            self._share_out(lane.tenant)
        # Most channels have no line and no limits.
        if lane.in_line or self._limited:
            self._pump(lane)

    def _pump(self, lane: Lane) -> None:
        while self._call(lane):
            pass

    def _share_out(self, tenant: str) -> None:
        """Call deliveries that wait for limits, the tenant's lanes in turn: a limit of the tenant must not all go to one of them."""
        lanes = self._limited.get(tenant, {})
        called = True
        while called:
            called = False
            for lane in list(lanes):
                if self._call(lane):
                    called = True
                    if lane in lanes:
                        del lanes[lane]
                        lanes[lane] = None

    def _call(self, lane: Lane) -> bool:
        """Give the next delivery of the lane its turn; return True if there was one."""
        turn = lane.line.next() if lane.in_line and lane.may_start() else None
        if turn is not None:
            lane.in_line -= 1
            self._granted[turn] = lane.start()
            turn.set_result(None)
        # Deliveries that were cancelled at this instant are not counted out yet.
        if not lane.waiting and (limited := self._limited.get(lane.tenant)) is not None:
            limited.pop(lane, None)
            if not limited:
                del self._limited[lane.tenant]
        return turn is not None

    def keep(self, lane: Lane) -> None:
        """Make sure that the lane's shared limits are requested, and renewed while they are used."""
        keeper = self._keepers.get(lane)
        if keeper is None:
            keeper = self._keepers[lane] = asyncio.Event()
            self._task(self._keep(lane, keeper))
        elif lane.waiting:
            keeper.set()

    async def _keep(self, lane: Lane, wake: asyncio.Event) -> None:
        try:
            while lane.limits and (lane.waiting or lane.in_flight):
                await self._refill(lane, wake)
                # Deliveries may have come while shares were given back.
                await self._return(lane)
            # Without limits, deliveries in line need not wait for them any more.
            self._pump(lane)
        finally:
            # Here and not when the end of the task is noticed: a delivery that comes in between would have no keeper.
            del self._keepers[lane]

    async def _refill(self, lane: Lane, wake: asyncio.Event) -> None:
        while lane.limits and (lane.waiting or lane.in_flight):
            pause = LEAST_PAUSE
            wake.clear()
            try:
                for limit in lane.limits:
                    if (lane.waiting and not limit.ready()) or (isinstance(limit, SharedSlots) and limit.stale()):
                        pause = max(pause, await limit.refill(lane.waiting))
            except StorageError as error:
                # Without an answer it is unknown what is free: nothing more starts.
                log.debug("A limit of %s/%s could not be read: %s", lane.tenant, lane.name, error, extra={"action": "limit_unread"})
            self._share_out(lane.tenant)
            timer = asyncio.ensure_future(self._clock.sleep(min(pause, rules.AHEAD)))
            woken = asyncio.ensure_future(wake.wait())
            await asyncio.wait((timer, woken), return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
            woken.cancel()

    async def _return(self, lane: Lane) -> None:
        for limit in lane.limits:
            if isinstance(limit, SharedSlots) and not limit.busy:
                try:
                    await limit.lease(0)
                except StorageError as error:
                    log.debug("Slots come back when their lease ends: %s", error, extra={"action": "slots_kept"})

    def _pools(self, tenant: str, slow: bool) -> tuple[Slots, Slots]:
        """Return the slots of the tenant and those of the process. slow: those for slow deliveries; otherwise those for prompt ones."""
        found = self._tenants.get(tenant)
        if found is None:
            found = self._tenants[tenant] = (Slots(self._per_tenant), Slots(self._per_tenant))
        return found[slow], self._all[slow]

    def pool_now(self, slot: Slot) -> bool:
        """Take slots of the tenant and of the process if they are free; return True if they were."""
        lane = slot.lane
        now = self._clock.monotonic()
        slot.slow = lane.mean(now) > rules.SLOW
        slot.pools = tenant, whole = self._pools(lane.tenant, slot.slow)
        if not (tenant.free and whole.free):
            return False
        tenant.free -= 1
        whole.free -= 1
        self._began(slot, now)
        return True

    async def pool_in(self, slot: Slot, backlog: bool) -> None:
        """Wait for the slots that `pool_now` did not find free."""
        tenant, whole = slot.pools
        await tenant.acquire(backlog=backlog)
        try:
            await whole.acquire(backlog=backlog)
        except BaseException:
            tenant.release()
            raise
        self._began(slot, self._clock.monotonic())

    def _began(self, slot: Slot, now: float) -> None:
        slot.begun = now
        slot.lane.begin(now)
        if not slot.slow:
            self._prompt[slot] = None
            if self._mover is None:
                self._mover = self._task(self._move())

    def pool_out(self, slot: Slot) -> None:
        """Give the slots up."""
        slot.lane.end(slot.begun, self._clock.monotonic(), answered=slot.answered)
        self._release(slot)

    def _release(self, slot: Slot) -> None:
        self._prompt.pop(slot, None)
        for slots in slot.pools:
            slots.release()

    async def _move(self) -> None:
        """Move long deliveries out of the prompt slots while deliveries are in flight."""
        try:
            while self._prompt:
                oldest = next(iter(self._prompt))
                await self._clock.sleep(max(rules.SLOW / 4, oldest.begun + rules.SLOW - self._clock.monotonic()))
                self._move_slow()
        finally:
            self._mover = None

    def _move_slow(self) -> None:
        now = self._clock.monotonic()
        for slot in list(self._prompt):
            slow = self._pools(slot.lane.tenant, True)
            if now - slot.begun < rules.SLOW:
                break
            if all(slots.free for slots in slow):
                for slots in slow:
                    slots.free -= 1
                self._release(slot)
                slot.slow, slot.pools = True, slow

    async def close(self) -> None:
        """End the background tasks. Shares of shared limits that are held then come back when their lease ends."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("Flow control raised an unexpected error", exc_info=error, extra={"action": "flow_failed"})
