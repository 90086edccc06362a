"""Messages that small shards share (W7): the scale controller counts hidden messages too, and adds an instance for every 64 of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest

from shared.core.clock import Millis, SettableClock
from shared.engine.async_runner import AsyncRunner
from shared.scheduler.keys import HOME, index_key, index_partition, shard_key
from shared.scheduler.mirror.unmirrored import Mirror
from shared.scheduler.protocol.dispatch import parse_messages
from shared.scheduler.rules import visible_at
from shared.scheduler.shard.gate import GATE, Counts, Gate
from shared.scheduler.sweeps.index import Sweeps
from shared.scheduler.timings import ANNOUNCE_TOGETHER, MINUTE, SEND_AHEAD, SEND_ALONE
from shared.scheduler.wakes.rules import GAP, LOOK_FAR, Plan, planned_wakes
from shared.scheduler.wakes.service import Horizons
from shared.storage.memory import MemoryQueues, MemoryTables
from shared.storage.names import ALL_QUEUES, ALL_TABLES, EVENTS, QUEUE_SHARDS, SHARDS
from shared.storage.ports import Insert

from ..harness import START

PER_SECOND = 32
COUNTED = 64
"""Messages for which the scale controller adds an instance."""
HORIZONS = Horizons(SEND_ALONE, SEND_AHEAD)


class Index:
    """An index of small shards, a queue, and the looks at them."""

    def __init__(self) -> None:
        self.clock = SettableClock(START)
        self.tables, self.queues = MemoryTables(self.clock), MemoryQueues(self.clock)
        runner = AsyncRunner(self.tables, self.clock, queues=self.queues)
        self.sweeps = Sweeps(runner, 100, Mirror(runner))
        self.plan = Plan()
        self.wakes: list[Millis] = []

    async def file(self, number: int, wake: Millis, events: int) -> None:
        shard = shard_key("t", f"{HOME}{number:x}")
        key = index_key(shard, wake)
        props = {"state": "pending", "wake": wake, "bucket": "", "tenant": "t"}
        await self.tables.write(SHARDS, index_partition(shard), (Insert(key, props),))
        await self.tables.write(EVENTS, shard, (Insert(GATE, Gate("open", "", index=key, counts=Counts(events)).props()),))

    async def look(self) -> None:
        """Look at the index, and plan the wakes."""
        now = self.clock.now()
        found = await self.sweeps.look(now, HORIZONS, LOOK_FAR)
        new = planned_wakes(self.plan, found.messages, found.unsent, now, GAP, alive=True, alone=False)
        self.plan = self.plan.with_wakes(new, now)._replace(woke=now)
        self.wakes += new

    def hidden(self) -> list[tuple[Millis, int]]:
        """Return when each message in the queue becomes visible, and how many shards it has."""
        found = self.queues._queues[QUEUE_SHARDS].messages.values()
        return [(each.visible, len(parse_messages(each.text))) for each in found if each.visible > self.clock.now()]

    def length(self) -> int:
        """Return the number of messages in the queue that are still to come, wakes among them."""
        return len(self.hidden()) + sum(wake > self.clock.now() for wake in self.wakes)


@pytest.fixture
async def index() -> AsyncIterator[Index]:
    found = Index()
    await found.tables.ensure(ALL_TABLES)
    await found.queues.ensure(ALL_QUEUES)
    yield found


@pytest.mark.parametrize("phase", [0, 1_000, 1_700])
async def test_the_queue_of_32_small_shards_a_second_stays_below_one_instance_more(index: Index, phase: Millis) -> None:
    random = Random(phase)
    start = START // ANNOUNCE_TOGETHER * ANNOUNCE_TOGETHER + phase
    for number in range(PER_SECOND * 150):
        await index.file(number, start + number * 1_000 // PER_SECOND, random.choice((1, 1, 2, 20)))
    longest = 0
    for _ in range(3):
        await index.look()
        longest = max(longest, index.length())
        await index.clock.advance(GAP / 1_000)

    assert SEND_AHEAD / ANNOUNCE_TOGETHER <= longest < COUNTED


async def test_more_shards_of_two_seconds_than_one_message_takes_get_a_message_more(index: Index) -> None:
    for number in range(65):
        await index.file(number, START + MINUTE, 1)
    await index.look()

    assert sorted(size for _, size in index.hidden()) == [1, 64]


async def test_a_shared_message_comes_as_early_as_the_shard_with_most_events_needs_it(index: Index) -> None:
    for number, events in enumerate((1, 250, 2)):
        await index.file(number, START + MINUTE, events)
    await index.look()

    [(at, size)] = index.hidden()
    assert size == 3
    # The queue shows a message at a whole second.
    assert at <= visible_at(START + MINUTE, 250) + 1_000
