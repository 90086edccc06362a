"""One play of changes of the partition count, explored in every run of the tests.

`prove_resizing` proves all plays, and that every mutant is caught.
"""

from __future__ import annotations

from tests.model.leases.resizing import RESIZES, ResizeWorld
from tests.model.stored import assert_play_holds


def test_at_most_one_server_acts_on_a_key_and_its_epochs_grow() -> None:
    assert_play_holds("resize", "doubling", ResizeWorld(RESIZES["doubling"](0)))
