"""Turns of ordering keys, exhaustively. Every mutant must be caught, or the checker proves nothing."""

from __future__ import annotations

import pytest

from tests.model.keys.mutants import MUTANTS, Mutant, hunt
from tests.model.keys.plays import PLAYS, KeyWorld
from tests.model.proving import assert_caught
from tests.model.stored import assert_play_holds

EXPECTED = {
    "a turn ended before its outcome is stored": "K2",
    "turns written without ETag": "K2",
    "a ticket after its event": "K1",
    "a turn of a claimed event taken away": "K1",
    "turns of ended events left to their owners": "P1",
    "a claimed event that lets another one pass": "K2",
    "a failed event that leaves its blocked line": "K1",
}


@pytest.mark.parametrize("name", PLAYS)
def test_order_and_concurrency_hold_and_every_event_ends(name: str) -> None:
    assert_play_holds("key", name, KeyWorld(PLAYS[name](0)))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt(mutant)
    violation = assert_caught(report)
    assert violation.partition(":")[0] == EXPECTED[mutant.name], str(report)
