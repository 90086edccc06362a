"""One play of the turns of ordering keys, explored in every run of the tests.

`prove_key_turns` proves all plays, and that every mutant is caught.
"""

from __future__ import annotations

from tests.model.keys.plays import PLAYS, KeyWorld
from tests.model.stored import assert_play_holds


def test_order_and_concurrency_hold_and_every_event_ends() -> None:
    assert_play_holds("key", "late", KeyWorld(PLAYS["late"](0)))
