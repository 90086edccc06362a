"""Notices, exhaustively. Every mutant must be caught, or the checker proves nothing."""

from __future__ import annotations

import pytest

from tests.model.notices.mutants import MUTANTS, Mutant, hunt
from tests.model.notices.plays import PLAYS, NoticeWorld
from tests.model.proving import assert_caught
from tests.model.stored import assert_play_holds

EXPECTED = {
    "an end noted after its mark is removed": ("N1", 2),
    "an end noted without the ETag": ("N1", 7),
    "a notice closed before it is stored": ("N2", 8),
    "a content fixed anew": ("N2", 12),
    "any notice closed": ("N2", 20),
    "a row closed in spite of what happened since": ("P1", 9),
    "a notice under an id of its process": ("N6", 13),
    "no pause between notices": ("N4", 14),
    "the end of a notice told": ("N5", 10),
}


@pytest.mark.parametrize("name", PLAYS)
def test_every_end_is_told_and_nothing_is_told_of_notices(name: str) -> None:
    assert_play_holds("notice", name, NoticeWorld(PLAYS[name](0)), more_states_than=900)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt(mutant)
    violation = assert_caught(report)
    assert (violation.partition(":")[0], report.steps) == EXPECTED[mutant.name], str(report)
