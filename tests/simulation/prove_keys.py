"""Many histories with ordering keys, and with keys over a mirrored pair."""

from __future__ import annotations

import pytest

from tests.simulation.proving import assert_kept
from tests.simulation.world.keyed_histories import simulate_keys
from tests.simulation.world.keyed_pair import simulate_keyed_pair

CHUNK = 20


@pytest.mark.parametrize("first", range(0, 200, CHUNK))
def test_keys_keep_their_order_whatever_goes_wrong(first: int) -> None:
    assert_kept(simulate_keys, range(first, first + CHUNK), "python -m tests.simulation --keys")


@pytest.mark.parametrize("story", ["alarm", "loss and back"])
@pytest.mark.parametrize("first", range(0, 100, CHUNK))
def test_mirrored_events_that_are_posted_after_a_change_of_sides_keep_their_order(first: int, story: str) -> None:
    counts = assert_kept(lambda seed: simulate_keyed_pair(seed, None, story), range(first, first + CHUNK), f"simulate_keyed_pair, {story}:")
    assert all(each["keyed events"] for each in counts) and sum(each["failovers"] for each in counts) >= CHUNK // 2
