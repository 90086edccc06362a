"""Histories with planned wakes and without timers. `python -m tests.simulation --wakes --seeds N` plays more of them."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from tests.simulation.history import Report
from tests.simulation.world.woken import simulate_killed, simulate_purged, simulate_woken


def play(seeds: range, simulate: Callable[[int], Report]) -> list[Report]:
    reports = [simulate(seed) for seed in seeds]
    gc.collect()
    assert not [f"{report.seed}: {report.violation}" for report in reports if report.violation is not None]
    return reports


@pytest.mark.parametrize("style", [None, "none", "crashes"])
def test_promises_are_kept_without_timers(style: str | None) -> None:
    reports = play(range(10), lambda seed: simulate_woken(seed, style))
    assert sum(report.counts["wakes taken"] for report in reports) >= 10


def test_nothing_is_lost_when_a_process_is_killed() -> None:
    reports = play(range(20, 150, 13), lambda effect: simulate_killed(1, effect))
    assert sum(report.counts["crashes"] for report in reports) >= 8


def test_a_process_that_starts_after_a_purge_of_the_queue_finds_what_is_stored() -> None:
    """It trusted the wakes that the plan named, which were in the queue no more."""
    play(range(6), simulate_purged)
