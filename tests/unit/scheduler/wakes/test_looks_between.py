"""The number of wakes that looks send: each one is billed for a second, and a message that is hidden counts for the scale controller."""

from __future__ import annotations

import pytest

from shared.scheduler.timings import DISPATCH_AHEAD, SEND_AHEAD
from shared.scheduler.wakes.rules import DISPATCHED_WITHIN, GAP, LOOK_EVERY, OWNER_STAYS, Plan, planned_wakes, wakes_for

NOW = 1_800_000_000_000


def _wakes(plan: Plan, messages: list[int]) -> list[int]:
    unsent = [each for each in messages if each > NOW + SEND_AHEAD]
    return [wake - NOW for wake in planned_wakes(plan, messages, unsent, NOW, GAP, alive=True, alone=False)]


def test_no_wake_is_added_for_the_dispatch_of_a_shard_whose_wakes_are_planned() -> None:
    # The shard at 140 s will be found by any of the wakes before it; the next of them comes after 38 s.
    plan = Plan(wakes=tuple(NOW + each for each in (38_000, 58_000, 78_000, 98_000, 120_000)))
    assert _wakes(plan, [NOW + 17_000, NOW + 140_000]) == []


@pytest.mark.parametrize("ahead", [DISPATCH_AHEAD + 1_000, DISPATCH_AHEAD + 60_000, DISPATCH_AHEAD + 120_000])
def test_a_look_comes_before_the_wakes_of_a_shard_are_to_be_planned(ahead: int) -> None:
    first = min(_wakes(Plan(), [NOW + ahead]))
    assert first < ahead - 120_000 < LOOK_EVERY


def test_a_shard_whose_message_is_not_sent_is_found_before_it_without_the_sweep() -> None:
    # The two wakes that are queued come after the shard's message: without a third nobody would send it.
    plan = Plan(woke=NOW, wakes=(NOW + 170_000, NOW + 190_000))
    assert min(_wakes(plan, [NOW + 160_000])) <= 150_000


@pytest.mark.parametrize("gap", [GAP, 60_000])
@pytest.mark.parametrize("ahead", [3_000, 27_000, 45_000, 90_000, 400_000])
def test_both_wakes_for_an_unsent_shard_find_it_in_time_however_long_instances_live(gap: int, ahead: int) -> None:
    wakes = wakes_for(NOW + ahead, NOW, gap, sent=False, warm=True)
    assert len(wakes) == 2
    assert all(NOW <= wake <= max(NOW, NOW + ahead - DISPATCHED_WITHIN) for wake in wakes)


def test_a_wake_that_fills_no_pause_comes_with_a_shards_message() -> None:
    messages = [NOW + 15_000 * number for number in range(1, 25)]
    assert set(_wakes(Plan(woke=NOW), messages)) <= {each - NOW for each in messages}


def test_a_pause_between_two_shards_that_no_wake_would_watch_is_filled() -> None:
    plan = Plan(woke=NOW, wakes=(NOW + 41_500, NOW + 83_000))
    assert _wakes(plan, [NOW + 10_000, NOW + 29_500, NOW + 51_000]) == [], "it is short enough"
    assert _wakes(plan._replace(wakes=(NOW + 45_500, NOW + 83_000)), [NOW + 10_000, NOW + 31_000, NOW + 51_000]) == [22_000]
    assert _wakes(plan._replace(wakes=(NOW + 10_000, NOW + 83_000)), [NOW + 31_000]) == [20_500], "a wake does not watch what follows it"


def test_a_wake_that_comes_while_an_owner_works_ends_no_pause() -> None:
    messages = [NOW + 10_000, NOW + 31_000]
    assert _wakes(Plan(woke=NOW, wakes=(NOW + 12_000, NOW + 83_000)), messages) == [22_000]
    assert _wakes(Plan(woke=NOW, wakes=(NOW + 12_000, NOW + 21_000, NOW + 83_000)), messages) == []
    owner_and_gap = NOW + 10_000 + OWNER_STAYS + GAP
    assert _wakes(Plan(woke=NOW, wakes=(NOW + 12_000, owner_and_gap, NOW + 83_000)), [messages[0], owner_and_gap + 15_000]) == []
