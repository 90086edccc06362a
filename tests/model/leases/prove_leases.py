"""The lease protocol, exhaustively: production generators under requests that take any time, lost answers, crashes, and clocks that go on.

`make model` explores larger plays. Every mutant must be caught, or the checker proves nothing.
"""

from __future__ import annotations

import pytest

from tests.model.checking.mutants import Mutant
from tests.model.leases.mutants import MUTANTS, hunt
from tests.model.leases.plays import PLAYS
from tests.model.leases.rollback import PLAYS as ROLLBACKS
from tests.model.leases.rollback import RollbackWorld
from tests.model.leases.world import World
from tests.model.proving import assert_caught
from tests.model.stored import assert_play_holds

STEPS = {
    "claim without fencing first": 16,
    "validity from the answer instead of the send": 19,
    "age from the request instead of the receipt": 19,
    "ownership without incarnation": 28,
    "V above T": 16,
    "resume without proof": 10,
    "a beat without its ETag": 11,
    "a lost claim taken for granted": 4,
    "validity from the last send though an earlier write was stored": 26,
    "the owner's row read before the partition's": 27,
    "partitions kept before the server has stopped": 12,
    "an own row that went backwards is taken as it is": 18,
    "claims right after a rollback": 26,
    "the loss of a registration is not noticed": 26,
}
BROKEN = {
    "claim without fencing first": "which has not ended",
    "a beat without its ETag": "comes back to life",
    "the owner's row read before the partition's": "which has not ended",
}
"""Mutants that break a rule of a row's change, which traces of production are judged by, before two servers act."""


@pytest.mark.parametrize("name", PLAYS)
def test_at_most_one_server_acts_on_a_partition(name: str) -> None:
    assert_play_holds("lease", name, World(PLAYS[name](0)))


@pytest.mark.parametrize("name", ROLLBACKS)
def test_at_most_one_server_acts_once_a_rollback_of_storage_is_v_old(name: str) -> None:
    assert_play_holds("rollback", name, RollbackWorld(ROLLBACKS[name](0)))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt(mutant)
    violation = assert_caught(report)
    rule = BROKEN.get(mutant.name)
    assert rule in violation if rule is not None else violation.startswith(("two owners", "stale epoch"))
    assert report.steps == STEPS[mutant.name], str(report)
