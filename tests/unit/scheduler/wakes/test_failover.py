"""A failover while no timer runs and nobody calls: wakes and messages set the other account to work."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.app.application import Application
from shared.scheduler.wakes.protocol import parse_wake
from shared.storage.names import QUEUE_RETRIES, QUEUE_SHARDS, QUEUE_SWEEPS
from tests.unit.scheduler.mirror.pair import MortalQueues, PairWorld

MIRRORED = {"durability": "mirrored"}


class WokenPair(PairWorld):
    """A pair whose timer never runs. Its hosts serve all queues of the accounts that are there."""

    async def run(self, seconds: float, step: float = 0.25) -> None:
        self._scanned = math.inf
        end = self.clock.monotonic() + seconds
        while (left := end - self.clock.monotonic()) > 1e-9:
            for app, queues in ((self.app, self.first_queues), (self.app.other, self.second_queues)):
                assert app is not None
                for queue in (QUEUE_SHARDS, QUEUE_RETRIES, QUEUE_SWEEPS) if not queues.away else ():
                    for message in await queues.receive(queue):
                        self._start(self._hand(app, queues, queue, message))
            await self.clock.advance(min(step, left), settle=15)

    async def _hand(self, app: Application, queues: MortalQueues, queue: str, message: Any) -> None:
        if queue == QUEUE_SWEEPS:
            await (await self.app.serving()).timers.run_soon(message.text)
        elif queue == QUEUE_SHARDS:
            await app.scheduler.serve_message(message.text)
        else:
            await app.scheduler.firing.serve(message.text, retries=True)
        await queues.delete(queue, message)


@pytest.fixture
async def pair() -> AsyncIterator[WokenPair]:
    pair = WokenPair(wakes="auto")
    await pair.open()
    yield pair
    await pair.close()


async def test_events_are_punctual_after_a_failover_and_after_the_failback_without_timers(pair: WokenPair) -> None:
    before = (await pair.demo.create(delay="PT4M", **MIRRORED))["id"]
    later = (await pair.demo.create(delay="PT20M", **MIRRORED))["id"]
    await pair.run(60)
    await pair.fail_over()
    await pair.run(8 * 60)
    assert pair.deliveries().get(before) == 1
    pair.find_first()
    # Requests leave an account alone for a moment after it did not answer.
    await pair.run(5)
    answer = await pair.admin.post("/api/v1/storage/failback", {})
    assert answer.status == 202, answer
    await pair.run(15 * 60)
    assert (await pair.storage_status())["mirror"]["active"] == "first"
    assert pair.deliveries() == {before: 1, later: 1}
    for event_id in (before, later):
        assert (await pair.demo.event(event_id))["late_ms"] <= 100


async def test_the_account_that_does_not_serve_sends_no_messages_for_its_copies(pair: WokenPair) -> None:
    event_id = (await pair.demo.create(delay="PT10M", **MIRRORED))["id"]
    await pair.run(60)
    second = pair.app.other
    assert second is not None
    await pair.do(second.scheduler.looks.wake(pair.clock.now()))
    await pair.run(8 * 60)
    waiting = [sent.text for sent in pair.second_queues._queues[QUEUE_SHARDS].messages.values()]
    assert len(waiting) == 2 and all(parse_wake(text) for text in waiting), waiting
    await pair.run(2 * 60)
    assert pair.deliveries() == {event_id: 1}
