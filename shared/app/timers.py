"""The timers: each runs its jobs one after the other, and a failing one does not stop the next.

A job is `run(now) -> counts`: an idempotent sweep from what is stored. Each tick leaves its time in `TocsinSweeps`, where `readyz` looks.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import azure.functions as func

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
"""NCRONTAB, seconds first, UTC."""
PERIODS: Mapping[str, float] = {"scheduler_scan": 15.0, "lease_scan": 15.0, "stale_scan": 60.0, "retention_scan": 3600.0}

KAFKA_SCHEDULES: Mapping[str, str] = {"ingest_kafka": "0,30 * * * * *"}
"""Only where there are Kafka sources: it works most of the time, and is paid for."""
KAFKA_PERIODS: Mapping[str, float] = {"ingest_kafka": 30.0}


class SweepFailed(TocsinError):
    """At least one job of a timer failed; the others ran. The message names them."""


class Timers:
    """Runs the jobs of a timer. `jobs`: timer name -> named jobs, in order."""

    def __init__(self, tables: Tables, clock: Clock, jobs: Mapping[str, Sequence[tuple[str, Job]]]) -> None:
        self._tables, self._clock, self._jobs = tables, clock, jobs

    async def run_once(self, timer: str) -> dict[str, dict[str, int]]:
        """Run every job of `timer`; counts by job. Raises `SweepFailed` after all have run when one failed."""
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


class App(Protocol):
    """What the timers need of the application."""

    @property
    def timers(self) -> Timers:
        """The timers."""


def triggers(get_app: Callable[[], Awaitable[App]], schedules: Mapping[str, str] = SCHEDULES) -> func.Blueprint:
    """One timer function per schedule."""
    blueprint = func.Blueprint()  # type: ignore[no-untyped-call]

    def on_tick(name: str, schedule: str) -> None:
        async def handler(timer: func.TimerRequest) -> None:
            counts: Any = await (await get_app()).timers.run_once(name)
            log.debug("%s: %s", name, counts, extra={"action": "sweep_done", "timer": name})

        handler.__name__ = handler.__qualname__ = name
        trigger = blueprint.timer_trigger(arg_name="timer", schedule=schedule, run_on_startup=False, use_monitor=False)
        blueprint.function_name(name)(trigger(handler))

    for name, schedule in schedules.items():
        on_tick(name, schedule)
    return blueprint
