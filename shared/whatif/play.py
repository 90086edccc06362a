"""One run of a twin: a snapshot, changes and a seed give an outcome, the same one on every machine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from ..core.clock import Millis
from .changes import Change
from .fleet.twin import TwinFleet
from .outcome import RunOutcome, outcome_of
from .service import TwinService
from .snapshot import MAX_EVENTS, BadSnapshot, Snapshot
from .twin.loop import LoopClock, VirtualLoop, run_to_end

WARM_UP: Final = 180.0
"""Seconds before the window, in which events are stored, servers share out the partitions, and agents report for the first time."""
MAX_DRAIN: Final = 3_600.0
"""Longest time after the window in which events can end, in seconds."""
POLL: Final = 1.0
"""Seconds between two checks of whether all events have ended."""
MINUTE: Final[Millis] = 60_000

type ReportProgress = Callable[[float], None]
"""Called with the share of the run that is done, 0 to 1."""


class TwinRun:
    """One run. instances: of the app, with one core each."""

    def __init__(
        self, snapshot: Snapshot, changes: Sequence[Change], *, seed: int, instances: int, progress: ReportProgress = lambda share: None
    ) -> None:
        self._snapshot, self._progress = snapshot, progress
        self._loop = VirtualLoop()
        begins = snapshot.first - round(WARM_UP * 1000)
        self._clock = LoopClock(self._loop, begins - begins % MINUTE)
        self._service = TwinService(snapshot, changes, self._clock, instances=instances, seed=seed)
        self._fleets = [TwinFleet(each, self._service, changes, self._clock, seed) for each in snapshot.fleets]
        self._tasks: list[asyncio.Task[None]] = []
        self._outcome: RunOutcome | None = None

    def play(self) -> RunOutcome:
        """Run to the end."""
        state = random.getstate()
        # Some pauses of the app's code use the global generator.
        random.seed(0)
        try:
            run_to_end(self._loop, self._run_all())
        finally:
            random.setstate(state)
        assert self._outcome is not None
        return self._outcome

    async def _run_all(self) -> None:
        snapshot = self._snapshot
        async with AsyncExitStack() as stack:
            await self._service.open(stack)
            self._spawn(self._change_rates())
            for fleet in self._fleets:
                await fleet.open(self._spawn)
            if self._fleets:
                self._spawn(self._service.scan_fleets())
            await self._service.store()
            await self._until(snapshot.first)
            for fleet in self._fleets:
                fleet.begin()
            await self._until(snapshot.end)
            fleets = {fleet.name: await fleet.end() for fleet in self._fleets}
            for task in self._tasks:
                task.cancel()
            latest = snapshot.end + round(MAX_DRAIN * 1000)
            while self._clock.now() < latest and not self._service.idle():  # noqa: ASYNC110  shards do not signal their end
                await asyncio.sleep(POLL)
            outcome = outcome_of(self._service.receivers.records, snapshot.first, self._clock.now(), self._service.given_up())
            outcome.fleets = fleets
            self._outcome = outcome
        self._progress(1.0)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _until(self, moment: Millis) -> None:
        begins, end = self._snapshot.first - WARM_UP * 1000, self._snapshot.end
        while (left := (moment - self._clock.now()) / 1000) > 0:
            self._progress(max(0.0, min(0.99, (self._clock.now() - begins) / (end - begins))))
            await asyncio.sleep(min(5.0, left))
            for task in self._tasks:
                if task.done():
                    task.result()
            if len(self._service.receivers.records) > 2 * MAX_EVENTS:
                raise BadSnapshot(f"the schedules make more than {MAX_EVENTS:,} events; export a shorter window with --for")

    async def _change_rates(self) -> None:
        for at, channel, rate in sorted(self._service.rates(), key=lambda change: change[0]):
            await self._until(at)
            await self._service.set_rate(channel, rate)


def play(
    snapshot: Snapshot,
    changes: Sequence[Change] = (),
    *,
    seed: int = 1,
    instances: int = 1,
    progress: ReportProgress = lambda share: None,
) -> RunOutcome:
    """Run a twin from the beginning of the window until every event has ended, at most an hour after the window.

    Raises `BadSnapshot` and other ValueErrors for a snapshot that cannot be played.
    """
    snapshot.check()
    return TwinRun(snapshot, changes, seed=seed, instances=instances, progress=progress).play()
