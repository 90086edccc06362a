"""Short histories of fleets, a chunk a test. A failure names its seed; `python -m tests.simulation.leases --seed N --verbose` shows it."""

from __future__ import annotations

import gc

import pytest

from .history import ROLLBACK, simulate

CHUNK = 100
FOUND = (15967, 1035075)
"""Seeds beyond those of every day that a promise was once broken in."""


def play(first: int, count: int) -> None:
    broken = [report for seed in range(first, first + count) if (report := simulate(seed)).violation is not None]
    gc.collect()
    violations = [f"seed {report.seed}: {report.violation}" for report in broken]
    assert not broken, "\n".join([*violations, f"again: python -m tests.simulation.leases --seed {broken[0].seed} --verbose"])


def test_promises_are_kept_whatever_goes_wrong() -> None:
    play(0, CHUNK)


@pytest.mark.parametrize("seed", FOUND)
def test_promises_are_kept_in_histories_that_broke_them_once(seed: int) -> None:
    play(seed, 1)


def test_servers_notice_that_storage_has_lost_writes() -> None:
    reports = [simulate(seed, ROLLBACK) for seed in range(CHUNK)]
    gc.collect()
    assert [f"seed {report.seed}: {report.violation}" for report in reports if report.violation is not None] == []
    assert sum(report.counts["rollbacks"] for report in reports) > CHUNK


def test_the_same_seed_gives_the_same_history() -> None:
    for seed in (3, 17, 48):
        first, second = simulate(seed), simulate(seed)
        assert first.world.texts() == second.world.texts()
        assert first.counts == second.counts


def test_what_goes_wrong_does_go_wrong() -> None:
    counts = sum((simulate(seed).counts for seed in range(30)), start=simulate(30).counts)
    assert all(counts[f"fault: {what}"] > 0 for what in ("refused", "lost", "failed", "late"))
    assert counts["claims"] > 30 and counts["writes"] > 30 and counts["writes refused"] > 0
