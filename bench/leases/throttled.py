"""Leases on storage that refuses requests, on virtual time, with and without the keepers' slower scans."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

from shared.leases.profiles import PROFILES
from tests.simulation.leases.history import listening
from tests.simulation.leases.measured.throttled import Throttled, Throttling, play, unslowed

from ..report import Figure
from ..tools.stage import Run

SERVERS, PARTITIONS = 32, 512
SECONDS = 600.0
STORAGES = {
    "refuses 30 %": Throttling(refuse=0.3),
    "serves 1.5 times the usual rows": Throttling(capacity=1.5),
    "serves 70 % of the usual rows": Throttling(capacity=0.7),
}


async def measure(run: Run) -> list[Figure]:
    """Three kinds of throttling; each as often as there are seeds, with the keepers' slower scans and without."""
    return await asyncio.to_thread(_all, run)


def _all(run: Run) -> list[Figure]:
    figures: list[Figure] = []
    seeds = range(run.pick(6, 2))
    for done, (storage, throttling) in enumerate(STORAGES.items()):
        for slowed in (True, False):
            run.report_progress(f"leases throttled: {storage}", 2 * done + (not slowed), 2 * len(STORAGES))
            with listening(), nullcontext() if slowed else unslowed():
                found = [play(PROFILES["default"], SERVERS, PARTITIONS, throttling, SECONDS, seed) for seed in seeds]
            figures += _figures(f"storage {storage}, scans {'slower' if slowed else 'as ever'}", found, limited=slowed)
    return figures


def _figures(name: str, found: list[Throttled], *, limited: bool) -> list[Figure]:
    runs = len(found)
    refused = ", ".join(f"{each.refused:.0%}" for each in found)
    takeover = max(each.longest for each in found)
    note = (
        f"{runs} runs of {PARTITIONS} partitions on {SERVERS} servers; refused {refused}; take-over of the crashed server {takeover:.0f} s"
    )
    note += f"; alarms at its end: {', '.join(sorted({kind for each in found for kind in each.alarms})) or 'none'}"
    lost = Figure(f"{name}: partitions lost a run", sum(each.lost for each in found) / runs, "", note=note)
    after = Figure(f"{name}: partitions lost afterwards", sum(each.lost_afterwards for each in found), "")
    unserved = Figure(f"{name}: partitions without a server at its end, a run", sum(each.unserved for each in found) / runs, "")
    busiest = Figure(f"{name}: requests afterwards, at most, over the usual", max(each.busiest for each in found), "times")
    if limited:
        after.sign, after.limit = "==", 0
    return [lost, unserved, after, busiest]
