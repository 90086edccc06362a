"""Planned wakes, exhaustively. Every mutant must be caught, or the checker proves nothing."""

from __future__ import annotations

import pytest

from tests.model.proving import assert_caught
from tests.model.stored import assert_play_holds
from tests.model.wakes.mutants import MUTANTS, Mutant, hunt
from tests.model.wakes.plays import PLAYS
from tests.model.wakes.world import WakeWorld

PARTS = 2
EXPECTED = {
    "a wake that is due now trusted": ("P1", 14),
    "clocks trusted to the millisecond": ("P1", 15),
    "one wake only": ("W2", 15),
    "a second wake at any time": ("W2", 16),
    "the plan before its wakes": ("N1", 6),
    "a plan that names refused wakes": ("N1", 7),
    "a wake that leaves its look to another one": ("P1", 9),
    "a plan that is read before the row is stored": ("P1", 13),
    "an old plan judged by the time of its reading": ("W2", 15),
    "a message time that has come taken for a message": ("P1", 14),
    "a look that reads the index as far as it sends": ("W2", 18),
    "a next look in spite of what it must find": ("P1", 3),
    "pauses that nobody fills": ("W4", 3),
    "a pause before a shard as long as one that a wake ends": ("W4", 16),
    "a look that does not name its own wakes": ("W5", 25),
    "a plan that forgets the nearest wakes": ("W5", 25),
    "a silent timer taken for one that runs": ("W2", 16),
    "earlier messages with wakes at the usual time": ("W2", 23),
    "messages at the usual time without an instance": ("P1", 3),
}


@pytest.mark.parametrize("name", PLAYS)
def test_a_wake_comes_before_each_shard_and_no_pause_is_too_long(name: str) -> None:
    assert_play_holds("wake", name, WakeWorld(PLAYS[name](0)), more_states_than=150)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt(mutant)
    violation = assert_caught(report)
    assert (violation.partition(":")[0], report.steps) == EXPECTED[mutant.name], str(report)
