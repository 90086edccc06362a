"""Locks, exhaustively: production's generators, with lost, late and stray requests, crashes of holders and waiters, revocations, slow
clocks, and rows that are removed and made anew.

`make model` explores larger plays. Every mutant must be caught, or the checker proves nothing.
"""

from __future__ import annotations

import pytest

from tests.model.checking.mutants import Mutant
from tests.model.locks.mutants import MUTANTS, hunt
from tests.model.locks.plays import PLAYS
from tests.model.locks.world import LockWorld
from tests.model.proving import assert_caught
from tests.model.stored import assert_play_holds

EXPECTED = {
    "no margin for the times of two machines": "L1",
    "no room for a slow clock": "L1",
    "validity counted from the answer": "L1",
    "a grant that does not run out": "L4",
    "a revoked lock is free at once": "L1",
    "a revoked grant is renewed": "L6",
    "a request from before the release gets the lock": "L7",
    "ended attempts that are forgotten": "L7",
    "a grant that forgets the attempts before it": "L7",
    "a release that finds nothing and is not remembered": "L7",
    "a repeated request gets another grant": "L5",
    "a release ends a later attempt of the same holder": "L1",
    "a token that stays": "L2",
    "tokens that begin anew with the row": "L2",
    "a row removed as soon as the lock is free": "L2",
    "a row removed although its token is ahead of the time": "L2",
    "a grant written without the row's ETag": "L2",
    "a renewal without the row's ETag": "L1",
    "a removal without the row's ETag": "L2",
    "waiters that are forgotten": "L3",
    "waiters that are never dropped": "L4",
    "the last waiter first": "L3",
}


@pytest.mark.parametrize("name", PLAYS)
def test_one_caller_holds_the_lock_and_every_caller_gets_it_in_order(name: str) -> None:
    assert_play_holds("lock", name, LockWorld(PLAYS[name](0)), more_states_than=500)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt(mutant)
    violation = assert_caught(report)
    assert violation.partition(":")[0] == EXPECTED[mutant.name], str(report)
