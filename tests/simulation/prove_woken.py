"""Many histories with planned wakes and without timers, and the bugs that they find."""

from __future__ import annotations

import pytest

from tests.simulation.proving import assert_found, assert_kept
from tests.simulation.woken_planted import PLAYS, WOKEN_PLANTED, woken_planted
from tests.simulation.world.woken import simulate_killed, simulate_purged, simulate_woken

PARTS = 3
CHUNK = 50
ENOUGH = 60
"""Seeds within which every planted bug must be found."""
EFFECTS = 160
"""Effects from the first request to the delivery of an event that waits for minutes, those of its wakes among them."""


@pytest.mark.parametrize("first", range(0, 200, CHUNK))
def test_promises_are_kept_without_timers_whatever_goes_wrong(first: int) -> None:
    counts = assert_kept(simulate_woken, range(first, first + CHUNK), "python -m tests.simulation --wakes")
    assert sum(each["wakes taken"] for each in counts) > CHUNK


def test_without_faults_events_are_on_time_by_wakes_alone() -> None:
    assert_kept(lambda seed: simulate_woken(seed, "none"), range(60), "python -m tests.simulation --wakes --style none")


def test_nothing_is_lost_when_a_process_is_killed_at_any_step_of_a_wake() -> None:
    counts = assert_kept(lambda effect: simulate_killed(1, effect), range(1, EFFECTS), "simulate_killed(1, N)")
    assert sum(each["crashes"] for each in counts) > EFFECTS * 0.9


def test_a_process_that_starts_after_a_purge_of_the_queue_finds_what_is_stored() -> None:
    counts = assert_kept(simulate_purged, range(40), "simulate_purged(N)")
    assert all(each["purges"] == 1 for each in counts)


@pytest.mark.parametrize("bug", WOKEN_PLANTED)
def test_a_planted_bug_of_wakes_is_found(bug: str) -> None:
    with woken_planted(bug) as first:
        assert_found(bug, PLAYS.get(bug, simulate_woken), range(first, first + ENOUGH))
