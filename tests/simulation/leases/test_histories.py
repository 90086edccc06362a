"""Short histories of fleets, a chunk a test. A failure names its seed; `python -m tests.simulation.leases --seed N --verbose` shows it."""

from __future__ import annotations

import gc

import pytest

from .history import ROLLBACK, simulate
from .planted import PLANTED, ROLLBACK_PLANTED, planted

CHUNK = 100
HUNTED = 3000
"""Seeds in which a planted bug must be found; nearly all are within 200."""
FOUND = (15967, 1035075)
"""Seeds beyond those of every day that a promise was once broken in."""


def play(first: int, count: int) -> None:
    broken = [report for seed in range(first, first + count) if (report := simulate(seed)).violation is not None]
    gc.collect()
    violations = [f"seed {report.seed}: {report.violation}" for report in broken]
    assert not broken, "\n".join([*violations, f"again: python -m tests.simulation.leases --seed {broken[0].seed} --verbose"])


@pytest.mark.parametrize("first", range(0, 200, CHUNK))
def test_promises_are_kept_whatever_goes_wrong(first: int) -> None:
    play(first, CHUNK)


@pytest.mark.parametrize("seed", FOUND)
def test_promises_are_kept_in_histories_that_broke_them_once(seed: int) -> None:
    play(seed, 1)


@pytest.mark.long
@pytest.mark.parametrize("first", range(200, 800, CHUNK))
def test_promises_are_kept_in_more_histories(first: int) -> None:
    play(first, CHUNK)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1_000_000, 1_100_000, 5000))
def test_promises_are_kept_in_a_hundred_thousand_histories(first: int) -> None:
    play(first, 5000)


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.long) for first in (100, 200))])
def test_servers_notice_that_storage_has_lost_writes(first: int) -> None:
    reports = [simulate(seed, ROLLBACK) for seed in range(first, first + CHUNK)]
    gc.collect()
    assert [f"seed {report.seed}: {report.violation}" for report in reports if report.violation is not None] == []
    assert sum(report.counts["rollbacks"] for report in reports) > CHUNK


@pytest.mark.long
@pytest.mark.parametrize("first", range(1_000_000, 1_010_000, 1000))
def test_servers_notice_that_storage_has_lost_writes_in_ten_thousand_histories(first: int) -> None:
    reports = [simulate(seed, ROLLBACK) for seed in range(first, first + 1000)]
    assert [f"seed {report.seed}: {report.violation}" for report in reports if report.violation is not None] == []


@pytest.mark.parametrize("bug", ROLLBACK_PLANTED)
def test_a_planted_bug_is_found_when_storage_loses_writes(bug: str) -> None:
    with planted(bug):
        assert any(simulate(seed, ROLLBACK).violation for seed in range(HUNTED))
    gc.collect()


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    with planted(bug):
        assert any(simulate(seed).violation for seed in range(HUNTED))
    gc.collect()


def test_the_same_seed_gives_the_same_history() -> None:
    for seed in (3, 17, 48):
        first, second = simulate(seed), simulate(seed)
        assert first.world.texts() == second.world.texts()
        assert first.counts == second.counts


def test_what_goes_wrong_does_go_wrong() -> None:
    counts = sum((simulate(seed).counts for seed in range(30)), start=simulate(30).counts)
    assert all(counts[f"fault: {what}"] > 0 for what in ("refused", "lost", "failed", "late"))
    assert counts["claims"] > 30 and counts["writes"] > 30 and counts["writes refused"] > 0
