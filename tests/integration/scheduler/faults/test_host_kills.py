"""Restarts as the Functions host makes them: the app gets no notice of its end.

They take minutes: the events are spread over 40 s of one minute. `python -m bench.restarts` prints the figures.
"""

from __future__ import annotations

import asyncio

import pytest

from bench.restarts import WAYS, restart

TAKEOVER = 20.0
"""Seconds from the death of a process to the last delivery that it left behind, the start of the next process included."""


@pytest.mark.long
@pytest.mark.devhost("`bench restarts` starts it; `make host-test` restarts any host")
@pytest.mark.parametrize("way", WAYS)
def test_events_of_a_process_that_ends_without_notice_are_delivered_within_the_promised_time(way: str) -> None:
    got = asyncio.run(restart(way, 250, 40.0))
    assert got.missing == 0
    assert got.takeover <= TAKEOVER
    # Deliveries in progress (0.3 s each) and answers of the last second, of 6 events a second. An orphan, and a process
    # that is drained, settles what it has begun.
    assert got.doubled <= (0 if way in ("orphan", "drain") else 12)
