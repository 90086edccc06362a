"""Tens of thousands of histories of fleets, and the bugs that they find. `python -m tests.simulation.leases` plays more."""

from __future__ import annotations

import pytest

from tests.simulation.proving import assert_found, assert_kept

from .history import ROLLBACK, Report, simulate
from .planted import PLANTED, ROLLBACK_PLANTED, planted

PARTS = 6
CHUNK = 1000
COMMAND = "python -m tests.simulation.leases"
HUNTED = 3000
"""Seeds in which a planted bug must be found; nearly all are within 200."""


def rolled_back(seed: int) -> Report:
    return simulate(seed, ROLLBACK)


@pytest.mark.parametrize("first", [*range(0, 1000, CHUNK), *range(1_000_000, 1_020_000, CHUNK)])
def test_promises_are_kept_whatever_goes_wrong(first: int) -> None:
    assert_kept(simulate, range(first, first + CHUNK), COMMAND)


@pytest.mark.parametrize("first", [*range(0, 1000, CHUNK), *range(1_000_000, 1_010_000, CHUNK)])
def test_servers_notice_that_storage_has_lost_writes(first: int) -> None:
    counts = assert_kept(rolled_back, range(first, first + CHUNK), f"{COMMAND} --style {ROLLBACK}")
    assert sum(each["rollbacks"] for each in counts) > CHUNK


@pytest.mark.parametrize("bug", ROLLBACK_PLANTED)
def test_a_planted_bug_is_found_when_storage_loses_writes(bug: str) -> None:
    with planted(bug):
        assert_found(bug, rolled_back, range(HUNTED))


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    with planted(bug):
        assert_found(bug, simulate, range(HUNTED))
