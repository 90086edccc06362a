"""Histograms of callers' latency: percentiles are hardly too high, a bound is judged exactly, and parts add up to the whole."""

from __future__ import annotations

import math
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.maintenance.latency import (
    BUCKETS,
    Latencies,
    LatencyBound,
    bucket_of,
    merged,
    p99_of,
    passed_bounds,
    percentile,
    upper_end,
    with_answer,
    with_failure,
)
from tests.texts import assert_text

TIMES = st.lists(st.floats(0.1, 50_000), min_size=1, max_size=400)


def of(times: list[float], slow_after: int | None = None) -> Latencies:
    return reduce(lambda found, time: with_answer(found, time, slow_after), times, Latencies())


def nearest_rank(times: list[float], share: float) -> float:
    return sorted(times)[math.ceil(share * len(times)) - 1]


@given(TIMES, st.sampled_from([0.5, 0.99]))
def test_a_percentile_is_never_too_low_and_at_most_a_fifth_too_high(times: list[float], share: float) -> None:
    shown, exact = percentile(of(times), share), nearest_rank(times, share)
    assert shown is not None and exact * (1 - 1e-9) <= shown <= exact * 1.2


@given(TIMES, st.integers(1, 60_000))
def test_the_bound_on_p99_is_judged_exactly_and_shown_as_it_is_judged(times: list[float], bound: int) -> None:
    found, limit = of(times, bound), LatencyBound(bound)
    passed = nearest_rank(times, 0.99) > bound
    assert bool(passed_bounds({"out": found}, limit)) is passed
    shown = p99_of(found, limit)
    assert shown is not None and (shown > bound) is passed


@given(st.lists(TIMES, max_size=5), st.integers(1, 60_000), st.randoms())
def test_parts_add_up_to_the_whole_in_any_order(parts: list[list[float]], slow: int, random: object) -> None:
    shuffled = [of(part, slow) for part in parts]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert merged(shuffled) == of([time for part in parts for time in part], slow)


@given(st.integers(0, 300), st.integers(0, 300), st.floats(0, 1))
def test_failures_count_as_a_share_of_all_probes(good: int, failed: int, bound: float) -> None:
    found = reduce(lambda before, _: with_failure(before), range(failed), of([1.0] * good))
    assert (found.probes, found.answered) == (good + failed, good)
    assert bool(passed_bounds({"domain": found}, LatencyBound(None, bound))) is (failed > bound * (good + failed))


@pytest.mark.parametrize("bucket", range(BUCKETS))
def test_the_upper_end_of_a_bucket_belongs_to_it(bucket: int) -> None:
    assert bucket_of(upper_end(bucket)) == bucket


def test_extremes_have_a_bucket_and_no_answers_have_no_percentile() -> None:
    assert (bucket_of(0), bucket_of(1e9)) == (0, BUCKETS - 1)
    assert percentile(Latencies(), 0.99) is None and p99_of(Latencies(failures=3), LatencyBound(5)) is None


def test_a_passed_bound_is_a_sentence_with_phase_figure_and_bound() -> None:
    phases = {"before": of([2.0] * 100, 250), "one_node": of([2.0] * 97 + [300.0] * 3, 250), "domain": with_failure(of([2.0], 250))}
    passed = passed_bounds(phases, LatencyBound(250, 0.01))  # type: ignore[arg-type]
    assert_text("latency.passed-bounds", passed, p99=344, most=250, failed=1, probes=2, share="50.0%", bound="1.0%")
    assert passed_bounds(phases, None) == passed_bounds(phases, LatencyBound()) == []  # type: ignore[arg-type]
