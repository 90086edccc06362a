"""The shard protocol, exhaustively: production generators under lost, delayed and doubled requests, crashes and suspicions.

The quick plays run here; `make model` runs larger ones. What the checker finds when a sentence is left out: `test_shard_mutants`.
"""

from __future__ import annotations

import pytest

from tests.model.shards.callbacks import CALLBACK_PLAYS
from tests.model.shards.express import EXPRESS_PLAYS
from tests.model.shards.long_work import LONG_WORK_PLAYS
from tests.model.shards.plays import PLAYS
from tests.model.shards.world import World
from tests.model.stored import assert_play_holds

ALL = PLAYS | EXPRESS_PLAYS | CALLBACK_PLAYS | LONG_WORK_PLAYS
LONG = {
    *("creator crashes", "dead process", "retry", "redrive", "dispatch", "messages", "held", "held and failed"),
    *("join and cancel", "join and move"),
    *("express", "express cancel", "express patch", "express edit", "express creators"),
    *("work deadline", "work heartbeat", "work fails", "work dies"),
}
"""Plays that take many seconds. Their mutants are caught in `test_shard_mutants`. The sweep and its messages are played out in
"backlog", "poison" and "punctual" too: with lost answers, lost messages, two sweeps at once, marks and rests. Channels that are paused are
in the histories of tests/simulation."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in ALL])
def test_the_protocol_holds(name: str) -> None:
    assert_play_holds("shard", name, World(ALL[name](0)))
