"""Changes that overtake each other, exhaustively. Every mutant must be caught, or the checker proves nothing."""

from __future__ import annotations

import pytest

from tests.model.changes.mutants import MUTANTS, Mutant, hunt
from tests.model.changes.plays import PLAYS, ChangeWorld
from tests.model.proving import assert_caught
from tests.model.stored import assert_play_holds

EXPECTED = {
    "a receipt not compared": ("R1", 4),
    "a receipt not stored": ("R1", 4),
    "a moved event without its receipts": ("R1", 10),
    "no limit of age": ("R1", 6),
    "the last receipt alone": ("R1", 6),
    "an earlier time noted": ("R1", 6),
    "a change refused for another member": ("R3", 3),
    "the id of an ended event taken by an earlier post": ("R1", 8),
    "the ended event before forgotten": ("R1", 16),
    "the id of a cancelled event taken at about the time of the cancel": ("R2", 8),
    "a cancel that is overtaken": ("R4", 3),
}


@pytest.mark.parametrize("name", PLAYS)
def test_no_change_is_replaced_by_one_that_was_received_before(name: str) -> None:
    assert_play_holds("change", name, ChangeWorld(PLAYS[name](0)), more_states_than=100)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt(mutant)
    violation = assert_caught(report)
    assert (violation.partition(":")[0], report.steps) == EXPECTED[mutant.name], str(report)
