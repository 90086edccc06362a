"""Deliveries to the owners of partitions in histories in which everything goes wrong. `prove_delivering` plays thousands."""

from __future__ import annotations

from collections import Counter

from tests.simulation.leases.delivering import simulate_deliveries
from tests.simulation.proving import assert_kept

QUICK = 100


def test_no_delivery_is_accepted_under_a_stale_epoch_and_none_is_lost() -> None:
    counts = sum(assert_kept(simulate_deliveries, range(QUICK), "python -m tests.simulation.leases --deliveries"), Counter[str]())
    assert counts["resizes"] > QUICK
    assert counts["attempts: delivered"] > 5 * QUICK
    assert min(counts[name] for name in ("attempts: stale", "attempts: retry", "waits", "accepted again")) > 0
