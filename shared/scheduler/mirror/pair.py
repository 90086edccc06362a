"""A mirrored pair at work: this process's knowledge of which side serves, and copies of its changes to the other side.

Each side has a scheduler of its own with its own view of the tables, so that an operation begun on one side cannot continue by mistake on
the other. The fence row in the second account decides: a side serves while the row names it.

The side that must stop starts nothing later than `stop` seconds after the SEND of its last look at the fence. The side that takes over
serves `take` milliseconds after the row was written, by the storage service's own time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ...core.clock import Clock, Millis
from ...core.errors import OutcomeUnknown, StorageError, Unavailable
from ...engine.async_runner import AsyncRunner
from ...engine.effects import Steps
from ...storage.names import IDS, SWEEPS
from ...storage.ports import Props, Tables
from ..keys import MIRRORED, Address, BesideId, place_of
from ..protocol.ingest import KnownId, file_shard, known_id
from ..protocol.mirroring import (
    ELSEWHERE_PK,
    FENCE_PK,
    FENCE_ROW,
    FIRST,
    SECOND,
    Fence,
    Side,
    Way,
    finish_copy,
    mirror,
    mirror_event,
    mirror_id,
    on_side,
    parse_fence,
    request_copy,
    still_serves,
)
from ..rows import EventToStore
from ..timings import (
    FENCE_FRESH_FOR,
    FENCE_READ_TIMEOUT,
    FENCE_STALE_AFTER,
    ID_CHECK_PAUSE,
    ID_CHECK_TIMEOUT,
    MIRROR_COPY_EVERY,
    OWNER_MAY_START,
    OWNER_SILENT,
)
from .unmirrored import UNGUARDED, Mirror, ShardGuard, ShardOperation

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MirrorTimeouts:
    """Time limits of a change of sides.

    stop: seconds after the SEND of its last look at the fence within which an overtaken process has stopped. take: milliseconds after which
    the other side serves, counted from the fence row's own time.

    Safe while `take` is longer than `outlasting(stop)` (`engine/validity.py`). `MirrorPair.wait` adds a second, because the store's time
    has whole seconds.
    """

    stop: float = OWNER_MAY_START
    take: Millis = OWNER_SILENT


class FenceObservation(NamedTuple):
    """An observation of the fence. sent: monotonic time of its SEND. age: the row's age then, by its own store's time. at: time it was
    written."""

    fence: Fence
    etag: str
    sent: float
    age: Millis
    at: Millis


class MirrorPair:
    """This process's knowledge of the fence. One per process."""

    def __init__(self, tables: Tables, clock: Clock, waits: MirrorTimeouts | None = None) -> None:
        self._tables, self._clock = tables, clock
        self.waits = waits or MirrorTimeouts()
        self._seen: FenceObservation | None = None
        self._look: asyncio.Task[FenceObservation] | None = None

    @property
    def last(self) -> FenceObservation | None:
        """The last observation of the fence, however old."""
        return self._seen

    async def look(self) -> FenceObservation:
        """Read the fence. Raises `Unavailable` if the second account does not answer."""
        sent = self._clock.monotonic()
        row = await self._tables.get(SECOND + SWEEPS, FENCE_PK, FENCE_ROW)
        age = row.read_at - row.timestamp if row is not None else 0
        at = row.timestamp if row is not None else 0
        seen = FenceObservation(parse_fence(row), row.etag if row is not None else "", sent, age, at)
        if self._seen is None or sent >= self._seen.sent:
            self._seen = seen
        return seen

    async def sure(self) -> FenceObservation:
        """Return an observation that is at most a second old. Raises `Unavailable`."""
        seen = self._seen
        if seen is not None and self._clock.monotonic() - seen.sent < FENCE_FRESH_FOR:
            return seen
        return await asyncio.shield(self._looking())

    def _looking(self) -> asyncio.Task[FenceObservation]:
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self.look())
            # Tasks that wait for it get the failure. If none waits, the next call that needs the fence shows it.
            self._look.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._look

    async def side(self) -> Side:
        """Return the side that a request goes to, from the last observation. Operations that must be certain read again. Does not raise.

        While no side serves, because the first is being brought up to date, the second account still knows best.
        """
        seen = self._seen
        age = self._clock.monotonic() - seen.sent if seen is not None else FENCE_STALE_AFTER
        if age >= FENCE_FRESH_FOR:
            look = self._looking()
            if age >= FENCE_STALE_AFTER:
                await asyncio.wait((look,), timeout=FENCE_READ_TIMEOUT)
        return _serving_side(self._seen.fence) if self._seen is not None else "first"

    def wait(self, seen: FenceObservation) -> float:
        """Return the seconds until the side that the fence names may serve: 0 if it may. Only a take-over has to wait."""
        if seen.fence.active == "first" and not seen.fence.syncing:
            return 0.0
        passed = seen.age / 1000 + self._clock.monotonic() - seen.sent
        # The store's time has whole seconds: the row may be up to one second younger than it looks.
        return max(0.0, self.waits.take / 1000 + 1.0 - passed)


def _serving_side(fence: Fence) -> Side:
    return "second" if fence.syncing else fence.active


class MirroredOperation(ShardOperation):
    """An operation on a mirrored shard."""

    def __init__(self, runner: AsyncRunner, way: Way | None, fence: Way, beside: BesideId) -> None:
        """fence: the side that serves, and its epoch, as the operation began."""
        self._runner, self.way, self._fence, self._beside = runner, way, fence, beside

    def keep(self, shard: str) -> Steps[bool]:
        # What is stored while the second serves is copied on the way back.
        return still_serves(self._fence) if self.way is None else mirror(shard, self.way)

    async def copy(self, steps_of: Callable[[Way], Steps[bool]]) -> None:
        if self.way is None:
            return
        try:
            ours = await self._runner.run(steps_of(self.way))
        except StorageError as error:
            raise OutcomeUnknown(f"done in one account, but not copied to the other: {error}") from error
        if not ours:
            raise OutcomeUnknown("the other account has taken over during the operation")

    async def copy_id(self, tenant: str, event_id: str) -> None:
        await self.copy(partial(mirror_id, tenant, event_id, beside=self._beside))


class PairedMirror(Mirror):
    """The pair as one side's scheduler sees it."""

    paired = True

    def __init__(self, side: Side, pair: MirrorPair, runner: AsyncRunner, beside: BesideId) -> None:
        """beside: names the rows that are copied with the row of an id."""
        super().__init__(runner)
        self.side, self.pair, self._beside = side, pair, beside
        self.whole = side == "second"
        self._clock = runner.clock
        self._unasked_until = 0.0

    def mirrors(self, event: EventToStore) -> bool:
        return self.whole or event.durability == "mirrored"

    def _way(self, seen: FenceObservation) -> Way | None:
        return Way("", SECOND, SECOND, "first", seen.fence.epoch) if self.side == "first" else None

    def term(self, since: Millis | None = None) -> int:
        seen = self.pair.last
        if self.side == "first" or seen is None or seen.fence.active == "first" or (since is not None and since < seen.at):
            return 0
        return seen.fence.epoch

    def _may_be_there(self, event: EventToStore) -> bool:
        """Return True if an event of the ingest queue may be in the first account alone, where it may be delivered or cancelled by now.

        A mirrored event is in both. An event that waited for too long is stored as dead in any case, so that it reaches a final state.
        """
        return event.term is not None and event.term != self.term() and event.durability != "mirrored" and event.props["state"] != "dead"

    async def known_before(self, tenant: str, event: EventToStore, name: str) -> KnownId | None:
        if not self.whole:
            return None
        try:
            return await self._ask_first(tenant, name)
        except StorageError as error:
            log.debug("It is unknown whether the first account has an id: %s", error, extra={"action": "side_unknown"})
            if self._may_be_there(event):
                raise Unavailable("the event may be in the first storage account, which does not answer") from error
            return None

    async def _ask_first(self, tenant: str, event_id: str) -> KnownId | None:
        if self._clock.monotonic() < self._unasked_until:
            raise Unavailable("the first account did not answer a short time ago")
        try:
            async with asyncio.timeout(ID_CHECK_TIMEOUT):
                return await self._runner.run(on_side(FIRST, known_id(tenant, event_id), (IDS,)))
        except TimeoutError:
            # Otherwise each new event would wait for an account that hangs.
            self._unasked_until = self._clock.monotonic() + ID_CHECK_PAUSE
            raise Unavailable("the first account did not answer in time") from None

    def file_copy(self, shard: str, wake: Millis) -> Steps[None]:
        if place_of(shard) == MIRRORED and not self.whole:
            yield from on_side(SECOND, file_shard(shard, wake, sent=False))

    def serving(self, shard: str) -> AbstractAsyncContextManager[ShardOperation]:
        return self._serving() if place_of(shard) == MIRRORED else super().serving(shard)

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[ShardOperation]:
        seen = await self.pair.sure()
        if _serving_side(seen.fence) != self.side or seen.fence.syncing or self.pair.wait(seen) > 0:
            raise Unavailable("this account does not serve mirrored events now: the other one has taken over, or is about to")
        way = self._way(seen)
        yield MirroredOperation(self._runner, way, Way("", SECOND, SECOND, self.side, seen.fence.epoch), self._beside)
        if way is None and self._clock.monotonic() - seen.sent >= self.pair.waits.stop:
            raise OutcomeUnknown("the operation took so long that the other account may have taken over")

    async def carry[T](self, address: Address, steps: Steps[T], acknowledges: Callable[[T], bool]) -> T:
        async with self.serving(address.shard) as operation:
            answer = await self._runner.run(steps)
            if acknowledges(answer):
                await operation.copy(partial(mirror_event, address))
        return answer

    async def before_redrive(self, shard: str) -> None:
        if place_of(shard) == MIRRORED:
            await self._runner.run(request_copy(shard))
        elif self.whole:
            # The ledger row may be in the first account, which may be away.
            await self._runner.run(request_copy(shard, ELSEWHERE_PK))

    async def guard(self, shard: str) -> ShardGuard | float | None:
        if place_of(shard) != MIRRORED:
            return UNGUARDED
        seen = await self.pair.sure()
        if _serving_side(seen.fence) != self.side or seen.fence.syncing:
            return None
        if wait := self.pair.wait(seen):
            return wait
        fence = Way("", SECOND, SECOND, self.side, seen.fence.epoch)
        guard = MirrorGuard(shard, fence, self._way(seen), self._runner, self._clock, self.pair.waits.stop)
        if self.side == "second":
            # Before this time no owner of this side had taken anything: a gate that looks owned was copied.
            guard.stopped = seen.at + self.pair.waits.take
        return guard


class MirrorGuard(ShardGuard):
    """One owner's permission to serve a mirrored shard. It observes the fence and keeps the copy up to date."""

    def __init__(self, shard: str, fence: Way, way: Way | None, runner: AsyncRunner, clock: Clock, stop: float) -> None:
        self._shard, self._fence, self._way, self._runner, self._clock, self._stop = shard, fence, way, runner, clock, stop
        self._every = min(MIRROR_COPY_EVERY, stop / 4)
        self._checked = float("-inf")
        self._dirty = True
        """The copy lacks changes."""

    @property
    def may_start(self) -> bool:
        return self._clock.monotonic() - self._checked < self._stop

    def note_change(self) -> None:
        self._dirty = True

    async def look(self, *, copy: bool = True) -> bool:
        sent = self._clock.monotonic()
        if copy and self._way is not None:
            self._dirty = False
            try:
                ours = await self._runner.run(mirror(self._shard, self._way))
            except BaseException:
                self._dirty = True
                raise
        else:
            ours = await self._runner.run(still_serves(self._fence))
        if ours:
            self._checked = sent
        return ours

    def start_watch(self, lost: Callable[[], None], renewed: Callable[[], None]) -> asyncio.Task[None]:
        return asyncio.create_task(self._watch(lost, renewed))

    async def _watch(self, lost: Callable[[], None], renewed: Callable[[], None]) -> None:
        while True:
            await self._clock.sleep(self._every)
            if not self._dirty and self._clock.monotonic() - self._checked < self._every * 1.5:
                continue
            try:
                ours = await self.look(copy=self._dirty)
            except StorageError as error:
                # Nothing new is started once the last observation is too old.
                log.info("The copy of shard %s is delayed: %s", self._shard, error, extra={"action": "copy_failed", "shard": self._shard})
                continue
            if not ours:
                log.info("The other account has taken over shard %s", self._shard, extra={"action": "side_lost", "shard": self._shard})
                lost()
                return
            renewed()

    def before_end(self, entry: Props) -> Steps[bool]:
        if self._way is not None:
            return finish_copy(self._shard, self._way, entry)
        return still_serves(self._fence)
