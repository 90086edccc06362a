"""Long work over a mirrored pair: receivers complete, fail and extend attempts while the accounts change sides."""

from __future__ import annotations

import gc

import pytest

from shared.scheduler.long_work import service
from tests.model.checking.mutants import patched
from tests.simulation.pair_planted import copied_later
from tests.simulation.world.working_pair import simulate_working_pair

CHUNK = 4
ENOUGH = 20
"""Seeds within which the planted bug must be found."""


def play(first: int, count: int = CHUNK) -> None:
    reports = [simulate_working_pair(seed) for seed in range(first, first + count)]
    gc.collect()
    assert [f"seed {report.seed}: {report.violation}" for report in reports if report.violation is not None] == []
    assert sum(report.counts["failovers"] for report in reports) and sum(report.counts["work: complete acknowledged"] for report in reports)


def test_completion_holds_whichever_side_serves() -> None:
    play(46)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 240, 20))
def test_completion_holds_in_many_more_histories(first: int) -> None:
    play(first, 20)


def test_completion_that_is_acknowledged_before_it_is_copied_is_found() -> None:
    with patched([(service, "mirror_event", copied_later)]):
        assert any(simulate_working_pair(seed, None, "loss").violation is not None for seed in range(5, 5 + ENOUGH))
