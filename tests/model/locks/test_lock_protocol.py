"""One play of locks, explored in every run of the tests, and the times at which waiters ask.

`prove_locks` proves all plays, and that every mutant is caught.
"""

from __future__ import annotations

import pytest

from shared.locks.rows import LockRow, Waiter
from shared.locks.rules import LockRequest, Waiting, ask, live_waiters, retry_after
from shared.locks.timings import ASKED_STORED, LEAST_WAIT, MARGIN, MOST_WAIT, MOST_WAITERS
from tests.model.locks.plays import PLAYS
from tests.model.locks.world import LockWorld
from tests.model.stored import assert_play_holds


def test_one_caller_holds_the_lock_and_every_caller_gets_it_in_order() -> None:
    assert_play_holds("lock", "slow", LockWorld(PLAYS["slow"](0)), more_states_than=500)


@pytest.mark.parametrize("wait", [LEAST_WAIT, 15_000, MOST_WAIT])
@pytest.mark.parametrize("late", [0, MARGIN])
def test_a_waiter_that_asks_within_its_time_keeps_its_place(wait: int, late: int) -> None:
    """Its requests are a little less than half of `wait`, at most 7.5 s, and then `wait`, apart: the first is not stored."""
    lock = LockRow(1, "held", "h", "n", MOST_WAIT, 0, 0, (Waiter("a", "1", wait, 0, 0),))
    request = LockRequest("a", "1", 2000, wait)
    first = min(wait // 2, ASKED_STORED) - 1
    assert ask(lock, request, first, 0) == Waiting(None, 0, retry_after(0, wait))
    assert live_waiters(lock, first + wait - 1 + late)
    assert not live_waiters(lock, 2 * wait + MARGIN)


@pytest.mark.parametrize("wait", [LEAST_WAIT, 15_000, MOST_WAIT])
def test_a_waiter_asks_several_times_before_it_is_dropped(wait: int) -> None:
    assert all(0 < 4 * retry_after(ahead, wait) <= wait for ahead in range(MOST_WAITERS))
