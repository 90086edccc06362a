"""One play of the shard protocol, explored in every run of the tests.

`prove_plays` proves all, and `prove_mutants` that every mutant is caught.
"""

from __future__ import annotations

from tests.model.shards.plays import PLAYS
from tests.model.shards.world import World
from tests.model.stored import assert_play_holds


def test_the_protocol_holds() -> None:
    assert_play_holds("shard", "ingest", World(PLAYS["ingest"](0)))
