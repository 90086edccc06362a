"""The guard `prepare`, exhaustively. Every mutant must be caught, or the checker proves nothing."""

from __future__ import annotations

import pytest

from tests.model.guard.mutants import MUTANTS, Mutant, hunt
from tests.model.guard.plays import PLAYS
from tests.model.guard.world import GuardWorld
from tests.model.proving import assert_caught
from tests.model.stored import explore_recorded

EXPECTED = {
    "two have reservations": ("guard", 3),
    "a reservation is not kept": ("guard", 3),
    "a reservation is never released": ("stuck", 3),
    "a reservation is all it takes": ("guard", 3),
    "nobody is refused": ("guard", 3),
    "a refused node waits for ever": ("late", 4),
    "a lost answer is permission": ("guard", 3),
    "an event that was not answered is permitted": ("guard", 3),
    "a reservation is taken at any time": ("guard", 3),
    "an eviction waits for permission": ("late", 1),
}


@pytest.mark.parametrize("name", PLAYS)
def test_one_fault_domain_goes_after_the_other_and_all_get_permission(name: str) -> None:
    report = explore_recorded("guard", name, GuardWorld(PLAYS[name](0)))
    assert report.violation is None, str(report)
    assert report.states > 300


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt(mutant)
    violation = assert_caught(report)
    assert (violation.partition(":")[0], report.steps) == EXPECTED[mutant.name], str(report)
