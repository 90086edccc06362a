"""Ordering keys: deliveries a second of one key, and small keys beside a large one. Virtual time, the app's own code."""

from __future__ import annotations

import asyncio
from typing import Final

from shared.delivery.channels.model import KeyLimits
from tests.simulation.world.keyed import KeyFigures, play

from ..report import Figure
from ..tools.stage import Run

LARGE: Final = 10_000
SMALL: Final = 10
SMALL_KEYS: Final = 100
ONE_KEY: Final = 900
LIMITS: Final = {"ordered": KeyLimits(ordered=True), "concurrency 4": KeyLimits(concurrency=4)}


async def measure(run: Run) -> list[Figure]:
    """A quick run has a tenth of the large key's events."""
    figures: list[Figure] = []
    for number, (what, limits) in enumerate(LIMITS.items()):
        run.report_progress(f"one key, {what}", number, 3)
        found = await asyncio.to_thread(play, {"one": ONE_KEY}, limits)
        note = f"{ONE_KEY:,} events due at one instant; storage 8 ms, receiver 5 ms; {found.requests:.1f} requests to storage an event"
        figures.append(Figure(f"deliveries of one key, {what}", found.rate("one"), "/s", note=note))
        if limits.ordered:
            figures.append(_disorder(found))
    apart = await asyncio.to_thread(play, {"one": 2 * ONE_KEY}, LIMITS["ordered"], 1, mixed=True)
    note = f"{2 * ONE_KEY:,} events in shards of one process; {apart.requests:.1f} requests to storage an event"
    figures += [
        Figure("deliveries of one key whose neighbours are in different shards", apart.rate("one"), "/s", note=note),
        _disorder(apart),
    ]
    large = run.pick(LARGE, LARGE // 10)
    run.report_progress("small keys beside a large one", 2, 3)
    found = await asyncio.to_thread(
        play, {"large": large} | {f"small{number:02d}": SMALL for number in range(SMALL_KEYS)}, LIMITS["ordered"]
    )
    ends = sorted(found.starts[f"small{number:02d}"][-1] for number in range(SMALL_KEYS))
    whole = found.starts["large"][-1] / 1000
    note = f"p50 {ends[len(ends) // 2]} ms; all due at one instant beside a key with {large:,} events, which takes {whole:,.0f} s"
    return [
        *figures,
        Figure(f"last of {SMALL} events of each of {SMALL_KEYS} small keys: lateness, at most", ends[-1], "ms", note=note),
        _disorder(found),
    ]


def _disorder(found: KeyFigures) -> Figure:
    return Figure("  deliveries out of order, or beside another of their key", found.disorder, "", "==", 0)
