"""Schedules that skip occurrences, exhaustively. Every mutant must be caught, or the checker proves nothing."""

from __future__ import annotations

import pytest

from tests.model.keys.mutants import Mutant
from tests.model.keys.skips import MUTANTS, PLAYS, SkipWorld, hunt
from tests.model.proving import assert_caught
from tests.model.stored import assert_play_holds

PARTS = 2
EXPECTED = {
    "the end of the occurrence before not kept": "K3",
    "an occurrence skipped before it is due": "K4",
    "an occurrence ahead that is not looked at": "K4",
}


@pytest.mark.parametrize("name", PLAYS)
def test_an_occurrence_is_skipped_only_while_one_before_it_has_not_ended(name: str) -> None:
    assert_play_holds("skip", name, SkipWorld(PLAYS[name](0)))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt(mutant)
    violation = assert_caught(report)
    assert violation.partition(":")[0] == EXPECTED[mutant.name], str(report)
