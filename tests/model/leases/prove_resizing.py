"""The partition count changes under servers: exhaustively, with lost answers, slow servers, and several who carry it on at once.

`make model` explores larger plays. Every mutant must be caught, or the checker proves nothing.
"""

from __future__ import annotations

import pytest

from tests.model.checking.mutants import Mutant
from tests.model.leases.resizing import RESIZES, ResizeWorld
from tests.model.leases.resizing_mutants import RESIZE_MUTANTS, hunt_resize
from tests.model.proving import assert_caught
from tests.model.stored import assert_play_holds

STEPS = {
    "opened before all that share keys are closed": 19,
    "closed while it is owned": 8,
    "claimed by a server of the former generation": 27,
    "claimed while it is closed": 10,
    "epochs that start over": 21,
    "closed without its ETag": 15,
    "released as open": 11,
}
BROKEN = {
    "closed without its ETag": "goes back",
    "closed while it is owned": "which has not ended",
    "claimed while it is closed": "closed by a resize",
}
"""Mutants that break a rule of a row's change, which traces of production are judged by, before two servers act."""


@pytest.mark.parametrize("name", RESIZES)
def test_at_most_one_server_acts_on_a_key_and_its_epochs_grow(name: str) -> None:
    assert_play_holds("resize", name, ResizeWorld(RESIZES[name](0)))


@pytest.mark.parametrize("mutant", RESIZE_MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt_resize(mutant)
    violation = assert_caught(report)
    rule = BROKEN.get(mutant.name)
    assert rule in violation if rule is not None else violation.startswith(("two owners", "stale epoch"))
    assert report.steps == STEPS[mutant.name], str(report)
