"""Histories with searchable labels. `python -m tests.simulation --labels --seeds N` plays more of them."""

from __future__ import annotations

import gc

from tests.simulation.world.labelled import simulate_labels

CHUNK = 8


def play(first: int, count: int = CHUNK) -> None:
    broken = [report for seed in range(first, first + count) if (report := simulate_labels(seed)).violation is not None]
    gc.collect()
    violations = [f"seed {report.seed}: {report.violation}" for report in broken]
    assert not broken, "\n".join([*violations, f"again: python -m tests.simulation --labels --seed {broken[0].seed} --verbose"])


def test_lists_by_label_show_every_event_once_whatever_goes_wrong() -> None:
    play(0)
