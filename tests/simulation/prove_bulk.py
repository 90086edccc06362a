"""Many histories with bulk jobs, and the bugs that they find."""

from __future__ import annotations

import pytest

from tests.simulation.bulk_planted import BULK_PLANTED, bulk_planted
from tests.simulation.open_seeds import assert_kept_but_open
from tests.simulation.proving import assert_found
from tests.simulation.world.bulk import simulate_bulk

CHUNK = 80
OPEN = (346, 394)
"""Answers to `prepare` that were lost leave jobs that nobody confirms, until the tenant may have no more: the client asks for ever."""
ENOUGH = 25
"""Seeds within which every planted bug must be found."""


@pytest.mark.parametrize("first", range(0, 400, CHUNK))
def test_jobs_change_what_they_should_once_and_report_it_whatever_goes_wrong(first: int) -> None:
    assert_kept_but_open(simulate_bulk, range(first, first + CHUNK), "python -m tests.simulation --jobs", OPEN)


@pytest.mark.parametrize("bug", BULK_PLANTED)
def test_a_planted_bug_of_jobs_is_found(bug: str) -> None:
    with bulk_planted(bug) as first:
        assert_found(bug, simulate_bulk, range(first, first + ENOUGH))
