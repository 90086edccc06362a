"""Two thousand histories of shards, and the bugs that they find."""

from __future__ import annotations

import pytest

from tests.simulation.history import simulate
from tests.simulation.planted import PLANTED, STYLES, planted
from tests.simulation.proving import assert_found, assert_kept

PARTS = 3
CHUNK = 100
ENOUGH = 400
"""Seeds within which every planted bug must be found."""
FIRST = {
    "events of the ingest queue do not come again": 190,
    "a lost answer means stored": 140,
    "a lost answer means refused": 200,
    "nothing is sealed": 35,
    "callbacks are noted before they are stored": 15,
    "a cancel does not take the id of a queued event": 30,
}
"""The first seed of those, shortly before one that found the bug: the hunt saves the time of histories that do not notice it."""


@pytest.mark.parametrize("first", range(0, 2000, CHUNK))
def test_promises_are_kept_whatever_goes_wrong(first: int) -> None:
    assert_kept(simulate, range(first, first + CHUNK), "python -m tests.simulation")


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    first = FIRST.get(bug, 0)
    with planted(bug):
        assert_found(bug, lambda seed: simulate(seed, STYLES.get(bug)), range(first, first + ENOUGH))
