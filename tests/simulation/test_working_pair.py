"""Long work over a mirrored pair: receivers complete, fail and extend attempts while the accounts change sides."""

from __future__ import annotations

import gc

from tests.simulation.world.working_pair import simulate_working_pair

CHUNK = 4


def play(first: int, count: int = CHUNK) -> None:
    reports = [simulate_working_pair(seed) for seed in range(first, first + count)]
    gc.collect()
    assert [f"seed {report.seed}: {report.violation}" for report in reports if report.violation is not None] == []
    assert sum(report.counts["failovers"] for report in reports) and sum(report.counts["work: complete acknowledged"] for report in reports)


def test_completion_holds_whichever_side_serves() -> None:
    play(50)
