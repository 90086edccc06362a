"""A mirrored pair at work: who serves, as far as this process knows, and copying what it does to the other side.

Both sides have a scheduler of their own, over their own view of the tables (`storage.pair`), so that nothing that was begun on one side can
go on, by mistake, on the other. What decides is the fence row in the second account: a side serves while the row names it.

Who must stop starts nothing later than `stop` seconds after the SEND of its last look at the fence; who takes over serves `take` seconds
after the row was written, by the storage service's own time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from ...core.clock import Clock, Millis
from ...core.errors import OutcomeUnknown, StorageError, Unavailable
from ...engine.async_runner import AsyncRunner
from ...engine.effects import Steps
from ...storage.names import SWEEPS
from ...storage.ports import Props, Tables
from ..protocol.ingest import Known, known_id
from ..protocol.mirroring import FENCE_PK, FENCE_ROW, FIRST, SECOND, Fence, Side, Way, finish_copy, holds, mirror, parse_fence
from ..timings import FENCE_FRESH_FOR, FENCE_READ_TIMEOUT, FENCE_STALE_AFTER, MIRROR_COPY_EVERY, OWNER_MAY_START, OWNER_SILENT

log = logging.getLogger(__name__)


ID_CHECK_TIMEOUT, ID_CHECK_PAUSE = 1.0, 30.0
"""Seconds that the first account has to say whether it knows an id, and for which it is not asked again when it did not."""


@dataclass(frozen=True, slots=True)
class MirrorTimeouts:
    """stop: seconds within which who is overtaken has stopped, counted from the SEND of its last look at the fence. take: milliseconds
    after which the other side serves, counted from the fence row's own time.

    Safe while take > stop (1 + r) / (1 - r), r = 1 %; `Pair.wait` adds a second for the store's time, which has whole ones.
    """

    stop: float = OWNER_MAY_START
    take: Millis = OWNER_SILENT


class FenceObservation(NamedTuple):
    """A look at the fence. sent: monotonic, at its SEND. age: how old the row was then, by its own store's time; at: when written."""

    fence: Fence
    etag: str
    sent: float
    age: Millis
    at: Millis


class MirrorPair:
    """What this process knows of the fence. One per process."""

    def __init__(self, tables: Tables, clock: Clock, waits: MirrorTimeouts | None = None) -> None:
        self._tables, self._clock = tables, clock
        self.waits = waits or MirrorTimeouts()
        self._seen: FenceObservation | None = None
        self._look: asyncio.Task[FenceObservation] | None = None

    async def look(self) -> FenceObservation:
        """Read the fence. Raises `Unavailable` when the second does not answer."""
        sent = self._clock.monotonic()
        row = await self._tables.get(SECOND + SWEEPS, FENCE_PK, FENCE_ROW)
        age = row.read_at - row.timestamp if row is not None else 0
        at = row.timestamp if row is not None else 0
        seen = FenceObservation(parse_fence(row), row.etag if row is not None else "", sent, age, at)
        if self._seen is None or sent >= self._seen.sent:
            self._seen = seen
        return seen

    async def sure(self) -> FenceObservation:
        """A look that is at most a second old. Raises `Unavailable`."""
        seen = self._seen
        if seen is not None and self._clock.monotonic() - seen.sent < FENCE_FRESH_FOR:
            return seen
        return await asyncio.shield(self._looking())

    def _looking(self) -> asyncio.Task[FenceObservation]:
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self.look())
            # Whoever waits for it is told; if nobody does, the failure is shown by the next call that does.
            self._look.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._look

    async def side(self) -> Side:
        """Which side a call goes to, without being sure: whatever must be sure asks again. Does not raise.

        While nobody serves, because the first is being brought up to date, the second still knows best.
        """
        seen = self._seen
        age = self._clock.monotonic() - seen.sent if seen is not None else FENCE_STALE_AFTER
        if age >= FENCE_FRESH_FOR:
            look = self._looking()
            if age >= FENCE_STALE_AFTER:
                await asyncio.wait((look,), timeout=FENCE_READ_TIMEOUT)
        return _serving_side(self._seen.fence) if self._seen is not None else "first"

    def wait(self, seen: FenceObservation) -> float:
        """Seconds until the side that the fence names may serve: 0 when it may. Only a take-over is waited for."""
        if seen.fence.active == "first" and not seen.fence.syncing:
            return 0.0
        passed = seen.age / 1000 + self._clock.monotonic() - seen.sent
        # The store tells its time in whole seconds: the row may be up to one younger than it looks.
        return max(0.0, self.waits.take / 1000 + 1.0 - passed)


def _serving_side(fence: Fence) -> Side:
    return "second" if fence.syncing else fence.active


class Mirror:
    """The pair as one side's scheduler sees it."""

    def __init__(self, side: Side, pair: MirrorPair, runner: AsyncRunner, clock: Clock) -> None:
        self.side, self.pair = side, pair
        self._runner, self._clock = runner, clock
        self._unasked_until = 0.0

    @property
    def whole(self) -> bool:
        """Whether every new event of this side is stored as a mirrored one: only then can it be taken back to the first."""
        return self.side == "second"

    def _way(self, seen: FenceObservation) -> Way | None:
        return Way("", SECOND, SECOND, "first", seen.fence.epoch) if self.side == "first" else None

    async def known_before(self, tenant: str, event_id: str) -> Known | None:
        """On the second: the event that has the id in the first account alone; None as well when that does not answer."""
        if not self.whole or self._clock.monotonic() < self._unasked_until:
            return None
        try:
            async with asyncio.timeout(ID_CHECK_TIMEOUT):
                return await self._runner.run(known_id(tenant, event_id, FIRST))
        except (StorageError, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                # Or each new event would wait for an account that hangs.
                self._unasked_until = self._clock.monotonic() + ID_CHECK_PAUSE
            log.debug("Whether the first account knows an id cannot be asked: %s", error, extra={"action": "side_unknown"})
            return None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Way | None]:
        """Something is done to a mirrored shard, and acknowledged at the end: the way to copy it, None when it is not copied.

        Raises `Unavailable` before anything is done when this side does not serve, or may not; `OutcomeUnknown` at the end when it took so
        long that the other side may have taken over.
        """
        seen = await self.pair.sure()
        if _serving_side(seen.fence) != self.side or seen.fence.syncing or self.pair.wait(seen) > 0:
            raise Unavailable("the mirrored events of this account are not served now: the other one has taken over, or is about to")
        way = self._way(seen)
        yield way
        if way is None and self._clock.monotonic() - seen.sent >= self.pair.waits.stop:
            raise OutcomeUnknown("it took so long that the other account may have taken over meanwhile")

    async def copied(self, steps: Steps[bool]) -> None:
        """Carry out the copying of what was just done. Raises `OutcomeUnknown` when it failed: it is done, but must not be acknowledged."""
        try:
            ours = await self._runner.run(steps)
        except StorageError as error:
            raise OutcomeUnknown(f"done in one account, but not copied to the other: {error}") from error
        if not ours:
            raise OutcomeUnknown("the other account has taken over meanwhile")

    async def guard(self, shard: str) -> MirrorGuard | float | None:
        """Leave to serve a shard; seconds after which to ask again; or None: the other side serves it. Raises `Unavailable`."""
        seen = await self.pair.sure()
        if _serving_side(seen.fence) != self.side or seen.fence.syncing:
            return None
        if wait := self.pair.wait(seen):
            return wait
        fence = Way("", SECOND, SECOND, self.side, seen.fence.epoch)
        guard = MirrorGuard(shard, fence, self._way(seen), self._runner, self._clock, self.pair.waits.stop)
        if self.side == "second":
            # Until then no owner of this side has taken anything: what looks owned was copied.
            guard.stopped = seen.at + self.pair.waits.take
        return guard


class MirrorGuard:
    """One owner's leave to serve a mirrored shard: looks at the fence, and keeps the copy up to date on the way."""

    def __init__(self, shard: str, fence: Way, way: Way | None, runner: AsyncRunner, clock: Clock, stop: float) -> None:
        self._shard, self._fence, self._way, self._runner, self._clock, self._stop = shard, fence, way, runner, clock, stop
        self._every = min(MIRROR_COPY_EVERY, stop / 4)
        self._checked = float("-inf")
        self.dirty = True
        """Whether there is something that the copy does not know yet."""
        self.stopped: Millis = 0
        """Owners whose last beat is older, by the store's time, have stopped: they were the other side's."""

    @property
    def may_start(self) -> bool:
        """Whether the last look still covers a delivery that starts now."""
        return self._clock.monotonic() - self._checked < self._stop

    async def look(self, *, copy: bool = True) -> bool:
        """Look at the fence, and copy if `copy`; False when the other side has taken over. Raises `StorageError`."""
        sent = self._clock.monotonic()
        if copy and self._way is not None:
            self.dirty = False
            try:
                ours = await self._runner.run(mirror(self._shard, self._way))
            except BaseException:
                self.dirty = True
                raise
        else:
            ours = await self._runner.run(holds(self._fence))
        if ours:
            self._checked = sent
        return ours

    async def watch(self, lost: Callable[[], None], told: Callable[[], None]) -> None:
        """Look again and again; calls `lost` when the other side has taken over, `told` after each look that says that it has not."""
        while True:
            await self._clock.sleep(self._every)
            if not self.dirty and self._clock.monotonic() - self._checked < self._every * 1.5:
                continue
            try:
                ours = await self.look(copy=self.dirty)
            except StorageError as error:
                # Nothing new is started once the last look is too old.
                log.info("The copy of shard %s waits: %s", self._shard, error, extra={"action": "copy_failed", "shard": self._shard})
                continue
            if not ours:
                log.info("The other account has taken over shard %s", self._shard, extra={"action": "side_lost", "shard": self._shard})
                lost()
                return
            told()

    def before_end(self, entry: Props) -> Steps[bool]:
        """What belongs between a done gate and its ledger row."""
        if self._way is not None:
            return finish_copy(self._shard, self._way, entry)
        return holds(self._fence)
