"""A fleet on storage that refuses requests, on virtual time: the same on every machine."""

from __future__ import annotations

import pytest

from shared.leases.profiles import PROFILES

from .throttled import Throttled, Throttling, play, unslowed

PROFILE = PROFILES["default"]
SERVERS, PARTITIONS = 8, 64
SECONDS = 300.0


def outcomes(throttling: Throttling, seeds: int) -> list[Throttled]:
    return [play(PROFILE, SERVERS, PARTITIONS, throttling, SECONDS, seed) for seed in range(1, seeds + 1)]


def test_no_server_loses_a_partition_while_storage_refuses_thirty_percent_and_no_wave_follows() -> None:
    for found in outcomes(Throttling(refuse=0.3), 1):
        assert (found.lost, found.lost_afterwards, found.unserved) == (0, 0, 0)
        assert found.refused > 0.25
        assert found.busiest < 2
        assert found.reporting == SERVERS and found.alarms == ("throttled",)


@pytest.mark.parametrize("slowed", [True, False], ids=["slowed", "unslowed"])
def test_where_refusals_follow_from_the_load_slower_scans_keep_partitions_served(slowed: bool) -> None:
    scarce = Throttling(capacity=0.7)
    if not slowed:
        # Only this shows that the slower scans are the reason.
        with unslowed():
            assert sum(found.lost for found in outcomes(scarce, 2)) > SERVERS * PARTITIONS // 4
        return
    found = outcomes(scarce, 2)
    assert sum(each.lost for each in found) <= PARTITIONS // 2
    assert not any(each.lost_afterwards or each.unserved for each in found)
