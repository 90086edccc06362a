"""One play of the source design without an end; the page's table; and that a log may be shown without its beginning.

`prove_liveness` proves all plays.
"""

from __future__ import annotations

import re
from random import Random

import pytest

from tests.model.checkpoint_design.endless import ALL, PLAYS, STATED, EndlessDesign, Play, verdicts
from tests.model.checkpoint_design.prove_liveness import CAN, EACH, FINISHES, HOLD_AS_STATED, STARTS, WRITTEN, explored
from tests.model.checkpoint_design.world import CheckpointDesign, State
from tests.paths import ROOT


def test_what_holds_with_the_stated_fairness_and_that_all_holds_with_three_assumptions_more() -> None:
    name = "endless design: two nodes"
    report, graph, _ = explored(name, 0)
    assert report.violation is None
    assert {each for each, trace in verdicts(PLAYS[name](0), graph, STATED).items() if trace is None} == HOLD_AS_STATED[name, 0]
    assert not any(verdicts(PLAYS[name](0), graph, ALL).values())


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
