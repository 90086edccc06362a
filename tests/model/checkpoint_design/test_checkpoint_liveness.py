"""The temporal invariants of the source design: what they need beside the fairness that its specification states.

`python -m tests.model --of "endless design"` prints the plays. docs/explain/checkpoints.md has the table.
"""

from __future__ import annotations

import re
from functools import cache
from random import Random
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
    Play,
    Watched,
    explore,
    verdicts,
)
from tests.model.checkpoint_design.world import CheckpointDesign, State
from tests.model.stored import GOLDEN, PROJECTIONS, StoredStates
from tests.paths import ROOT

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


def cases() -> list[object]:
    return [pytest.param(*case, marks=pytest.mark.long) if case[1] else case for case in HOLD_AS_STATED]


@pytest.mark.parametrize(("name", "level"), cases())
def test_what_holds_with_the_stated_fairness_and_that_all_holds_with_three_assumptions_more(name: str, level: int) -> None:
    report, graph, stored = explored(name, level)
    assert report.violation is None and report.states > 1_900
    assert level or stored == GOLDEN[f"endless design: {name}"]
    found = verdicts(PLAYS[name](level), graph, STATED)
    assert {each for each, trace in found.items() if trace is None} == HOLD_AS_STATED[name, level]
    assert not any(verdicts(PLAYS[name](level), graph, ALL).values())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_assumption_is_needed(mutant: Mutant) -> None:
    _, graph, _ = explored(mutant.play, 0)
    assert any(verdicts(PLAYS[mutant.play](0), graph, mutant.assumptions).values())


def test_a_leader_that_holds_the_lease_itself_may_wait_for_ever_as_stated() -> None:
    _, graph, _ = explored("endless design: two nodes", 0)
    trace = verdicts(PLAYS["endless design: two nodes"](0), graph, STATED)[STARTS]
    assert trace is not None and trace[: len(LEADER_WAITS_FOR_ITSELF)] == LEADER_WAITS_FOR_ITSELF


def test_the_page_shows_what_holds_as_stated() -> None:
    page = (ROOT / "docs" / "explain" / "checkpoints.md").read_text()
    broken = {each for name, level in HOLD_AS_STATED for each in {CAN, STARTS, FINISHES, WRITTEN, EACH} - HOLD_AS_STATED[name, level]}
    for invariant in (CAN, STARTS, FINISHES, WRITTEN, EACH):
        assert f"| {invariant} | {'no' if invariant in broken else 'yes'} |" in page


def plain(label: str) -> str:
    """Return a step's label without the number of its request."""
    return re.sub(r"request \d+", "a request", label).removesuffix(" early")


@pytest.mark.parametrize("play", [Play(2, 2, True, True), Play(3, 2, True, False), Play(3, 2, False, False)])
def test_a_log_without_its_beginning_leads_to_the_same_steps(play: Play) -> None:
    short, whole = EndlessDesign(play), CheckpointDesign(play.size, 40, symmetric=False)
    cuts = 0
    for seed in range(10):
        dice, watched, state = Random(seed), short.initial(), whole.initial()
        for _ in range(60):
            assert watched.state is not None
            cut = state.cluster.sent - watched.state.cluster.sent
            while state.cluster.timed_out < cut:
                # Nobody has a lease of these any more: their time-outs change nothing else.
                state = timed_out(whole, state)
            full = watched.state.cluster.sent == play.window
            steps = {plain(label): make for label, make in short.successors(watched) if "beyond" not in label}
            others = {plain(label): make for label, make in whole.successors(state)}
            failing = {each for each in others if each.endswith("fails")} - steps.keys()
            assert steps.keys() == {each for each in others if not (full and " sends " in each)} - failing
            useful = [each for each in steps if not each.endswith("fails") and "times out" not in each]
            chosen = dice.choice(sorted(useful if useful and dice.random() < 0.9 else steps))
            watched, state = steps[chosen](), others[chosen]()
        cuts += cut
    assert cuts > 10


def timed_out(design: CheckpointDesign, state: State) -> State:
    [make] = [make for label, make in design.successors(state) if "times out" in label]
    return make()
