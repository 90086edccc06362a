"""A facet that the service does not have, in one play. `prove_added` plays all, and finds each point that is left out."""

from __future__ import annotations

from tests.model.shards.added import ADDED_PLAYS, AddedWorld, explore
from tests.model.stored import assert_play_holds


def test_an_added_facet_acts_at_each_point() -> None:
    assert_play_holds("facet", "facet", AddedWorld(ADDED_PLAYS["facet"](0)), explore)
