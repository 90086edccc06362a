"""One play of a mirrored pair, explored in every run of the tests. `prove_pairs` proves all plays, and that every mutant is caught."""

from __future__ import annotations

from tests.model.pairs.plays import PAIR_PLAYS, world
from tests.model.stored import assert_play_holds


def test_the_pair_holds() -> None:
    assert_play_holds("pair", "pair: cancel", world(PAIR_PLAYS["pair: cancel"](0)), more_states_than=400)
