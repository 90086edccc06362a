"""The observations of an owner, from which a late event gets its reasons."""

from __future__ import annotations

from shared.core.clock import SettableClock
from shared.delivery.channels.model import HttpChannel
from shared.delivery.channels.ports import EndedHold, Target
from shared.scheduler.firing.attempt import Waits

CHANNEL = HttpChannel(type="http", url="https://receiver.example/")


async def test_a_late_event_waited_for_those_requests_to_storage_that_ended_after_its_time() -> None:
    clock = SettableClock()
    waits = Waits(clock, succeeds_lost=False, asked_at=clock.monotonic())
    for seconds in (0.2,) * 40 + (0.05, 0.3, 0.02, 0.15):
        began = clock.monotonic()
        await clock.advance(seconds)
        # Those that are too short are not noted.
        waits.storage(began)
    fired = clock.now()
    due = fired - 400
    found = waits.parts({"id": "a", "due": due, "created": 0}, due, fired, Target("demo", "default", CHANNEL), None)
    # 230 of the 300 ms, and the last 150.
    assert found == {"storage": 380}


async def test_a_pause_of_the_channel_counts_before_a_request_to_storage() -> None:
    clock = SettableClock()
    waits = Waits(clock, succeeds_lost=False, asked_at=clock.monotonic())
    await clock.advance(1.0)
    began = clock.monotonic()
    await clock.advance(0.5)
    waits.storage(began)
    fired = clock.now()
    target = Target("demo", "default", CHANNEL, ended_holds=(EndedHold("paused", fired - 900, fired - 400),))
    found = waits.parts({"id": "a", "due": fired - 900, "created": 0}, fired - 900, fired, target, None)
    assert found == {"paused": 500, "storage": 400}
