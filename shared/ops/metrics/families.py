"""Converts a snapshot to Prometheus text (exposition format 0.0.4). docs/reference/observability.md describes each metric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ...checkpoints.service.views import TurnFigures as TurnFigures
from ...core.clock import Millis
from ...engine.sweeps import OTHER_FLEETS
from ...fleets.watch.alarms import KINDS
from ...fleets.watch.figures import FleetFigures
from ...maintenance.service.alarms import ALARMS
from ...maintenance.service.figures import MaintenanceFigures as MaintenanceFigures
from ...scheduler.queries.totals import Total
from ...scheduler.shard import ledger
from ...scheduler.wakes.service import SweepTimes

BOUNDS: tuple[Millis, ...] = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000, 100_000, 1_000_000, 10_000_000)
"""Upper bounds of the histogram's buckets in milliseconds: a selection of the ledger's. 18 series per tenant and channel."""
REST = "*"
"""The label of all tenants beyond the first `MOST_TENANTS`."""
MOST_TENANTS = 100
"""Most tenants with their own series, in the order of names; this limits the number of series."""
UNFINISHED = ("scheduled", "retrying", "delivered", "dead", "lapsed", "cancelled", "moved")
FINISHED = ("delivered", "dead", "lapsed", "cancelled", "moved")


@dataclass(slots=True)
class TenantFigures:
    """The figures of one tenant."""

    unfinished: Counter[str] = field(default_factory=Counter)
    """Events of unfinished shards by state."""
    working: int = 0
    overdue: int = 0
    stuck: int = 0
    total: Total = field(default_factory=Total)

    def add(self, other: TenantFigures) -> None:
        """Add the figures of another tenant."""
        self.unfinished.update(other.unfinished)
        self.working += other.working
        self.overdue += other.overdue
        self.stuck += other.stuck
        self.total.counts.update(other.total.counts)
        for channel, found in other.total.channels.items():
            ledger.add_channel(self.total.channels, channel, found)


@dataclass(slots=True)
class MetricsSnapshot:
    """All figures at one instant."""

    now: Millis
    tenants: dict[str, TenantFigures] = field(default_factory=dict)
    blocked: list[tuple[str, str, str]] = field(default_factory=list)
    """Channels without deliveries: tenant, channel, reason."""
    shards: Counter[str] = field(default_factory=Counter)
    """Unfinished shards by the state of their index row."""
    read: int = 0
    """The number of them whose counts were read."""
    unread: int = 0
    """Index partitions whose account did not answer."""
    with_dead: list[str] = field(default_factory=list)
    """Unfinished shards that have dead events."""
    partial: bool = False
    """True if more shards are unfinished than were counted."""
    queues: dict[str, int] = field(default_factory=dict)
    ticks: dict[str, Millis] = field(default_factory=dict)
    """The last tick by timer; for a timer without a tick, the start of this process."""
    sweeps: SweepTimes = field(default_factory=SweepTimes)
    """The times at which sweeps began."""
    process: str = ""
    fleets: list[FleetFigures] = field(default_factory=list)
    turns: list[TurnFigures] = field(default_factory=list)
    maintenance: list[MaintenanceFigures] = field(default_factory=list)
    counters: Mapping[str, int] = field(default_factory=dict)
    """The counters of this process since its start."""
    longest_stall: float = 0.0
    """See `StallWatch`, in seconds."""


def exposition(seen: MetricsSnapshot) -> bytes:
    """Return the Prometheus text."""
    registry = CollectorRegistry()
    registry.register(_Once(seen))
    return generate_latest(registry)


def collected(seen: MetricsSnapshot) -> list[Metric]:
    """Return the metric families as data."""
    return list(_Once(seen).collect())


class _Once(Collector):
    def __init__(self, seen: MetricsSnapshot) -> None:
        self._seen = seen

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        tenants = bounded(self._seen.tenants)
        yield from _of_tenants(tenants)
        yield from _of_fleets(self._seen.fleets)
        yield from _of_turns(self._seen.turns)
        yield from _of_maintenance(self._seen.maintenance)
        yield from _of_service(self._seen)


def bounded(tenants: Mapping[str, TenantFigures]) -> dict[str, TenantFigures]:
    """Return the first `MOST_TENANTS` by name, and the sum of the others."""
    names = sorted(tenants)
    shown = {name: tenants[name] for name in names[:MOST_TENANTS]}
    if len(names) > MOST_TENANTS:
        rest = shown[REST] = TenantFigures()
        for name in names[MOST_TENANTS:]:
            rest.add(tenants[name])
    return shown


def _of_tenants(tenants: Mapping[str, TenantFigures]) -> Iterator[Metric]:
    events = GaugeMetricFamily("tocsin_events", "Events of unfinished shards, by state", labels=("tenant", "state"))
    working = GaugeMetricFamily("tocsin_events_working", "Retrying events that receivers work on (long work)", labels=("tenant",))
    overdue = GaugeMetricFamily("tocsin_events_overdue", "Open events past their due time whose shard has no owner", labels=("tenant",))
    stuck = GaugeMetricFamily(
        "tocsin_events_stuck", "Overdue events whose shard was requested several times without success", labels=("tenant",)
    )
    accepted = CounterMetricFamily("tocsin_events_accepted", "Events of finished shards", labels=("tenant",))
    finished = CounterMetricFamily("tocsin_events_finished", "Events of finished shards, by final state", labels=("tenant", "state"))
    dead = CounterMetricFamily("tocsin_channel_dead", "Dead events of finished shards", labels=("tenant", "channel"))
    gap = GaugeMetricFamily("tocsin_ledger_gap", "Events of finished shards without a final state; always 0", labels=("tenant",))
    late = HistogramMetricFamily("tocsin_lateness_seconds", "Lateness of delivered events of finished shards", labels=("tenant", "channel"))
    for name, tenant in tenants.items():
        for state in UNFINISHED:
            events.add_metric((name, state), tenant.unfinished[state])
        working.add_metric((name,), tenant.working)
        overdue.add_metric((name,), tenant.overdue)
        stuck.add_metric((name,), tenant.stuck)
        accepted.add_metric((name,), tenant.total.counts["accepted"])
        for state in FINISHED:
            finished.add_metric((name, state), tenant.total.counts[state])
        gap.add_metric((name,), tenant.total.gap)
        for channel, figures in sorted(tenant.total.channels.items()):
            dead.add_metric((name, channel), figures.dead)
            late.add_metric((name, channel), buckets(figures), figures.total / 1000)
    yield from (events, working, overdue, stuck, accepted, finished, dead, gap, late)


def buckets(figures: ledger.DeliveryFigures) -> list[tuple[str, float]]:
    """Return the number of deliveries that are at most `le` seconds late, in the order of `le`."""
    found: list[tuple[str, float]] = []
    for bound in BOUNDS:
        last = ledger.bucket_of(bound)
        found.append((repr(bound / 1000), sum(count for number, count in figures.histogram.items() if number <= last)))
    found.append(("+Inf", figures.delivered))
    return found


def _of_fleets(fleets: Iterable[FleetFigures]) -> Iterator[Metric]:
    names = ("tenant", "fleet")
    servers = GaugeMetricFamily("tocsin_lease_servers", "Live servers that are neither drained nor prohibited", labels=names)
    needed = GaugeMetricFamily("tocsin_lease_servers_needed", "Wanted servers: minimum and spare", labels=names)
    unserved = GaugeMetricFamily("tocsin_lease_partitions_unserved", "Partitions without an owner, except offline ones", labels=names)
    stale = GaugeMetricFamily("tocsin_lease_partitions_stale", "Partitions without an owner for longer than a takeover needs", labels=names)
    beat = GaugeMetricFamily("tocsin_lease_oldest_beat_seconds", "Age of the oldest last heartbeat of live servers", labels=names)
    alarms = GaugeMetricFamily("tocsin_lease_alarm", "Fleets with an active alarm: 1 or 0 for one fleet", labels=(*names, "alarm"))
    for each in fleets:
        place = (each.tenant, each.fleet)
        if each.fleet != OTHER_FLEETS:
            servers.add_metric(place, each.live)
            needed.add_metric(place, each.needed)
            beat.add_metric(place, each.oldest_beat)
        unserved.add_metric(place, each.unserved)
        stale.add_metric(place, each.stale)
        for kind in KINDS:
            alarms.add_metric((*place, kind), each.alarms.count(kind))
    yield from (servers, needed, unserved, stale, beat, alarms)


def _of_turns(fleets: Iterable[TurnFigures]) -> Iterator[Metric]:
    names = ("tenant", "fleet")
    replicas = GaugeMetricFamily("tocsin_turn_replicas", "Replicas that reported within a day", labels=names)
    down = GaugeMetricFamily("tocsin_turn_replicas_down", "Replicas that are silent or have a clock out of bounds", labels=names)
    taking = GaugeMetricFamily("tocsin_turn_taking", "1 while a replica may be taking its checkpoint", labels=names)
    age = GaugeMetricFamily("tocsin_turn_age_seconds", "Time since the last turn was granted", labels=names)
    timeout = GaugeMetricFamily("tocsin_turn_timeout_seconds", "Timeout of the next turn", labels=names)
    misses = GaugeMetricFamily("tocsin_turn_misses", "Consecutive turns that timed out", labels=names)
    granted = CounterMetricFamily("tocsin_turns_granted", "Turns granted", labels=names)
    sequence = GaugeMetricFamily("tocsin_checkpoint_sequence", "Sequence of the latest published checkpoint", labels=names)
    published = GaugeMetricFamily("tocsin_checkpoint_age_seconds", "Time since the latest checkpoint was published", labels=names)
    for each in fleets:
        place = (each.tenant, each.fleet)
        replicas.add_metric(place, each.replicas)
        down.add_metric(place, each.down)
        taking.add_metric(place, each.taking)
        age.add_metric(place, each.age)
        timeout.add_metric(place, each.timeout)
        misses.add_metric(place, each.misses)
        granted.add_metric(place, each.epoch)
        if each.sequence:
            sequence.add_metric(place, each.sequence)
            published.add_metric(place, each.checkpoint_age)
    yield from (replicas, down, taking, age, timeout, misses, granted, sequence, published)


def _of_maintenance(fleets: Iterable[MaintenanceFigures]) -> Iterator[Metric]:
    alarms = GaugeMetricFamily(
        "tocsin_maintenance_alarm",
        "Scheduled Events with an active alarm; 1 for an alarm of the fleet",
        labels=("tenant", "fleet", "alarm"),
    )
    for each in fleets:
        for kind in ALARMS:
            alarms.add_metric((each.tenant, each.fleet, kind), each.alarms[kind])
    yield alarms


def _of_service(seen: MetricsSnapshot) -> Iterator[Metric]:
    blocked = GaugeMetricFamily("tocsin_channel_blocked", "1 for a channel without deliveries", labels=("tenant", "channel", "reason"))
    for place in sorted(seen.blocked):
        blocked.add_metric(place, 1)
    shards = GaugeMetricFamily("tocsin_shards", "Unfinished shards, by state", labels=("state",))
    for state in ("pending", "sent", "resting"):
        shards.add_metric((state,), seen.shards[state])
    read = GaugeMetricFamily("tocsin_shards_read", "Unfinished shards whose events are in tocsin_events", seen.read)
    unread = GaugeMetricFamily("tocsin_partitions_unread", "Index partitions whose storage account did not answer", seen.unread)
    queues = GaugeMetricFamily("tocsin_queue_messages", "Approximate number of messages, hidden ones included", labels=("queue",))
    for queue, length in sorted(seen.queues.items()):
        queues.add_metric((queue,), length)
    ages = GaugeMetricFamily("tocsin_timer_age_seconds", "Time since a timer's last tick", labels=("timer",))
    for timer, at in sorted(seen.ticks.items()):
        ages.add_metric((timer,), max(0, seen.now - at) / 1000)
    sweeps = GaugeMetricFamily("tocsin_sweep_age_seconds", "Time since the start of a sweep, by the clock that made it", labels=("clock",))
    for name, at in (("timer", seen.sweeps.began), ("message", seen.sweeps.answered)):
        if at:
            sweeps.add_metric((name,), max(0, seen.now - at) / 1000)
    counted = CounterMetricFamily("tocsin_process", "Counters of the answering process", labels=("process", "what"))
    for what, count in sorted(seen.counters.items()):
        counted.add_metric((seen.process, what), count)
    stall = GaugeMetricFamily(
        "tocsin_event_loop_stall_seconds",
        "Longest time in the last 10 minutes in which one step, or a lack of CPU, stopped all other work of the answering process",
        labels=("process",),
    )
    stall.add_metric((seen.process,), seen.longest_stall)
    yield from (blocked, shards, read, unread, queues, ages, sweeps, counted, stall)
