"""Many histories with a facet that the service does not have, a kill at each step of one, and the bugs that they find."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from shared.scheduler.facets import FACETS
from shared.scheduler.points import Facets
from shared.scheduler.properties.receipts import with_receipts
from shared.scheduler.protocol import changing, owning
from tests.added_facet import Journal
from tests.model.checking.mutants import Patch, patched
from tests.proofs.facts import note
from tests.simulation.proving import assert_found, assert_kept
from tests.simulation.world.added import simulate_added, simulate_killed

PARTS = 2
CHUNK = 100
ENOUGH = 60
"""Seeds within which every planted bug must be found."""
SEEDS = (1, 33)
"""The seeds of two histories, which have moved, redriven, cancelled and dead events."""


@pytest.mark.parametrize("first", range(0, 400, CHUNK))
def test_an_added_facet_keeps_its_promises_whatever_goes_wrong(first: int) -> None:
    assert_kept(simulate_added, range(first, first + CHUNK), "python -m tests.simulation --facet")


@pytest.mark.parametrize("kind", ["crash", "crash-applied"])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_added_facet_keeps_its_promises_when_a_process_is_killed_at_any_step(seed: int, kind: str) -> None:
    for step in count(1):
        report, there = simulate_killed(seed, step, kind)
        assert report.violation is None, f"seed {seed}, {kind} at step {step}: {report.violation}"
        if not there:
            break
    note(seed=seed, steps=step)


def nothing(*_: Any) -> Any:
    """A point that stores nothing."""
    return
    yield


BUGS: dict[str, list[Patch]] = {
    "shards are not filed": [(Journal, "before_store", nothing)],
    "shards of moved events are not filed": [(Journal, "on_move", nothing)],
    "copies keep what belongs to the place": [(Journal, "own", property(lambda self: frozenset()))],
    "owners settle without the rows beside": [(owning, "ops_beside", lambda *_: [])],
    "cancels are not shown to facets": [(changing, "as_written", with_receipts)],
    "redriven events are stored without their facets": [(changing, "FACETS", Facets(FACETS.each))],
    "ends of shards are not noted": [(Journal, "at_end", nothing)],
    "notes are not removed": [(Journal, "before_removal", nothing)],
    "the journal's rows are not removed": [(Journal, "at_removal", nothing)],
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_point_that_is_left_out_is_found(bug: str) -> None:
    with patched(BUGS[bug]):
        assert_found(bug, simulate_added, range(ENOUGH))
