"""Many histories with schedules that do not overlap, and the bugs that they find."""

from __future__ import annotations

import pytest

from tests.simulation.overlap_planted import OVERLAP_PLANTED, overlap_planted
from tests.simulation.proving import assert_found, assert_kept
from tests.simulation.world.overlapping import simulate_overlap

PARTS = 2
CHUNK = 20
ENOUGH = 60
"""Seeds within which every planted bug must be found."""


@pytest.mark.parametrize("first", range(0, 200, CHUNK))
def test_occurrences_do_not_overlap_whatever_goes_wrong(first: int) -> None:
    assert_kept(simulate_overlap, range(first, first + CHUNK), "python -m tests.simulation --overlap")


@pytest.mark.parametrize("bug", OVERLAP_PLANTED)
def test_a_planted_bug_of_overlaps_is_found(bug: str) -> None:
    with overlap_planted(bug) as first:
        assert_found(bug, simulate_overlap, range(first, first + ENOUGH))
