"""Changes of the partition count in histories in which everything else goes wrong, too. `prove_resizing` plays thousands."""

from __future__ import annotations

from tests.simulation.leases.resizing import simulate_resizes
from tests.simulation.proving import assert_kept

QUICK = 100


def test_no_key_has_two_owners_and_all_are_served_again() -> None:
    counts = assert_kept(simulate_resizes, range(QUICK), "simulate_resizes:")
    assert sum(each["resizes"] for each in counts) > QUICK
