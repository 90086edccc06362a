"""Two plays of checkpoint turns, one of them without an end, explored in every run of the tests.

`prove_turns` proves all plays, and that every mutant is caught.
"""

from __future__ import annotations

from tests.model.stored import assert_play_holds
from tests.model.turns.endless import PLAYS as ENDLESS
from tests.model.turns.endless import Endless, follow
from tests.model.turns.plays import PLAYS
from tests.model.turns.world import World


def test_one_secondary_takes_at_a_time_and_latest_only_rises() -> None:
    assert_play_holds("turns", "hand out", World(PLAYS["hand out"](0)))


def test_a_turn_always_ends_and_every_healthy_secondary_gets_its_turn() -> None:
    assert_play_holds("endless turns", "endless: quiet", Endless(ENDLESS["endless: quiet"](0)), follow, more_states_than=500)
