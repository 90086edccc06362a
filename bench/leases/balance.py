"""Balance by load on virtual time, beside the documented algorithm of KCL 3 at its default settings, under the same loads.

`python -m bench leases-balance --json | python -m bench.leases.balance_chart > docs/img/balance.svg` draws the chart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.simulation.leases.balancing import BalanceRun, compare
from tests.simulation.leases.history import listening

from ..report import Figure
from ..tools.stage import Run

SERVERS, PARTITIONS = 16, 256
SECONDS, DAY = 1_800.0, 14_400.0
"""Length of a run, and of a day of the wave: six times as fast as a real one."""
OURS = "Tocsin"


async def measure(run: Run) -> list[Figure]:
    """Four skews, each as often as there are seeds, for both algorithms from the same owners."""
    return await asyncio.to_thread(_all, run)


def _all(run: Run) -> list[Figure]:
    with listening():
        found = compare(SERVERS, PARTITIONS, SECONDS, DAY, range(run.pick(5, 1)))
    return [figure for skew, both in found.items() for who, runs in both.items() for figure in _figures(skew, who, runs)]


def _figures(skew: str, who: str, runs: Sequence[BalanceRun]) -> list[Figure]:
    name, count = f"{skew}, {who}", len(runs)
    times = [each.balanced for each in runs if each.balanced is not None]
    note = f"{count} runs of {PARTITIONS} partitions on {SERVERS} servers; {min(each.share for each in runs):.0%} of the last half balanced"
    details = {"skew": skew, "who": who, "series": [[round(at), round(ratio, 3)] for at, ratio in runs[0].series]}
    slowest = Figure(f"{name}: time to balance, at most", max(times) if len(times) == count else None, "s", note=note, details=details)
    late = sum(each.late for each in runs) / count
    moves = Figure(f"{name}: moves a run", sum(each.moves for each in runs) / count, "", note=f"{late:.1f} of them in the last half")
    over = Figure(f"{name}: overshoot, at most", max(each.overshoot for each in runs), "", note="of the busiest server over the bound")
    if who == OURS:
        slowest.sign, slowest.limit = "<=", 300.0
        if skew != "wave":
            over.sign, over.limit = "<=", 0.05
    return [slowest, moves, over]
