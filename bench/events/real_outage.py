"""A real outage of some minutes: overdue events drain at the set rate, and fresh ones come beside. Devhost and Azurite, one instance.

A shard belongs to the backlog once it is late by two minutes, and if no message for it was sent before, so this takes about eight.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Final

from shared.scheduler.timings import BACKLOG_AFTER

from ..report import Figure
from ..restarts import Arrival, end, post, receiving, start
from ..tools.stage import Run, emulator

OVERDUE: Final = 4_000
RATE: Final = 100
"""Events a second at which the backlog drains (`TOCSIN_BACKLOG_PER_SECOND`)."""
SHARD: Final = 100
"""Events in a shard, a second's worth at that rate. A shard is delivered as fast as it goes, so larger ones would come in bursts."""
FRESH: Final = 10
"""Events a second that are due after the outage."""
LEAD: Final = 200.0
"""Seconds from the storing of the events to the first due time: messages of shards that are due sooner would be sent before the outage."""
SPAN: Final = 30.0
"""Seconds over which the overdue events are due."""
MORE: Final = 75.0
"""Seconds for which fresh events are due beyond the time that the backlog takes: until the host has started, and until its first sweep."""
SETTLES: Final = 5.0
"""Seconds after the start of the host from which fresh events count: before, they wait for its first polls."""
TAKES: Final = 0.05
"""Seconds that the receiver takes."""
LATE_WITHIN: Final = 100.0
"""Milliseconds that 99 of 100 fresh events may be late."""


async def measure(run: Run) -> list[Figure]:
    """Store all events, end the host before the first is due, and start it once they are late enough to be a backlog."""
    count = run.scale or run.pick(OVERDUE, OVERDUE // 2)
    lasts = count / RATE
    arrivals: list[Arrival] = []
    with emulator() as azurite:
        async with receiving(arrivals, TAKES) as receiver:
            process, url = await start(azurite.connection_string, receiver, TOCSIN_SHARD_EVENTS=str(SHARD))
            try:
                first = (time.time() + LEAD) * 1000
                over = first + (SPAN + BACKLOG_AFTER / 1000 + 5) * 1000
                late = await post(url, count, SPAN, first)
                fresh = await post(url, round(FRESH * (lasts + MORE)), lasts + MORE, over)
                await end("sigkill", process, url)
                ended_at = time.time() * 1000
                assert ended_at < first and not arrivals, "the host ended too late"
                await asyncio.sleep((over - time.time() * 1000) / 1000)
                settings = {"TOCSIN_SHARD_EVENTS": str(SHARD), "TOCSIN_BACKLOG_PER_SECOND": str(RATE)}
                process, url = await start(azurite.connection_string, receiver, **settings)
                counted = (time.time() + SETTLES) * 1000
                until = time.monotonic() + 4 * lasts + 180
                while len({each.id for each in arrivals}) < len(late) + len(fresh) and time.monotonic() < until:
                    run.report_progress("events of the outage", len(arrivals), len(late) + len(fresh))
                    await asyncio.sleep(1.0)
            finally:
                await end("sigkill", process, url)
    return _figures(late, fresh, arrivals, counted)


def _figures(late: list[str], fresh: list[str], arrivals: list[Arrival], counted: float) -> list[Figure]:
    """counted: fresh events count from this due time on, milliseconds since 1970."""
    counts = Counter(each.id for each in arrivals)
    overdue, new = set(late), set(fresh)
    drained = sorted(each.at for each in arrivals if each.id in overdue)
    during = [each for each in arrivals if each.id in new and counted <= each.due <= drained[-1]]
    beside = sorted(each.at - each.due for each in during)
    if not beside:
        raise RuntimeError("the backlog drained before any fresh event was due")
    tenth = len(drained) // 10
    rate = (len(drained) - 2 * tenth) * 1000 / (drained[-tenth - 1] - drained[tenth])
    lost = len((overdue | new) - counts.keys())
    note = f"of {len(overdue):,} overdue and {len(new):,} fresh ones; {counts.total() - len(counts)} delivered twice"
    lateness = f"p50 {beside[len(beside) // 2]:.0f}, at most {beside[-1]:.0f} ms; {len(beside)} at {FRESH}/s; one instance, Azurite"
    worst = sorted(during, key=lambda each: each.due - each.at)[:10]
    # When the latest ones were due and how late they were, and when the backlog was delivered; milliseconds since the fresh ones count.
    details = {
        "latest": [(round(each.due - counted), round(each.at - each.due)) for each in worst],
        "backlog": [round(each - counted) for each in drained[:: max(1, tenth)]],
    }
    return [
        Figure("a real outage: lost", lost, "", "==", 0, note, details),
        Figure("  fresh events' lateness while it drains, p99", beside[len(beside) * 99 // 100], "ms", "<=", LATE_WITHIN, lateness),
        Figure("  events of the backlog a second, at most", rate, "/s", "<=", 1.2 * RATE, f"set to {RATE}/s"),
    ]
