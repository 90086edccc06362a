"""Histories with fan-outs. `python -m tests.simulation --fanouts --seeds N` plays more of them."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import pytest

from shared.scheduler.fanouts.service import Fanouts
from shared.scheduler.ingest.writer import Writer
from shared.scheduler.rows import EventToStore
from tests.simulation.history import Report
from tests.simulation.world.fanned import simulate_fanouts

CHUNK = 4


def play(first: int, count: int = CHUNK) -> Counter[str]:
    reports: list[Report] = [simulate_fanouts(seed) for seed in range(first, first + count)]
    gc.collect()
    violations = [f"seed {report.seed}: {report.violation}" for report in reports if report.violation is not None]
    assert not violations, "\n".join([*violations, "again: python -m tests.simulation --fanouts --seed N --verbose"])
    return sum((report.counts for report in reports), Counter[str]())


def test_fan_outs_are_whole_or_not_acknowledged_whatever_goes_wrong() -> None:
    counts = play(0)
    assert counts["fan-outs"] and counts["fan-outs cancelled"]


@pytest.mark.long
@pytest.mark.parametrize("first", range(CHUNK, 200, CHUNK))
def test_fan_outs_are_whole_in_many_more_histories(first: int) -> None:
    play(first)


async def _all_at_once(*_: Any) -> dict[int, int]:
    """The writer stores the first event together with the others."""
    return {}


async def _not_withdrawn(*_: Any) -> bool:
    """A cancel leaves the events alone that are not stored yet."""
    return False


BUGS: dict[str, tuple[type, Any, int]] = {
    "_fanouts": (Writer, _all_at_once, 1),
    "_withdraw": (Fanouts, _not_withdrawn, 0),
    "names": (EventToStore, property(lambda self: () if self.id is None else (self.id,)), 28),
}
"""Known bugs by the name that they replace, and a seed that finds them. names: the common id is not registered."""


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kind, bug, seed = BUGS[name]
    monkeypatch.setattr(kind, name, bug)
    assert any(simulate_fanouts(each).violation is not None for each in range(seed, seed + 10))
