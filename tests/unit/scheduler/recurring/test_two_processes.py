"""Two processes carry on one schedule while storage answers slowly, or not at all: its occurrences are stored in time.

Two processes that store the same events seal each other's shards: each finds the ids of the other's events taken, and the events missing.
Left to itself, that goes on for minutes while storage answers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any, cast

import pytest

from shared.app.application import Application
from shared.core.clock import Millis
from shared.core.errors import OutcomeUnknown, Unavailable
from shared.core.ids import SeededIds
from shared.delivery.channels.model import CHANNEL_TYPES
from shared.delivery.channels.ports import Sender
from shared.scheduler import timings
from shared.scheduler.ingest.writer import Stored
from shared.scheduler.recurring.definition import PARTITIONS, partition_of
from shared.storage import Storage
from shared.storage.names import EVENTS, SCHEDULES
from shared.storage.ports import Get, TableRequest, WrappedTables, Write
from tests.unit.scheduler.harness import START, World, drive
from tests.unit.scheduler.ingest.test_writer import HOUR, event

from .faults import URL

TICK = 15
EVERY_SECOND = {"every": "PT1S", "payload": 1, "catch_up": {"policy": "all"}}


class Network(WrappedTables):
    """One process's way to the tables. latency: longest seconds each way; faults: share of writes that fail; cut: no event is stored."""

    def __init__(self, world: World, random: Random) -> None:
        super().__init__(world.tables)
        self._clock, self._random = world.clock, random
        self.latency, self.faults, self.cut = 0.0, 0.0, False
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def perform(self, request: TableRequest) -> Any:
        writes = isinstance(request, Write)
        self.writes += writes
        await self._travel()
        if isinstance(request, Get) and self._random.random() < self.faults / 2:
            await self._clock.sleep(self._random.choice((0.1, 1.0, 10.0)))
        if writes and self.cut and request.table != SCHEDULES:
            raise Unavailable("the process is cut off")
        if writes and self._random.random() < self.faults:
            kind = self._random.choice(("unavailable", "lost", "applied"))
            if kind == "applied":
                await self.inner.perform(request)
            await self._clock.sleep(self._random.choice((0.0, 0.1, 10.0)))
            raise Unavailable("503") if kind == "unavailable" else OutcomeUnknown("no answer")
        answer = await self.inner.perform(request)
        await self._travel()
        return answer

    async def _travel(self) -> None:
        if self.latency:
            await self._clock.sleep(self.latency * self._random.uniform(0.3, 1.0))


class Process:
    """A process of its own on a world's storage."""

    def __init__(self, world: World, seed: str) -> None:
        self.world, self.network, self._seed = world, Network(world, Random(seed)), seed

    async def open(self) -> Process:
        world = self.world
        senders = cast(Mapping[str, Sender], dict.fromkeys(CHANNEL_TYPES, world.receiver))
        storage = Storage(cast(Any, self.network), world.queues)
        self.app = await Application.open(world.settings, clock=world.clock, ids=SeededIds(self._seed), storage=storage, senders=senders)
        return self

    async def sweep(self) -> Counter[str]:
        return await self.app.scheduler.recurring.chain.sweep(self.app.scheduler.clock.now())

    async def tick(self) -> None:
        """Sweep as the timer does: every 15 s, and never twice at once."""
        while True:
            await self.world.clock.sleep(TICK - self.world.clock.monotonic() % TICK)
            await self.sweep()


async def together(*steps: Any) -> list[Any]:
    return list(await asyncio.gather(*steps))


async def opened(seed: int) -> tuple[World, Process, Process]:
    world = await World().open()
    return world, await Process(world, f"{seed}/one").open(), await Process(world, f"{seed}/other").open()


def stored(world: World) -> set[Millis]:
    return {int(row.props["due"]) for row in world.events()}


def seconds(first: Millis, last: Millis) -> set[Millis]:
    return set(range(first, last + 1, 1000))


async def test_occurrences_that_another_process_is_storing_are_left_to_it() -> None:
    world, one, other = await opened(1)
    try:
        assert (await world.demo.put(URL, EVERY_SECOND)).status == 201
        await world.clock.advance(60, settle=3)
        one.network.latency = other.network.latency = 0.3
        before = other.network.writes

        async def later() -> Counter[str]:
            await world.clock.sleep(3.0)
            return await other.sweep()

        swept = world.now
        assert await drive(world.clock, together(one.sweep(), later())) == [Counter(stored=1), Counter(waiting=1)]
        assert other.network.writes == before
        assert stored(world) >= seconds(START + 1000, swept + timings.OCCURRENCES_AHEAD)
    finally:
        await world.close()


async def test_occurrences_that_an_ended_process_has_claimed_are_stored_at_the_third_tick_of_another() -> None:
    world, one, other = await opened(2)
    try:
        assert (await world.demo.put(URL, EVERY_SECOND)).status == 201
        await world.clock.advance(60, settle=3)
        one.network.cut = True
        assert await drive(world.clock, one.sweep()) == Counter(failed=1)
        outcomes = []
        for _ in range(3):
            await world.clock.advance(TICK, settle=3)
            swept = world.now
            outcomes.append(await drive(world.clock, other.sweep()))
        assert outcomes == [Counter(waiting=1), Counter(waiting=1), Counter(stored=1)]
        assert stored(world) == seconds(START + 1000, swept + timings.OCCURRENCES_AHEAD)
    finally:
        await world.close()


async def test_schedules_of_a_partition_that_storage_does_not_answer_for_delay_no_other() -> None:
    world, one, _ = await opened(6)
    try:
        by_partition: dict[str, list[str]] = {}
        for number in range(2_000):
            by_partition.setdefault(partition_of("demo", f"s{number}"), []).append(f"s{number}")
        # The sweep begins with the first partition: more than it carries on side by side, in all partitions together.
        silent, sound = by_partition[PARTITIONS[0]][:70], by_partition[PARTITIONS[-1]][0]
        for name in (*silent, sound):
            assert (await world.demo.put(f"/api/v1/schedules/{name}", {**EVERY_SECOND, "every": "PT1M"})).status == 201
        await world.clock.advance(65, settle=3)
        perform, waiting = one.network.perform, asyncio.Event()

        async def answers(request: TableRequest) -> Any:
            if isinstance(request, Get) and request.table == SCHEDULES and request.pk == PARTITIONS[0]:
                await waiting.wait()
            return await perform(request)

        one.network.perform = answers  # type: ignore[method-assign]
        sweep = asyncio.ensure_future(one.sweep())
        await world.clock.advance(5)
        assert not sweep.done(), "the silent partition keeps the sweep waiting"
        due = [int(row.props["due"]) for row in world.events() if str(row.props["id"]).startswith(f"{sound}:")]
        assert max(due) > world.now + 90_000
        waiting.set()
        await drive(world.clock, together(sweep))
    finally:
        await world.close()


async def test_a_process_goes_on_at_once_with_what_it_has_claimed_itself() -> None:
    world, one, _ = await opened(3)
    try:
        assert (await world.demo.put(URL, EVERY_SECOND)).status == 201
        await world.clock.advance(60, settle=3)
        one.network.cut = True
        assert await drive(world.clock, one.sweep()) == Counter(failed=1)
        one.network.cut = False
        await world.clock.advance(TICK, settle=3)
        assert await drive(world.clock, one.sweep()) == Counter(stored=1)
    finally:
        await world.close()


async def test_of_two_processes_that_go_on_with_one_claim_at_once_one_stores_it() -> None:
    world, one, other = await opened(4)
    third = await Process(world, "4/third").open()
    try:
        assert (await world.demo.put(URL, EVERY_SECOND)).status == 201
        await world.clock.advance(60, settle=3)
        third.network.cut = True
        assert await drive(world.clock, third.sweep()) == Counter(failed=1)
        await drive(world.clock, together(one.sweep(), other.sweep()))
        await world.clock.advance(timings.CLAIM_TAKEN_OVER_AFTER, settle=3)
        one.network.latency = other.network.latency = 0.1
        done = await drive(world.clock, together(one.sweep(), other.sweep()))
        assert sorted(done, key=str) == [Counter(lost=1), Counter(stored=1)]
        shards = {row.pk for row in world.rows(EVENTS)}
        assert len(shards) == len({row.pk for row in world.events()}), "no process has sealed another's shard"
    finally:
        await world.close()


async def test_a_process_that_claims_and_never_stores_does_not_keep_another_from_it() -> None:
    world, one, other = await opened(5)
    try:
        assert (await world.demo.put(URL, EVERY_SECOND)).status == 201
        await world.clock.advance(60, settle=3)
        one.network.cut = True
        outcomes = []
        for _ in range(17):
            assert await drive(world.clock, one.sweep()) == Counter(failed=1)
            outcomes.append(await drive(world.clock, other.sweep()))
            await world.clock.advance(TICK, settle=3)
        assert outcomes == [Counter(waiting=1)] * 16 + [Counter(stored=1)]
    finally:
        await world.close()


@pytest.mark.parametrize("seed", range(2))
async def test_one_batch_of_ids_that_two_processes_store_at_once_is_stored(seed: int) -> None:
    """As when a client repeats its request at another instance before the first answer."""
    world, one, other = await opened(seed)
    try:
        one.network.latency = other.network.latency = 0.02
        batch = [[event(HOUR, event_id=f"id-{number}") for number in range(50)] for _ in range(2)]
        writers = [each.app.scheduler.writer.store("demo", events) for each, events in zip((one, other), batch, strict=True)]
        first, second = await drive(world.clock, together(*writers))
        assert all(isinstance(each, Stored) for each in (*first, *second)), "storage answered all the time"
        assert [each.address for each in first] == [each.address for each in second]
        assert len(world.events()) == 50
    finally:
        await world.close()


async def worst_lateness(seed: int) -> Millis:
    """Return the longest time after its due time at which an occurrence was stored, in milliseconds.

    Two processes sweep; a tenth of all writes fails, a third of those after ten seconds of silence.
    """
    world, one, other = await opened(seed)
    ticks: list[asyncio.Task[None]] = []
    try:
        for name, spec in (("seconds", EVERY_SECOND), ("minutes", {**EVERY_SECOND, "every": "PT1M"})):
            assert (await world.demo.put(f"/api/v1/schedules/{name}", spec)).status == 201
        for each in (one, other):
            each.network.latency, each.network.faults = 0.1, 0.1
            ticks.append(asyncio.ensure_future(each.tick()))
        late: dict[str, Millis] = {}
        began = world.now
        while world.now < began + 600_000:
            await world.clock.advance(1, settle=2)
            for row in world.events():
                late.setdefault(str(row.props["id"]), world.now - int(row.props["due"]))
        due = [str(row.props["id"]) for row in world.events() if int(row.props["due"]) <= world.now and "minutes" in str(row.props["id"])]
        assert len(due) >= 8, "every minute has its event"
        return max(late.values())
    finally:
        for task in ticks:
            task.cancel()
        await asyncio.gather(*ticks, return_exceptions=True)
        await world.close()


@pytest.mark.parametrize("seed", [0, 7, 10])
async def test_occurrences_are_stored_at_most_a_minute_late_while_a_tenth_of_all_writes_fails(seed: int) -> None:
    assert await worst_lateness(seed) < 60_000
