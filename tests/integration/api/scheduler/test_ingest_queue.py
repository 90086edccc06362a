"""The ingest queue as producers use it: checked like a request, never doubled, never noise; what is wrong becomes a reject."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.core.errors import Problem, Unavailable
from shared.extras.kafka_source.consumer import KafkaMessage
from shared.extras.kafka_source.ingest import item_of
from shared.extras.kafka_source.sources import KafkaSource
from shared.scheduler.ingest.queue_consumer import Item, Reject, RetryLater
from shared.scheduler.ingest.rejects import MAX_MESSAGE
from shared.scheduler.timings import CARRIED_FROM_TRY, KEEP_FINISHED
from shared.storage.names import IDS, QUEUE_INGEST
from shared.storage.ports import Message, Op
from tests.unit.scheduler.harness import DEMO, START, World

from ..calls import EVENTS, GOOD, code, letter, rejects, send, waiting


async def test_events_of_a_message_are_stored_and_fire(world: World) -> None:
    await send(world, {"tenant": "demo", "key": DEMO, "event": GOOD | {"id": "mine"}})
    await send(world, f'{{"key": "{DEMO}", "events": [{{"delay": "PT30S", "payload": [1.0, 1e2]}}], "tenant": "demo"}}')
    await world.run(2)
    assert waiting(world) == 0
    shown = {json.dumps(event["payload"]): event for event in await world.demo.all(EVENTS)}
    assert (await world.demo.event("mine"))["state"] == "scheduled" and len(shown) == 2
    await world.run(70)
    assert sorted(got.delivery.body for got in world.receiver.received) == [b"[1.0, 1e2]", b'{"n": 1}']
    assert await rejects(world.demo) == []


async def test_numbers_of_a_message_stay_as_sent(world: World) -> None:
    payload = '{"n":[1e400, -0,1E+5,%s]}' % ("7" * 5_000)
    await send(world, f'{{"key": "{DEMO}", "event": {{"delay": "PT1S", "payload": {payload}}}, "tenant": "demo"}}')
    await world.run(5)
    assert [got.delivery.body for got in world.receiver.received] == [payload.encode()]


async def test_a_delay_counts_from_when_the_message_was_sent_and_nothing_is_early(world: World) -> None:
    await world.clock.advance(0.4)
    await send(world, letter(GOOD | {"id": "mine", "delay": "PT10S"}))
    await world.clock.advance(5)
    await world.run(1)
    # The queue tells whole seconds only.
    assert (await world.demo.event("mine"))["due"] == to_text(START + 10_000)
    await world.clock.advance(0.001)
    await world.queues.send(QUEUE_INGEST, json.dumps(letter(GOOD | {"id": "other", "delay": "PT10S"})))
    [message] = await world.queues.receive(QUEUE_INGEST)
    late = Message(message.id, message.receipt, message.text, 1, START + 7_001)
    await world.do(world.app.scheduler.intake.serve(late))
    assert (await world.demo.event("other"))["due"] == to_text(START + 18_000)


async def test_a_message_that_comes_again_makes_no_second_event(world: World) -> None:
    await send(world, letter(GOOD, GOOD, GOOD | {"id": "mine"}))
    await send(world, letter(GOOD))
    messages = await world.queues.receive(QUEUE_INGEST)
    for message in (*messages, *messages):
        await world.do(world.app.scheduler.intake.serve(message))
    assert len(world.events()) == 4, "as many as were sent: two messages of the same content are two"
    await world.run(70)
    for message in messages:
        await world.do(world.app.scheduler.intake.serve(message))
    await world.run(70)
    assert len(world.events()) == 4 and len(world.receiver.received) == 4
    assert await rejects(world.demo) == []


BAD_EVENTS = [
    ({"delay": "PT1M"}, "invalid-content", "/payload"),
    (GOOD | {"colour": 1}, "invalid-content", "/colour"),
    (GOOD | {"channel": "nowhere"}, "invalid-content", "/channel"),
    (GOOD | {"durability": "mirrored"}, "invalid-content", "/durability"),
    (GOOD | {"durability": "fast", "id": "mine"}, "invalid-content", "/id"),
    (GOOD | {"payload": "x" * 41_000, "durability": "fast"}, "payload-too-large", "/payload"),
    (17, "invalid-content", ""),
]


@pytest.mark.parametrize(("event", "expected", "pointer"), BAD_EVENTS)
async def test_a_bad_event_becomes_a_reject_and_its_neighbours_are_stored(world: World, event: Any, expected: str, pointer: str) -> None:
    await send(world, letter(GOOD | {"id": "a"}, event, GOOD | {"id": "b"}))
    # A large message is read in many turns of the loop, and the world advances by 15 turns a step.
    await world.run(10)
    assert [(await world.demo.event(name))["state"] for name in "ab"] == ["scheduled"] * 2
    [reject] = await rejects(world.demo)
    assert (code(reject), reject["problem"]["errors"][0]["pointer"]) == (expected, pointer)
    assert (reject["origin"], reject["source"][-2:], reject["tenant"], reject["at"]) == ("queue", "/1", "demo", to_text(START))
    assert json.dumps(event).startswith(reject["message"]) and reject["cut"] == (len(json.dumps(event)) > MAX_MESSAGE)
    assert to_text(START + KEEP_FINISHED) <= reject["kept_until"] <= to_text(START + 10_000 + KEEP_FINISHED)


async def test_an_id_with_other_content_is_a_reject(world: World) -> None:
    await world.demo.create(id="mine", payload=1, delay="PT1M")
    await send(world, letter(GOOD | {"id": "mine"}))
    await world.run(1)
    [reject] = await rejects(world.demo)
    assert code(reject) == "id-conflict" and len(world.events()) == 1


async def test_over_the_rate_messages_wait_and_are_never_dropped(world: World) -> None:
    client = await world.tenant(limits={"events_per_second": 2})
    await send(world, letter(*[GOOD | {"delay": "PT1H"}] * 10, GOOD | {"delay": "PT1H", "id": "mine"}, tenant="acme", key=str(client.key)))
    await world.run(1)
    assert 0 < len(world.events()) <= 3 and waiting(world) == 1
    [message] = world.queues._queues[QUEUE_INGEST].messages.values()
    assert str(client.key) not in message.text, "the key was asked for once"
    await world.run(120, step=1.0)
    assert len(world.events()) == 11 and waiting(world) == 0
    assert (await client.event("mine"))["due"] == to_text(START + 3_600_000), (
        "its delay counts from when it was sent, however long it waited"
    )
    assert await rejects(client) == []


async def test_over_the_limit_of_open_events_messages_wait(world: World) -> None:
    client = await world.tenant(limits={"open_events": 2})
    await send(world, letter(*[GOOD | {"delay": "PT30S"}] * 4, tenant="acme", key=str(client.key)))
    await world.run(20)
    assert len(world.events()) == 2
    await world.run(180, step=0.5)
    assert len(world.receiver.received) == 4 and waiting(world) == 0


async def test_a_failure_half_way_doubles_nothing_and_loses_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write, count = world.tables.write, 0

    async def failing(table: str, *rest: Any) -> Any:
        nonlocal count
        if table == IDS and (count := count + 1) % 3 == 0:
            raise Unavailable("throttled")
        return await write(table, *rest)

    monkeypatch.setattr(world.tables, "write", failing)
    await send(world, letter(*[GOOD | {"payload": number} for number in range(20)]))
    await world.run(120, step=1.0)
    assert waiting(world) == 0
    assert sorted(int(got.delivery.body) for got in world.receiver.received) == list(range(20))


async def test_a_message_whose_events_cannot_be_put_back_fails_and_comes_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await send(world, letter(GOOD, GOOD))
    [message] = await world.queues.receive(QUEUE_INGEST)

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(world.tables, "write", away)
        patch.setattr(world.queues, "send", away)
        with pytest.raises(Unavailable):
            await world.do(world.app.scheduler.intake.serve(message))
    await world.do(world.app.scheduler.intake.serve(message))
    assert len(world.events()) == 2


async def test_without_tables_no_message_becomes_a_reject(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await send(world, letter(GOOD))
    [message] = await world.queues.receive(QUEUE_INGEST)

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(world.tables, "get", away)
        patch.setattr(world.tables, "write", away)
        await world.clock.advance(10)
        for text in (message.text, "hello"):
            with pytest.raises(Unavailable):
                await world.do(world.app.scheduler.intake.serve(Message("m", "", text, 1, START)))
    assert waiting(world) == 1


async def test_a_poisoned_message_is_put_back_whatever_it_is(world: World) -> None:
    assert (await world.demo.post(EVENTS, GOOD | {"durability": "fast"})).status == 202
    await send(world, letter(GOOD | {"id": "mine"}))
    await send(world, "hello")
    for message in await world.queues.receive(QUEUE_INGEST):
        # What the host does after five failures: a copy in the poison queue, under another id.
        await world.queues.delete(QUEUE_INGEST, message)
        await world.do(world.app.scheduler.intake.poisoned(Message("p" + message.id, "", message.text, 1, START)))
    await world.run(10)
    assert world.events() == []
    await world.run(60)
    assert len(world.events()) == 2 and len(await rejects(world.admin)) == 1 and waiting(world) == 0


async def test_a_message_whose_process_is_killed_again_and_again_makes_no_second_event(world: World) -> None:
    await send(world, letter(GOOD | {"delay": "PT10M"}, GOOD | {"delay": "PT10M"}))
    for _ in range(CARRIED_FROM_TRY):
        # It is killed before it deletes the message: after the events were stored, and after the message was sent once more.
        [message] = await world.queues.receive(QUEUE_INGEST, lease=30.0)
        await world.do(world.app.scheduler.intake.serve(message))
        await world.clock.advance(31)
    before = sorted((row.rk, row.etag) for row in world.events())
    assert len(before) == 2 and waiting(world) == 2
    await world.run(200)
    assert waiting(world) == 0
    assert sorted((row.rk, row.etag) for row in world.events()) == before
    assert world.app.scheduler.counters["ingest_poisoned"] == 2


async def test_a_message_that_is_sent_once_more_keeps_its_time(world: World) -> None:
    await send(world, letter(GOOD | {"id": "mine", "delay": "PT10M"}))
    [message] = await world.queues.receive(QUEUE_INGEST)
    await world.clock.advance(100)
    await world.do(world.app.scheduler.intake.serve(replace(message, dequeue_count=CARRIED_FROM_TRY)))
    await world.queues.delete(QUEUE_INGEST, message)
    assert world.events() == []
    await world.run(70)
    assert (await world.demo.event("mine"))["due"] == to_text(START + 600_000)


async def test_a_message_full_of_bad_events_costs_few_transactions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = world.tables.write

    async def counted(table: str, pk: str, ops: Sequence[Op]) -> Any:
        written.append(len(ops))
        return await write(table, pk, ops)

    # The first use of a key on a day is noted.
    await world.demo.get("/api/v1/stats")
    monkeypatch.setattr(world.tables, "write", counted)
    await world.do(world.app.scheduler.intake.serve(Message("m1", "", json.dumps(letter(*[1] * 1_000)), 1, START)))
    assert sum(written) == 1_000 and len(written) == 20
    assert len(await rejects(world.demo, "?limit=1000")) == 1_000


@pytest.mark.parametrize("at", [10**15, 2**63 - 1])
async def test_a_kafka_timestamp_that_no_calendar_holds_is_a_reject_that_can_be_read_and_goes(world: World, at: int) -> None:
    source = KafkaSource(servers="b:9092", topic="orders", tenant="demo")
    items = [
        item_of(source, KafkaMessage(0, number, at, json.dumps(event).encode()))
        for number, event in enumerate((GOOD, GOOD | {"flex": "PT1S"}))
    ]
    items.append(item_of(source, KafkaMessage(0, 2, at, json.dumps({"due": to_text(START + 60_000), "payload": 1}).encode())))
    late, later, fine = await world.do(world.app.scheduler.intake.take("demo", items, origin="kafka"))
    assert isinstance(late, Reject) and isinstance(later, Reject) and not isinstance(fine, Reject | RetryLater)
    found = await rejects(world.demo)
    assert [each["problem"]["errors"][0]["pointer"] for each in found] == ["/delay", "/delay"]
    assert found[0]["at"].startswith("9999-12-31")
    assert (await world.demo.event(fine.id))["due"] == to_text(START + 60_000)
    await world.clock.advance(KEEP_FINISHED / 1000 + 1)
    await world.do(world.app.timers.run_once("retention_scan"))
    assert await rejects(world.demo) == []


async def test_other_sources_are_taken_in_alike(world: World) -> None:
    await world.admin.put("/api/v1/tenants/demo", {"limits": {"events_per_second": 2}})
    await world.clock.advance(10)
    intake = world.app.scheduler.intake
    items = [
        Item(json.dumps(event).encode(), f"kafka:orders/0/{number}", START + number)
        for number, event in enumerate([GOOD | {"delay": "PT1H"}, {"delay": "PT1H"}, GOOD | {"delay": "PT2H"}, GOOD])
    ]
    first, bad, second, third = await world.do(intake.take("demo", items, origin="kafka"))
    assert isinstance(bad, Reject) and isinstance(third, RetryLater) and third.after >= 1
    assert not isinstance(first, Reject | RetryLater) and not isinstance(second, Reject | RetryLater)
    [reject] = await rejects(world.demo)
    assert (reject["id"], reject["origin"], reject["source"]) == (bad.id, "kafka", "kafka:orders/0/1")
    assert (await world.demo.event(first.id))["due"] == to_text(START + 3_600_000)
    await world.clock.advance(5)
    again = await world.do(intake.take("demo", items[:1] + items[3:], origin="kafka"))
    assert [taken.new for taken in again if not isinstance(taken, Reject | RetryLater)] == [False, True]
    assert len(world.events()) == 3


async def test_events_of_a_source_are_not_for_a_later_tenant_of_the_same_name(world: World) -> None:
    former = (await world.admin.get("/api/v1/tenants/demo")).json()["uid"]
    intake, items = world.app.scheduler.intake, [Item(json.dumps(GOOD | {"delay": "PT1H"}).encode(), "kafka:orders/0/1", START)]
    [made] = await world.do(intake.take("demo", items, origin="kafka", uid=former))
    assert not isinstance(made, Reject | RetryLater)
    assert (await world.admin.delete("/api/v1/tenants/demo")).status == 204
    assert (await world.admin.put("/api/v1/tenants/demo?inherit=true", {})).json()["uid"] != former
    items = [items[0]._replace(source="kafka:orders/0/2")]
    with pytest.raises(Problem) as refused:
        await world.do(intake.take("demo", items, origin="kafka", uid=former))
    assert refused.value.code == "not-found"
    assert len(world.events()) == 1


async def test_a_fan_out_of_a_source_is_stored_once_and_put_back_as_its_events(world: World) -> None:
    hook = {"type": "http", "url": "http://localhost:7072/x"}
    for name in ("a", "b", "c"):
        assert (await world.admin.put(f"/api/v1/tenants/demo/channels/{name}", hook)).status == 201
    fanned = {"channels": ["b", "a"], "delay": "PT1H", "payload": 1}
    await world.admin.put("/api/v1/tenants/demo", {"limits": {"events_per_second": 1}})
    await world.clock.advance(10)
    events = [fanned, {**fanned, "channels": ["a", "nobody"]}, {**fanned, "id": "mine"}]
    items = [Item(json.dumps(event).encode(), f"kafka:orders/0/{number}", START) for number, event in enumerate(events)]
    intake = world.app.scheduler.intake
    made, wrong, later = await world.do(intake.take("demo", items, origin="kafka"))
    assert isinstance(wrong, Reject) and isinstance(later, RetryLater)
    assert [event.id for event in later.events] == ["mine@a", "mine@b"]
    assert not isinstance(made, Reject | RetryLater)
    fanout = made.id.partition("@")[0]
    assert [event["id"] for event in (await world.demo.event(fanout))["events"]] == [f"{fanout}@a", f"{fanout}@b"]
    await world.do(intake.take("demo", [items[0], *items[:2]], origin="kafka"))
    assert len([row for row in world.events() if row.props["fanout"] == fanout]) == 2
    # What a producer sends beyond the rate comes back from the queue, event by event, and is one fan-out still.
    await world.queues.send(QUEUE_INGEST, json.dumps(letter(*[{**fanned, "id": f"late-{number}"} for number in range(3)])))
    wanted = {f"late-{number}@{name}" for number in range(3) for name in "ab"}
    for _ in range(40):
        await world.run(15, step=1)
        if wanted <= {row.props["id"] for row in world.events()}:
            break
    for number in range(3):
        assert len((await world.demo.event(f"late-{number}"))["events"]) == 2
