"""The shipped twin, and opening and closing the whole set."""

from __future__ import annotations

import asyncio

import pytest

from shared.core.clock import SettableClock
from shared.delivery import channels
from shared.delivery.channels.fake import FakeReceiver
from shared.delivery.channels.ports import OutgoingDelivery, Sender, Target, Verdict
from shared.extras.parts import SENDERS
from shared.storage.memory import MemoryQueues

from .conftest import NOW, http_target, make_delivery, make_settings

TARGET = http_target("https://example.com/")


async def test_deliveries_are_recorded_and_scripts_run_per_event() -> None:
    receiver: FakeReceiver = FakeReceiver(SettableClock(NOW))
    receiver.script("ev-1", Verdict("retry", 503), Verdict("delivered", 200))
    assert (await receiver.send(TARGET, make_delivery("ev-1"))).outcome == "retry"
    assert (await receiver.send(TARGET, make_delivery("ev-2"))).outcome == "delivered"
    for _ in range(2):
        assert (await receiver.send(TARGET, make_delivery("ev-1", attempt=2))).outcome == "delivered"
    assert receiver.delivered() == ["ev-2", "ev-1", "ev-1"]
    assert [got.delivery.attempt for got in receiver.of("ev-1")] == [1, 2, 2]


async def test_a_callable_sees_target_and_delivery() -> None:
    def by_attempt(target: Target, delivery: OutgoingDelivery) -> Verdict:
        return Verdict("final", 410, gone=True) if delivery.attempt > 1 and target.name == "default" else Verdict("retry", 500)

    receiver = FakeReceiver(SettableClock(NOW), otherwise=by_attempt)
    assert (await receiver.send(TARGET, make_delivery())).outcome == "retry"
    assert (await receiver.send(TARGET, make_delivery(attempt=2))).outcome == "final"


async def test_what_is_recorded_does_not_change_with_the_schedulers_object() -> None:
    receiver = FakeReceiver(SettableClock(NOW))
    delivery = make_delivery()
    await receiver.send(TARGET, delivery)
    delivery.attempt = 9
    assert receiver.received[0].delivery.attempt == 1


async def test_an_attempt_takes_the_clocks_time_and_can_be_waited_for() -> None:
    clock = SettableClock(NOW)
    receiver = FakeReceiver(clock, takes=0.5)
    tasks = [asyncio.create_task(receiver.send(TARGET, make_delivery(f"ev-{n}"))) for n in range(2)]
    waiter = asyncio.create_task(receiver.until(2))
    await clock.advance(0.4)
    assert receiver.in_flight == 2 and not waiter.done()
    await clock.advance(0.2)
    first, second = await waiter
    assert (first.began, first.ended, second.ended) == (NOW, NOW + 500, NOW + 500)
    assert receiver.in_flight == 0
    await asyncio.gather(*tasks)


def test_an_empty_script_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        FakeReceiver().script("ev-1")


async def test_all_channel_types_open_and_close() -> None:
    clock = SettableClock(NOW)
    senders = channels.open_senders(make_settings("localhost"), MemoryQueues(clock), clock, SENDERS)
    assert len({id(senders[name]) for name in ("http", "fleet", "queue", "eventgrid", "kafka", "servicebus")}) == 6
    await channels.close_senders(senders)


async def test_closing_goes_on_past_one_that_fails() -> None:
    class Broken(FakeReceiver):
        async def close(self) -> None:
            raise RuntimeError("no")

    last = FakeReceiver()
    order: list[Sender] = [Broken(), last]
    with pytest.raises(RuntimeError, match="no"):
        await channels.close_senders(order)
    assert last.closed
