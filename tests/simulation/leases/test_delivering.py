"""Deliveries to the owners of partitions in histories in which everything goes wrong; and bugs that must be found there."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.model.checking.mutants import patched
from tests.simulation.leases.delivering import simulate_deliveries
from tests.simulation.leases.delivering_planted import PLANTED

QUICK = 100
LONG = 10_000


def run(first: int, end: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(first, end):
        report = simulate_deliveries(seed)
        assert report.violation is None, f"seed {seed}: {report.violation}\n" + "\n".join(report.world.texts()[-60:])
        counts.update(report.counts)
    return counts


def test_no_delivery_is_accepted_under_a_stale_epoch_and_none_is_lost() -> None:
    counts = run(0, QUICK)
    assert counts["resizes"] > QUICK
    assert counts["attempts: delivered"] > 5 * QUICK
    assert min(counts[name] for name in ("attempts: stale", "attempts: retry", "waits", "accepted again")) > 0


@pytest.mark.long
def test_no_delivery_is_lost_in_many_histories() -> None:
    run(QUICK, LONG)


@pytest.mark.parametrize("bug", list(PLANTED))
def test_a_planted_bug_is_found(bug: str) -> None:
    with patched(PLANTED[bug]()):
        assert any(simulate_deliveries(seed).violation is not None for seed in range(QUICK))
