"""The jobs of the sweep, each with its parts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from ..core.clock import Millis
from ..engine.effects import load_rows
from ..ops.export.service import MetricsPublisher
from ..scheduler.service import Scheduler
from ..scheduler.timings import RETENTION_GOES_ON_FOR
from ..storage.names import BULK_JOBS, TENANTS
from ..storage.ports import RowQuery, Tables
from ..tenants.rows import PK_TENANTS
from ..tenants.store import TenantDirectory
from .services import Services
from .timers import Counts, Job
from .warming import SWEPT, import_in_steps

if TYPE_CHECKING:
    from ..scheduler.queries.totals import Totals


class Retention:
    """Removes the events and rejects of every tenant whose time is over, and then the tenants that are deleted."""

    def __init__(self, tables: Tables, directory: TenantDirectory, scheduler: Scheduler, totals: Totals) -> None:
        self._tables, self._directory, self._scheduler, self._totals = tables, directory, scheduler, totals
        self._left = False
        """True if the last run has left finished events, because its time was over."""

    async def events(self, now: Millis) -> Counter[str]:
        """Remove finished events, and tenants of which nothing is left; the counts include `tenants`."""
        self._left = False
        tenants = await self._tenants()
        counts = await self._scheduler.sweeps.retain(tenants, now)
        self._left = bool(counts["cut"])
        await self._totals.forget(tenants)
        if forgotten := await self._directory.tidy():
            counts["tenants"] = forgotten
        return counts

    async def go_on(self, now: Millis) -> Counter[str]:
        """Remove finished events that the last run of this process has left. After another process's run, the next hour comes first."""
        if not self._left:
            return Counter()
        counts = await self._scheduler.sweeps.retain(await self._tenants(), now, RETENTION_GOES_ON_FOR)
        self._left = bool(counts["cut"])
        return counts

    async def rejects(self, now: Millis) -> Counter[str]:
        """Remove rejects."""
        return await self._scheduler.rejects.retain(await self._tenants(), now)

    async def _tenants(self) -> list[str]:
        return [row.rk for row in await load_rows(self._tables, RowQuery(TENANTS, PK_TENANTS, "", "~", select=("deleting",)))]


def timer_jobs(app: Services) -> dict[str, Sequence[tuple[str, Job]]]:
    """Return the named parts of each job. The service of a part is imported and made when the part runs first."""
    scheduler, making = app.scheduler, asyncio.Lock()

    def of(service: str, job: Job) -> Job:
        """Return the job of a service. It is imported in short steps: all at once would make events late that are due meanwhile."""

        async def run(now: Millis) -> Mapping[str, int]:
            if app.made(service) is None:
                async with making:
                    if app.made(service) is None:
                        await import_in_steps(SWEPT)
                        getattr(app, service)
            return await job(now)

        return run

    def by_event_clock(job: Job) -> Job:
        """Return the job with the time of the scheduler's clock, which due times are compared with."""
        return lambda _: job(scheduler.clock.now())

    @cache
    def retention() -> Retention:
        return Retention(app.storage.tables, app.directory, scheduler, app.metrics.totals)

    async def drain(now: Millis) -> Mapping[str, int]:
        from .poison import PoisonQueues

        return await PoisonQueues(app.queue_sides).drain(now)

    publisher: list[MetricsPublisher] = []

    async def telemetry(now: Millis) -> Mapping[str, int]:
        if not publisher:
            publisher.append(MetricsPublisher(app.metrics.families, app.ports.outlets.receivers, ready=app.ports.outlets.ready))
        return await publisher[0].run_once(now)

    jobs: dict[str, Sequence[tuple[str, Job]]] = {
        "scheduler_scan": [
            ("dispatch", by_event_clock(lambda now: scheduler.looks.dispatch(now))),
            ("recurring", by_event_clock(lambda now: scheduler.recurring.chain.sweep(now))),
            ("state rows", lambda now: scheduler.state_pass.run_once(now)),
            ("notices", lambda now: scheduler.notices.sweep(now)),
            ("label rows", lambda now: scheduler.label_index.run_once(now)),
            ("poison queues", drain),
        ],
        BULK_JOBS: [("jobs", lambda now: scheduler.bulk.run_once(now))],
        "lease_scan": [
            ("takeover", of("watch", lambda now: app.watch.takeover.run_once(now))),
            ("turns", of("checkpoints", lambda now: app.checkpoints.run_once(now))),
            ("maintenance", of("maintenance_sweeps", lambda now: app.maintenance_sweeps.run_once(now))),
        ],
        "stale_scan": [
            ("failover", of("failover", lambda now: app.failover.sweep(now))),
            ("leases", of("watch", lambda now: app.watch.inspect.run_once(now))),
            ("maintenance", of("maintenance_sweeps", lambda now: app.maintenance_sweeps.inspect(now))),
            ("telemetry", of("metrics", telemetry)),
            ("retention", of("metrics", by_event_clock(lambda now: retention().go_on(now)))),
        ],
        "retention_scan": [
            ("retention", of("metrics", by_event_clock(lambda now: retention().events(now)))),
            ("rejects", of("metrics", lambda now: retention().rejects(now))),
            ("audit", of("audit", lambda now: app.audit.retain(now))),
            ("ordering keys", by_event_clock(lambda now: scheduler.key_tidying.run_once(now))),
            ("notes of ends", lambda now: scheduler.end_notes.tidy(now)),
            ("recurring", by_event_clock(lambda now: scheduler.recurring.chain.retain(now))),
            ("calendars", by_event_clock(lambda now: scheduler.recurring.calendars.follow_all(now))),
            ("leases", of("watch", lambda now: app.watch.retain(now))),
            ("turns", of("checkpoints", lambda now: app.checkpoints.retain(now))),
            ("maintenance", of("maintenance_sweeps", lambda now: app.maintenance_sweeps.retain(now))),
        ],
    }
    return jobs | {name: timer.work(app) for name, timer in app.part_timers.items()}


def under_way(job: str, counts: Counts) -> bool:
    """Return True if the counts of a run show unfinished work, so that the job must run again within seconds.

    scheduler_scan: a shard past its wake-up is unfinished, and its owner may end at any moment; or occurrences of schedules are not stored
    yet. lease_scan: there are fleets that are not idle, or turns, or maintenance agents.
    """
    dispatch, recurring = counts.get("dispatch", {}), counts.get("recurring", {})
    if job == "scheduler_scan":
        near = any(dispatch.get(name) for name in ("under_way", "failed"))
        return near or any(recurring.get(name) for name in ("partly", "waiting", "cut", "failed"))
    takeover, turns, maintenance = (counts.get(part, {}) for part in ("takeover", "turns", "maintenance"))
    return takeover.get("fleets", 0) > takeover.get("idle", 0) or bool(turns.get("fleets") or maintenance.get("fleets"))
