"""Twenty days of replica groups in each style, and the bugs that days find."""

from __future__ import annotations

import pytest

from tests.proofs.facts import note
from tests.simulation.proving import assert_found

from .history import STYLES, simulate
from .planted import PLANTED, planted

PARTS = 4
DAYS = range(1000, 1020)
HUNTED = 12
"""Seeds in which a planted bug must be found."""


@pytest.mark.parametrize("style", STYLES)
def test_promises_are_kept_for_twenty_days(style: str) -> None:
    for seed in DAYS:
        report = simulate(seed, style, hours=24)
        assert report.violation is None, f"seed {seed} ({style}): {report.violation}"
    note(seeds=f"{DAYS.start} to {DAYS.stop - 1}", hours=24)


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    with planted(bug):
        assert_found(bug, lambda seed: simulate(seed, PLANTED[bug][0]), range(HUNTED))
