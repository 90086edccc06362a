"""Checkpoint turns, exhaustively: the production rules of the coordinator and of the node, under requests that take any time, lost answers,
crashes that leave checkpoints running, promotions, revocations, slow clocks and the coarse steps of the store's time.

`make model` explores larger plays. Every mutant must be caught, or the checker proves nothing.
"""

from __future__ import annotations

import pytest

from tests.model.checking.mutants import Mutant
from tests.model.proving import assert_caught
from tests.model.stored import assert_play_holds
from tests.model.turns.endless import PLAYS as ENDLESS
from tests.model.turns.endless import Endless, follow
from tests.model.turns.mutants import ENDLESS_MUTANTS, MUTANTS, hunt, hunt_endless
from tests.model.turns.plays import PLAYS
from tests.model.turns.world import World

STEPS = {
    "the full limit on a late fetch": 4,
    "no margin for the steps of Date": 13,
    "no room for a slow clock": 3,
    "a clock that stands still while its machine sleeps": 11,
    "the next grant right after a revoke": 6,
    "pre-emption of a holder that became primary": 5,
    "a turn freed by a new process of its holder": 5,
    "a turn freed by the report that it was handed out to": 6,
    "a turn handed out to a new process of its holder": 7,
    "too short, though it was handed out": 9,
    "a report of a former process taken for one of the new": 14,
    "an earlier turn's checkpoint ends this one": 5,
    "the turn's row written without its ETag": 10,
    "a turn freed with the forgotten claim": 4,
    "latest replaced by an older one": 10,
    "a lost turn published": 7,
    "the limit counted from the receipt": 13,
    "an answer to an older report acted upon": 12,
    "a turn begun twice": 12,
    "the role not looked at when the answer comes": 4,
}
BROKEN = {
    "the full limit on a late fetch": "are left of its time",
    "no room for a slow clock": "are left of its time",
    "the next grant right after a revoke": "may work on",
    "pre-emption of a holder that became primary": "may work on",
    "a turn freed by a new process of its holder": "may work on",
    "a turn freed by the report that it was handed out to": "may work on",
    "too short, though it was handed out": "may work on",
    "an earlier turn's checkpoint ends this one": "may work on",
    "a turn freed with the forgotten claim": "may work on",
    "latest replaced by an older one": "goes back",
    "a lost turn published": "a lost turn is published",
}
"""Mutants that break a rule of a row's change, by which traces of production are judged."""


@pytest.mark.parametrize("name", PLAYS)
def test_one_secondary_takes_at_a_time_and_latest_only_rises(name: str) -> None:
    assert_play_holds("turns", name, World(PLAYS[name](0)))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt(mutant)
    violation = assert_caught(report)
    assert BROKEN.get(mutant.name, "") in violation
    assert report.steps == STEPS[mutant.name], str(report)


@pytest.mark.parametrize("name", ENDLESS)
def test_a_turn_always_ends_and_every_healthy_secondary_gets_its_turn(name: str) -> None:
    assert_play_holds("endless turns", name, Endless(ENDLESS[name](0)), follow, more_states_than=500)


@pytest.mark.parametrize("mutant", ENDLESS_MUTANTS, ids=lambda mutant: mutant.name)
def test_waiting_for_ever_is_found(mutant: Mutant) -> None:
    report = hunt_endless(mutant)
    violation = assert_caught(report)
    assert violation.endswith("never, in a fair run")
