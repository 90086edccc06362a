"""Locks, exhaustively: production's generators, with lost, late and stray requests, crashes of holders and waiters, revocations, slow
clocks, and rows that are removed and made anew.

The quick plays run here; `make model` runs larger ones. Every mutant must be caught, or the checker proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from shared.locks.rows import LockRow, Waiter
from shared.locks.rules import LockRequest, Waiting, ask, live_waiters, retry_after
from shared.locks.timings import LEAST_WAIT, MARGIN, MOST_WAIT, MOST_WAITERS
from tests.model.checking.mutants import Mutant
from tests.model.locks.mutants import MUTANTS, hunt
from tests.model.locks.plays import PLAYS
from tests.model.locks.world import LockWorld
from tests.model.stored import assert_play_holds

EXPECTED = {
    "no margin for the times of two machines": "L1",
    "no room for a slow clock": "L1",
    "validity counted from the answer": "L1",
    "a grant that does not run out": "L4",
    "a revoked lock is free at once": "L1",
    "a revoked grant is renewed": "L6",
    "a request from before the release gets the lock": "L7",
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
LONG = {"stray", "holder", "delayed"}


def marked(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in names]


@pytest.mark.parametrize("name", marked(PLAYS))
def test_one_caller_holds_the_lock_and_every_caller_gets_it_in_order(name: str) -> None:
    assert_play_holds("lock", name, LockWorld(PLAYS[name](0)), more_states_than=500)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt(mutant)
    assert report.violation is not None
    assert report.violation.partition(":")[0] == EXPECTED[mutant.name], str(report)


@pytest.mark.parametrize("wait", [LEAST_WAIT, 15_000, MOST_WAIT])
@pytest.mark.parametrize("late", [0, MARGIN])
def test_a_waiter_that_asks_within_its_time_keeps_its_place(wait: int, late: int) -> None:
    """Its requests are a little less than half of `wait`, and then `wait`, apart: the first is not stored."""
    lock = LockRow(1, "held", "h", "n", MOST_WAIT, 0, 0, (Waiter("a", "1", wait, 0, 0),))
    request = LockRequest("a", "1", 2000, wait)
    first = wait // 2 - 1
    assert ask(lock, request, first, 0) == Waiting(None, 0, retry_after(0, wait))
    assert live_waiters(lock, first + wait - 1 + late)
    assert not live_waiters(lock, 2 * wait + MARGIN)


@pytest.mark.parametrize("wait", [LEAST_WAIT, 15_000, MOST_WAIT])
def test_a_waiter_asks_several_times_before_it_is_dropped(wait: int) -> None:
    assert all(0 < 4 * retry_after(ahead, wait) <= wait for ahead in range(MOST_WAITERS))
