"""The one back-off formula."""

from __future__ import annotations

from shared.core import backoff


def test_pauses_double_up_to_the_longest() -> None:
    assert [backoff.exponential(500, doublings, 3000) for doublings in range(5)] == [500, 1000, 2000, 3000, 3000]
    assert backoff.exponential(0.25, 3, 100.0) == 2.0
    assert backoff.unbounded(0.05, 3) == 0.05 * 8


def test_doublings_are_bounded() -> None:
    assert backoff.exponential(1.0, 10_000, 60.0) == 60.0
    assert backoff.exponential(1, 50, 10**30, 20) == 2**20
