"""Measures on virtual time how long functions run for events that come one by one, and how late the events are.

The app's own code and a twin of the storage run in the simulator, with the platform's polling: an idle queue is polled every two seconds.
Requests to storage take 8 ms. So the figures depend on the protocol alone, and are the same on every machine.
"""

from __future__ import annotations

import asyncio

from tests.simulation.world.quiet import Traffic, play

from ..report import Figure
from ..tools.stage import Run

LOADS = {
    "1 a minute, due in 6 to 40 s": Traffic(1, 240, evenly=True),
    "1 a minute, due in 1 to 2 minutes": Traffic(1, 240, (61.0, 121.0), evenly=True),
    "1 every 20 s, due in 10 s": Traffic(3, 80, (10.0, 10.0), evenly=True),
    "4 a minute, due in 6 to 40 s": Traffic(4, 60),
    "60 a minute, due in 6 to 40 s": Traffic(60, 10),
    "10 a second, due in 6 to 40 s": Traffic(600, 2),
    "100 a second, due in 6 to 40 s": Traffic(6000, 0.5),
    "30 a second of 300 tenants, due in 5 to 30 s": Traffic(1800, 1, (5.0, 30.0), tenants=300),
    "100 a second of 1,000 tenants, due in 5 to 30 s": Traffic(6000, 0.5, (5.0, 30.0), tenants=1000),
}


async def measure(run: Run) -> list[Figure]:
    """Return for each load the time that is billed for an event, with the executions' length, lateness and requests to storage."""
    figures: list[Figure] = []
    for number, (what, traffic) in enumerate(LOADS.items()):
        run.report_progress(f"events, {what}", number, len(LOADS))
        figures.append(await asyncio.to_thread(_one, what, traffic))
    return figures


def _one(what: str, traffic: Traffic) -> Figure:
    found = play(traffic)
    count, early = len(found.late), sum(late < 0 for late in found.late)
    note = (
        f"{count:,} events; {found.per_event:.2f} executions an event of {found.mean_run:.2f} s on average; "
        f"late {found.late_at(0.5)} ms (p50), {found.late_at(0.99)} ms (p99), {max(found.late)} ms (max), {early} early; "
        f"{found.requests.total() / count:.1f} requests to storage an event"
    )
    return Figure(f"billed for an event's owner, {what}", found.busy / count, "s", note=note)
