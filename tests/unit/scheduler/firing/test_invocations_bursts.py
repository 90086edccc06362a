"""Full shards of one instant: a process takes some of them and passes the messages of others on, for other processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest

from shared.core.errors import Unavailable
from shared.scheduler import rules, timings
from shared.scheduler.firing.invocations import Bursts
from shared.scheduler.protocol.dispatch import ShardMessage, parse_message, parse_messages, text_together
from shared.storage.memory import MemoryQueues
from shared.storage.names import QUEUE_SHARDS
from shared.storage.ports import Message

from ..flow.flowing import Instances, batch
from ..harness import World

SHARDS = 12
"""Full shards of the burst, of ten events each."""
DUE = "2027-01-15T08:01:00Z"


def test_process_takes_more_full_shards_each_time_that_a_message_is_passed_on() -> None:
    def most(passed: int) -> int:
        return next(beside for beside in range(100) if rules.leaves_to_others(beside, 100, passed, 0, timings.WAKE_EARLIEST, alone=False))

    found = [most(passed) for passed in range(timings.BURST_PASSES)]
    assert found[0] == timings.BURST_SHARDS and found == sorted(set(found))
    assert not rules.leaves_to_others(100, 100, timings.BURST_PASSES, 0, timings.WAKE_EARLIEST, alone=False), "it is served in the end"
    assert not rules.leaves_to_others(100, 100, 0, 0, timings.WAKE_EARLIEST, alone=True)
    assert not rules.leaves_to_others(7, timings.BURST_FROM - 1, 0, 0, timings.WAKE_EARLIEST, alone=False), "it has few"
    assert not rules.leaves_to_others(100, 100, 0, 0, timings.CLAIM_AHEAD, alone=False), "its events must be claimed now"


def test_process_takes_a_full_shard_that_one_with_more_of_them_has_passed_on() -> None:
    beside = timings.BURST_SHARDS * 2
    assert rules.leaves_to_others(beside, 20, 1, 21, timings.WAKE_EARLIEST, alone=False)
    assert not rules.leaves_to_others(beside, 20, 1, 20 + timings.BURST_FEWER, timings.WAKE_EARLIEST, alone=False)


@pytest.mark.parametrize("early", [timings.WAKE_EARLIEST, 5_000, 3_500, 0, -60_000])
def test_message_is_not_held_into_the_time_of_the_claims(early: int) -> None:
    longest = rules.held_within(early)
    assert 0 <= longest <= timings.BURST_HELD_FOR and early - longest * 1000 >= min(early, timings.CLAIM_AHEAD)


def test_process_is_alone_only_after_others_have_had_time_to_poll() -> None:
    assert not rules.seems_alone(10, 10, timings.BURST_WATCHED_FROM - 0.1)
    assert rules.seems_alone(10, 8, timings.BURST_WATCHED_FROM) and not rules.seems_alone(10, 7, 60.0)


def test_message_says_what_counts_in_a_burst_also_among_several() -> None:
    message = ShardMessage("00-n-t", "202701150800:t:n", wake=1_800_000_060_000, passed=2, sender="p", load=7)
    assert parse_message(message.text()) == message
    assert message.alone() == ShardMessage(message.shard, message.index) == parse_message('{"shard":"00-n-t","index":"202701150800:t:n"}')
    assert ShardMessage("s", "i").text() == '{"shard":"s","index":"i"}'
    assert parse_messages(text_together([message, ShardMessage("s", "i")])) == [message, ShardMessage("s", "i")]


class FirstPolls(Instances):
    """Two instances: the first one gets all messages that were not passed on, and the other one those that were."""

    async def _serve(self, queue: str, message: Message) -> None:
        if queue != QUEUE_SHARDS:
            return await super()._serve(queue, message)
        found = parse_message(message.text)
        await self.apps[min(found.passed, 1)].scheduler.firing.serve(message.text)
        await self.queues.delete(queue, message)


@pytest.fixture
def small_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of ten events are full, and their messages come as early as those of full ones do."""
    monkeypatch.setattr(rules, "MANY_EVENTS", 10)
    monkeypatch.setattr(rules, "WAKE_EARLY_EACH", 320)


@pytest.fixture
async def pair(small_bursts: None) -> AsyncIterator[FirstPolls]:
    world = cast(FirstPolls, await FirstPolls(shard_events=10).open())
    yield world
    await world.close()


@pytest.fixture
async def lone(small_bursts: None) -> AsyncIterator[World]:
    world = await World(shard_events=10).open()
    yield world
    await world.close()


def assert_all_came_in_time(world: World) -> None:
    assert len(world.receiver.received) == 10 * SHARDS == len({got.delivery.id for got in world.receiver.received})
    assert all(0 <= got.began - got.delivery.due <= 20 for got in world.receiver.received)


async def test_full_shards_go_to_another_process_beyond_the_first_few(pair: FirstPolls) -> None:
    await batch(pair, 10 * SHARDS, due=DUE)
    await pair.run(70)
    assert_all_came_in_time(pair)
    taken = [app.scheduler.counters["shards_taken"] for app in pair.apps]
    assert taken == [timings.BURST_FROM, SHARDS - timings.BURST_FROM]


async def test_process_that_is_alone_serves_all_in_time_and_passes_few_messages_on(lone: World) -> None:
    await batch(lone, 10 * SHARDS, due=DUE)
    await lone.run(70)
    assert_all_came_in_time(lone)
    counters = lone.app.scheduler.counters
    assert counters["shards_taken"] == SHARDS and 0 < counters["shards_passed_on"] <= 3 * SHARDS
    before = counters["shards_passed_on"]
    await batch(lone, 10 * SHARDS, due="2027-01-15T08:01:30Z")
    await lone.run(30)
    assert counters["shards_taken"] == 2 * SHARDS and counters["shards_passed_on"] == before, "nobody takes what it leaves"


async def test_full_shard_is_served_where_it_is_if_the_queue_refuses_its_message(lone: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await batch(lone, 10 * SHARDS, due=DUE)
    await lone.run(1)
    plain = MemoryQueues.send

    async def send(self: MemoryQueues, queue: str, text: str, *, visible_in: float = 0.0) -> None:
        if queue == QUEUE_SHARDS and parse_message(text).passed:
            raise Unavailable("the queue does not answer")
        await plain(self, queue, text, visible_in=visible_in)

    monkeypatch.setattr(MemoryQueues, "send", send)
    await lone.run(69)
    assert_all_came_in_time(lone)
    assert lone.app.scheduler.counters["shards_passed_on"] == 0


async def test_full_shard_whose_process_ends_while_it_holds_the_message_is_asked_for_by_the_index(
    lone: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[ShardMessage] = []

    async def ended(self: Bursts, message: ShardMessage) -> bool:
        # The first message of each shard disappears with a process that holds it.
        if message.shard in {each.shard for each in lost}:
            return False
        lost.append(message)
        return True

    monkeypatch.setattr(Bursts, "leave", ended)
    await batch(lone, 20, due=DUE)
    await lone.run(60 + timings.OWNER_SILENT / 1000 + 20)
    assert len(lost) == 2 and all(message.wake for message in lost)
    assert len(lone.receiver.received) == 20 == len({got.delivery.id for got in lone.receiver.received})
