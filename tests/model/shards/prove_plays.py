"""The shard protocol, exhaustively: production generators under lost, delayed and doubled requests, crashes and suspicions.

`make model` explores larger plays. What the checker finds when a sentence is left out: `prove_mutants`.
"""

from __future__ import annotations

import pytest

from tests.model.shards.callbacks import CALLBACK_PLAYS
from tests.model.shards.end_plays import END_PLAYS
from tests.model.shards.express import EXPRESS_PLAYS
from tests.model.shards.long_work import LONG_WORK_PLAYS
from tests.model.shards.plays import PLAYS
from tests.model.shards.world import World
from tests.model.stored import assert_play_holds

PARTS = 3
ALL = PLAYS | EXPRESS_PLAYS | CALLBACK_PLAYS | LONG_WORK_PLAYS | END_PLAYS


@pytest.mark.parametrize("name", ALL)
def test_the_protocol_holds(name: str) -> None:
    assert_play_holds("shard", name, World(ALL[name](0)))
