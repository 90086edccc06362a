"""One play of the lease protocol and one in which storage loses writes, explored in every run of the tests.

`prove_leases` proves all plays, and that every mutant is caught.
"""

from __future__ import annotations

from tests.model.leases.plays import PLAYS
from tests.model.leases.rollback import PLAYS as ROLLBACKS
from tests.model.leases.rollback import RollbackWorld
from tests.model.leases.world import World
from tests.model.stored import assert_play_holds


def test_at_most_one_server_acts_on_a_partition() -> None:
    assert_play_holds("lease", "take over", World(PLAYS["take over"](0)))


def test_at_most_one_server_acts_once_a_rollback_of_storage_is_v_old() -> None:
    assert_play_holds("rollback", "rollback", RollbackWorld(ROLLBACKS["rollback"](0)))
