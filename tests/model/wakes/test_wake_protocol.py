"""Two plays of planned wakes, explored in every run of the tests. `prove_wakes` proves all plays, and that every mutant is caught."""

from __future__ import annotations

import pytest

from tests.model.stored import assert_play_holds
from tests.model.wakes.plays import PLAYS
from tests.model.wakes.world import WakeWorld


@pytest.mark.parametrize("name", ["cold", "stuck"])
def test_a_wake_comes_before_each_shard_and_no_pause_is_too_long(name: str) -> None:
    assert_play_holds("wake", name, WakeWorld(PLAYS[name](0)))
