"""Small shards share an invocation: those who hand theirs over end at once, the lead stays, and nothing is lost or held up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from shared.core.clock import SettableClock
from shared.core.errors import Unavailable
from shared.delivery.channels.fake import DELIVERED
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict
from shared.scheduler import timings
from shared.scheduler.firing import invocations
from shared.scheduler.firing.dispatch import Firing
from shared.scheduler.firing.invocations import SharedInvocation, SmallShard
from shared.scheduler.protocol.dispatch import ShardMessage
from shared.storage.names import EVENTS, QUEUE_SHARDS, SHARDS

from ..harness import START, World


class Played:
    """A small shard that is served until the test says otherwise."""

    def __init__(self, tenant: str = "t", size: int = 100) -> None:
        self.end = asyncio.Event()
        self.error: Exception | None = None
        self.failures: list[Exception] = []
        self.cancelled = False
        self.shard = SmallShard(tenant, size, self._serve, self._failed)

    async def _serve(self) -> None:
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self.error is not None:
            raise self.error

    async def _failed(self, error: Exception) -> None:
        self.failures.append(error)

    def fail(self, error: Exception) -> None:
        self.error = error
        self.end.set()


@pytest.fixture
async def clock() -> SettableClock:
    return SettableClock(START)


@pytest.fixture
async def small(clock: SettableClock) -> SharedInvocation:
    return SharedInvocation(clock, 1_000_000)


async def lead(small: SharedInvocation, played: Played) -> asyncio.Task[None]:
    task = asyncio.create_task(small.serve(played.shard))
    await asyncio.sleep(0)
    return task


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110  the loop is all that moves
        await asyncio.sleep(0)


async def test_lead_stays_until_the_shards_that_it_took_are_served(small: SharedInvocation) -> None:
    mine, first, second = Played(), Played(), Played()
    leading = await lead(small, mine)
    await small.serve(first.shard)
    await small.serve(second.shard)
    mine.end.set()
    first.end.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not leading.done(), "nothing may run without an invocation"
    second.end.set()
    await leading
    follower = Played()
    assert not (await lead(small, follower)).done(), "the next small shard leads"


async def test_lead_takes_shards_for_a_bounded_time(small: SharedInvocation, clock: SettableClock) -> None:
    mine, early, late, later = Played(), Played(), Played(), Played()
    former = await lead(small, mine)
    await clock.advance(timings.LEAD_TAKES_FOR - 1)
    await small.serve(early.shard)
    await clock.advance(1)
    present = await lead(small, late)
    assert not present.done(), "it leads"
    await small.serve(later.shard)
    for played in (mine, early):
        played.end.set()
    await former
    late.end.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not present.done()
    later.end.set()
    await present


def test_invocation_of_a_lead_ends_before_the_platform_ends_it() -> None:
    longest_delivery = 60
    assert timings.LEAD_TAKES_FOR + timings.OWNER_SERVES_FOR + longest_delivery < 600 - 120


async def test_failure_of_a_lone_shard_is_its_invocations(small: SharedInvocation) -> None:
    mine = Played()
    leading = await lead(small, mine)
    mine.fail(Unavailable("storage"))
    with pytest.raises(Unavailable):
        await leading
    assert not mine.failures, "the host repeats the message"


async def test_failures_beside_other_shards_are_taken_care_of_one_by_one(small: SharedInvocation) -> None:
    mine, broken, sound = Played(), Played(), Played()
    leading = await lead(small, mine)
    await small.serve(broken.shard)
    await small.serve(sound.shard)
    broken.fail(Unavailable("storage"))
    mine.fail(Unavailable("storage"))
    await until(lambda: broken.failures and mine.failures)
    assert not leading.done() and not sound.failures
    sound.end.set()
    await leading


async def test_defect_in_a_shard_fails_the_lead_after_the_others_are_served(small: SharedInvocation) -> None:
    mine, broken, sound = Played(), Played(), Played()
    leading = await lead(small, mine)
    await small.serve(broken.shard)
    await small.serve(sound.shard)
    broken.fail(KeyError("defect"))
    mine.end.set()
    await until(lambda: broken.failures)
    assert not leading.done()
    sound.end.set()
    with pytest.raises(KeyError):
        await leading


async def test_lead_that_is_cancelled_leaves_nothing_running(small: SharedInvocation) -> None:
    mine, other = Played(), Played()
    leading = await lead(small, mine)
    await small.serve(other.shard)
    await asyncio.sleep(0)
    leading.cancel()
    await until(lambda: mine.cancelled and other.cancelled)
    follower = Played()
    assert not (await lead(small, follower)).done(), "the next one leads, and waits for its own shard"


async def test_bytes_and_places_are_bounded_and_no_tenant_has_all(small: SharedInvocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invocations, "MOST_SHARDS", 4)
    assert not small.admits("t", invocations.SMALL_SHARD + 1)
    mine = [Played("a", invocations.SMALL_SHARD), Played("a", 1)]
    leading = await lead(small, mine[0])
    await small.serve(mine[1].shard)
    assert not small.admits("a", 1) and small.admits("b", 1), "half of the places for one tenant"
    others = [Played("b", 1), Played("c", 1)]
    for played in others:
        await small.serve(played.shard)
    assert not small.admits("d", 1)
    for played in [*mine, *others]:
        played.end.set()
    await leading
    assert small.admits("a", 1)
    tight = SharedInvocation(SettableClock(START), 1000)
    assert tight.admits("a", 500) and not tight.admits("a", 501), "half of the bytes for one tenant"
    large = [Played("a", 500), Played("b", 400)]
    leading = await lead(tight, large[0])
    await tight.serve(large[1].shard)
    assert not tight.admits("a", 1) and tight.admits("b", 100) and tight.admits("c", 100) and not tight.admits("c", 101)
    for played in large:
        played.end.set()
    await leading
    assert tight.admits("a", 500)


# With the whole application.


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World().open()
    yield world
    await world.close()


async def owned_shards(world: World, count: int) -> list[str]:
    """Make one event for each of `count` tenants, and wait until their shards have owners. Return the events' ids."""
    made = [str((await (await world.tenant(f"t{number}")).create(delay="PT4S"))["id"]) for number in range(count)]
    await world.run(2.5)
    assert [row.props["state"] for row in world.rows(EVENTS) if row.rk == "gate"] == ["owned"] * count
    return made


async def test_shards_of_many_tenants_take_one_slot(world: World) -> None:
    made = await owned_shards(world, 12)
    assert len(world._tasks) == 1, "one invocation leads, the others have ended"
    assert await world.queues.length(QUEUE_SHARDS) == 1
    await world.run(10)
    assert sorted(world.receiver.delivered()) == sorted(made)
    assert not world._tasks


async def test_slow_receiver_of_one_shard_delays_no_other(world: World) -> None:
    made = await owned_shards(world, 6)

    async def answer(target: Target, delivery: OutgoingDelivery) -> Verdict:
        if delivery.id == made[0]:
            await world.clock.sleep(50.0)
        return DELIVERED

    world.receiver.otherwise = answer
    await world.run(5)
    assert sorted(world.receiver.delivered()) == sorted(made[1:])
    assert all(got.began - got.delivery.due <= 20 for got in world.receiver.received)
    await world.run(60)
    assert set(world.receiver.delivered()) == set(made)


async def test_shard_that_was_handed_over_and_failed_is_asked_for_again_by_the_sweep(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, failed = Firing._serve, []

    async def fails_once(self: Firing, message: ShardMessage, *rest: Any) -> None:
        if message.shard.endswith("-t1") and not failed:
            failed.append(message.shard)
            raise Unavailable("storage")
        await plain(self, message, *rest)

    monkeypatch.setattr(Firing, "_serve", fails_once)
    made = [str((await (await world.tenant(f"t{number}")).create(delay="PT10S"))["id"]) for number in range(3)]
    await world.run(15)
    assert failed and len(world.receiver.delivered()) == 2
    await world.run(75)
    assert sorted(world.receiver.delivered()) == sorted(made)
    assert not world.rows(SHARDS)
