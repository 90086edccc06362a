"""An endpoint that is down for a minute, an hour, a day and three days loses nothing with the default retries.

`docs/how-to/while-your-endpoint-is-down.md` shows the time-lines that these runs measure.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from shared.delivery.channels.ports import Verdict
from shared.testing import Tocsin

DOWN = Verdict("retry", None, "no connection")
UP = Verdict("delivered", 200)
MINUTE, HOUR, DAY = 60, 3_600, 86_400


@pytest.mark.parametrize(
    ("down", "attempts", "latest"),
    [(MINUTE, 3, 0.2 * 305 + 305), (HOUR, 5, 9_305 * 1.2), (DAY, 8, 113_105 * 1.2), (3 * DAY, 10, 272_105 * 1.2)],
)
async def test_lone_event_is_delivered_after_the_endpoint_is_back(down: int, attempts: int, latest: float) -> None:
    """No other event opens the circuit breaker: the list of pauses decides alone."""
    async with Tocsin() as kit:
        begun = kit.now
        kit.receiver.otherwise = DOWN
        event = await kit.client.schedule(1, delay=timedelta(0))
        await kit.advance(timedelta(seconds=down))
        kit.receiver.otherwise = UP
        await kit.advance(days=5)
        shown = await kit.client.get(event.id)
        assert shown.state == "delivered" and shown.delivered_at is not None
        assert down <= (shown.delivered_at - begun).total_seconds() <= latest + 1
        assert len(shown.attempts) <= attempts


@pytest.mark.parametrize(("down", "count", "most"), [(MINUTE, 200, 120), (HOUR, 200, 130)])
async def test_busy_channel_waits_behind_its_breaker_and_is_delivered_soon_after(down: int, count: int, most: float) -> None:
    """With more events the circuit breaker opens: probes go on, the rest waits without an attempt."""
    async with Tocsin() as kit:
        kit.receiver.otherwise = DOWN
        await kit.client.batch({"payload": n, "delay": timedelta(seconds=n * down / count)} for n in range(count))
        failed = await kit.advance(timedelta(seconds=down))
        back = kit.now
        kit.receiver.otherwise = UP
        received = await kit.advance(days=5)
        assert len({got.id for got in received if got.verdict.outcome == "delivered"}) == count
        assert len(failed) <= 40 + down / HOUR * 8, "probes, one in 15 minutes after an hour"
        soon = [got for got in received if (got.ended - back).total_seconds() <= most]
        assert len(soon) >= 0.97 * count
        assert [event async for event in kit.client.dead_letters()] == []
