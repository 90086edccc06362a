"""Servers that speak HTTP, exhaustively: the app's production generators under requests that come late, twice and to two instances at once.

Every mutant must be caught, or the checker proves nothing.
"""

from __future__ import annotations

import pytest

from tests.model.checking.mutants import Mutant
from tests.model.leases.remote import PLAYS, RemoteWorld
from tests.model.leases.remote_mutants import MUTANTS, hunt
from tests.model.proving import assert_caught
from tests.model.stored import assert_play_holds

STEPS = {
    "a beat without its ETag": 18,
    "a fenced row renewed": 18,
    "validity from the last try": 17,
    "registration without silence": 11,
    "a release whatever the epoch": 12,
    "what is being released taken back": 13,
    "a claim without the partition's ETag": 9,
    "evicted and taken at once": 11,
    "kept before the server has stopped": 15,
    "kept by a former incarnation": 13,
    "a live row replaced like a kept one": 11,
}
BROKEN = {
    "a release whatever the epoch": "goes back",
    "a claim without the partition's ETag": "under epoch 1, which b had",
}
"""Mutants that break a rule of a row's change, which traces of production are judged by, before two servers act."""


@pytest.mark.parametrize("name", PLAYS)
def test_at_most_one_server_acts_on_a_partition_when_one_speaks_http(name: str) -> None:
    assert_play_holds("remote", name, RemoteWorld(PLAYS[name](0)))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt(mutant)
    violation = assert_caught(report)
    rule = BROKEN.get(mutant.name)
    assert rule in violation if rule is not None else violation.startswith(("two owners", "stale epoch"))
    assert report.steps == STEPS[mutant.name], str(report)
