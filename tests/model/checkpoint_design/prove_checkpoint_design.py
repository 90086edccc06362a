"""The seed's own model has exactly the states of its specification, is safe, and breaks as the seed tells where a rule is switched.

The numbers are golden: a rule that is stated differently, however harmless it looks, leads to other states.
"""

from __future__ import annotations

import pytest

from tests.model.checking.checker import Report, explore
from tests.model.checkpoint_design.mutants import MUTANTS, PREEMPTION, Mutant, hunt
from tests.model.checkpoint_design.plays import PLAYS, Play
from tests.model.checkpoint_design.story import rows
from tests.model.checkpoint_design.world import CheckpointDesign, State
from tests.model.proving import assert_caught, bounds
from tests.proofs.facts import note

GOLDEN = {
    Play(2, 2, symmetric=False): (968, 968),
    Play(2, 2): (486, 968),
    Play(2, 3, symmetric=False): (6_960, 6_960),
    Play(2, 3): (3_482, 6_960),
    Play(3, 1, symmetric=False): (1_280, 1_280),
    Play(3, 1): (240, 1_280),
    Play(3, 2): (34_380, 204_224),
}
"""The counts of states without and with distinguished nodes."""
LARGE = {
    Play(3, 2, symmetric=False): (204_224, 204_224),
    Play(3, 3): (901_692, 5_402_432),
}
STEPS = {
    "pre-emption": 11,
    "the leader may lag": 5,
    "elect while taking": 6,
    "no timeout test": 4,
    "a new leader keeps its permission": 5,
}
"""To the violation; the trace has one state more."""


class Weighed(CheckpointDesign):
    """Counts for each state that is explored how many there are like it."""

    weight = 0

    def check(self, state: State) -> None:
        self.weight += len({*self.images(state)})
        super().check(state)


def title(play: Play) -> str:
    return f"{play.size} nodes, bound {play.bound}{'' if play.symmetric else ', told apart'}"


def count(play: Play) -> tuple[int, int]:
    """The counts of the explored states and of those that they represent."""
    model = Weighed(play.size, play.bound, symmetric=play.symmetric)
    report = explore(model)
    note(states=report.states, bounds=bounds(play))
    assert report.violation is None, str(report)
    return report.states, model.weight


@pytest.mark.parametrize("play", GOLDEN | LARGE, ids=title)
def test_the_states_are_those_of_the_specification_and_all_are_safe(play: Play) -> None:
    assert count(play) == (GOLDEN | LARGE)[play]


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("name", PLAYS)
def test_the_plays_of_the_command_have_golden_numbers(name: str, level: int) -> None:
    assert PLAYS[name](level) in GOLDEN | LARGE


@pytest.fixture(scope="module")
def preempted() -> Report:
    return hunt(PREEMPTION)


@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each is not PREEMPTION], ids=lambda mutant: mutant.name)
def test_a_switched_rule_breaks_it_after_as_many_steps_as_in_the_specification(mutant: Mutant) -> None:
    report = hunt(mutant)
    assert_caught(report)
    assert report.steps == STEPS[mutant.name], str(report)


def test_pre_emption_looks_harmless_with_one_request() -> None:
    report = hunt(PREEMPTION._replace(bound=2))
    note(states=report.states)
    assert report.violation is None
    assert report.states == 34_380


def test_pre_emption_breaks_it_in_the_twelve_steps_of_the_seed(preempted: Report) -> None:
    assert assert_caught(preempted) == "two can take a checkpoint"
    assert preempted.steps == STEPS[PREEMPTION.name]
    assert [row[:2] for row in rows(PREEMPTION, preempted.trace)] == [
        ("1", "initial state"),
        ("2", "n1 is elected leader"),
        ("3", "n1 sends request 1: the lease for n2"),
        ("4", "n1 fails"),
        ("5", "n2 executes request 1"),
        ("6", "n2 is elected leader"),
        ("7", "n2 sends request 2: the lease for n3"),
        ("8", "n2 fails"),
        ("9", "n2 recovers"),
        ("10", "n2 executes request 1"),
        ("11", "n3 executes request 1"),
        ("12", "n3 executes request 2"),
    ]


def test_the_story_shows_what_each_node_knows_after_each_step(preempted: Report) -> None:
    first, second, third, *_, before, last = rows(PREEMPTION, preempted.trace)
    assert first[2:] == ("up", "up", "up")
    assert second[2:] == ("leads", "up", "up")
    assert third[2:] == ("leads, log n2, lease 1 n2", "log n2", "log n2")
    assert before[2:] == ("down", "log n2 n3, at 1, lease 1, can", "log n2 n3, at 1, lease 1 n2")
    assert last[2:] == ("down", "log n2 n3, at 1, lease 1, can", "log n2 n3, at 2, lease 2, can")
