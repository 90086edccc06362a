"""One play of approvals, explored in every run of the tests. `prove_approvals` proves all plays, and that every mutant is caught."""

from __future__ import annotations

from tests.model.approvals.plays import PLAYS
from tests.model.approvals.world import ApprovalWorld
from tests.model.checking.checker import explore


def test_no_fleet_approves_alone() -> None:
    report = explore(ApprovalWorld(PLAYS["lost"](0)))
    assert report.violation is None, str(report)
    assert report.states > 100
