"""The tasks of one owner: a timer for all due times, tasks for the deliveries to each channel, and work that is owed."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from ...core import backoff
from ...core.clock import Clock, Millis
from ...core.errors import StorageError
from ...delivery.flow.lane import Lane
from ...storage.ports import Row
from .. import rules
from ..timings import CLAIM_AHEAD

if TYPE_CHECKING:
    from ..outcomes.callbacks import TellOutcomes

log = logging.getLogger(__name__)


AT_ONCE = 32
"""Most events that start in one turn of the event loop, so that requests of a large herd leave before its last events have started. The
first turn starts one event and each later turn twice as many as the one before, because a connection takes several turns to open."""
PREPARED_AHEAD: Millis = 200
"""Milliseconds before its time at which an event is prepared, if no other event starts until then. Settings of channels stay in memory for
longer than that."""


class DueTimes[T]:
    """Starts each event at its time, never before it. Belongs to one event loop.

    start: starts an event; it must not wait. Events of one instant start in the order in which they were added. prepare: is called with the
    first event after a pause, `PREPARED_AHEAD` before its time or later.
    """

    def __init__(self, clock: Clock, start: Callable[[T], None], prepare: Callable[[T], None]) -> None:
        self._clock, self._start, self._prepare = clock, start, prepare
        self._heap: list[tuple[Millis, int, T]] = []
        self._added = 0
        self._timer: asyncio.Task[None] | None = None
        self._sleeps_until: Millis | None = None
        """The time for which the timer sleeps; None while it starts events."""

    def add(self, at: Millis, event: T) -> None:
        """Start the event at `at`, or in the loop's next turn if that has passed."""
        self._added += 1
        heapq.heappush(self._heap, (at, self._added, event))
        if self._timer is None or self._timer.done():
            self._timer = asyncio.create_task(self._run())
        elif self._sleeps_until is not None and at < self._sleeps_until:
            self._timer.cancel()
            self._sleeps_until = None
            self._timer = asyncio.create_task(self._run())

    def close(self) -> None:
        """Start nothing more."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    async def _run(self) -> None:
        heap = self._heap
        together, prepared = 1, True
        while heap:
            now = self._clock.now()
            if (left := heap[0][0] - now) > 0:
                self._sleeps_until = heap[0][0]
                if left > PREPARED_AHEAD:
                    # A long wait is cut: the clock may have been corrected meanwhile.
                    left, prepared = min(left - PREPARED_AHEAD, CLAIM_AHEAD), False
                elif not prepared:
                    self._prepare(heap[0][2])
                    prepared = True
                await self._clock.sleep(left / 1000)
                self._sleeps_until, together = None, 1
                continue
            for _ in range(together):
                if not heap or heap[0][0] > now:
                    break
                self._start(heapq.heappop(heap)[2])
            together = min(2 * together, AT_ONCE)
            await asyncio.sleep(0)


SPARE = 8
"""Tasks beyond the deliveries that a channel may have in flight, so that one waits in line whenever a delivery ends."""


class _Held(NamedTuple):
    """A due event that waits for a task, and the time since which it does."""

    row: Row
    since: Millis


class LaneWorkers:
    """Runs deliveries in no more tasks than the channel can use. Further due events are held, and a task that is free takes the next one.

    deliver: attempts one delivery, of an event that was held since the given time (None: that was not held); raises nothing but
    cancellation. running: gets the task of each event that has one. waiting: gets the row keys of held events, for which nothing has been
    started.
    """

    def __init__(
        self,
        lane: Lane,
        owner: object,
        clock: Clock,
        deliver: Callable[[Row, Lane, Millis | None], Awaitable[None]],
        running: dict[str, asyncio.Task[None] | Lane],
        waiting: set[str],
    ) -> None:
        self._lane, self._owner, self._clock, self._deliver = lane, owner, clock, deliver
        self._running, self._waiting = running, waiting
        self._held: dict[str, _Held] = {}
        self._tasks = 0

    def begin(self, row: Row) -> None:
        """Attempt the delivery of a due event, or hold it until a task is free."""
        lane = self._lane
        if self._tasks < lane.most + SPARE:
            self._start(row, None)
            return
        if not lane.waiting:
            lane.waits_since = self._clock.monotonic()
        lane.held += 1
        self._held[row.rk] = _Held(row, self._clock.now())
        self._waiting.add(row.rk)

    def drop(self, row_key: str) -> None:
        """Forget an event if it is held."""
        if self._held.pop(row_key, None) is not None:
            self._lane.held -= 1
            self._waiting.discard(row_key)

    def _start(self, row: Row, since: Millis | None) -> None:
        self._tasks += 1
        self._running[row.rk] = task = asyncio.create_task(self._work(row, since))
        # A callback and not the task itself, because a task that is cancelled before it begins runs none of its code.
        task.add_done_callback(self._ended)

    async def _work(self, row: Row, since: Millis | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        while True:
            await self._deliver(row, self._lane, since)
            following = self._next()
            if following is None:
                return
            self._lane.leave(self._owner)
            row, since = following
            self._running[row.rk] = task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._lane.leave(self._owner)
        self._tasks -= 1
        if (following := self._next()) is not None:
            self._start(*following)

    def _next(self) -> _Held | None:
        for row_key, held in self._held.items():
            self.drop(row_key)
            return held
        return None


TOGETHER = 100
"""Most ended events whose callbacks are stored together."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between tries to store callbacks that storage did not take."""


class OwedOutcomes:
    """The ended events of one owner's shard to which something is owed."""

    def __init__(self, clock: Clock, tell: TellOutcomes, settle: Callable[[str, rules.RowOutcome], None]) -> None:
        """settle: takes the change of a row, for the owner's next transaction."""
        self._clock, self._tell, self._settle = clock, tell, settle
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._again_at = clock.monotonic()

    def start(self, rows: Sequence[Row]) -> None:
        """Begin what is owed to these rows, unless some of it is under way, or failed a short time ago."""
        if self._task is None and rows and self._clock.monotonic() >= self._again_at:
            self._task = asyncio.create_task(self._run(rows[:TOGETHER]))

    def cancel(self) -> None:
        """Stop. The next owner finds what is owed."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, rows: Sequence[Row]) -> None:
        changes = {}
        try:
            changes = await self._tell(rows)
        except StorageError as error:
            log.debug("Callbacks could not be stored yet: %s", error, extra={"action": "callback_postponed"})
        except Exception:
            log.exception("Storing callbacks raised an unexpected error", extra={"action": "callback_failed"})
        finally:
            self._task = None
        self._failures = 0 if len(changes) == len(rows) else self._failures + 1
        if self._failures:
            self._again_at = self._clock.monotonic() + backoff.exponential(FIRST_PAUSE, self._failures - 1, LONGEST_PAUSE, 10)
        for row in rows:
            if row.rk in changes:
                self._settle(row.rk, rules.RowOutcome(cast(rules.EndState, row.props["state"]), changes[row.rk]))
