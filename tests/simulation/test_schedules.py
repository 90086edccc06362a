"""Histories with recurring schedules. `python -m tests.simulation --schedules --seeds N` plays more of them."""

from __future__ import annotations

import gc

from tests.simulation.world.schedules import simulate_schedules

CHUNK = 10


def play(first: int, style: str | None = None, count: int = CHUNK) -> None:
    broken = [report for seed in range(first, first + count) if (report := simulate_schedules(seed, style)).violation is not None]
    gc.collect()
    violations = [f"seed {report.seed}: {report.violation}" for report in broken]
    options = f"--seed {broken[0].seed}{f' --style {style}' if style else ''}" if broken else ""
    assert not broken, "\n".join([*violations, f"again: python -m tests.simulation --schedules {options} --verbose"])


def test_each_occurrence_comes_in_its_time_whatever_goes_wrong() -> None:
    play(0)


def test_without_faults_each_occurrence_comes_once() -> None:
    play(0, "none", count=3)


def test_same_seed_gives_the_same_history() -> None:
    first, second = simulate_schedules(7), simulate_schedules(7)
    assert first.trace.digest() == second.trace.digest() and first.counts == second.counts
