"""Histories with fan-outs. `python -m tests.simulation --fanouts --seeds N` plays more of them."""

from __future__ import annotations

import gc
from collections import Counter

from tests.simulation.history import Report
from tests.simulation.world.fanned import simulate_fanouts

CHUNK = 4


def play(first: int, count: int = CHUNK) -> Counter[str]:
    reports: list[Report] = [simulate_fanouts(seed) for seed in range(first, first + count)]
    gc.collect()
    violations = [f"seed {report.seed}: {report.violation}" for report in reports if report.violation is not None]
    assert not violations, "\n".join([*violations, "again: python -m tests.simulation --fanouts --seed N --verbose"])
    return sum((report.counts for report in reports), Counter[str]())


def test_fan_outs_are_whole_or_not_acknowledged_whatever_goes_wrong() -> None:
    counts = play(0)
    assert counts["fan-outs"] and counts["fan-outs cancelled"]
