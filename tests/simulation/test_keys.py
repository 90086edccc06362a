"""Ordering keys on virtual time: order over shards, and small keys beside a large one."""

from __future__ import annotations

from shared.delivery.channels.model import KeyLimits
from tests.simulation.world.keyed import play


def test_a_large_key_does_not_delay_small_ones_and_all_keep_their_order() -> None:
    found = play({"large": 300, **{f"small{number}": 5 for number in range(10)}}, KeyLimits(ordered=True))
    assert found.disorder == 0
    assert max(found.starts[f"small{number}"][-1] for number in range(10)) < 2_000
    # A start follows the one before it as soon as its outcome is stored.
    assert found.rate("large") > 50 and found.requests < 5


def test_a_key_whose_neighbours_are_in_different_shards_keeps_its_order() -> None:
    found = play({"one": 120}, KeyLimits(ordered=True), mixed=True, shard=30)
    assert found.disorder == 0 and found.rate("one") > 5
