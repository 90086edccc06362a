"""All benchmarks of `python -m bench`, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from . import locks, owners, totals, tracing
from .cluster import figures as cluster
from .cluster import pair
from .events import (
    batch,
    bulk_jobs,
    conditions,
    day_outage,
    due_now,
    event_rows,
    firing,
    importing,
    keys,
    quiet,
    real_outage,
    singles,
    sparse_tenants,
    storage_cpu,
    stream,
    thousand_tenants,
    transactions,
    twin,
)
from .fleets import figures as fleets
from .fleets import real as real_fleet
from .growth import figures as growth
from .leases import azurite, balance, throttled, virtual_time
from .report import Figure
from .scale import figures as scale
from .tools.stage import Run
from .whatif import figures as whatif

type Measure = Callable[[Run], Awaitable[list[Figure]]]


@dataclass(frozen=True, slots=True)
class Bench:
    """A measurement that gives one row of the table or more.

    about: what it measures, in one line for `--help`. limit: the seconds that it may take.
    """

    about: str
    measure: Measure
    limit: float = 420.0


BENCHES: Final[dict[str, Bench]] = {
    # Bulk
    "transactions": Bench("storage transactions per event of bulk loads", transactions.measure),
    "batch": Bench("events stored by batches, beside bare clients of table storage", batch.measure),
    "import": Bench("tocsin events import", importing.measure),
    "rows": Bench("bytes and CPU of an event's row", event_rows.measure),
    # Single requests
    "singles": Bench("single POSTs at 64 connections, beside a no-op route", singles.posts),
    "cancels": Bench("cancels of one shard's events, beside merges by a bare client", singles.cancels),
    # Deliveries that are planned ahead
    "lateness": Bench("lateness of 5,000 events over 20 s", firing.lateness),
    "herd": Bench("5,000 events at one instant, beside BullMQ on Redis", firing.herd),
    "conditions": Bench("lateness beside bad endpoints, and on storage that refuses requests", conditions.measure),
    "throttling": Bench("lateness and ingest on storage that refuses requests", conditions.throttling),
    "stream": Bench("lateness of events that are posted one by one, due in seconds", stream.measure),
    # Deliveries that are due now
    "due-now-lone": Bench("one event each 5 s that is due when it is posted, from POST to arrival", due_now.lone),
    "due-now-5": Bench("5 such events a second", due_now.five),
    "due-now-50": Bench("50 such events a second", due_now.fifty),
    "lone-transactions": Bench("storage transactions of a lone event that is due when it is posted", due_now.transactions),
    "due-now-asked": Bench("events that are fired, triggered or redriven, and callbacks: one at a time", due_now.asked),
    "due-now-executions": Bench("queue executions that express events cause, in normal running", due_now.executions),
    # Many tenants, moved events
    "tenants-300": Bench("lateness of 30 single events a second of 300 tenants", sparse_tenants.tenants_300),
    "tenants-1000": Bench("lateness of single events of 1,000 tenants, at most 100 a second", thousand_tenants.measure, 900.0),
    "moved-30": Bench("lateness of 30 events a second that are moved by PATCH", sparse_tenants.moved),
    # Lists and totals
    "bulk-jobs": Bench("100,000 events cancelled by one label, and the lateness of others meanwhile", bulk_jobs.measure, 1_200.0),
    "list-dead": Bench("empty lists of dead events, with 500,000 open events", totals.dead),
    "stats-open": Bench("/stats, /load over a day and /metrics, with 500,000 open events", totals.totals),
    "stats-shards": Bench("/stats, /load and /metrics, with 20,000 unfinished shards of 25 events each", totals.shards),
    # More of everything
    "growth": Bench("what grows with open events, tenants, schedules and channels; fifteen minutes", growth.measure, 10_800.0),
    # Virtual time, and the service's own CPU
    "keys": Bench("deliveries a second of an ordering key, and small keys beside a large one, on virtual time", keys.measure),
    "quiet": Bench("billed time of lone events, on virtual time", quiet.measure),
    "cpu": Bench("CPU per event, storage in memory", twin.cpu),
    "storage-cpu": Bench("CPU of requests to table storage, and of their rows", storage_cpu.measure),
    "trace": Bench("bytes of log and CPU of the protocol trace", tracing.measure),
    "memory": Bench("memory with a million future events", twin.memory),
    "backlog": Bench("transactions of due work beside a backlog", twin.backlog),
    "day-outage": Bench("fresh events while a million overdue ones drain, after a day's outage", day_outage.measure, 3_600.0),
    "real-outage": Bench("fresh events while thousands of overdue ones drain: devhost and Azurite", real_outage.measure, 900.0),
    # Several instances, on virtual time
    "cluster": Bench("a million events on four instances, in and out within a minute each", cluster.seed, 3_600.0),
    "cluster-throughput": Bench("throughput of 1, 2, 4, 8 and 16 instances that are always there", cluster.scale, 3_600.0),
    "cluster-scale": Bench("loads for 1 to 64 instances of Flex Consumption: lateness, limits, costs", scale.measure, 3_600.0),
    "cluster-pair": Bench("two devhosts on one storage, beside one, and beside the model of both", pair.measure, 900.0),
    # Fleets: on virtual time, and a small part for real
    "fleets-300": Bench("300 fleets of 150 nodes around a maintenance wave; some fifteen minutes", fleets.measure, 3_600.0),
    "fleets-real": Bench("50 agents and 50 keepers around such a wave: devhost and Azurite; two minutes", real_fleet.measure),
    "what-if": Bench("predictions of tocsin what-if beside small real runs: devhost and Azurite; ten minutes", whatif.measure, 900.0),
    # Leases
    "leases": Bench("leases on virtual time, default profile, beside the scheme they are modelled on", virtual_time.measure),
    "leases-fast": Bench("the same, fast profile", virtual_time.of("fast")),
    "leases-economy": Bench("the same, economy profile", virtual_time.of("economy")),
    "leases-seed": Bench("the same, profile of the seed", virtual_time.of("seed")),
    "leases-throttled": Bench("leases on storage that refuses requests, with slower scans and without", throttled.measure, 1_800.0),
    "leases-balance": Bench("balance by load on virtual time, beside the algorithm of KCL 3", balance.measure, 1_200.0),
    "leases-azurite": Bench("64 keepers on Azurite", azurite.measure),
    # Fleet channels
    "owners": Bench("a fleet channel beside an http channel, and after a kill: devhost and Azurite", owners.measure, 900.0),
    # Locks
    "locks": Bench("requests of locks, and 10,000 of them: devhost and Azurite", locks.measure),
}
