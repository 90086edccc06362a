"""A day's outage with a million overdue events, and fresh events while the backlog drains. Virtual time, the app's own code."""

from __future__ import annotations

import asyncio
from collections import Counter
from math import ceil
from typing import Any, Final

from tests.simulation.world.outage import Figures, Scenario, play

from ..report import Figure
from ..tools.stage import Run

EVENTS: Final = 1_000_000
OUTAGE: Final = 24 * 3600.0
"""Seconds for which nothing runs, while all of these events become due."""
RATE: Final = 2_000
"""Events a second at which the backlog drains: the default of `TOCSIN_BACKLOG_PER_SECOND`."""
FRESH: Final = 50
"""Events a second that are due after the outage."""
INSTANCES: Final = 4
SHARD: Final = 990
SLOTS: Final = 64
"""Deliveries at once, per instance and channel."""
TAKES: Final = 0.05
"""Seconds that the receiver takes."""
LATE_WITHIN: Final = 100.0
"""Milliseconds that 99 of 100 fresh events may be late."""


async def measure(run: Run) -> list[Figure]:
    """All at the default rate; a quick run has a twentieth of the events at a twentieth of the rate."""
    part = (run.scale or run.pick(EVENTS, EVENTS // 20)) / EVENTS
    rate = max(100, round(RATE * part))
    shards = ceil(EVENTS * part / SHARD)
    scenario = Scenario(
        late_shards=shards,
        rate=rate,
        fresh_per_second=FRESH,
        # Until the backlog has drained, and a little longer.
        fresh_for=1.15 * shards * SHARD / rate,
        instances=INSTANCES,
        outage=OUTAGE,
        shard_events=SHARD,
        slots=SLOTS,
        takes=TAKES,
    )

    def progress(done: float, whole: float) -> None:
        run.report_progress(f"{scenario.late_events:,} overdue events", done, whole)

    return _figures(scenario, await asyncio.to_thread(play, scenario, progress))


def _figures(scenario: Scenario, found: Figures) -> list[Figure]:
    delivered = Counter(each.id for each in found.arrivals)
    lost, doubled = (found.expected - delivered).total(), (delivered - found.expected).total()
    drained = found.drained
    during = sorted(each.late for each in found.fresh if each.due <= drained)
    named = f"an outage of a day, {scenario.late_events:,} overdue events"
    note = f"of {found.expected.total():,}; {doubled} delivered twice, {found.unfinished} shards unfinished"
    late = (
        f"p50 {during[len(during) // 2]}, at most {during[-1]} ms; {len(during):,} events at "
        f"{scenario.fresh_per_second}/s, {scenario.instances} instances, {scenario.slots} slots each, deliveries of {scenario.takes:g} s"
    )
    seconds = (drained - found.ended) / 1000
    rate = found.drain_rate
    asked = f"set to {scenario.rate:,}/s; all after {seconds:,.0f} s; busiest instance {found.spread:.2f} times the mean"
    details: dict[str, Any] = {"shards": dict(found.shards), "queued": found.most_queued, "parked": found.parked}
    return [
        Figure(f"{named}: lost", lost, "", "==", 0, note, details),
        Figure("  fresh events' lateness while it drains, p99", during[len(during) * 99 // 100], "ms", "<=", LATE_WITHIN, late),
        Figure("  events of the backlog a second", rate, "/s", ">=", 0.8 * scenario.rate, asked),
        Figure("  the same, at most", rate, "/s", "<=", 1.2 * scenario.rate),
    ]
