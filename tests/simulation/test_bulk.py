"""Histories with bulk jobs. `python -m tests.simulation --jobs --seeds N` plays more of them."""

from __future__ import annotations

import gc

from tests.simulation.world.bulk import simulate_bulk

CHUNK = 8


def play(first: int, count: int = CHUNK) -> None:
    broken = [report for seed in range(first, first + count) if (report := simulate_bulk(seed)).violation is not None]
    gc.collect()
    violations = [f"seed {report.seed}: {report.violation}" for report in broken]
    assert not broken, "\n".join([*violations, f"again: python -m tests.simulation --jobs --seed {broken[0].seed} --verbose"])


def test_jobs_change_what_they_should_once_and_report_it_whatever_goes_wrong() -> None:
    play(0)
