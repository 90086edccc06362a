"""Many histories of a mirrored pair, and the bugs that they find."""

from __future__ import annotations

import pytest

from tests.simulation.pair_planted import PAIR_PLANTED, pair_planted
from tests.simulation.proving import assert_found, assert_kept
from tests.simulation.world.pair import simulate_pair

CHUNK = 60
ENOUGH = 150
"""Seeds within which every planted bug must be found."""


@pytest.mark.parametrize("first", range(0, 600, CHUNK))
def test_either_account_may_go_and_what_both_have_stored_holds(first: int) -> None:
    assert_kept(simulate_pair, range(first, first + CHUNK), "python -m tests.simulation --pair")


@pytest.mark.parametrize("bug", PAIR_PLANTED)
def test_a_planted_bug_of_mirroring_is_found(bug: str) -> None:
    with pair_planted(bug) as (story, first):
        assert_found(bug, lambda seed: simulate_pair(seed, None, story), range(first, first + ENOUGH))
