"""Messages of shards come earlier, and their owners wait, if no pause between messages is short enough to keep an instance."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.core.clock import Millis
from shared.scheduler.protocol.dispatch import parse_messages
from shared.scheduler.timings import DAY
from shared.scheduler.wakes.protocol import PK_PLAN, PLAN_ROW, parse_wake, plan_of
from shared.scheduler.wakes.rules import EARLIER, GAP, GAP_CLOSE, GAP_NONE, PLAN, Plan
from shared.storage.names import QUEUE_SHARDS, SWEEPS
from shared.storage.ports import Message, Upsert

from .test_timers_dead import MINUTE, Stopped, lateness

STARTS = 16.0
"""Seconds from a message without an instance to the start of one."""
LIVES = 30.0
"""Seconds after which an instance is taken away, however much it has done."""


class Cold(Stopped):
    """A world whose instances of the shards' queue go soon after their start. Each of them is a new process."""

    ready = gone = 0.0

    async def _serve(self, queue: str, message: Message) -> None:
        now = self.clock.monotonic()
        if queue == QUEUE_SHARDS:
            if now >= self.gone:
                self.ready, self.gone = now + STARTS, now + STARTS + LIVES
            if now < self.ready:
                await self.clock.sleep(self.ready - now)
                self.app.scheduler.looks._started = self.now
        await super()._serve(queue, message)

    async def gap(self) -> Millis:
        return plan_of(await self.tables.get(SWEEPS, PK_PLAN, PLAN_ROW)).gap(self.now)

    async def come_earlier(self) -> None:
        """Store a plan that says so."""
        plan = Plan(close_until=self.now + DAY, early_until=self.now + DAY)
        await self.tables.write(SWEEPS, PK_PLAN, (Upsert(PLAN_ROW, PLAN.encode(plan)),))


@pytest.fixture
async def world() -> AsyncIterator[Cold]:
    world = Cold(wakes="auto")
    await world.open()
    yield world
    await world.close()


async def test_events_are_punctual_although_each_message_starts_an_instance(world: Cold) -> None:
    await world.come_earlier()
    ids = [(await world.demo.create(delay=delay))["id"] for delay in ("PT4M", "PT6M", "PT1H")]
    await world.run(MINUTE * 61)
    assert [await lateness(world, each) for each in ids] == [0, 0, 0]
    assert len(world.wakes()) == 2


async def test_wakes_come_closer_first_and_then_messages_earlier(world: Cold) -> None:
    ids, gaps = [], []
    for _ in range(20):
        ids.append((await world.demo.create(delay="PT4M"))["id"])
        await world.run(MINUTE * 6)
        gaps.append(await world.gap())
    assert (gaps[0], gaps[-1]) == (GAP, GAP_NONE) and GAP_CLOSE in gaps
    late = [await lateness(world, each) for each in ids]
    assert max(late) > 1_000
    assert late[gaps.index(GAP_NONE) + 1 :].count(0) == 19 - gaps.index(GAP_NONE) >= 5


async def test_one_owner_takes_the_shard_of_an_earlier_message_and_waits(world: Cold) -> None:
    await world.come_earlier()
    made = await world.demo.create(delay="PT4M")
    world.gone, counters = 1e9, world.app.scheduler.counters
    await world.run(4 * MINUTE - 27)
    assert counters["shards_taken"] == 0
    await world.run(4)
    assert counters["shards_taken"] == 1
    await world.run(30)
    assert (counters["shards_taken"], await lateness(world, made["id"])) == (1, 0)


async def test_the_messages_that_a_look_sends_say_by_how_much_they_come_earlier(world: Cold) -> None:
    await world.come_earlier()
    await world.demo.create(delay="PT2M")
    await world.do(world.app.scheduler.looks.dispatch(world.now))
    texts = [each.text for each in world.queues._queues[QUEUE_SHARDS].messages.values() if parse_wake(each.text) is None]
    assert [[message.earlier for message in parse_messages(text)] for text in texts] == [[EARLIER]]


async def test_a_fixed_pause_is_never_replaced() -> None:
    world = Cold(wakes="22")
    await world.open()
    await world.come_earlier()
    await world.demo.create(delay="PT80S")
    await world.do(world.app.scheduler.looks.dispatch(world.now))
    texts = [each.text for each in world.queues._queues[QUEUE_SHARDS].messages.values() if parse_wake(each.text) is None]
    assert [message.earlier for text in texts for message in parse_messages(text)] == [0]
    await world.close()
