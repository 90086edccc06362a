"""Owners at work: what is delivered, when, how often, and what is written down about it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from shared.core.clock import Millis
from shared.core.errors import OutcomeUnknown, Unavailable
from shared.delivery.channels.ports import OutgoingDelivery, SecondVerdict, Target, Verdict
from shared.scheduler import timings
from shared.scheduler.keys import index_key
from shared.scheduler.protocol.dispatch import ShardMessage, parse_message
from shared.scheduler.shard.gate import parse_gate
from shared.storage.names import EVENTS, LEDGER, QUEUE_RETRIES, QUEUE_SHARDS, SHARDS
from shared.storage.ports import Merge, Op, Row
from tests.logs import actions

from ..harness import World

AGAIN = Verdict("retry", 503, "answered 503")
DELIVERED = Verdict("delivered", 200)
DEFAULT = "/api/v1/tenants/demo/channels/default"


@pytest.fixture
async def narrow() -> AsyncIterator[World]:
    """One delivery at a time to a channel."""
    world = await World(target_concurrency=1).open()
    yield world
    await world.close()


def gates(world: World) -> list[Row]:
    return [row for row in world.rows(EVENTS) if row.rk == "gate"]


async def together(world: World, count: int, **event: Any) -> list[str]:
    """Events of one shard."""
    body = {"due": "2027-01-15T08:00:01Z", "payload": 1, **event}
    answer = await world.demo.post("/api/v1/events/batch", [body] * count)
    assert answer.json()["accepted"] == count and len(gates(world)) == 1
    return [line["id"] for line in answer.json()["results"]]


# ---- delivering


async def test_many_events_are_each_delivered_once_and_none_early(world: World) -> None:
    events = [{"delay": f"PT{number * 7 % 95}.{number % 10}S", "payload": number} for number in range(300)]
    answer = await world.demo.post("/api/v1/events/batch", events)
    assert answer.json()["accepted"] == 300
    await world.run(110)
    assert sorted(world.receiver.delivered()) == sorted(line["id"] for line in answer.json()["results"])
    assert all(got.began >= got.delivery.due and got.delivery.attempt == 1 for got in world.receiver.received)
    assert world.rows(SHARDS) == [] and all(parse_gate(row.props).state == "done" for row in gates(world))


async def test_counts_of_gate_and_ledger_are_complete(world: World) -> None:
    made = await together(world, 4)
    await world.demo.delete(f"/api/v1/events/{made[0]}")
    moved = await world.demo.patch(f"/api/v1/events/{made[1]}", {"delay": "PT2H"})
    assert moved.status == 200
    world.receiver.script(made[2], Verdict("final", 400, "answered 400"))
    await world.run(5)
    entry, news = (row for row in world.rows(LEDGER) if row.props["accepted"] == 4)
    assert news.rk == f"~{entry.rk}" and news.props == entry.props
    assert {name: entry.props[name] for name in ("delivered", "dead", "cancelled", "moved", "lapsed")} == {
        "delivered": 1,
        "dead": 1,
        "cancelled": 1,
        "moved": 1,
        "lapsed": 0,
    }


async def test_attempts_are_written_down_with_outcome_and_time(world: World) -> None:
    made = await world.demo.create(delay="PT0S", retry={"first": "PT1S", "max": "PT2S"})
    world.receiver.script(made["id"], AGAIN, Verdict("retry", None, "no answer"), DELIVERED)
    world.receiver.takes = 0.5
    await world.run(30)
    event = await world.demo.event(made["id"])
    assert [(entry["outcome"], entry.get("status"), entry.get("error"), entry["took_ms"]) for entry in event["attempts"]] == [
        ("retry", 503, "answered 503", 500),
        ("retry", None, "no answer", 500),
        ("delivered", 200, None, 500),
    ]
    assert [got.delivery.attempt for got in world.receiver.of(made["id"])] == [1, 2, 3]


async def test_sender_that_raises_is_an_attempt_that_failed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def broken(target: Target, delivery: OutgoingDelivery) -> Verdict:
        raise RuntimeError("hunter2")

    made = await world.demo.create(delay="PT0S", retry={"attempts": 1})
    world.receiver.script(made["id"], broken)
    await world.run(3)
    event = await world.demo.event(made["id"])
    assert (event["state"], event["error"]) == ("dead", "the sender failed: RuntimeError")
    assert "sender_failed" in actions(caplog)


async def test_retry_after_is_waited_for(world: World) -> None:
    made = await world.demo.create(delay="PT0S")
    world.receiver.script(made["id"], Verdict("retry", 429, "answered 429", retry_after=40.0), DELIVERED)
    await world.run(60)
    first, second = world.receiver.of(made["id"])
    assert second.began - first.ended >= 40_000


async def test_paused_channel_holds_its_events_and_costs_no_attempts(world: World) -> None:
    made = await world.demo.create(delay="PT1S", retry={"attempts": 1})
    assert (await world.admin.post(f"{DEFAULT}/pause")).status == 200
    await world.run(120)
    event = await world.demo.event(made["id"])
    assert event["state"] == "scheduled" and event["attempts"] == world.receiver.received == []
    assert (await world.admin.post(f"{DEFAULT}/resume")).status == 200
    await world.run(40)
    [got] = world.receiver.received
    assert got.delivery.attempt == 1
    assert (await world.demo.event(made["id"]))["state"] == "delivered"


async def test_event_of_a_paused_channel_may_still_be_cancelled_and_lapse(world: World) -> None:
    cancelled, lapsing = await world.demo.create(delay="PT1S"), await world.demo.create(delay="PT1S", expires="PT1M")
    await world.admin.post(f"{DEFAULT}/pause")
    await world.run(10)
    assert (await world.demo.delete(f"/api/v1/events/{cancelled['id']}")).status == 204
    await world.run(90)
    assert (await world.demo.event(lapsing["id"]))["state"] == "lapsed"
    assert world.rows(SHARDS) == []


async def test_event_of_a_removed_channel_is_dead_and_says_so(world: World) -> None:
    made = await world.demo.create(delay="PT1S")
    assert (await world.admin.delete(DEFAULT)).status == 204
    await world.run(3)
    event = await world.demo.event(made["id"])
    assert (event["state"], event["error"]) == ("dead", "the channel no longer exists")


async def test_event_of_a_removed_tenant_ends(world: World) -> None:
    client = await world.tenant("acme")
    await client.create(delay="PT1S")
    assert (await world.admin.delete("/api/v1/tenants/acme")).status == 204
    await world.run(15)
    assert world.receiver.received == []
    assert [row.props["state"] for row in world.events()] == ["dead"]


async def test_event_that_expires_while_it_waits_for_a_slot_lapses(narrow: World) -> None:
    narrow.receiver.takes = 20.0
    made = await together(narrow, 2, expires="PT10S")
    await narrow.run(45)
    assert sorted([(await narrow.demo.event(event))["state"] for event in made]) == ["delivered", "lapsed"]
    assert len(narrow.receiver.received) == 1


async def test_other_channels_go_on_while_one_stalls(narrow: World) -> None:
    assert (await narrow.admin.put("/api/v1/tenants/demo/channels/b", {"type": "http", "url": "http://localhost:1/"})).status == 201

    async def slow(target: Target, delivery: OutgoingDelivery) -> Verdict:
        if target.name == "default":
            await narrow.clock.sleep(50)
        narrow.receiver.received.append((target, delivery))  # type: ignore[arg-type]
        return DELIVERED

    narrow.receiver.send = slow  # type: ignore[method-assign]
    for number in range(4):
        await narrow.demo.create(due="2027-01-15T08:00:01Z", channel="b" if number % 2 else "default")
    await narrow.run(10)
    assert [target.name for target, _ in narrow.receiver.received] == ["b", "b"]  # type: ignore[misc]


# ---- holding and losing a shard


async def test_nothing_is_started_when_the_last_beat_is_too_old(narrow: World, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Millis] = []

    async def stalls(target: Target, delivery: OutgoingDelivery) -> Verdict:
        started.append(narrow.now)
        if len(started) == 2:
            await narrow.clock.sleep(40)
        return DELIVERED

    narrow.receiver.send = stalls  # type: ignore[method-assign]
    await together(narrow, 3)
    await narrow.run(0.9)
    stuck, write = asyncio.Event(), narrow.tables.write

    async def hangs(table: str, pk: str, ops: Sequence[Op]) -> Any:
        if table == EVENTS:
            await stuck.wait()
        return await write(table, pk, ops)

    monkeypatch.setattr(narrow.tables, "write", hangs)
    await narrow.run(200)
    assert len(started) == 2, "the third's turn came when the last beat was more than 30 s old"
    stuck.set()
    await narrow.run(60)
    assert len(started) >= 3


def refuse(world: World, monkeypatch: pytest.MonkeyPatch, call: str, seconds: int, *, taken: bool = False) -> list[str]:
    """Let storage answer 503 to this call for event rows, from now on for so long. Return a list that gets each refused partition.

    taken: refuse nothing before a shard is taken.
    """
    answers, until = getattr(world.tables, call), world.now + 1000 * seconds
    refused: list[str] = []

    async def throttled(*args: Any) -> Any:
        table, pk = args[0][:2] if call == "query" else args[:2]
        if table == EVENTS and world.now < until and (not taken or world.app.scheduler.counters["shards_taken"]):
            refused.append(pk)
            raise Unavailable("503")
        return await answers(*args)

    monkeypatch.setattr(world.tables, call, throttled)
    return refused


@pytest.mark.parametrize("call", ["query", "write"])
async def test_owner_keeps_its_shard_while_storage_refuses_for_some_seconds(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    await together(world, 5)
    refused = refuse(world, monkeypatch, call, 12, taken=True)
    await world.run(25)
    assert len(refused) > 1
    assert sorted(got.delivery.attempt for got in world.receiver.received) == [1] * 5
    assert world.app.scheduler.counters["shards_taken"] == 1, "nobody had to wait until the owner counted as gone"
    assert [row.props["state"] for row in world.events()] == ["delivered"] * 5


@pytest.mark.parametrize("applied", [False, True])
async def test_owner_reads_its_shard_again_only_if_a_lost_transaction_was_stored(
    world: World, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    answer = await world.demo.post("/api/v1/events/batch", [{"delay": "PT30S", "payload": number} for number in range(200)])
    assert answer.json()["accepted"] == 200
    plain, lost = world.tables.write, 0

    async def write(table: str, pk: str, ops: Any) -> Any:
        nonlocal lost
        if table == EVENTS and len(ops) > 50 and lost < 4:
            lost += 1
            if applied:
                await plain(table, pk, ops)
            raise OutcomeUnknown("503")
        return await plain(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", write)
    world.tables.transactions.clear()
    await world.run(45)
    assert lost == 4
    assert sorted(Counter(got.delivery.id for got in world.receiver.received).values()) == [1] * 200
    # The rows are read when the shard is taken, and after each transaction whose answer was lost although it was stored.
    reads = world.tables.transactions["rows_read"]
    assert (reads > 4 * 200) if applied else (reads < 2 * 200)


@pytest.mark.parametrize("call", ["get", "write"])
async def test_shard_is_taken_a_few_seconds_later_when_storage_refuses_at_first(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    await together(world, 5)
    refused = refuse(world, monkeypatch, call, 6)
    await world.run(14)
    assert len(refused) > 1
    assert [row.props["state"] for row in world.events()] == ["delivered"] * 5


async def test_owner_gives_up_when_storage_refuses_for_longer_than_it_may_start_deliveries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await together(world, 5)
    refuse(world, monkeypatch, "query", 60)
    with pytest.raises(Unavailable):
        await world.run(timings.OWNER_MAY_START + 10)


async def test_owner_lets_go_after_four_minutes_and_its_shard_is_served_on(narrow: World) -> None:
    narrow.receiver.takes = 2.0
    await together(narrow, 200, retry={"attempts": 1})
    await narrow.run(240)
    assert narrow.app.scheduler.counters["shards_taken"] == 1
    await narrow.run(30)
    assert narrow.app.scheduler.counters["shards_taken"] == 2
    await narrow.run(150)
    assert [got.delivery.attempt for got in narrow.receiver.received] == [1] * 200
    assert [row.props["state"] for row in narrow.events()] == ["delivered"] * 200
    assert timings.OWNER_SERVES_FOR + 60 + timings.HEARTBEAT_EVERY < 600, "an invocation ends well before the platform's limit"


async def test_leaving_owner_starts_nothing_more_and_lets_go(narrow: World) -> None:
    narrow.receiver.takes = 5.0
    await together(narrow, 3)
    await narrow.run(3)
    narrow.app.leave()
    await narrow.clock.advance(10)
    assert len(narrow.receiver.received) == 1
    [gate] = gates(narrow)
    assert gate.props["state"] == "resting"
    assert sorted(row.props["state"] for row in narrow.events()) == ["delivered", "scheduled", "scheduled"]
    await narrow.open()  # the next process on the same storage
    await narrow.run(30)
    assert len(narrow.receiver.received) == 3


async def test_owner_that_lost_its_shard_starts_nothing_more(narrow: World) -> None:
    narrow.receiver.takes = 20.0
    await together(narrow, 3)
    await narrow.run(5)
    [row] = gates(narrow)
    await narrow.tables.write(EVENTS, row.pk, (Merge("gate", {"holder": "other", "epoch": 9}, row.etag),))
    await narrow.clock.advance(40)
    assert len(narrow.receiver.received) <= 1 and narrow.receiver.in_flight == 0
    assert narrow.app.scheduler.counters["shards_lost"] == 1


async def test_shard_of_a_dead_owner_is_taken_over_and_its_events_flagged(world: World) -> None:
    world.receiver.takes = 10_000.0
    made = await world.demo.create(delay="PT1S")
    await world.run(5)
    for task in list(world._tasks):
        task.cancel()
    world.receiver.takes = 0.0
    await world.run(120)
    [got] = world.receiver.received
    assert (got.delivery.id, got.delivery.attempt) == (made["id"], 2)
    [row] = world.events()
    assert (row.props["state"], row.props["flag"]) == ("delivered", True)
    assert got.began >= 1_800_000_000_000 + timings.OWNER_SILENT


async def test_shard_with_only_retries_left_rests_and_comes_back_through_the_queue_of_retries(world: World) -> None:
    made = await world.demo.create(delay="PT0S")
    world.receiver.script(made["id"], Verdict("retry", 503, "answered 503", retry_after=60.0), DELIVERED)
    await world.run(5)
    [gate] = gates(world)
    assert gate.props["state"] == "resting"
    assert (await world.queues.length(QUEUE_RETRIES), await world.queues.length(QUEUE_SHARDS)) == (1, 0)
    await world.run(60)
    assert world.receiver.delivered() == [made["id"]]


async def test_message_of_a_busy_shard_comes_back_when_its_owner_would_be_silent(world: World) -> None:
    world.receiver.takes = 30.0
    await world.demo.create(delay="PT0S")
    await world.run(2)
    [gate] = gates(world)
    message = ShardMessage(gate.pk, str(gate.props["index"]))
    await world.app.scheduler.firing.serve(message.text())
    # The invocation of the owner may have taken the message over.
    await world.run(0.5)
    assert world.app.scheduler.counters["shards_busy"] == 1
    sent = list(world.queues._queues[QUEUE_SHARDS].messages.values())[-1]
    assert parse_message(sent.text) == message
    assert timings.OWNER_SILENT - 5_000 <= sent.visible - world.now <= timings.OWNER_SILENT + 2_000


async def test_message_of_a_finished_shard_tidies_up_and_one_of_none_is_dropped(world: World) -> None:
    await world.demo.create(delay="PT0S")
    await world.run(3)
    [gate] = gates(world)
    before = world.dump()
    await world.app.scheduler.firing.serve(ShardMessage(gate.pk, str(gate.props["index"])).text())
    missing = "00-0123456789abcdef-demo"
    await world.app.scheduler.firing.serve(ShardMessage(missing, index_key(missing, world.now)).text())
    assert world.dump() == before


async def test_both_sends_of_a_lost_connection_are_recorded_and_cost_one_attempt(world: World) -> None:
    """A kept connection that closes without an answer leads to a second POST at once: two arrivals, two entries, two numbers."""
    lost = "the connection was closed before an answer"

    def second(verdict: Verdict) -> Any:
        return lambda target, delivery: SecondVerdict.of(verdict, delivery.fired + 20, lost)

    made = await world.demo.create(delay="PT0S", retry={"attempts": 2, "first": "PT1S", "max": "PT1S"})
    world.receiver.script(made["id"], second(AGAIN), second(DELIVERED))
    await world.run(30)
    event = await world.demo.event(made["id"])
    assert event["state"] == "delivered", "the first send of each pair uses no attempt of the two"
    assert [(entry["outcome"], entry.get("error")) for entry in event["attempts"]] == [
        ("retry", lost),
        ("retry", "answered 503"),
        ("retry", lost),
        ("delivered", None),
    ]
    assert len({entry["at"] for entry in event["attempts"]}) == 4
    assert [got.delivery.attempt for got in world.receiver.of(made["id"])] == [1, 3], "the second sends were 2 and 4"
    [row] = world.events()
    assert (row.props["tries"], row.props["failed"], row.props["free"]) == (4, 1, 2)
    assert event["late_ms"] == world.receiver.of(made["id"])[1].delivery.late_ms + 20
