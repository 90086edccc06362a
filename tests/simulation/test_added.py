"""Histories with a facet that the service does not have. `python -m tests.simulation --facet --seeds N` plays more of them."""

from __future__ import annotations

import gc

import pytest

from tests.simulation.world.added import simulate_added, simulate_killed

CHUNK = 12
STEPS = 15
"""A process is killed at one step of this many; `prove_added` has it killed at each."""
SEED = 33
"""The seed of a history that has moved, redriven and dead events."""


def test_an_added_facet_keeps_its_promises_whatever_goes_wrong() -> None:
    reports = [simulate_added(seed) for seed in range(CHUNK)]
    gc.collect()
    violations = [f"seed {report.seed}: {report.violation}" for report in reports if report.violation is not None]
    assert not violations, "\n".join([*violations, "again: python -m tests.simulation --facet --seed N --verbose"])
    assert sum(report.counts["notes"] for report in reports)


@pytest.mark.parametrize("kind", ["crash", "crash-applied"])
def test_an_added_facet_keeps_its_promises_when_a_process_is_killed(kind: str) -> None:
    step, there = 1, True
    while there:
        report, there = simulate_killed(SEED, step, kind)
        assert report.violation is None, f"{kind} at step {step}: {report.violation}"
        step += STEPS
    assert step > 10 * STEPS, "the history has steps"
