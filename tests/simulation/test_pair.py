"""Histories of a mirrored pair. `python -m tests.simulation --pair --seeds N` plays more of them."""

from __future__ import annotations

import gc

from tests.simulation.world.pair import simulate_pair

CHUNK = 15


def test_either_account_may_go_and_what_both_have_stored_holds() -> None:
    play(0)


def play(first: int) -> None:
    broken = [report for seed in range(first, first + CHUNK) if (report := simulate_pair(seed)).violation is not None]
    gc.collect()
    violations = [f"seed {report.seed}: {report.violation}" for report in broken]
    again = f"--seed {broken[0].seed}" if broken else ""
    assert not broken, "\n".join([*violations, f"again: python -m tests.simulation --pair {again} --verbose"])


def test_without_other_faults_only_what_was_not_copied_is_made_again() -> None:
    reports = [simulate_pair(seed, "none") for seed in range(CHUNK)]
    assert [report.violation for report in reports] == [None] * len(reports)
    assert sum(report.counts["failovers"] for report in reports) >= CHUNK // 2
    assert sum(report.counts["failbacks"] for report in reports) >= CHUNK // 2
