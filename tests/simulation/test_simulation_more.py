"""More histories, so that two processes share them; and the proof that the simulation finds bugs."""

from __future__ import annotations

import pytest

from tests.simulation.history import simulate
from tests.simulation.planted import PLANTED, STYLES, planted
from tests.simulation.test_simulation import CHUNK, play

ENOUGH = 400
"""Seeds within which every planted bug must be found."""
FIRST = {
    "events of the ingest queue do not come again": 190,
    "a lost answer means stored": 140,
    "a lost answer means refused": 310,
    "nothing is sealed": 35,
    "callbacks are noted before they are stored": 15,
    "a cancel does not take the id of a queued event": 30,
}
"""The first seed of those, shortly before one that found the bug: the hunt saves the time of histories that do not notice it."""


def test_promises_are_kept_whatever_goes_wrong() -> None:
    """In the hundred histories that find the rarest planted bug."""
    play(300, CHUNK)


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    first = FIRST.get(bug, 0)
    with planted(bug):
        assert any(simulate(seed, STYLES.get(bug)).violation is not None for seed in range(first, first + ENOUGH)), (
            f"{ENOUGH} histories do not notice that {bug}"
        )
