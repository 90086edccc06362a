"""Thousands of histories in which the partition count changes while all else goes wrong, and the bugs that they find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shared.leases.node.notifications import ApplicationNotifier
from shared.leases.protocol import resizing
from tests.model.checking.mutants import Patch, patched
from tests.model.leases import resizing_mutants as mutants
from tests.simulation.leases.resizing import simulate_resizes
from tests.simulation.proving import assert_found, assert_kept

PARTS = 2
CHUNK = 500
ENOUGH = 100
"""Seeds within which every planted bug must be found."""


def goes_on_by_the_former_count() -> list[Patch]:
    """The server renumbers its partitions, and the application does not learn the new count."""
    plain = ApplicationNotifier.report_resize

    def report_resize(self: ApplicationNotifier, spread: Any) -> bool:
        return plain(self, self.spread or spread)

    return [(ApplicationNotifier, "report_resize", report_resize)]


def nobody_carries_it_on() -> list[Patch]:
    def sweep(key: str) -> Any:
        return None
        yield

    return [(resizing, "sweep", sweep)]


PLANTED: dict[str, Callable[[], list[Patch]]] = {
    "opened at once": mutants.open_at_once,
    "closed while it is owned": mutants.close_owned,
    "claimed by a server of the former generation": mutants.any_generation,
    "claimed while it is closed": mutants.claim_closed,
    "epochs that start over": mutants.epochs_start_over,
    "released as open": mutants.release_open,
    "goes on by the former count": goes_on_by_the_former_count,
    "nobody carries it on": nobody_carries_it_on,
}


@pytest.mark.parametrize("first", range(0, 4000, CHUNK))
def test_no_key_has_two_owners_and_all_are_served_again(first: int) -> None:
    counts = assert_kept(simulate_resizes, range(first, first + CHUNK), "simulate_resizes:")
    assert sum(each["resizes"] for each in counts) > CHUNK


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    with patched(PLANTED[bug]()):
        assert_found(bug, simulate_resizes, range(ENOUGH))
