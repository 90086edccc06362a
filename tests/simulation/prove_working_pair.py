"""Many histories of long work over a mirrored pair, and the bug that they find."""

from __future__ import annotations

import pytest

from shared.scheduler.mirror import pair
from tests.model.checking.mutants import patched
from tests.simulation.pair_planted import copied_later
from tests.simulation.proving import assert_found, assert_kept
from tests.simulation.world.working_pair import simulate_working_pair

CHUNK = 20
ENOUGH = 20
"""Seeds within which the planted bug must be found."""


@pytest.mark.parametrize("first", range(0, 240, CHUNK))
def test_completion_holds_whichever_side_serves(first: int) -> None:
    counts = assert_kept(simulate_working_pair, range(first, first + CHUNK), "simulate_working_pair:")
    assert any(each["failovers"] for each in counts) and any(each["work: complete acknowledged"] for each in counts)


def test_completion_that_is_acknowledged_before_it_is_copied_is_found() -> None:
    with patched([(pair, "mirror_event", copied_later)]):
        assert_found("copied later", lambda seed: simulate_working_pair(seed, None, "loss"), range(5, 5 + ENOUGH))
