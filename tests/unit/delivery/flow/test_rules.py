"""The capacity of a channel, and the division of shared concurrency."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.delivery.flow import rules
from shared.delivery.flow.rules import AHEAD, LEASE, PATIENCE, LaneLoad, SlotShare

NOW = 1_800_000_000_000


def test_channel_that_nothing_is_known_of_or_that_is_prompt_may_claim_at_will() -> None:
    assert rules.room(LaneLoad(4, 0, 0, 0.0)) >= 100_000
    assert rules.room(LaneLoad(64, 64, 900, 0.005)) >= 30_000


def test_slow_channel_claims_what_it_can_start_soon() -> None:
    assert rules.room(LaneLoad(64, 10, 0, 15.0)) == 54 + 12, "54 free, and 12 of 64 will be within three seconds"
    assert rules.room(LaneLoad(1, 1, 0, 15.0)) == 0
    assert rules.room(LaneLoad(1, 1, 40, 15.0)) == -40


def test_idle_channel_may_always_claim_one() -> None:
    assert rules.room(LaneLoad(1, 0, 0, 1e9, 0.001)) == 1


def test_rate_bounds_what_is_claimed_to_the_next_seconds() -> None:
    assert rules.room(LaneLoad(64, 0, 0, 0.0, 10.0)) == 30
    assert rules.room(LaneLoad(64, 0, 25, 0.0, 10.0)) == 5
    assert rules.room(LaneLoad(64, 0, 25, 0.0, 10.0, shut=AHEAD + 0.1)) == -25, "the next is too far away"


def test_patience_gives_back_less_than_is_refused() -> None:
    load = LaneLoad(4, 4, 8, 2.0)
    assert rules.room(load) == -2 and rules.room(load, PATIENCE) == 12


def test_turn_is_waited_for_as_long_as_those_before_take() -> None:
    assert rules.turn(LaneLoad(4, 4, 8, 2.0), 8) == 4.0
    assert rules.turn(LaneLoad(64, 0, 0, 0.0, 10.0), 50) == 5.0
    assert rules.turn(LaneLoad(64, 0, 0, 0.0, 10.0, shut=9.0), 0) == 9.0


def test_window_doubles_with_each_round_and_halves_without_answers() -> None:
    window = rules.FIRST_WINDOW
    for _ in range(window):
        window = rules.widened(window, 64)
    assert window == 2 * rules.FIRST_WINDOW
    assert rules.widened(64, 64) == 64 and rules.narrowed(64) == 32 and rules.narrowed(1) == 1


def test_a_window_that_grows_takes_more_than_it_does_now() -> None:
    assert rules.drained(LaneLoad(64, 64, 0, 0.32), 1_000) == 5.0
    assert rules.drained(LaneLoad(4, 4, 0, 0.32), 1_000) == 80.0, "it does not grow"
    assert rules.drained(LaneLoad(4, 4, 0, 0.32, widest=64), 60) == pytest.approx(4 * 0.32), "four rounds from 4 to 64"
    assert rules.drained(LaneLoad(4, 4, 0, 0.32, widest=64), 1_060) == pytest.approx(4 * 0.32 + 5.0)
    assert rules.drained(LaneLoad(4, 4, 0, 0.32, 10.0, widest=64), 1_000) == 100.0, "its rate is the limit"


@given(
    window=st.integers(1, 64),
    widest=st.integers(1, 64),
    mean=st.floats(0.001, 100),
    rate=st.none() | st.floats(0.01, 1_000),
    more=st.integers(0, 10_000),
)
def test_far_is_a_wait_of_at_least_twice_the_latest(window: int, widest: int, mean: float, rate: float | None, more: int) -> None:
    load = LaneLoad(window, 0, 0, mean, rate, widest=max(window, widest))
    assert rules.drained(load, rules.far(load) + more) >= 2 * rules.LATEST - 1e-6


def test_paused_channel_is_looked_at_the_less_the_longer_it_is_paused() -> None:
    waits = [rules.look_again(NOW - paused, NOW) - NOW for paused in (0, 60_000, 400_000, 86_400_000)]
    assert waits == [30_000, 30_000, 100_000, 300_000]


# -- parts of a shared concurrency


def test_alone_it_gets_all_it_wants_and_gives_back_what_it_does_not_need() -> None:
    parts = rules.share({}, "a", 10, 0, 7, NOW)
    assert parts == {"a": SlotShare(7, 7, NOW + LEASE)}
    assert rules.share(parts, "a", 10, 2, 2, NOW)["a"].held == 2
    assert rules.share(parts, "a", 10, 0, 0, NOW) == {}


def test_part_of_a_dead_instance_comes_back_when_its_lease_ends() -> None:
    parts = rules.share({}, "a", 10, 0, 10, NOW)
    assert rules.share(parts, "b", 10, 0, 4, NOW + LEASE - 1)["b"].held == 0
    assert rules.share(parts, "b", 10, 0, 4, NOW + LEASE)["b"].held == 4


def test_a_repeated_request_gets_an_even_part_while_others_wait() -> None:
    parts = rules.share({}, "a", 10, 0, 10, NOW)
    parts = rules.share(parts, "b", 10, 0, 10, NOW)
    assert (parts["a"].held, parts["b"].held) == (10, 0)
    parts = rules.share(parts, "a", 10, 8, 10, NOW)
    assert parts["a"].held == 8, "not below what it uses"
    parts = rules.share(parts, "a", 10, 3, 10, NOW)
    parts = rules.share(parts, "b", 10, 0, 10, NOW)
    assert (parts["a"].held, parts["b"].held) == (5, 5)


_ASKS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 30), st.integers(0, 20_000)), max_size=60)


@given(st.integers(1, 20), _ASKS)
def test_no_more_is_held_than_there_is_for_any_callers(limit: int, asks: list[tuple[str, int, int]]) -> None:
    parts: dict[str, SlotShare] = {}
    now = NOW
    for who, wanted, later in asks:
        now += later
        held = parts[who].held if who in parts and parts[who].until > now else 0
        busy = min(held, wanted)
        parts = rules.share(parts, who, limit, busy, wanted, now)
        assert sum(part.held for part in parts.values() if part.until > now) <= limit
        assert (parts[who].held if who in parts else 0) <= max(wanted, busy)


@given(st.integers(1, 20), st.integers(1, 6))
def test_after_two_rounds_all_that_want_everything_have_even_parts(limit: int, instances: int) -> None:
    names = [f"i{number}" for number in range(instances)]
    parts: dict[str, SlotShare] = {}
    for _ in range(3):
        for name in names:
            parts = rules.share(parts, name, limit, 0, limit, NOW)
    held = [parts[name].held for name in names]
    assert sum(held) == limit if limit >= instances else sum(held) <= limit
    assert max(held) - min(held) <= 1
