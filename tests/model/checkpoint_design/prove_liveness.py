"""The temporal invariants of the source design: what they need beside the fairness that its specification states.

`python -m tests.model --of "endless design"` prints the plays. docs/explain/checkpoints.md has the table.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.model.checking.checker import Report
from tests.model.checking.fair import Graph
from tests.model.checkpoint_design.endless import (
    ALL,
    MUTANTS,
    PLAYS,
    STATED,
    EndlessDesign,
    Mutant,
    Watched,
    explore,
    verdicts,
)
from tests.model.proving import bounds
from tests.model.stored import PROJECTIONS, StoredStates, golden
from tests.proofs.facts import note

CAN, STARTS, FINISHES, WRITTEN, EACH = (
    "a node can take a checkpoint, again and again",
    "a node that can take a checkpoint starts it, fails or times out",
    "a checkpoint is finished, fails or times out",
    "a checkpoint is written, again and again",
    "each secondary finishes a checkpoint",
)
HOLD_AS_STATED = {
    ("endless design: two nodes", 0): {FINISHES},
    ("endless design: three nodes", 0): {STARTS, FINISHES},
    ("endless design: two nodes", 1): {FINISHES},
    ("endless design: three nodes", 1): {FINISHES},
}
"""By play and level: the invariants that hold under the specification's fairness alone."""
LEADER_WAITS_FOR_ITSELF = [
    "n2 is elected leader",
    "n2 sends request 1: the lease for n1",
    "n1 executes request 1",
    "n2 fails",
    "n2 recovers",
    "n1 is elected leader",
]
"""The leader waits for the time-out of its own lease, to which the specification's fairness owes nothing."""


@cache
def explored(name: str, level: int) -> tuple[Report, Graph[Watched], dict[str, Any]]:
    recorded: Any = StoredStates(EndlessDesign(PLAYS[name](level)), PROJECTIONS["endless design"])
    return *explore(recorded), recorded.result() if level == 0 else {}


@pytest.mark.parametrize(("name", "level"), HOLD_AS_STATED)
def test_what_holds_with_the_stated_fairness_and_that_all_holds_with_three_assumptions_more(name: str, level: int) -> None:
    report, graph, stored = explored(name, level)
    assert report.violation is None and report.states > 1_900
    assert level or stored == golden("endless design")[name]
    note(states=report.states, bounds=bounds(PLAYS[name](level)))
    found = verdicts(PLAYS[name](level), graph, STATED)
    assert {each for each, trace in found.items() if trace is None} == HOLD_AS_STATED[name, level]
    assert not any(verdicts(PLAYS[name](level), graph, ALL).values())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_assumption_is_needed(mutant: Mutant) -> None:
    _, graph, _ = explored(mutant.play, 0)
    broken = [each for each, trace in verdicts(PLAYS[mutant.play](0), graph, mutant.assumptions).items() if trace]
    assert broken
    note(verdict="caught", by=broken)


def test_a_leader_that_holds_the_lease_itself_may_wait_for_ever_as_stated() -> None:
    _, graph, _ = explored("endless design: two nodes", 0)
    trace = verdicts(PLAYS["endless design: two nodes"](0), graph, STATED)[STARTS]
    assert trace is not None and trace[: len(LEADER_WAITS_FOR_ITSELF)] == LEADER_WAITS_FOR_ITSELF
