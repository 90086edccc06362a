"""Many histories with recurring schedules, and the bugs that they find."""

from __future__ import annotations

import pytest

from tests.simulation.proving import assert_found, assert_kept
from tests.simulation.schedules_planted import SCHEDULES_PLANTED, schedules_planted
from tests.simulation.world.schedules import simulate_schedules

PARTS = 2
CHUNK = 20
ENOUGH = 150
"""Seeds within which every planted bug must be found."""


@pytest.mark.parametrize("first", range(0, 200, CHUNK))
def test_each_occurrence_comes_in_its_time_whatever_goes_wrong(first: int) -> None:
    assert_kept(simulate_schedules, range(first, first + CHUNK), "python -m tests.simulation --schedules")


@pytest.mark.parametrize("bug", SCHEDULES_PLANTED)
def test_a_planted_bug_of_schedules_is_found(bug: str) -> None:
    with schedules_planted(bug) as first:
        assert_found(bug, simulate_schedules, range(first, first + ENOUGH))
