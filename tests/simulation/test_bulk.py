"""Histories with bulk jobs. `python -m tests.simulation --jobs --seeds N` plays more of them."""

from __future__ import annotations

import gc

import pytest

from tests.simulation.bulk_planted import BULK_PLANTED, bulk_planted
from tests.simulation.world.bulk import simulate_bulk

CHUNK = 8
ENOUGH = 25
"""Seeds within which every planted bug must be found."""


def play(first: int, count: int = CHUNK) -> None:
    broken = [report for seed in range(first, first + count) if (report := simulate_bulk(seed)).violation is not None]
    gc.collect()
    violations = [f"seed {report.seed}: {report.violation}" for report in broken]
    assert not broken, "\n".join([*violations, f"again: python -m tests.simulation --jobs --seed {broken[0].seed} --verbose"])


def test_jobs_change_what_they_should_once_and_report_it_whatever_goes_wrong() -> None:
    play(0)


@pytest.mark.long
@pytest.mark.parametrize("first", range(CHUNK, 400, CHUNK))
def test_jobs_change_what_they_should_in_many_more_histories(first: int) -> None:
    play(first)


@pytest.mark.parametrize("bug", BULK_PLANTED)
def test_a_planted_bug_of_jobs_is_found(bug: str) -> None:
    with bulk_planted(bug) as first:
        assert any(simulate_bulk(seed).violation is not None for seed in range(first, first + ENOUGH)), (
            f"{ENOUGH} histories do not notice: {bug}"
        )
