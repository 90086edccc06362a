"""A mirrored pair, exhaustively: the first account is lost at every step, the second carries on, and the first comes back.

`make model` explores larger plays. Every mutant must be caught, or the checker proves nothing.
"""

from __future__ import annotations

import pytest

from tests.model.checking.mutants import Mutant
from tests.model.pairs.mutants import PAIR_MUTANTS, hunt_pair
from tests.model.pairs.plays import PAIR_PLAYS, world
from tests.model.proving import assert_caught
from tests.model.stored import assert_play_holds

EXPECTED = {
    "the fence not read": ("a final state was left in the copy", 9),
    "the original read before the copy": ("a final state was left in the copy", 16),
    "an event acknowledged before the copy has it": ("P1", 3),
    "a cancel acknowledged before the copy has it": ("P2", 2),
    "the first closed before the second": ("P1", 17),
    "the second closed before the first is done": ("P1", 15),
    "the copy's gate written without its ETag": ("P1", 27),
    "a target copied after its source": ("P1", 12),
    "a moved event alive at both places of the copy": ("P4", 15),
    "a place found shut that is not copied": ("P4", 42),
    "a redrive by a mark that is not copied": ("P4", 28),
    "an id row not copied before the event": ("P4", 10),
    "a source not sealed on the way back": ("P1", 32),
    "a copy begun before its index row": ("P1", 27),
    "a place that was cut off not filed on the way back": ("P1", 0),
}


@pytest.mark.parametrize("name", PAIR_PLAYS)
def test_the_pair_holds(name: str) -> None:
    assert_play_holds("pair", name, world(PAIR_PLAYS[name](0)), more_states_than=400)


@pytest.mark.parametrize("mutant", PAIR_MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt_pair(mutant)
    violation = assert_caught(report)
    assert (violation.partition(":")[0], report.steps) == EXPECTED[mutant.name], str(report)
