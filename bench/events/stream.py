"""Lateness of events that are posted one by one, all the time, and are due soon: the everyday load of an app with many time-outs.

No batch helps here: what counts is how many shards the writer opens for them, and how long their owners keep a slot.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from ..report import Figure
from ..tools.stage import Host, Run, devhost, emulator, event_text, receiving
from .singles import HEADERS

LEADS = {"1 to 5 s": (1.0, 5.0), "6 to 40 s": (6.0, 40.0)}
"""The seconds from the request to the due time: least and most."""


async def measure(run: Run) -> list[Figure]:
    """Return one figure for each rate and lead: p99 of the lateness in milliseconds, with p50 and the maximum."""
    seconds = run.pick(90.0, 30.0)
    plan = [(rate, lead) for rate in run.pick((3, 10, 30, 100), (10, 30)) for lead in LEADS]
    figures: list[Figure] = []
    for number, (rate, lead) in enumerate(plan):
        run.report_progress(f"{rate} single POSTs a second, due in {lead}", number, len(plan))
        with emulator() as azurite:
            async with receiving() as receiver, devhost(azurite.connection_string, receiver.url) as host:
                count = await _stream(host, rate, LEADS[lead], seconds)
                await receiver.until(count, 240.0, lambda arrived: None)
                stats: dict[str, Any] = await receiver.ask("stats")
        note = f"p50 {stats['p50']:.1f}, max {stats['max']:.0f} ms; {count:,} events in {seconds:.0f} s; early {stats['early']}"
        figures.append(Figure(f"lateness p99, {rate} single POSTs a second, due in {lead}", stats["p99"], "ms", note=note, details=stats))
    return figures


async def _stream(host: Host, rate: int, lead: tuple[float, float], seconds: float) -> int:
    """Post at this rate, each event at its instant even if earlier posts are not answered. Return their number."""
    chance = random.Random(rate)
    began = time.monotonic()
    calls: list[asyncio.Task[None]] = []
    for number in range(round(rate * seconds)):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        due = round(1000 * (time.time() + chance.uniform(*lead)))
        calls.append(asyncio.create_task(_post(host, event_text(number, due))))
    await asyncio.gather(*calls)
    return len(calls)


async def _post(host: Host, body: str) -> None:
    async with host.session.post(f"{host.url}/api/v1/events", data=body, headers=HEADERS) as answer:
        assert answer.status == 201, await answer.text()
