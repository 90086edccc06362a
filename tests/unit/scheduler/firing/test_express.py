"""Express delivery: events that are due now are delivered by the process that stores them, without a queue in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from shared.core.errors import OutcomeUnknown, Rejected, StorageError, Unavailable
from shared.delivery.channels.fake import DELIVERED
from shared.delivery.channels.ports import Verdict
from shared.scheduler.firing.arrivals import ExpressLoad
from shared.scheduler.firing.express import Express
from shared.scheduler.shard.gate import parse_gate
from shared.storage import spread_storage
from shared.storage.memory import MemoryQueues, MemoryTables
from shared.storage.names import EVENTS, IDS, LEDGER, QUEUE_RETRIES, QUEUE_SHARDS, SHARDS
from shared.storage.ports import Op

from ..harness import World

type Transaction = tuple[str, list[str]]
"""Table, and the row keys."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Delivers up to five events at a time itself. The day of the key's use is noted already."""
    opened = await World(express_events=5).open()
    await opened.demo.get("/api/v1/events?limit=1")
    await opened.app.directory.close()
    yield opened
    await opened.close()


@pytest.fixture(autouse=True)
def totals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the totals with the shards each time that they decide, in all tests."""
    fits = Express._fits

    def compared(self: Express, tenant: str, count: int, size: int) -> bool:
        for shards, load in (
            (list(self._served), self._load),
            ([each for each in self._served if each.tenant == tenant], self._tenant_loads.get(tenant, ExpressLoad())),
        ):
            found = (len(shards), sum(each.in_flight for each in shards), sum(each.bytes for each in shards))
            assert (load.shards, load.events, load.bytes) == found
        return fits(self, tenant, count, size)

    monkeypatch.setattr(Express, "_fits", compared)


def record(world: World, monkeypatch: pytest.MonkeyPatch) -> list[Transaction]:
    """Return the list of transactions from now on."""
    found: list[Transaction] = []
    plain = world.tables.write

    async def write(table: str, pk: str, ops: tuple[Op, ...]) -> Any:
        found.append((table, [op.rk for op in ops]))
        return await plain(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", write)
    return found


async def settled(world: World) -> None:
    """Let all owners end, and nothing else: no queue is served, and no timer ticks."""
    await world.do(_ended(world))


async def _ended(world: World) -> None:
    while world.app.scheduler.express.shards:
        await world.clock.sleep(0.01)


async def messages(world: World) -> int:
    return await world.queues.length(QUEUE_SHARDS) + await world.queues.length(QUEUE_RETRIES)


async def test_a_lone_event_takes_five_transactions_and_no_message(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = record(world, monkeypatch)
    made = await world.demo.create(delay="PT0S", payload=1)
    await settled(world)
    assert [table for table, _ in transactions] == [SHARDS, EVENTS, EVENTS, LEDGER, SHARDS]
    assert [each.id for each in world.receiver.received] == [made["id"]]
    found = await world.demo.event(made["id"])
    assert (found["state"], found["late_ms"]) == ("delivered", 0)
    assert await messages(world) == 0
    [gate] = [parse_gate(row.props) for row in world.rows(EVENTS) if row.rk == "gate"]
    assert (gate.state, gate.counts.accepted, gate.counts.delivered) == ("done", 1, 1)
    assert world.rows(SHARDS) == []


async def test_events_that_follow_each_other_share_a_shard_and_its_transactions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = record(world, monkeypatch)
    for _ in range(10):
        await world.demo.create(delay="PT0S", payload=1)
        await world.clock.advance(0.1)
    await settled(world)
    assert len(world.receiver.received) == 10
    assert len(transactions) <= 10 + 5 + 5, "one transaction an event, and those of two shards: the first event was a lone one"
    assert await messages(world) == 0 and world.rows(SHARDS) == []


async def test_events_a_second_apart_share_a_shard_and_are_settled_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.demo.create(delay="PT0S", payload=1)
    await settled(world)
    transactions = record(world, monkeypatch)
    for _ in range(5):
        await world.clock.advance(1.0, settle=15)
        made = await world.demo.create(delay="PT0S", payload=1)
        await world.clock.advance(0.1, settle=15)
        assert (await world.demo.event(made["id"]))["state"] == "delivered"
    await settled(world)
    assert len(transactions) == 5 * 2 + 4, "two an event; the index row and its end, the done gate, the ledger"
    assert world.rows(SHARDS) == []


async def test_an_event_that_is_due_in_a_moment_waits_for_its_time(world: World) -> None:
    made = await world.demo.create(delay="PT1.5S", payload=1)
    assert world.receiver.received == []
    assert (await world.demo.event(made["id"]))["state"] == "firing", "claimed, as the owner of another shard would"
    await settled(world)
    assert [each.id for each in world.receiver.received] == [made["id"]]
    assert (await world.demo.event(made["id"]))["late_ms"] == 0


async def test_what_is_due_later_goes_the_usual_way(world: World) -> None:
    later = await world.demo.create(delay="PT3S", payload=1)
    assert world.app.scheduler.express.shards == 0 and await messages(world) == 1
    await world.run(8)
    assert {each.id for each in world.receiver.received} == {later["id"]}


async def test_an_event_with_an_id_of_the_client_has_a_shard_of_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = record(world, monkeypatch)
    await world.demo.create(id="mine", delay="PT0S", payload=1)
    await settled(world)
    assert [table for table, _ in transactions] == [SHARDS, IDS, EVENTS, EVENTS, LEDGER, SHARDS]
    again = await world.demo.post("/api/v1/events", {"id": "mine", "delay": "PT0S", "payload": 1})
    assert (again.status, again.json()["state"]) == (200, "delivered")
    other = await world.demo.post("/api/v1/events", {"id": "mine", "delay": "PT0S", "payload": 2})
    assert other.status == 409
    assert [each.id for each in world.receiver.received] == ["mine"] and len(transactions) == 6


async def test_events_with_ids_that_follow_each_other_closely_share_shards_in_the_usual_way(world: World) -> None:
    for number in range(5):
        await world.demo.create(id=f"mine-{number}", delay="PT0S", payload=1)
    await settled(world)
    assert world.app.scheduler.counters["shards_express"] == 1 and await messages(world) == 1
    await world.run(6)
    assert len(world.receiver.received) == 5


async def test_more_than_the_bound_go_the_usual_way(world: World) -> None:
    batch = await world.demo.post("/api/v1/events/batch", [{"delay": "PT1S", "payload": 1}] * 6)
    assert batch.json()["accepted"] == 6
    assert world.app.scheduler.express.in_flight == 0 and await messages(world) == 1
    await world.run(5)
    assert len(world.receiver.received) == 6


async def test_events_that_are_not_stored_yet_count_against_the_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, stored = world.tables.write, asyncio.Event()

    async def write(table: str, pk: str, ops: tuple[Op, ...]) -> Any:
        # The index row is on its way for as long as the events come.
        if table == SHARDS and world.app.scheduler.express.shards:
            await stored.wait()
        return await plain(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", write)
    express, writer = world.app.scheduler.express, world.app.scheduler.writer
    posts = asyncio.gather(*(world.demo.create(delay="PT0S", payload=number) for number in range(3)))
    while sum(len(each.pending) for each in express._served) + writer.open_shards() < 3 and not posts.done():
        await world.clock.advance(0.001)
    assert (express.in_flight, writer.open_shards()) == (2, 1), "a tenant's half of the bound; the third goes the usual way"
    stored.set()
    await world.do(asyncio.wait_for(posts, None))


async def test_a_tenant_with_many_events_leaves_room_for_others(world: World) -> None:
    acme = await world.tenant("acme")
    for _ in range(5):
        await acme.create(delay="PT1.9S", payload=1)
    assert world.app.scheduler.express.in_flight == 2 and await messages(world) == 1, "half of the bound; the others go the usual way"
    made = await world.demo.create(delay="PT0S", payload=1)
    await world.clock.advance(0.1, settle=15)
    assert [each.id for each in world.receiver.received] == [made["id"]]


async def test_a_paused_channel_gets_nothing(world: World) -> None:
    await world.admin.post("/api/v1/tenants/demo/channels/default/pause", {})
    made = await world.demo.create(delay="PT0S", payload=1)
    await world.run(5)
    assert world.receiver.received == []
    await world.admin.post("/api/v1/tenants/demo/channels/default/resume", {})
    await world.run(40)
    assert [each.id for each in world.receiver.received] == [made["id"]]


async def test_a_channel_that_is_paused_while_the_event_waits_gets_nothing(world: World) -> None:
    made = await world.demo.create(delay="PT1.5S", payload=1)
    await world.admin.post("/api/v1/tenants/demo/channels/default/pause", {})
    await settled(world)
    assert world.receiver.received == []
    assert (await world.demo.call("DELETE", f"/api/v1/events/{made['id']}")).status == 204
    await world.run(60)
    assert world.rows(SHARDS) == []


async def test_a_failed_delivery_is_tried_again_through_the_queue(world: World) -> None:
    world.receiver.otherwise = Verdict("retry", 503)
    made = await world.demo.create(delay="PT0S", payload=1)
    await settled(world)
    assert (await world.demo.event(made["id"]))["state"] == "retrying" and await messages(world) == 1
    world.receiver.otherwise = DELIVERED
    await world.run(15)
    assert (await world.demo.event(made["id"]))["state"] == "delivered"
    assert world.rows(SHARDS) == []


async def test_an_event_whose_expiry_has_passed_lapses(world: World) -> None:
    made = await world.demo.create(due="2027-01-15T07:00:00Z", expires="PT1S", payload=1)
    await settled(world)
    assert (await world.demo.event(made["id"]))["state"] == "lapsed" and world.receiver.received == []


async def test_a_process_that_leaves_delivers_nothing_itself(world: World) -> None:
    waits = await world.demo.create(delay="PT1.9S", payload=1)
    world.app.leave()
    later = await world.demo.create(delay="PT0S", payload=1)
    assert later["state"] == "scheduled"
    await settled(world)
    assert world.receiver.received == [] or [each.id for each in world.receiver.received] == [waits["id"]]
    await world.close()
    await world.open()
    await world.run(60)
    assert {each.id for each in world.receiver.received} == {waits["id"], later["id"]}


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("lost", range(1, 6))
async def test_one_lost_answer_changes_nothing_for_the_caller(
    world: World, monkeypatch: pytest.MonkeyPatch, lost: int, applied: bool
) -> None:
    plain = world.tables.write
    count = 0

    async def write(table: str, pk: str, ops: tuple[Op, ...]) -> Any:
        nonlocal count
        count += 1
        if count != lost:
            return await plain(table, pk, ops)
        if applied:
            await plain(table, pk, ops)
        raise OutcomeUnknown("the answer was lost")

    monkeypatch.setattr(world.tables, "write", write)
    made = await world.demo.create(delay="PT0S", payload=1)
    await settled(world)
    # An event whose first transaction was not applied goes the usual way, into another shard.
    assert await messages(world) == ((lost, applied) == (2, False))
    await world.run(5)
    assert count >= 5
    assert [each.id for each in world.receiver.received] == [made["id"]]
    assert (await world.demo.event(made["id"]))["state"] == "delivered"
    assert world.rows(SHARDS) == []


@pytest.mark.parametrize("then", [Unavailable("busy"), Rejected("no rights")])
async def test_an_event_that_may_be_stored_in_an_express_shard_is_not_stored_in_another_one(
    world: World, monkeypatch: pytest.MonkeyPatch, then: StorageError
) -> None:
    first = await world.demo.create(delay="PT1.9S", payload=1)
    [gate] = [row for row in world.rows(EVENTS) if row.rk == "gate"]
    write, get = world.tables.write, world.tables.get
    away = False

    async def lost(table: str, pk: str, ops: tuple[Op, ...]) -> Any:
        nonlocal away
        if pk != gate.pk or world.clock.monotonic() > until:
            return await write(table, pk, ops)
        if away:
            raise then
        away = True
        await write(table, pk, ops)
        raise OutcomeUnknown("the answer was lost")

    async def silent(table: str, pk: str, rk: str) -> Any:
        if away and pk == gate.pk and world.clock.monotonic() <= until:
            raise Unavailable("busy")
        return await get(table, pk, rk)

    until = world.clock.monotonic() + 40
    monkeypatch.setattr(world.tables, "write", lost)
    monkeypatch.setattr(world.tables, "get", silent)
    answer = await world.demo.post("/api/v1/events", {"delay": "PT0S", "payload": 2})
    assert answer.status == 503, "the caller learns that it is unknown"
    await world.run(180)
    assert len(world.events()) == 2
    assert len({each.id for each in world.receiver.received}) == 2 and first["id"] in {each.id for each in world.receiver.received}


async def test_what_the_end_of_a_process_leaves_is_delivered_by_the_next_one_once_the_gate_is_old(world: World) -> None:
    made = await world.demo.create(delay="PT1.9S", payload=1)
    for task in list(world.app.scheduler.express._served.values()):
        task.cancel()
    await world.do(_ended(world))
    await world.run(30)
    assert world.receiver.received == [], "its owner may still be alive"
    await world.run(60)
    [attempt] = world.receiver.received
    assert (attempt.id, attempt.delivery.attempt) == (made["id"], 2), "the claim of the former owner counts as an attempt"


async def test_unavailable_storage_leaves_the_event_to_the_usual_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = world.tables.write
    refused: list[str] = []

    async def write(table: str, pk: str, ops: tuple[Op, ...]) -> Any:
        if not refused:
            refused.append(table)
            raise Unavailable("busy")
        return await plain(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", write)
    made = await world.demo.create(delay="PT0S", payload=1)
    assert refused == [SHARDS] and await messages(world) == 1
    await world.run(5)
    assert [each.id for each in world.receiver.received] == [made["id"]]


async def test_queued_events_go_the_usual_way(world: World) -> None:
    made = await world.demo.post("/api/v1/events", {"delay": "PT0S", "payload": 1, "durability": "fast"})
    assert made.status == 202
    await world.run(6)
    assert world.app.scheduler.counters["shards_express"] == 0 and len(world.receiver.received) == 1


async def test_shards_are_spread_over_the_accounts() -> None:
    world = World(express_events=5)
    world.storage = spread_storage([MemoryTables(world.clock) for _ in range(3)], MemoryQueues(world.clock), world.clock)
    await world.open()
    made = []
    for _ in range(6):
        made.append((await world.demo.create(delay="PT0S", payload=1))["id"])
        await settled(world)
        # Not so soon after the last one that they share a shard.
        await world.clock.advance(3.0)
    assert [each.id for each in world.receiver.received] == made
    assert {each[0] for each in made} == {"0", "1", "2"}
    await world.close()


@pytest.mark.parametrize("limits", [{"deliveries_per_second": 1.0}, {"concurrency": 1}])
async def test_limits_of_a_channel_hold(world: World, limits: dict[str, float]) -> None:
    answer = await world.admin.put("/api/v1/tenants/demo/channels/slow", {"type": "queue", "queue": "sink", "limits": limits})
    assert answer.status in (200, 201), answer
    world.receiver.takes = 1.0
    for _ in range(4):
        await world.demo.create(delay="PT0S", payload=1, channel="slow")
    await world.run(20)
    began = [each.began for each in world.receiver.received]
    assert len(began) == 4 and world.app.scheduler.counters["shards_express"] >= 1
    assert all(later - earlier >= 900 for earlier, later in pairwise(began))
