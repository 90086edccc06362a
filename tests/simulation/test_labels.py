"""Histories with searchable labels. `python -m tests.simulation --labels --seeds N` plays more of them."""

from __future__ import annotations

import gc

import pytest

from tests.simulation.labels_planted import LABELS_PLANTED, labels_planted
from tests.simulation.world.labelled import simulate_labels

CHUNK = 8
ENOUGH = 40
"""Seeds within which every planted bug must be found."""


def play(first: int, count: int = CHUNK) -> None:
    broken = [report for seed in range(first, first + count) if (report := simulate_labels(seed)).violation is not None]
    gc.collect()
    violations = [f"seed {report.seed}: {report.violation}" for report in broken]
    assert not broken, "\n".join([*violations, f"again: python -m tests.simulation --labels --seed {broken[0].seed} --verbose"])


def test_lists_by_label_show_every_event_once_whatever_goes_wrong() -> None:
    play(0)


@pytest.mark.long
@pytest.mark.parametrize("first", range(CHUNK, 400, CHUNK))
def test_lists_by_label_show_every_event_once_in_many_more_histories(first: int) -> None:
    play(first)


@pytest.mark.parametrize("bug", LABELS_PLANTED)
def test_a_planted_bug_of_labels_is_found(bug: str) -> None:
    with labels_planted(bug) as first:
        assert any(simulate_labels(seed).violation is not None for seed in range(first, first + ENOUGH)), (
            f"{ENOUGH} histories do not notice: {bug}"
        )
