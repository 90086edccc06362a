"""Thousands of histories of deliveries to the owners of partitions, and the bugs that they find."""

from __future__ import annotations

import pytest

from tests.model.checking.mutants import patched
from tests.simulation.leases.delivering import simulate_deliveries
from tests.simulation.leases.delivering_planted import PLANTED
from tests.simulation.proving import assert_found, assert_kept

PARTS = 2
CHUNK = 500
ENOUGH = 100
"""Seeds within which every planted bug must be found."""


@pytest.mark.parametrize("first", range(0, 4000, CHUNK))
def test_no_delivery_is_accepted_under_a_stale_epoch_and_none_is_lost(first: int) -> None:
    assert_kept(simulate_deliveries, range(first, first + CHUNK), "python -m tests.simulation.leases --deliveries")


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    with patched(PLANTED[bug]()):
        assert_found(bug, simulate_deliveries, range(ENOUGH))
