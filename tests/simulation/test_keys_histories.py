"""Histories with ordering keys. `python -m tests.simulation --keys --seeds N` plays more of them."""

from __future__ import annotations

import gc

import pytest

from tests.simulation.world.keyed_histories import simulate_keys

CHUNK = 5


def play(first: int, count: int = CHUNK) -> None:
    broken = [report for seed in range(first, first + count) if (report := simulate_keys(seed)).violation is not None]
    gc.collect()
    violations = [f"seed {report.seed}: {report.violation}" for report in broken]
    assert not broken, "\n".join([*violations, f"again: python -m tests.simulation --keys --seed {broken[0].seed} --verbose"])


def test_keys_keep_their_order_whatever_goes_wrong() -> None:
    play(0)


@pytest.mark.parametrize("seed", [91, 94])
def test_what_histories_have_found(seed: int) -> None:
    """91: an event that became claimable while turns were asked for was claimed without one. 94: a ticket led to a place where a repeated
    request had not stored its event."""
    play(seed, 1)


@pytest.mark.long
@pytest.mark.parametrize("first", range(CHUNK, 200, CHUNK))
def test_keys_keep_their_order_in_many_more_histories(first: int) -> None:
    play(first)
