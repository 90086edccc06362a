"""The timers: each runs its jobs, and a failed job does not stop the others.

A job is `run(now) -> counts`: an idempotent sweep over stored state. Each tick stores its time in `TocsinSweeps`, which `readyz` reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ..core.clock import Clock, Millis
from ..core.errors import TocsinError
from ..ops.health.service import PK_TICKS
from ..storage.names import SWEEPS
from ..storage.ports import Tables, Upsert

log = logging.getLogger(__name__)

type Job = Callable[[Millis], Awaitable[Mapping[str, int]]]

SCHEDULES: Mapping[str, str] = {
    "scheduler_scan": "*/15 * * * * *",
    "lease_scan": "*/15 * * * * *",
    "stale_scan": "20 * * * * *",
    "retention_scan": "0 7 * * * *",
}
"""NCRONTAB expressions by timer, seconds first, UTC."""
PERIODS: Mapping[str, float] = {"scheduler_scan": 15.0, "lease_scan": 15.0, "stale_scan": 60.0, "retention_scan": 3600.0}
"""Seconds between two ticks."""

KAFKA_SCHEDULES: Mapping[str, str] = {"ingest_kafka": "0,30 * * * * *"}
"""Deployed only where there are Kafka sources: this function works most of the time, and is billed for it."""
KAFKA_PERIODS: Mapping[str, float] = {"ingest_kafka": 30.0}


RUN_FOR: Mapping[str, float] = {"scheduler_scan": 75.0}
"""Seconds after which a job of the timer is cancelled, which every sweep bears; the next tick goes on.

The jobs of such a timer run side by side. With the period, the sum stays below the two minutes by which the sweeps of the scheduler work
ahead, so that a request that storage does not answer delays no other shard and no other schedule.
"""


class SweepFailed(TocsinError):
    """Raised when at least one job of a timer has failed; the others have run. The message names the failed jobs."""


class Timers:
    """Runs the jobs of a timer."""

    def __init__(self, tables: Tables, clock: Clock, jobs: Mapping[str, Sequence[tuple[str, Job]]]) -> None:
        """jobs: timer name -> named jobs, in their order."""
        self._tables, self._clock, self._jobs = tables, clock, jobs

    async def run_once(self, timer: str) -> dict[str, dict[str, int]]:
        """Run every job of `timer` and return the counts by job. Raise `SweepFailed` after all have run if one failed."""
        jobs = self._jobs[timer]
        if (limit := RUN_FOR.get(timer)) is not None:
            found = await asyncio.gather(*(self._run(timer, name, job, limit) for name, job in jobs))
        else:
            found = [await self._run(timer, name, job) for name, job in jobs]
        counts = {name: done for (name, _), done in zip(jobs, found, strict=True) if done is not None}
        failed = [name for name, _ in jobs if name not in counts]
        await self._tables.write(SWEEPS, PK_TICKS, (Upsert(timer, {"at": self._clock.now(), "failed": len(failed)}),))
        if failed:
            raise SweepFailed(f"{timer}: {', '.join(failed)} failed")
        return counts

    async def _run(self, timer: str, name: str, job: Job, limit: float | None = None) -> dict[str, int] | None:
        """Return the counts of a job, or None if it failed or did not end in time."""
        bound = asyncio.timeout(limit)
        try:
            async with bound:
                return dict(await job(self._clock.now()))
        except Exception:
            if bound.expired():
                extra = {"action": "sweep_cut_off", "timer": timer, "job": name}
                log.warning("Job %s of %s did not end within %s s; the next tick goes on with it", name, timer, limit, extra=extra)
            else:
                extra = {"action": "sweep_failed", "timer": timer, "job": name}
                log.exception("Job %s of %s failed", name, timer, extra=extra)
            return None
