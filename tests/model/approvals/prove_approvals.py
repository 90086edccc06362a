"""The approvals of an event of one fleet or two, exhaustively. Every mutant must be caught, or the checker proves nothing."""

from __future__ import annotations

import pytest

from tests.model.approvals.mutants import MUTANTS, Mutant, hunt
from tests.model.approvals.plays import PLAYS
from tests.model.approvals.world import ApprovalWorld
from tests.model.checking.checker import explore
from tests.model.proving import assert_caught, bounds
from tests.proofs.facts import note

EXPECTED = {
    "other fleets are not asked": ("unprepared", 0),
    "a VM that nobody knows is forgotten": ("stranger", 4),
    "a fleet agrees before it is ready": ("unprepared", 1),
    "a fleet that has not answered agrees": ("unprepared", 1),
    "a fleet that is held agrees": ("held", 5),
    "a fleet never agrees": ("stuck", 0),
    "nobody takes turns": ("twice", 0),
    "a turn never ends": ("stuck", 2),
    "an agent's turn never ends": ("twice", 2),
    "an agent does not leave an event to another": ("twice", 0),
    "nobody hears that it is approved": ("twice", 0),
    "a leased approval does not heed turns": ("twice", 2),
    "an agent that hears of an approval waits on": ("waits", 0),
}


@pytest.mark.parametrize("name", PLAYS)
def test_no_fleet_approves_alone_and_each_sends_one_approval(name: str) -> None:
    play = PLAYS[name](0)
    report = explore(ApprovalWorld(play))
    note(states=report.states, depth=report.depth, bounds=bounds(play))
    assert report.violation is None, str(report)
    assert report.states > 100


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt(mutant)
    violation = assert_caught(report)
    assert (violation.partition(":")[0], report.steps) == EXPECTED[mutant.name], str(report)
