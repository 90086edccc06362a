"""The looks of a young process: what they read, which shards they ask for, and what does not end them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from shared.core.clock import Millis
from shared.core.errors import StorageError
from shared.core.process_identity import ProcessIdentity
from shared.scheduler import timings
from shared.scheduler.keys import GATE, index_key, index_partition, shard_key
from shared.scheduler.protocol.dispatch import parse_message
from shared.scheduler.shard.gate import Counts, Gate
from shared.storage.names import EVENTS, QUEUE_RETRIES, QUEUE_SHARDS, SHARDS
from shared.storage.ports import ANY, Insert, Merge, Page, Row, Upsert

from ..harness import START, World

MINUTE = timings.MINUTE


class PlayedProcess:
    """The part of `ProcessIdentity` that recovery uses, on a machine whose ended processes are known."""

    first = False

    def __init__(self) -> None:
        self.name = "young"
        self.ended: set[str] = set()

    def has_ended(self, name: str) -> bool:
        return name in self.ended


@pytest.fixture
def machine() -> PlayedProcess:
    return PlayedProcess()


@pytest.fixture
async def world(machine: PlayedProcess) -> AsyncIterator[World]:
    world = World()
    world.process = cast(ProcessIdentity, machine)
    await world.open()
    yield world
    await world.close()


async def shard(world: World, number: int, process: str, *, wake: Millis = START, tenant: str = "demo", **index: Any) -> tuple[str, str]:
    """Store a shard that an owner in `process` has just taken ('': no owner). Return the shard and the key of its index row."""
    found = shard_key(tenant, f"0n{number}")
    key = index_key(found, wake)
    holder = f"o{number}"
    gate = Gate("owned", holder, epoch=1, index=key, counts=Counts(accepted=1), process=f"{holder} {process}")
    if not process:
        gate = Gate("open", "", index=key, counts=Counts(accepted=1))
    props = {"state": "sent", "wake": wake, "retries": False, "tenant": tenant, "resent": 0, "rounds": 0, "events": 0, **index}
    await world.tables.write(SHARDS, index_partition(found), (Upsert(key, props),))
    await world.tables.write(EVENTS, found, (Upsert(GATE, gate.props()),))
    return found, key


async def heartbeat(world: World, found: str) -> None:
    """Write the shard's gate as its owner does."""
    await world.tables.write(EVENTS, found, (Merge(GATE, {"epoch": 1}, ANY),))


async def look(world: World) -> int:
    """Return the number of shards that one look asks for."""
    return (await world.app.scheduler.recovery.run_once(world.now))["resent"]


async def asked(world: World, queue: str = QUEUE_SHARDS) -> list[str]:
    return [parse_message(message.text).shard for message in await world.queues.receive(queue)]


async def test_gates_of_living_owners_are_read_twice_in_a_minute_and_not_at_each_look(world: World, machine: PlayedProcess) -> None:
    shards = [(await shard(world, number, f"machine{number % 3}"))[0] for number in range(500)]
    world.tables.transactions.clear()
    young = asyncio.ensure_future(world.app.scheduler.recovery.run())
    for _ in range(13):
        await world.clock.advance(5)
        for each in shards:
            await heartbeat(world, each)
    await young
    read = world.tables.transactions
    assert read["query"] == 16 * len(timings.RECOVER_AT)
    assert read["get"] <= 2 * len(shards)
    assert read["write"] == 13 * len(shards), "only the heartbeats"


async def test_owner_whose_process_ends_between_two_looks_is_found_by_the_next_one(world: World, machine: PlayedProcess) -> None:
    await shard(world, 1, "p1")
    assert await look(world) == 0
    await world.clock.advance(3)
    read = world.tables.transactions["get"]
    assert await look(world) == 0 and world.tables.transactions["get"] == read, "its process lives"
    machine.ended.add("p1")
    await world.clock.advance(3)
    assert await look(world) == 1


async def test_owner_of_another_machine_that_falls_silent_after_the_first_look_is_found(world: World) -> None:
    found, _ = await shard(world, 1, "elsewhere")
    assert await look(world) == 0
    for _ in range(4):
        await world.clock.advance(5)
        await heartbeat(world, found)
    silent_from = world.now
    asked_at = None
    while asked_at is None:
        await world.clock.advance(5)
        if await look(world):
            asked_at = world.now
    # Its gate is read again when the one that was seen at first would be old, and then once more.
    assert timings.OWNER_SILENT <= asked_at - silent_from <= timings.OWNER_SILENT + 6_000


async def test_changed_index_row_is_looked_at_again(world: World, machine: PlayedProcess) -> None:
    found, key = await shard(world, 1, "elsewhere")
    machine.ended.add("p2")
    assert await look(world) == 0
    # The shard rested within its minute, and a process of this machine took it and ended.
    await world.tables.write(SHARDS, index_partition(found), (Merge(key, {"resent": 0}, ANY),))
    gate = Gate("owned", "o9", epoch=2, index=key, counts=Counts(accepted=1), process="o9 p2")
    await world.tables.write(EVENTS, found, (Merge(GATE, gate.props(), ANY),))
    assert await look(world) == 1


@pytest.mark.parametrize("late", [2 * MINUTE, 4 * MINUTE, 9 * MINUTE])
@pytest.mark.parametrize("handed_out", [0, 20])
async def test_shard_of_an_ended_process_is_asked_for_however_long_it_was_served(
    world: World, machine: PlayedProcess, late: Millis, handed_out: int
) -> None:
    found, _ = await shard(world, 1, "p1", wake=START - late, events=handed_out)
    machine.ended.add("p1")
    assert await look(world) == 1
    # Behind punctual shards.
    assert await asked(world) == [] and await asked(world, QUEUE_RETRIES) == [found]


async def test_backlog_without_a_proof_is_left_to_its_line(world: World) -> None:
    for number, process in enumerate(["", "elsewhere"] * 20):
        await shard(world, number, process, wake=START - 3 * MINUTE)
    await world.clock.advance(60)
    assert await look(world) == 0
    read = world.tables.transactions["get"]
    await world.clock.advance(20)
    assert await look(world) == 0
    assert world.tables.transactions["get"] == read, "nothing that another look could find"


async def test_long_backlog_hides_no_punctual_shard(world: World, machine: PlayedProcess) -> None:
    machine.ended.add("p1")
    tenants = (f"t{number}" for number in range(100_000))
    partition = index_partition(shard_key("demo", "0n1"))
    stored = 0
    while stored < 1_100:
        tenant = next(tenants)
        if index_partition(shard_key(tenant, "0n1")) == partition:
            await shard(world, 1, "elsewhere", wake=START - 3 * MINUTE, tenant=tenant)
            stored += 1
    found, _ = await shard(world, 1, "p1")
    world.tables.transactions.clear()
    assert await look(world) == 1
    assert await asked(world) == [found]
    assert world.tables.transactions["get"] <= 200


async def test_row_that_cannot_be_understood_and_a_failing_look_end_no_further_look(
    world: World, machine: PlayedProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found, key = await shard(world, 1, "p1")
    minute, _, rest = key.partition(":")
    for broken, wake in ((f"{minute}:", {}), (f"{minute}:{rest}x", {"wake": "soon"})):
        await world.tables.write(SHARDS, index_partition(found), (Insert(broken, {"state": "sent", **wake}),))
    query, failures = world.tables.query, [RuntimeError("a defect"), StorageError("silent")]

    async def failing(*given: Any, **more: Any) -> Page:
        if failures:
            raise failures.pop()
        return await query(*given, **more)

    monkeypatch.setattr(world.tables, "query", failing)
    young = asyncio.ensure_future(world.app.scheduler.recovery.run())
    await world.clock.advance(1)
    machine.ended.add("p1")
    await world.clock.advance(4)
    assert await asked(world) == [found]
    await world.clock.advance(60)
    assert young.done() and young.exception() is None
    assert {getattr(record, "action", "") for record in caplog.records} >= {"recovery_failed"}


async def test_a_gate_that_cannot_be_read_is_read_by_the_next_look(
    world: World, machine: PlayedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shard(world, 1, "p1")
    machine.ended.add("p1")
    get = world.tables.get

    async def silent(*given: Any) -> Row | None:
        raise StorageError("silent")

    monkeypatch.setattr(world.tables, "get", silent)
    assert await look(world) == 0
    monkeypatch.setattr(world.tables, "get", get)
    assert await look(world) == 1


async def test_a_process_that_starts_while_nothing_is_under_way_looks_twice(world: World) -> None:
    world.tables.transactions.clear()
    young = asyncio.ensure_future(world.app.scheduler.recovery.run())
    await world.clock.advance(61)
    assert young.done() and world.tables.transactions["query"] == 2 * 16


@pytest.mark.parametrize(("first", "looks"), [(True, 1), (False, 4)])
async def test_the_first_process_of_a_machine_looks_when_a_shard_can_be_late(
    world: World, machine: PlayedProcess, first: bool, looks: int
) -> None:
    machine.first = first
    await world.close()
    await world.open()
    found, _ = await shard(world, 1, "", wake=world.now + 5_000)
    world.tables.transactions.clear()
    young = asyncio.ensure_future(world.app.scheduler.recovery.run())
    await world.clock.advance(11)
    assert world.tables.transactions["query"] <= looks * 16
    await world.clock.advance(50)
    assert young.done() and await asked(world) == [found]


async def test_a_shard_that_the_second_look_finds_keeps_the_process_looking(world: World, machine: PlayedProcess) -> None:
    young = asyncio.ensure_future(world.app.scheduler.recovery.run())
    await world.clock.advance(1)
    found, _ = await shard(world, 1, "p1")
    await world.clock.advance(10)
    machine.ended.add("p1")
    await world.clock.advance(51)
    assert young.done() and found in await asked(world)


@pytest.mark.parametrize("ahead", [2, 30], ids=["message taken before the minute of its shard", "message not sent"])
async def test_a_shard_of_the_next_minute_keeps_the_process_looking(world: World, ahead: int) -> None:
    minute = (world.now // MINUTE + 1) * MINUTE
    await world.clock.advance((minute - world.now) / 1000 - 10)
    wake = minute + 1000 * ahead
    young = asyncio.ensure_future(world.app.scheduler.recovery.run())
    found, _ = await shard(world, 1, "", wake=wake)
    await world.clock.advance(61)
    assert young.done() and found in await asked(world)
