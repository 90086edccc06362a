"""The jobs of the sweep, each with its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..checkpoints.service.service import CheckpointService
from ..core.clock import Millis
from ..engine.queries import load_rows
from ..extras.kafka_source.ingest import KafkaIngest
from ..fleets.watch.service import FleetWatch
from ..maintenance.service.sweep import MaintenanceSweep
from ..ops.export.service import MetricsPublisher
from ..scheduler.bulk.service import JOB as BULK_JOBS
from ..scheduler.mirror.failover import Failover
from ..scheduler.queries.totals import Totals
from ..scheduler.service import Scheduler
from ..storage.names import TENANTS
from ..storage.ports import Tables
from ..tenants.audit import AuditRecords
from ..tenants.rows import PK_TENANTS
from ..tenants.store import TenantDirectory
from .poison import PoisonQueues
from .timers import Counts, Job


class Retention:
    """Removes the events and rejects of every tenant whose time is over, and then the tenants that are deleted."""

    def __init__(self, tables: Tables, directory: TenantDirectory, scheduler: Scheduler, totals: Totals) -> None:
        self._tables, self._directory, self._scheduler, self._totals = tables, directory, scheduler, totals

    async def events(self, now: Millis) -> Counter[str]:
        """Remove finished events, and tenants of which nothing is left; the counts include `tenants`."""
        tenants = await self._tenants()
        counts = await self._scheduler.sweeps.retain(tenants, now)
        await self._totals.forget(tenants)
        if forgotten := await self._directory.tidy():
            counts["tenants"] = forgotten
        return counts

    async def rejects(self, now: Millis) -> Counter[str]:
        """Remove rejects."""
        return await self._scheduler.rejects.retain(await self._tenants(), now)

    async def _tenants(self) -> list[str]:
        return [row.rk for row in await load_rows(self._tables, TENANTS, PK_TENANTS, "", "~", ("deleting",))]


class SweptServices(NamedTuple):
    """The services that the sweep calls. kafka: None if there are no Kafka sources."""

    scheduler: Scheduler
    fleets: FleetWatch
    checkpoints: CheckpointService
    maintenance: MaintenanceSweep
    failover: Failover
    retention: Retention
    audit: AuditRecords
    metrics: MetricsPublisher
    kafka: KafkaIngest | None
    poison: PoisonQueues


def timer_jobs(services: SweptServices) -> Mapping[str, Sequence[tuple[str, Job]]]:
    """Return the named parts of each job."""
    scheduler, fleets, checkpoints, maintenance, failover, retention, audit, metrics, kafka, poison = services

    def by_event_clock(job: Job) -> Job:
        """Return the job with the time of the scheduler's clock, which due times are compared with."""
        return lambda _: job(scheduler.clock.now())

    jobs: dict[str, list[tuple[str, Job]]] = {
        "scheduler_scan": [
            ("dispatch", by_event_clock(scheduler.looks.dispatch)),
            ("recurring", by_event_clock(scheduler.recurring.chain.sweep)),
            ("state rows", scheduler.state_pass.run_once),
            ("notices", scheduler.notices.sweep),
            ("label rows", scheduler.label_index.run_once),
            ("poison queues", poison.drain),
        ],
        BULK_JOBS: [("jobs", scheduler.bulk.run_once)],
        "lease_scan": [
            ("takeover", fleets.takeover.run_once),
            ("turns", checkpoints.run_once),
            ("maintenance", maintenance.run_once),
        ],
        "stale_scan": [
            ("failover", failover.sweep),
            ("leases", fleets.inspect.run_once),
            ("maintenance", maintenance.inspect),
        ],
        "retention_scan": [
            ("retention", by_event_clock(retention.events)),
            ("rejects", retention.rejects),
            ("audit", audit.retain),
            ("ordering keys", by_event_clock(scheduler.key_tidying.run_once)),
            ("notes of ends", scheduler.end_notes.tidy),
            ("recurring", by_event_clock(scheduler.recurring.chain.retain)),
            ("calendars", by_event_clock(scheduler.recurring.calendars.follow_all)),
            ("leases", fleets.retain),
            ("turns", checkpoints.retain),
            ("maintenance", maintenance.retain),
        ],
    }
    jobs["stale_scan"].append(("telemetry", metrics.run_once))
    if kafka is not None:
        jobs["ingest_kafka"] = [("kafka", kafka.run_once)]
    return jobs


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
