"""One play of notices, explored in every run of the tests. `prove_notices` proves all plays, and that every mutant is caught."""

from __future__ import annotations

from tests.model.notices.plays import PLAYS, NoticeWorld
from tests.model.stored import assert_play_holds


def test_every_end_is_told_and_nothing_is_told_of_notices() -> None:
    assert_play_holds("notice", "crash", NoticeWorld(PLAYS["crash"](0)), more_states_than=900)
