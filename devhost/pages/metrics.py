"""Writes the list of metrics of docs/reference/observability.md from the metric families, and from `CHECK`."""

from __future__ import annotations

from collections import Counter
from typing import Final

from shared.checkpoints.service.views import TurnFigures
from shared.fleets.watch.figures import FleetFigures
from shared.maintenance.service.figures import MaintenanceFigures
from shared.ops.metrics.families import MetricsSnapshot, TenantFigures, collected
from shared.scheduler.queries.totals import Total
from shared.scheduler.shard.ledger import DeliveryFigures
from shared.scheduler.wakes.service import SweepTimes

from .generated_blocks import REFERENCE, update

PAGE = REFERENCE / "observability.md"

CHECK: Final = {
    "tocsin_events": "`retrying` stays high",
    "tocsin_events_overdue": "over 0 for 2 minutes",
    "tocsin_events_stuck": "over 0",
    "tocsin_events_finished_total": "`dead` grows",
    "tocsin_channel_dead_total": "it grows: this receiver fails",
    "tocsin_lateness_seconds": "its p99 is over a second",
    "tocsin_ledger_gap": "not 0: please report it",
    "tocsin_lease_servers": "below `tocsin_lease_servers_needed`",
    "tocsin_lease_servers_needed": "above `tocsin_lease_servers`",
    "tocsin_lease_partitions_stale": "over 0",
    "tocsin_lease_oldest_beat_seconds": "over 3 heartbeat intervals",
    "tocsin_lease_alarm": "over 0",
    "tocsin_turn_replicas_down": "it rises",
    "tocsin_turn_age_seconds": "longer than a turn takes",
    "tocsin_turn_misses": "3",
    "tocsin_turns_granted_total": "it stands still",
    "tocsin_checkpoint_age_seconds": "it is old",
    "tocsin_maintenance_alarm": "over 0",
    "tocsin_channel_blocked": "1 for too long",
    "tocsin_partitions_unread": "over 0",
    "tocsin_queue_messages": "`tocsin-*-poison` over 0, `tocsin-ingest` growing",
    "tocsin_timer_age_seconds": "`scheduler_scan` over 300",
}
"""Metric -> when a person should check it. Each stands on the dashboard of infra/prometheus."""


def page() -> str:
    """Return the whole page, with the present metrics."""
    groups: dict[str, list[str]] = {}
    for family in collected(_example()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le")
        check = f" **Check: {CHECK[name]}.**" if name in CHECK else ""
        groups.setdefault(", ".join(labels), []).append(f"- `{name}`: {family.documentation}.{check}\n")
    blocks = (f"{f'By {labels}:' if labels else 'Without labels:'}\n\n{''.join(lines)}" for labels, lines in groups.items())
    return update(PAGE.read_text(), {"metrics": "\n".join(blocks)})


def _example() -> MetricsSnapshot:
    """Return figures that have a sample of every metric."""
    tenant = TenantFigures(total=Total(channels={"c": DeliveryFigures()}))
    return MetricsSnapshot(
        now=0,
        tenants={"t": tenant},
        blocked=[("t", "c", "paused")],
        queues={"q": 0},
        ticks={"scheduler_scan": 0},
        sweeps=SweepTimes(1, 0, 1),
        process="p",
        fleets=[FleetFigures("t", "f", 3, 2, 0, 0, 1.0, ())],
        turns=[TurnFigures("t", "f", *([1] * (len(TurnFigures._fields) - 2)))],
        maintenance=[MaintenanceFigures("t", "f", Counter())],
        counters={"clock_wrong": 1},
    )


if __name__ == "__main__":
    PAGE.write_text(page())
