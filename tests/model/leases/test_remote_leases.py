"""One play of servers that speak HTTP, explored in every run of the tests.

`prove_remote_leases` proves all plays, and that every mutant is caught.
"""

from __future__ import annotations

from tests.model.leases.remote import PLAYS, RemoteWorld
from tests.model.stored import assert_play_holds


def test_at_most_one_server_acts_on_a_partition_when_one_speaks_http() -> None:
    assert_play_holds("remote", "remote take over", RemoteWorld(PLAYS["remote take over"](0)))
