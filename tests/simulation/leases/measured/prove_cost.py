"""The cost of a quiet fleet, counted on virtual time: the same on every machine. More than that is a regression."""

from __future__ import annotations

from collections import Counter

import pytest

from shared.leases.profiles import PROFILES

from .fleet import Measured

PROFILE = PROFILES["default"]
SETTLED = 200.0
"""Seconds after which a fleet that has just come up is quiet."""
HOUR = 3600.0
COSTS = {
    (8, 64): Counter(write=5_774, query=3_104, get=3_524, rows_read=24_813),
    (32, 256): Counter(write=23_054, query=2_566, get=2_593, rows_read=70_290),
}
"""By servers and partitions: what an hour costs, the app's timers included. One write a beat, whatever the partitions; the rest is two
servers' looks at the others, the seldom ones of all others, and the timers."""
SLACK = 1.04
"""For other jitter."""


@pytest.mark.parametrize("size", [(8, 64), (32, 256)], ids=["8 servers", "32 servers"])
def test_an_hour_of_a_quiet_fleet_costs_no_more_transactions_and_entities_than_it_did(size: tuple[int, int]) -> None:
    fleet = Measured(PROFILE, *size, seed=size[0])
    try:
        fleet.start_all()
        fleet.run(SETTLED)
        moved = fleet.moves.total()
        made = fleet.cost(HOUR)
    finally:
        fleet.close()
    assert fleet.moves.total() == moved and fleet.balanced()
    assert made["write"] >= size[0] * HOUR / PROFILE.beat * 0.97, "all beat"
    dear = {kind: (made[kind], most) for kind, most in COSTS[size].items() if made[kind] > most * SLACK}
    assert not dear


def test_a_large_fleet_reads_forty_entities_a_second_at_most_and_does_not_come_up_in_a_stampede() -> None:
    fleet = Measured(PROFILE, 64, 1024)
    try:
        fleet.start_all()
        # Some twenty reads of each row, by few; it were hundreds if each server planned that comes up.
        assert fleet.world.store.transactions["rows_read"] < 100_000
        fleet.run(SETTLED)
        made = fleet.cost(600.0)
    finally:
        fleet.close()
    assert made["write"] / 600 <= 13 and made["rows_read"] / 600 <= 40
