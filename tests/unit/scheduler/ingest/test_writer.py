"""The writer: few transactions, bounded shards, nothing acknowledged that is not stored."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from shared.core.errors import OutcomeUnknown, StorageError, Unavailable
from shared.scheduler.facets import FACETS
from shared.scheduler.ingest import open_shards
from shared.scheduler.ingest.writer import Stored
from shared.scheduler.keys import shard_name
from shared.scheduler.protocol import owning
from shared.scheduler.rows import EventToStore, body_props, encoded_size
from shared.scheduler.shard.gate import parse_gate
from shared.scheduler.timings import (
    CROWDED_SHARDS,
    ENOUGH_EVENTS,
    GROUP_WAIT,
    MESSAGE_TAKEN_WITHIN,
    OPEN_BEFORE,
    WAKE_EARLIEST,
    WAKE_EARLY,
    WAKE_EARLY_EACH,
)
from shared.storage.names import EVENTS, SHARDS
from shared.storage.ports import Op

from ..harness import START, World

HOUR = START + 3_600_000


def event(due: int = HOUR, body: bytes = b"1", event_id: str | None = None) -> EventToStore:
    size = encoded_size(body)
    props: dict[str, Any] = {"state": "scheduled", "due": due, "created": START, "channel": "default", "size": size, **body_props(body)}
    if event_id is not None:
        props["id"] = event_id
    return EventToStore(props, due, size, event_id, "hash" if event_id else "")


async def store(world: World, *events: EventToStore) -> list[Stored]:
    found = await world.do(world.app.scheduler.writer.store("demo", events))
    assert all(isinstance(each, Stored) for each in found)
    return found  # type: ignore[return-value]


def writes(world: World) -> int:
    return world.tables.transactions["write"]


def shards(world: World) -> dict[str, int]:
    """Events by shard."""
    found: dict[str, int] = {}
    for row in world.events():
        found[row.pk] = found.get(row.pk, 0) + 1
    return found


async def test_single_requests_that_come_together_are_stored_together(world: World) -> None:
    before = writes(world)

    async def all_at_once() -> list[list[Stored | StorageError]]:
        return await asyncio.gather(*(world.app.scheduler.writer.store("demo", [event()]) for _ in range(64)))

    found = await world.do(all_at_once())
    assert len({each[0].id for each in found if isinstance(each[0], Stored)}) == 64
    assert writes(world) - before <= 3, "an index row, and one transaction or two"
    assert shards(world) == {next(iter(shards(world))): 64}


async def test_later_requests_join_the_open_shard(world: World) -> None:
    for _ in range(20):
        await store(world, event())
    assert len(shards(world)) == 1 and len(world.rows(SHARDS)) == 1


async def test_batch_of_ten_thousand_costs_little_more_than_one_transaction_for_99(world: World) -> None:
    before = writes(world)
    found = await store(world, *(event(body=b"%d" % number) for number in range(10_000)))
    assert len({each.id for each in found}) == 10_000
    cost = writes(world) - before
    full = -(-10_000 // world.settings.shard_events)
    assert cost <= 10_000 / 99 + 2 * full + 1
    assert cost / 10_000 <= 0.015
    assert sorted(shards(world).values(), reverse=True)[0] == world.settings.shard_events
    for gate in (row for row in world.rows(EVENTS) if row.rk == "gate"):
        assert parse_gate(gate.props).counts.accepted == shards(world)[gate.pk]


async def test_events_of_different_minutes_and_tenants_lie_in_different_shards(world: World) -> None:
    await store(world, *(event(HOUR + minute * 60_000) for minute in range(3) for _ in range(2)))
    await world.do(world.app.scheduler.writer.store("acme", [event()]))
    assert sorted(shards(world).values()) == [1, 2, 2, 2]


async def test_shard_holds_no_more_events_than_it_may() -> None:
    world = await World(shard_events=10).open()
    await store(world, *(event() for _ in range(25)))
    assert sorted(shards(world).values()) == [5, 10, 10]
    await store(world, event())
    assert sorted(shards(world).values()) == [6, 10, 10]
    await world.close()


async def test_shard_holds_no_more_bytes_than_it_may() -> None:
    world = await World(shard_bytes=64 * 1024).open()
    large = b'"' + b"x" * 20_000 + b'"'
    await store(world, *(event(body=large) for _ in range(7)))
    assert sorted(shards(world).values()) == [1, 3, 3]
    for gate in (row for row in world.rows(EVENTS) if row.rk == "gate"):
        assert gate.props["bytes"] == shards(world)[gate.pk] * encoded_size(large)
    await world.close()


async def test_event_larger_than_a_shard_may_be_gets_one_of_its_own() -> None:
    world = await World(shard_bytes=64 * 1024).open()
    await store(world, event(body=b'"' + b"x" * 200_000 + b'"'), event())
    assert sorted(shards(world).values()) == [1, 1]
    await world.close()


async def test_transaction_holds_no_more_bytes_than_the_store_takes(world: World) -> None:
    await store(world, *(event(body=b'"' + b'\\"' * 60_000 + b'"') for _ in range(60)))
    assert sum(shards(world).values()) == 60


async def test_open_shards_are_bounded_and_forgetting_them_loses_nothing(world: World) -> None:
    count = open_shards.OPEN_SHARDS + 100
    await store(world, *(event(HOUR + minute * 60_000) for minute in range(count)))
    assert world.app.scheduler.writer.open_shards() <= open_shards.OPEN_SHARDS
    await store(world, event(HOUR), event(HOUR + (count - 1) * 60_000))
    assert len(world.events()) == count + 2 and len(shards(world)) == count + 1


async def test_minute_is_filled_in_parts_of_ten_seconds_once_a_shard_is_full_and_by_the_second_once_twelve_are() -> None:
    world = await World(shard_events=1).open()
    dues = [HOUR + 20_000 + number * 7919 % 10_000 for number in range(20)] + [HOUR + 33_333]
    for due in dues:
        await store(world, event(due))
    first = dues[0] - OPEN_BEFORE
    in_tens = [HOUR + 20_000] * CROWDED_SHARDS + [HOUR + 30_000]
    by_second = [due - due % 1_000 for due in dues[CROWDED_SHARDS + 1 : -1]]
    assert sorted(row.props["wake"] for row in world.rows(SHARDS)) == sorted([first, *in_tens, *by_second])
    await world.close()


async def test_minutes_that_have_passed_are_forgotten(world: World) -> None:
    for _ in range(10):
        await store(world, event(world.now + 1_000))
        await world.clock.advance(300)
    assert world.app.scheduler.writer.open_shards() <= 2


async def test_event_goes_into_a_new_shard_when_an_owner_has_the_first(world: World) -> None:
    [first] = await store(world, event())
    taken = await world.do(world.app.scheduler.runner.run(owning.take(first.address.shard, "x", "me", FACETS)))
    assert isinstance(taken, owning.OwnerSession)
    [second] = await store(world, event())
    assert second.address.shard != first.address.shard
    assert sorted(shards(world).values()) == [1, 1]


async def test_event_due_before_the_open_shards_wake_up_opens_another(world: World) -> None:
    await store(world, event(START + 30_000))
    await store(world, event(START + 20_000))
    await store(world, event(START + 29_950))
    assert sorted(row.props["wake"] for row in world.rows(SHARDS)) == [START + 20_000 - OPEN_BEFORE, START + 30_000 - OPEN_BEFORE]
    assert {row.props["bucket"] for row in world.rows(SHARDS)} == {"202701150800"}


async def test_event_goes_into_the_open_shard_that_wakes_last(world: World) -> None:
    await store(world, event(START + 40_000))
    await store(world, event(START + 12_000))
    [late] = await store(world, event(START + 39_950))
    [early] = await store(world, event(START + 20_000))
    wakes = {row.rk.split(":")[-1]: row.props["wake"] for row in world.rows(SHARDS)}
    assert sorted(wakes.values()) == [START + 12_000 - OPEN_BEFORE, START + 40_000 - OPEN_BEFORE]
    assert [wakes[shard_name(each.address.shard)] for each in (early, late)] == sorted(wakes.values())


async def test_shard_with_an_announced_owner_takes_more_until_it_comes_but_not_for_long(world: World) -> None:
    [first] = await store(world, event(START + 1_000))
    [message] = world.queues._queues["tocsin-shards"].messages.values()
    assert message.visible <= world.clock.now()
    [second] = await store(world, event(START + 500))
    assert second.address.shard == first.address.shard
    await world.clock.advance(MESSAGE_TAKEN_WITHIN / 1000)
    [third] = await store(world, event(START + 5_000))
    assert third.address.shard != first.address.shard


async def test_minute_that_gets_more_than_a_shard_holds_is_filled_in_parts(world: World) -> None:
    full = world.app.settings.shard_events
    await store(world, *(event(HOUR + 60_000 * number // full) for number in range(full)))
    assert {row.props["wake"] for row in world.rows(SHARDS)} == {HOUR}
    await store(world, *(event(HOUR + 60_000 * number // full) for number in range(full)))
    assert sorted(row.props["wake"] for row in world.rows(SHARDS)) == [HOUR, *(HOUR + 10_000 * part for part in range(6))]
    assert sorted(shards(world).values()) == [full // 6] * 6 + [full]


async def test_events_posted_one_by_one_share_shards(world: World) -> None:
    """Ten events a second, due in 1 to 40 seconds, while no shard has an owner. One shard for each event would make 200."""
    chance = random.Random(1)
    for number in range(200):
        await store(world, event(START + 100 * number + chance.randrange(1_000, 40_000)))
        await world.clock.advance(0.1, settle=1)
    assert len(shards(world)) <= 30


async def test_near_shard_is_announced_and_a_far_one_is_left_to_the_sweep(world: World) -> None:
    await store(world, event(START + 30_000))
    await store(world, event(HOUR))
    found = {row.props["state"]: row.props["wake"] for row in world.rows(SHARDS)}
    wake = START + 30_000 - OPEN_BEFORE
    assert (found["sent"], found["pending"]) == (wake, HOUR)
    [sent] = world.queues._queues["tocsin-shards"].messages.values()
    assert 0 <= sent.visible - (wake - WAKE_EARLY) <= 1_000, "queues count in seconds"


async def test_message_of_a_shard_that_starts_with_many_events_comes_earlier(world: World) -> None:
    await store(world, *(event(START + 30_000) for _ in range(500)))
    [sent] = world.queues._queues["tocsin-shards"].messages.values()
    assert START + 30_000 - sent.visible >= WAKE_EARLY + 500 * WAKE_EARLY_EACH - 1_000


async def test_shard_that_grows_after_its_message_was_sent_gets_an_earlier_one(world: World) -> None:
    for _ in range(12):
        await store(world, *(event(START + 50_000) for _ in range(50)))
    assert len(shards(world)) == 1
    first, second = sorted(each.visible for each in world.queues._queues["tocsin-shards"].messages.values())
    assert START + 50_000 - first > WAKE_EARLIEST - 1_000 and START + 50_000 - second < WAKE_EARLIEST - 1_000


async def test_later_minute_gets_few_shards_from_events_posted_in_any_order(world: World) -> None:
    for number in range(59, -1, -1):
        await store(world, event(HOUR + 1_000 * number))
    wakes = sorted(row.props["wake"] for row in world.rows(SHARDS))
    assert wakes == [HOUR, *(HOUR + 1_000 * number - OPEN_BEFORE for number in (57, 58, 59))], "the last one takes all the others"


async def test_storage_that_refuses_is_reported_and_nothing_is_acknowledged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write = world.tables.write

    async def away(table: str, pk: str, ops: Sequence[Op]) -> Any:
        if table == EVENTS:
            raise Unavailable("throttled")
        return await write(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", away)
    found = await world.do(world.app.scheduler.writer.store("demo", [event(), event(event_id="x")]))
    assert all(isinstance(each, Unavailable) for each in found) and world.events() == []
    monkeypatch.undo()
    await store(world, event(), event(event_id="x"))
    assert len(world.events()) == 2


@pytest.mark.parametrize("applied", [True, False])
async def test_lost_answer_is_cleared_up_and_the_event_is_stored_once(world: World, applied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    write, lost = world.tables.write, []

    async def loses(table: str, pk: str, ops: Sequence[Op]) -> Any:
        if table == EVENTS and not lost:
            lost.append(pk)
            if applied:
                await write(table, pk, ops)
            raise OutcomeUnknown("lost")
        return await write(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", loses)
    [stored] = await store(world, event(event_id="x"))
    assert lost and len(world.events()) == 1
    [row] = world.events()
    assert (row.pk, row.rk) == stored.address


async def test_message_that_cannot_be_sent_is_left_to_the_sweep(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise Unavailable("throttled")

    monkeypatch.setattr(world.queues, "send", away)
    [stored] = await store(world, event(START + 1_000))
    monkeypatch.undo()
    await world.run(70)
    assert world.receiver.delivered() == [stored.id]


async def test_one_id_stored_by_many_at_once_is_one_event(world: World) -> None:
    async def all_at_once() -> list[list[Stored | StorageError]]:
        return await asyncio.gather(*(world.app.scheduler.writer.store("demo", [event(event_id="x")]) for _ in range(32)))

    found = [each[0] for each in await world.do(all_at_once())]
    assert all(isinstance(each, Stored) and each.same for each in found)
    assert sum(isinstance(each, Stored) and each.existing is None for each in found) == 1
    assert len(world.events()) == 1


async def test_events_that_have_gathered_behind_a_transaction_do_not_wait_for_others(world: World) -> None:
    begun: list[float] = []
    real = world.tables.write

    async def slow(table: str, pk: str, ops: Sequence[Op]) -> Any:
        if table == EVENTS:
            begun.append(world.clock.monotonic())
            await world.clock.sleep(0.02)
        return await real(table, pk, ops)

    world.tables.write = slow  # type: ignore[method-assign]

    async def later(count: int) -> None:
        await world.clock.sleep(0.01)
        await asyncio.gather(*(world.app.scheduler.writer.store("demo", [event()]) for _ in range(count)))

    await world.do(asyncio.gather(world.app.scheduler.writer.store("demo", [event()]), later(ENOUGH_EVENTS)))
    await world.do(asyncio.gather(world.app.scheduler.writer.store("demo", [event()]), later(ENOUGH_EVENTS - 1)))
    enough, too_few = begun[1] - begun[0], begun[3] - begun[2]
    assert enough == pytest.approx(0.02) and too_few == pytest.approx(0.02 + GROUP_WAIT)
