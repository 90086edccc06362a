"""A minute of storage that is slower than every time-out: afterwards the load that the app makes falls again."""

from __future__ import annotations

import math

import pytest

from shared.storage.azure.transport import TransportPolicy
from tests.simulation.world.overload import Figures, Overload, play

SLOW = Overload()
STARVED = Overload(slow=0.0, starved=3.0, per_second=80.0, seed=2)
"""Storage answers less than half of what the events need, and what it has not answered stays in its queue."""


def multiple(asked: Overload, found: Figures) -> float:
    """Return how many times as many requests the busiest minute after the trouble has as the minute before it."""
    end = asked.begins + asked.lasts
    before = found.mean(asked.begins - 60, asked.begins)
    return max(found.mean(first, first + 60) for first in range(int(end), int(found.settled) + 60)) / before


@pytest.mark.parametrize("asked", [SLOW, STARVED], ids=["slow", "starved"])
def test_all_events_are_settled_soon_and_requests_are_at_most_twice_as_many_as_before(asked: Overload) -> None:
    found = play(asked)
    assert len(found.delivered) == asked.events
    assert found.settled <= asked.begins + asked.lasts + 600
    assert multiple(asked, found) <= 2.0


def test_requests_without_patience_would_keep_storage_busy() -> None:
    """The test finds an overload that outlives its cause: callers that give up after a second and ask again for ever."""
    impatient = TransportPolicy(attempts=1_000_000, total=math.inf, request=1.0, cap=0.5)
    asked = Overload(slow=0.0, starved=3.0, per_second=12.0, policy=impatient)
    assert len(play(asked).delivered) < asked.events
