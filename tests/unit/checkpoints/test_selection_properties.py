"""Properties of the choice of the next holder and of the time-outs, whatever the health_weight of the replicas and whatever chance says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Set

from hypothesis import given
from hypothesis import strategies as st

from shared.checkpoints.selection import MIN_WEIGHT, Candidate, Share, choose, health_weight, overdue
from shared.checkpoints.timeouts import adjust, lengthen, percentile, turn_limit

CHANCE = st.floats(0, 1, exclude_max=True)
WEIGHT = st.floats(MIN_WEIGHT, 1)


class Turns:
    """Grants one after the other, as the coordinator makes them."""

    def __init__(self) -> None:
        self.shares: tuple[Share, ...] = ()
        self.taken: Counter[str] = Counter()

    def grant(self, weights: dict[str, float], draw: float, resting: Set[str] = frozenset()) -> str:
        known = [Candidate(node, weight) for node, weight in weights.items()]
        free, rest = [each for each in known if each.node not in resting], [each for each in known if each.node in resting]
        chosen, shares = choose(free, self.shares, draw, rest)
        # As they are stored.
        self.shares = tuple(share._replace(debt=round(share.debt, 6)) for share in shares)
        self.taken[chosen] += 1
        return chosen


def gaps(order: list[str], node: str) -> int:
    """The longest run of turns that all went to others."""
    longest = waited = 0
    for chosen in order:
        waited = 0 if chosen == node else waited + 1
        longest = max(longest, waited)
    return longest


@given(st.integers(1, 9), st.lists(CHANCE, max_size=120))
def test_of_candidates_alike_in_health_none_is_three_turns_ahead(count: int, draws: list[float]) -> None:
    turns, weights = Turns(), {f"n{number}": 1.0 for number in range(count)}
    for draw in draws:
        turns.grant(weights, draw)
        taken = [turns.taken[node] for node in weights]
        assert max(taken) - min(taken) <= 2


@given(st.integers(2, 7), st.lists(st.tuples(CHANCE, st.booleans()), max_size=120))
def test_a_replica_passed_over_briefly_after_its_turn_is_not_behind_in_the_end(count: int, steps: list[tuple[float, bool]]) -> None:
    turns, weights, order = Turns(), {f"n{number}": 1.0 for number in range(count)}, list[str]()
    for draw, passed in steps:
        order.append(turns.grant(weights, draw, {order[-1]} if order and passed else set()))
        taken = [turns.taken[node] for node in weights]
        assert max(taken) - min(taken) <= 2
    for node in weights:
        assert gaps(order, node) < 2 * count


@given(st.integers(1, 7), st.data())
def test_everyone_has_a_turn_within_2n_whatever_health_and_chance_say(count: int, data: st.DataObject) -> None:
    nodes, turns = [f"n{number}" for number in range(count)], Turns()
    steps = data.draw(st.lists(st.tuples(st.lists(WEIGHT, min_size=count, max_size=count), CHANCE), max_size=60))
    order = [turns.grant(dict(zip(nodes, weights, strict=True)), draw) for weights, draw in steps]
    for node in nodes:
        assert gaps(order, node) < 2 * count


@given(st.integers(2, 7), st.integers(0, 2**32), st.sampled_from([0.0, 0.999_999]) | st.none())
def test_a_candidate_in_the_worst_health_is_served_within_2n_and_less_often(count: int, seed: int, stuck: float | None) -> None:
    chance, turns = random.Random(seed), Turns()
    weights = {f"n{number}": MIN_WEIGHT if number == 0 else 1.0 for number in range(count)}
    order = [turns.grant(weights, chance.random() if stuck is None else stuck) for _ in range(40 * count)]
    assert gaps(order, "n0") < 2 * count
    assert turns.taken["n0"] < min(turns.taken[node] for node in weights if node != "n0")


@given(st.integers(2, 6), st.data())
def test_one_that_stays_is_served_within_2n_while_others_come_and_go(count: int, data: st.DataObject) -> None:
    nodes, turns = [f"n{number}" for number in range(count)], Turns()
    order = []
    for present, draw in data.draw(st.lists(st.tuples(st.sets(st.sampled_from(nodes[1:])), CHANCE), max_size=80)):
        order.append(turns.grant({node: 1.0 for node in nodes if node == nodes[0] or node in present}, draw))
    assert gaps(order, nodes[0]) < 2 * count


@given(st.integers(2, 6), st.data())
def test_debts_stay_small_and_add_up_to_nothing(count: int, data: st.DataObject) -> None:
    nodes, turns = [f"n{number}" for number in range(count)], Turns()
    for present, draw in data.draw(st.lists(st.tuples(st.sets(st.sampled_from(nodes), min_size=1), CHANCE), max_size=80)):
        turns.grant(dict.fromkeys(present, 1.0), draw)
        debts = [share.debt for share in turns.shares]
        assert abs(sum(debts)) < 1e-4
        assert all(abs(debt) <= count + 1 for debt in debts)


@given(st.dictionaries(st.text("abc", min_size=1), WEIGHT, min_size=1, max_size=6), CHANCE)
def test_the_chosen_is_a_candidate_and_the_same_for_the_same_chance(weights: dict[str, float], draw: float) -> None:
    first, again = Turns(), Turns()
    assert first.grant(weights, draw) == again.grant(dict(reversed(weights.items())), draw) in weights


def test_chance_decides_while_there_is_time() -> None:
    found = {Turns().grant({"a": 1.0, "b": 1.0, "c": 1.0}, draw) for draw in (0.1, 0.5, 0.9)}
    assert found == {"a", "b", "c"}


def test_the_longest_waiting_replica_is_forced_when_other_deadlines_need_the_turns_before_it() -> None:
    # Three candidates: a's last turn within 2N would be the next but one; b's too: a must go now.
    assert overdue({"a": 4, "b": 4, "c": 0}) == "a"
    assert overdue({"a": 4, "b": 3, "c": 0}) is None


@given(st.integers(0, 10**15), st.integers(0, 10**6), st.floats(0, 1e9), st.none() | st.integers(1, 10**9))
def test_health_is_a_weight(lag: int, failures: int, load: float, most: int | None) -> None:
    assert MIN_WEIGHT <= health_weight(lag, failures, load, most) <= 1
    assert health_weight(lag + 1000, failures + 1, load + 1, most) <= health_weight(lag, failures, load, most)


BOUNDS = st.tuples(st.integers(60_000, 10**7), st.integers(0, 10**8)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(BOUNDS, st.lists(st.none() | st.integers(0, 10**9), max_size=60), st.floats(0, 0.9))
def test_time_outs_stay_within_their_bounds(bounds: tuple[int, int], turns: list[int | None], drift: float) -> None:
    least, most = bounds
    timeout, durations = least, list[int]()
    for duration in turns:
        if duration is None:
            longer = lengthen(timeout, least, most)
            assert timeout <= longer
            timeout = longer
        else:
            durations = [*durations, duration][-32:]
            timeout = adjust(timeout, durations, drift, least, most)
        assert least <= timeout <= most


@given(st.integers(5_000, 10**7), st.floats(0, 0.5))
def test_a_time_out_settles_where_the_checkpoint_fits_in(duration: int, drift: float) -> None:
    timeout = 10**9
    for _ in range(200):
        timeout = adjust(timeout, [duration] * 32, drift, 60_000, 10**9)
    assert turn_limit(timeout, 0, drift) >= duration
    assert timeout <= max(60_000, 1.2 * duration / (1 - drift) + 2_010)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=32), st.floats(0.01, 1))
def test_a_percentile_is_not_below_its_part_of_the_values(values: list[int], part: float) -> None:
    found = percentile(values, part)
    assert found in values
    assert sum(value <= found for value in values) >= part * len(values) - 1e-9


@given(st.integers(0, 10**8), st.integers(0, 10**8), st.floats(0, 0.9))
def test_a_limit_ends_on_the_slowest_clock_before_the_turn_does(timeout: int, age: int, drift: float) -> None:
    found = turn_limit(timeout, age, drift)
    assert found >= 0
    # The request was sent before the age was read, which may be a second too low at either end.
    assert found == 0 or found / (1 - drift) + age + 1000 < timeout
