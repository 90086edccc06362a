"""Many histories with searchable labels, and the bugs that they find."""

from __future__ import annotations

import pytest

from tests.simulation.labels_planted import LABELS_PLANTED, labels_planted
from tests.simulation.proving import assert_found, assert_kept
from tests.simulation.world.labelled import simulate_labels

CHUNK = 80
ENOUGH = 40
"""Seeds within which every planted bug must be found."""


@pytest.mark.parametrize("first", range(0, 400, CHUNK))
def test_lists_by_label_show_every_event_once_whatever_goes_wrong(first: int) -> None:
    assert_kept(simulate_labels, range(first, first + CHUNK), "python -m tests.simulation --labels")


@pytest.mark.parametrize("bug", LABELS_PLANTED)
def test_a_planted_bug_of_labels_is_found(bug: str) -> None:
    with labels_planted(bug) as first:
        assert_found(bug, simulate_labels, range(first, first + ENOUGH))
