"""Histories with schedules that do not overlap. `python -m tests.simulation --overlap --seeds N` plays more of them."""

from __future__ import annotations

import gc

from tests.simulation.world.overlapping import simulate_overlap

CHUNK = 5


def play(first: int, count: int = CHUNK) -> None:
    reports = [simulate_overlap(seed) for seed in range(first, first + count)]
    gc.collect()
    broken = [report for report in reports if report.violation is not None]
    violations = [f"seed {report.seed}: {report.violation}" for report in broken]
    assert not broken, "\n".join([*violations, f"again: python -m tests.simulation --overlap --seed {broken[0].seed} --verbose"])


def test_occurrences_do_not_overlap_whatever_goes_wrong() -> None:
    play(0)


def test_what_histories_have_found() -> None:
    """The cancel of a later occurrence skipped those before it."""
    play(9, 1)
