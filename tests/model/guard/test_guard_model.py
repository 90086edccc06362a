"""One play of the guard `prepare`, explored in every run of the tests. `prove_guard` proves all plays, and that every mutant is caught."""

from __future__ import annotations

from tests.model.guard.plays import PLAYS
from tests.model.guard.world import GuardWorld
from tests.model.stored import assert_play_holds


def test_one_fault_domain_goes_after_the_other_and_all_get_permission() -> None:
    assert_play_holds("guard", "restarts", GuardWorld(PLAYS["restarts"](0)), more_states_than=300)
