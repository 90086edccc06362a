"""Many histories with fan-outs, and the bugs that they find."""

from __future__ import annotations

from typing import Any

import pytest

from shared.scheduler.changes.fanouts import Fanouts
from shared.scheduler.ingest.writer import Writer
from shared.scheduler.rows import EventToStore
from tests.simulation.proving import assert_found, assert_kept
from tests.simulation.world.fanned import simulate_fanouts

CHUNK = 40


@pytest.mark.parametrize("first", range(0, 200, CHUNK))
def test_fan_outs_are_whole_or_not_acknowledged_whatever_goes_wrong(first: int) -> None:
    assert_kept(simulate_fanouts, range(first, first + CHUNK), "python -m tests.simulation --fanouts")


async def _all_at_once(*_: Any) -> dict[int, int]:
    """The writer stores the first event together with the others."""
    return {}


async def _not_withdrawn(*_: Any) -> bool:
    """A cancel leaves the events alone that are not stored yet."""
    return False


BUGS: dict[str, tuple[type, Any, int]] = {
    "_fanouts": (Writer, _all_at_once, 1),
    "_withdraw": (Fanouts, _not_withdrawn, 56),
    "names": (EventToStore, property(lambda self: () if self.id is None else (self.id,)), 58),
}
"""Known bugs by the name that they replace, and a seed that finds them. names: the common id is not registered."""


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kind, bug, first = BUGS[name]
    monkeypatch.setattr(kind, name, bug)
    assert_found(name, simulate_fanouts, range(first, first + 10))
