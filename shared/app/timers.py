"""The timers: each runs its jobs one after the other, and a failed job does not stop the next.

A job is `run(now) -> counts`: an idempotent sweep over stored state. Each tick stores its time in `TocsinSweeps`, which `readyz` reads.
"""

from __future__ import annotations

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


class SweepFailed(TocsinError):
    """Raised when at least one job of a timer has failed; the others have run. The message names the failed jobs."""


class Timers:
    """Runs the jobs of a timer."""

    def __init__(self, tables: Tables, clock: Clock, jobs: Mapping[str, Sequence[tuple[str, Job]]]) -> None:
        """jobs: timer name -> named jobs, in their order."""
        self._tables, self._clock, self._jobs = tables, clock, jobs

    async def run_once(self, timer: str) -> dict[str, dict[str, int]]:
        """Run every job of `timer` and return the counts by job. Raise `SweepFailed` after all have run if one failed."""
        counts: dict[str, dict[str, int]] = {}
        failed: list[str] = []
        for name, job in self._jobs[timer]:
            try:
                counts[name] = dict(await job(self._clock.now()))
            except Exception:
                log.exception("Job %s of %s failed", name, timer, extra={"action": "sweep_failed", "timer": timer, "job": name})
                failed.append(name)
        await self._tables.write(SWEEPS, PK_TICKS, (Upsert(timer, {"at": self._clock.now(), "failed": len(failed)}),))
        if failed:
            raise SweepFailed(f"{timer}: {', '.join(failed)} failed")
        return counts
