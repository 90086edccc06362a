"""The agent of a node, exhaustively, under crashes between any two effects. Every mutant must be caught, or the checker proves nothing."""

from __future__ import annotations

import pytest

from tests.model.maintenance.mutants import MUTANTS, Mutant, hunt
from tests.model.maintenance.plays import PLAYS
from tests.model.maintenance.world import AgentWorld
from tests.model.proving import assert_caught
from tests.model.stored import assert_play_holds

EXPECTED = {
    "approved while it waits": ("unprepared", 2),
    "approved after a failed prepare": ("unprepared", 4),
    "prepared before the boot is prepared": ("unprepared", 5),
    "nothing needs preparation": ("unprepared", 2),
    "a lease is all it takes": ("unprepared", 3),
    "taken out of service unmarked": ("not restored", 3),
    "our mark not believed": ("not restored", 4),
    "every lost state taken for our mark": ("undone", 0),
    "a failed restore taken for one": ("not restored", 7),
    "parts taken for the whole": ("garbage", 3),
    "a failed look forgotten": ("garbage", 3),
    "no look after a start": ("garbage", 5),
    "put back beside another event": ("garbage", 2),
    "the end not heeded": ("ended", 4),
    "what the fleet asks forgotten": ("unprepared", 4),
    "the laxer rule counts": ("unprepared", 3),
    "the number of a document is all that counts": ("not restored", 2),
    "an unreadable NotBefore is no reason to wait": ("undated", 2),
    "an app that is asked agrees": ("alone", 2),
    "an answer counts after the app is gone": ("alone", 9),
}


@pytest.mark.parametrize("name", PLAYS)
def test_agent_approves_only_what_is_prepared_and_puts_the_node_back(name: str) -> None:
    assert_play_holds("agent", name, AgentWorld(PLAYS[name](0)))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt(mutant)
    violation = assert_caught(report)
    assert (violation.partition(":")[0], report.steps) == EXPECTED[mutant.name], str(report)
