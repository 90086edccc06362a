"""The rows of `python -m bench fleets-300`."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from ..cost.prices import Prices
from ..report import Figure
from ..tools.stage import Run
from .world import WARM, Outcome, Wave, play

MONTH: Final = 2_592_000.0
"""Seconds of a month of 30 days."""
APPROVED_WITHIN: Final = 30.0
"""Seconds from the time at which nodes prepare to NotBefore: the lead."""
SCANNED_WITHIN: Final = 15.0
"""Seconds between two runs of the sweep of leases."""
TRANSACTIONS: Final = 20_000.0
"""Requests a second that Azure publishes for a storage account."""
PARTITION: Final = 2_000.0
"""Entities a second that Azure publishes for a partition of a table."""
BUSIEST: Final = 10
"""Seconds over which the load of a partition is averaged."""


async def measure(run: Run) -> list[Figure]:
    """300 fleets of 150 nodes, one of them in full; with `--quick` 30 fleets of 30 nodes."""
    wave = run.pick(Wave(), Wave(fleets=30, nodes=30, partitions=60))
    outcome = await asyncio.to_thread(play, wave, lambda done, total: run.report_progress(f"{wave.fleets} fleets", done, total))
    return figures_of(outcome)


def figures_of(found: Outcome) -> list[Figure]:
    """Return the figures of a run."""
    wave = found.wave
    share = wave.fleets / wave.sample
    quiet, waves = (WARM, WARM + wave.announced), (WARM + wave.announced, WARM + wave.length)
    full = f"{wave.sample} of {wave.fleets} fleets in full, with {wave.nodes} agents and keepers each; multiplied by {share:g}"
    figures: list[Figure] = []
    idle = 0.0
    for who in ("agents", "keepers"):
        still, busy = (share * rate(found.requests[who], *span) for span in (quiet, waves))
        rows = [share * rate(found.entities[who], *span) for span in (quiet, waves)]
        idle += still
        figures.append(Figure(f"fleets: requests of {who}, quiet", still, "/s", note=f"{rows[0]:,.0f} entities/s; {full}"))
        note = f"{rows[1]:,.0f} entities/s on average; busiest second {share * max(found.requests[who].values(), default=0):,.0f} requests"
        figures.append(Figure(f"fleets: requests of {who}, wave", busy, "/s", note=note))
    scans = [rate(found.requests["scan"], *span) for span in (quiet, waves)]
    idle += scans[0]
    busiest = max(found.entities["scan"].values(), default=0)
    note = f"all {wave.fleets} fleets; wave: {scans[1]:.0f} /s; at most {busiest:,} entities in a second"
    figures.append(Figure("fleets: requests of the app's sweeps, quiet", scans[0], "/s", note=note))
    whole = sum(share * rate(found.requests[who], *waves) for who in ("agents", "keepers")) + scans[1]
    figures.append(Figure("fleets: requests of all, wave", whole, "/s", "<=", TRANSACTIONS, "on one storage account"))
    hot, where = busiest_partition(found)
    figures.append(Figure("fleets: entities of the busiest partition", hot, "/s", "<=", PARTITION, f"{where}, average of {BUSIEST} s"))
    cost = idle * MONTH * Prices().table_10k / 10_000
    note = f"{idle * MONTH / 1e9:.1f} billion requests; idle time extrapolated"
    figures.append(Figure("fleets: tables a month, quiet", cost, "USD", note=note))
    figures += scan_figures(found)
    late = found.approved[-1] if found.approved else None
    name = "fleets: last approval after the nodes begin to prepare"
    middle = f"p50 {found.approved[len(found.approved) // 2]:.1f} s; " if found.approved else ""
    note = f"{middle}{len(found.approved)} nodes of the sample approved, {found.unapproved} not"
    figures.append(Figure(name, late, "s", "<=", APPROVED_WITHIN, note))
    alarms = ", ".join(f"{kind} ({count} fleets)" for kind, count in sorted(found.alarms.items())) or "none"
    figures.append(Figure("fleets: kinds of alarms during the wave", len(found.alarms), note=alarms))
    figures.append(Figure("fleets: partitions without an owner afterwards", found.lost, "", "==", 0))
    refused = f"{found.refused['partition']:,} requests beyond the partition's limit, {found.refused['account']:,} beyond the account's"
    note = f"slowest answer {found.slowest:.1f} s; {refused}"
    figures.append(Figure("fleets: reports that had no answer", share * found.refused_reports, note=note))
    note = "the first 100 fleets by name have series of their own, and up to 100 others with an alarm"
    figures.append(Figure("fleets: series in metrics", found.series, note=note))
    return figures


def rate(counts: Counter[int], first: float, end: float) -> float:
    """Return the average a second, of the seconds from `first` to `end`."""
    return sum(count for second, count in counts.items() if first <= second < end) / (end - first)


def busiest_partition(found: Outcome) -> tuple[float, str]:
    """Return the most entities a second of one partition, averaged over some seconds, and its table."""
    sums: Counter[tuple[int, str, str]] = Counter()
    for (second, table, partition), count in found.partitions.items():
        sums[second // BUSIEST, table, partition] += count
    (_, table, _), most = max(sums.items(), key=lambda item: item[1])
    return most / BUSIEST, table


def scan_figures(found: Outcome) -> list[Figure]:
    """Return the slowest run of each part of the sweeps."""
    figures = []
    for part in dict.fromkeys(each.part for each in found.scans):
        slowest = max((each for each in found.scans if each.part == part), key=lambda each: each.took)
        runs = [each for each in found.scans if each.part == part]
        note = (
            f"{slowest.requests:,} requests, {slowest.entities:,} entities, {slowest.cpu:.1f} s of this machine's CPU; "
            f"each run visited {min(each.fleets for each in runs):,} fleets or more; {sum(each.failed for each in runs):,} visits failed"
        )
        limit = SCANNED_WITHIN if part in ("takeover", "maintenance") else 60.0
        figures.append(Figure(f"fleets: slowest sweep over all fleets, {part}", slowest.took, "s", "<=", limit, note))
    return figures
