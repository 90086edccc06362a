"""A facet that is added keeps its promises in every interleaving, and each point that it, or the core, leaves out is found."""

from __future__ import annotations

import pytest

from tests.model.checking.mutants import Mutant
from tests.model.proving import assert_caught
from tests.model.shards.added import ADDED_MUTANTS, ADDED_PLAYS, AddedWorld, explore, hunt_added
from tests.model.stored import assert_play_holds

EXPECTED = {
    "a shard filled before it is filed": "J1",
    "a moved event's shard that is not filed": "J1",
    "a finished shard filed anew": "J4",
    "a property of the place kept by a copy": "J2",
    "an end settled without the rows beside it": "J3",
    "a completion without the rows beside it": "J3",
    "a cancel that facets do not see": "J2",
    "a shard tidied without its facets": "J4",
}


@pytest.mark.parametrize("name", ADDED_PLAYS)
def test_an_added_facet_acts_at_each_point(name: str) -> None:
    assert_play_holds("facet", name, AddedWorld(ADDED_PLAYS[name](0)), explore)


@pytest.mark.parametrize("mutant", ADDED_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_point_that_is_left_out_is_found(mutant: Mutant) -> None:
    assert assert_caught(hunt_added(mutant)).partition(":")[0] == EXPECTED[mutant.name]
