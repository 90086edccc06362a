"""Callbacks: a tenant hears of each end of an event at the channels that the event names, whatever goes wrong in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from shared.core.clock import Millis, to_text
from shared.core.errors import Rejected, Unavailable
from shared.delivery.channels.answer_heads import AnswerHead
from shared.delivery.channels.fake import ReceivedAttempt
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict
from shared.scheduler.facets import FACETS
from shared.scheduler.ingest.messages import as_stored_now
from shared.scheduler.model import EventIn
from shared.scheduler.outcomes.callbacks import MOST_LABELS, outcome_of
from shared.scheduler.protocol.moving import copied
from shared.scheduler.rows import new_event
from shared.scheduler.timings import LONGEST_QUEUE_WAIT
from shared.storage.names import EVENTS, LEDGER, SHARDS
from shared.storage.ports import Op

from ..flow.flowing import Instances, channel
from ..harness import World

NAMES = {"on_delivered": "told", "on_dead": "told"}
GONE = Verdict("final", 404, "answered 404", answer=AnswerHead("text/plain", "no such order"))


def callbacks(world: World) -> list[ReceivedAttempt]:
    return [got for got in world.receiver.received if got.target.name == "told"]


def told(world: World) -> list[dict[str, Any]]:
    """The payloads of the callbacks that were delivered, in order."""
    return [orjson.loads(got.delivery.body) for got in callbacks(world)]


async def create(world: World, verdict: Verdict | None = None, **event: Any) -> dict[str, Any]:
    made = await world.demo.create(**{"delay": "PT1S", "id": "order-17", **NAMES, **event})
    if verdict is not None:
        world.receiver.script(made["id"], verdict)
    return made


async def test_a_delivered_event_has_a_callback(world: World) -> None:
    await channel(world, "told")
    made = await create(world, labels={"team": "blue"})
    await world.run(10)
    [callback] = told(world)
    event = await world.demo.event(made["id"])
    assert callback == {
        "type": "event.delivered",
        "event": "order-17",
        "channel": "default",
        "state": "delivered",
        "due": made["due"],
        "created": made["created"],
        "ended": event["delivered_at"],
        "attempts": 1,
        "late_ms": 0,
        "last_attempt": event["attempts"][0]["at"],
        "status": 200,
        "labels": {"team": "blue"},
    }
    assert (event["on_delivered"], event["on_dead"]) == ("told", "told")
    sent = await world.demo.event(event["callback"])
    assert (sent["state"], sent["callback_of"], sent["channel"], sent["due"]) == ("delivered", "order-17", "told", callback["ended"])
    assert "on_delivered" not in sent and "callback" not in sent, "a callback has no callback"
    assert world.rows(SHARDS) == [] and len(world.rows(LEDGER)) == 4, "both shards are finished"


async def test_a_dead_event_has_a_callback_with_the_answer(world: World) -> None:
    await channel(world, "told")
    made = await create(world, GONE)
    await world.run(10)
    [callback] = told(world)
    assert (callback["type"], callback["state"], callback["attempts"]) == ("event.dead", "dead", 1)
    assert (callback["status"], callback["error"]) == (404, "answered 404")
    assert callback["answer"] == {"content_type": "text/plain", "body": "no such order"}
    assert callbacks(world)[0].delivery.id == (await world.demo.event(made["id"]))["callback"]


async def test_only_the_named_outcomes_are_told(world: World) -> None:
    await channel(world, "told")
    await world.demo.create(delay="PT1S", on_dead="told")
    made = await world.demo.create(delay="PT1S", on_delivered="told")
    world.receiver.script(made["id"], GONE)
    await create(world, delay="PT1M")
    assert (await world.demo.delete("/api/v1/events/order-17")).status == 204, "who cancels an event knows of it"
    await world.run(90)
    assert told(world) == []


async def test_a_lapsed_event_counts_as_dead(world: World) -> None:
    await channel(world, "told")
    await world.admin.post("/api/v1/tenants/demo/channels/default/pause")
    made = await create(world, expires="PT2S")
    await world.run(60)
    [callback] = told(world)
    assert (callback["type"], callback["state"], callback["attempts"]) == ("event.lapsed", "lapsed", 0)
    assert (await world.demo.event(made["id"]))["callback"] == callbacks(world)[0].delivery.id


async def test_each_end_of_a_redriven_event_is_told(world: World) -> None:
    await channel(world, "told")
    made = await create(world, GONE)
    await world.run(10)
    assert (await world.demo.post(f"/api/v1/events/{made['id']}/redrive")).status == 202
    await world.run(10)
    world.receiver.script(made["id"], Verdict("delivered", 200))
    assert (await world.demo.post(f"/api/v1/events/{made['id']}/redrive")).status == 202
    await world.run(10)
    assert [each["type"] for each in told(world)] == ["event.dead", "event.dead", "event.delivered"]
    assert len({got.delivery.id for got in callbacks(world)}) == 3


def test_a_redriven_event_starts_without_what_was_owed_to_its_former_end() -> None:
    dead = {"state": "dead", "due": 1, "callbacks": '{"dead":"told"}', "owed": "callback", "callback": "q~1"}
    assert copied(dead, 5, FACETS) == {"state": "scheduled", "due": 5, "callbacks": '{"dead":"told"}'}


async def test_a_dead_callback_is_a_dead_letter_without_a_callback_of_its_own(world: World) -> None:
    await channel(world, "told")
    world.receiver.otherwise = Verdict("final", 500, "answered 500")
    await create(world)
    await world.run(10)
    dead = (await world.demo.get("/api/v1/dead-letters")).json()["items"]
    assert sorted(each.get("callback_of", "") for each in dead) == ["", "order-17"]
    world.receiver.otherwise = Verdict("delivered", 200)
    [callback] = [each["id"] for each in dead if "callback_of" in each]
    assert (await world.demo.post(f"/api/v1/events/{callback}/redrive")).status == 202
    await world.run(10)
    assert [got.verdict.outcome for got in callbacks(world)] == ["final", "delivered"]
    assert len({got.delivery.id for got in callbacks(world)}) == 1


async def test_callbacks_are_changed_taken_away_and_moved_with_their_event(world: World) -> None:
    await channel(world, "told")
    url = f"/api/v1/events/{(await world.demo.create(delay='PT20S'))['id']}"
    # Each of two calls at once changes one of them, and neither change is lost.
    await asyncio.gather(*(world.demo.patch(url, {name: "told", "delay": "PT30S"}) for name in NAMES))
    both = (await world.demo.get(url)).json()
    assert {name: both[name] for name in NAMES} == NAMES
    larger = (await world.demo.patch(url, {"on_delivered": None, "payload": "x" * 9000})).json()
    assert larger["on_dead"] == "told" and "on_delivered" not in larger
    assert "on_dead" not in (await world.demo.patch(url, {"on_dead": None})).json()
    assert (await world.demo.patch(url, {"on_delivered": "told"})).status == 200
    unknown = await world.demo.patch(url, {"on_dead": "nobody"})
    assert (unknown.status, unknown.json()["errors"][0]["pointer"]) == (422, "/on_dead")
    await world.run(60)
    assert [each["type"] for each in told(world)] == ["event.delivered"]
    callback = f"/api/v1/events/{callbacks(world)[0].delivery.id}"
    assert (await world.demo.patch(callback, {"on_dead": "told"})).status == 422, "a callback has no callbacks"


@pytest.mark.parametrize("field", ["on_delivered", "on_dead"])
async def test_an_unknown_channel_and_a_callback_of_a_callback_are_refused(world: World, field: str) -> None:
    event = {"delay": "PT1S", "payload": 1}
    for given in ("nobody", {"channel": "default", field: "default"}, "", 7):
        refusal = await world.demo.post("/api/v1/events", {**event, field: given})
        assert (refusal.status, refusal.json()["errors"][0]["pointer"]) == (422, f"/{field}"), given
    lines = (await world.demo.post("/api/v1/events/batch", [event, {**event, field: "nobody"}])).json()["results"]
    assert [line["status"] for line in lines] == [201, 422]
    schedule = await world.demo.put("/api/v1/schedules/nightly", {"every": "PT1M", "payload": 1, field: "nobody"})
    assert (schedule.status, schedule.json()["errors"][0]["pointer"]) == (422, f"/{field}")


async def test_a_channel_that_was_deleted_leaves_a_dead_callback_and_a_log_line(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await channel(world, "told")
    await create(world)
    assert (await world.admin.delete("/api/v1/tenants/demo/channels/told")).status == 204
    with caplog.at_level(logging.WARNING):
        await world.run(10)
    [dead] = (await world.demo.get("/api/v1/dead-letters")).json()["items"]
    assert (dead["callback_of"], dead["error"]) == ("order-17", "the channel no longer exists")
    assert [record.levelname for record in caplog.records if getattr(record, "action", "") == "callback_without_channel"] == ["WARNING"]
    assert world.rows(SHARDS) == [], "no shard waits for it"


async def test_callbacks_are_stored_beyond_the_limit_of_open_events(world: World) -> None:
    await channel(world, "told")
    await create(world)
    assert (await world.admin.put("/api/v1/tenants/demo", {"limits": {"open_events": 0, "events_per_second": 0.001}})).status == 200
    await world.run(20)
    assert len(told(world)) == 1
    assert (await world.demo.post("/api/v1/events", {"delay": "PT1S", "payload": 1})).status == 429


async def test_events_of_a_schedule_have_its_callbacks(world: World) -> None:
    await channel(world, "told")
    made = await world.demo.put("/api/v1/schedules/poll", {"every": "PT10S", "payload": 1, "on_delivered": "told"})
    assert (made.status, made.json()["on_delivered"]) == (201, "told")
    await world.do(world.app.timers.run_once("scheduler_scan"))
    await world.run(25)
    assert [each["event"].partition(":")[0] for each in told(world)] == ["poll", "poll"]


async def test_a_fast_event_has_a_callback_even_if_it_died_in_the_queue(world: World) -> None:
    await channel(world, "told")
    answer = await world.demo.post("/api/v1/events", {"delay": "PT1S", "payload": 1, "durability": "fast", **NAMES})
    assert answer.status == 202
    await world.run(10)
    assert [each["event"] for each in told(world)] == [answer.json()["id"]]
    late = new_event(EventIn(due=to_text(world.now), payload=None, on_dead="told"), b"1", world.now - LONGEST_QUEUE_WAIT)
    late.id = late.props["id"] = "late"
    as_stored_now(late, world.now)
    await world.do(world.app.scheduler.writer.store("demo", [late]))
    await world.run(20)
    assert told(world)[1]["event"] == "late" and told(world)[1]["error"].startswith("it was in the ingest queue")


# -- what goes wrong


async def test_a_process_that_ends_between_settlement_and_callback_is_followed_by_one_that_stores_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await channel(world, "told")
    await create(world)

    async def never(*_: Any) -> dict[str, Any]:
        raise Unavailable("storage is away")

    with monkeypatch.context() as patch:
        patch.setattr(world.app.scheduler, "callbacks", never)
        await world.run(5)
        assert (await world.demo.event("order-17"))["state"] == "delivered" and told(world) == []
        await world.close()
    assert [row.props["state"] for row in world.rows(EVENTS) if row.rk == "gate"] == ["owned"], "the shard is not finished"
    world._tasks.clear()
    await world.open()
    await world.run(180)
    assert len(told(world)) == 1 and world.rows(SHARDS) == []


async def test_a_callback_whose_note_was_lost_is_not_stored_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await channel(world, "told")
    await create(world)
    plain = world.app.scheduler.callbacks
    times = 0

    async def forgets(rows: Any) -> dict[str, Any]:
        nonlocal times
        times += 1
        await plain(rows)
        if times < 3:
            raise Unavailable("the answer is lost")
        return await plain(rows)

    monkeypatch.setattr(world.app.scheduler, "callbacks", forgets)
    await world.run(30)
    assert times == 3 and len(told(world)) == 1
    assert sum(row.props.get("callback_of") == "order-17" for row in world.events()) == 1


async def test_a_callback_that_storage_refuses_for_good_does_not_keep_the_shard(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await channel(world, "told")
    await create(world)

    async def refuses(tenant: str, events: list[Any], **_: Any) -> list[Any]:
        return [Rejected("no")] * len(events)

    monkeypatch.setattr(world.app.scheduler.writer, "store", refuses)
    await world.run(10)
    assert world.rows(SHARDS) == [] and told(world) == []
    assert [record.levelname for record in caplog.records if getattr(record, "action", "") == "callback_failed"] == ["ERROR"]


async def test_many_callbacks_of_one_shard_are_stored_while_others_are_delivered_on_time(two: Instances) -> None:
    await channel(two, "told")
    body = [{"delay": f"PT{5 + number // 10}S", "payload": 1, **NAMES} for number in range(40)]
    assert (await two.demo.post("/api/v1/events/batch", body)).json()["accepted"] == 40
    await two.run(40)
    assert len(told(two)) == 40 and len({got.delivery.id for got in two.receiver.received}) == 80
    assert max(got.delivery.late_ms for got in two.receiver.received if got.target.name == "default") == 0
    assert two.rows(SHARDS) == []


async def test_express_events_have_callbacks_and_those_without_cost_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await World(express_events=5).open()
    try:
        await channel(world, "told")
        written: list[str] = []
        plain = world.tables.write

        async def write(table: str, pk: str, ops: tuple[Op, ...]) -> Any:
            written.append(table)
            return await plain(table, pk, ops)

        monkeypatch.setattr(world.tables, "write", write)
        await world.demo.create(delay="PT0S", payload=1)
        await world.run(5)
        assert [table for table in written if table in (SHARDS, EVENTS, LEDGER)] == [SHARDS, EVENTS, EVENTS, LEDGER, SHARDS]
        await world.demo.create(delay="PT0S", payload=1, **NAMES)
        await world.run(10)
        assert len(told(world)) == 1 and world.rows(SHARDS) == []
    finally:
        await world.close()


async def test_a_receiver_that_creates_the_same_event_again_gets_one_callback(world: World) -> None:
    await channel(world, "told")
    made = await create(world)

    async def again(target: Target, delivery: OutgoingDelivery) -> Verdict:
        return Verdict("delivered", 200)

    world.receiver.script(made["id"], again)
    assert (await world.demo.post("/api/v1/events", {"id": "order-17", "delay": "PT1S", "payload": {"n": 1}, **NAMES})).status == 200
    other = await world.demo.post("/api/v1/events", {"id": "order-17", "delay": "PT1S", "payload": {"n": 1}, "on_dead": "told"})
    assert other.status == 409, "callbacks are part of an event's content"
    await world.run(10)
    assert len(told(world)) == 1


async def test_an_event_that_replaces_another_brings_its_own_callbacks(world: World) -> None:
    await channel(world, "told")
    await channel(world, "other")
    for more in ({"on_delivered": "other"}, NAMES, {}):
        event = {"id": "last", "delay": "PT6S", "collapse": "PT1M", "payload": 1, **more}
        assert (await world.demo.post("/api/v1/events", event)).status in (200, 201)
        shown = await world.demo.event("last")
        assert {name: shown.get(name) for name in NAMES} == {"on_delivered": None, "on_dead": None, **more}
    await world.run(20)
    assert len(world.receiver.received) == 1


def test_long_labels_are_left_out_so_that_every_channel_takes_the_callback() -> None:
    ended: Millis = 1_800_000_000_000
    labels = {f"label-{number:02d}": "\u20ac" * 256 for number in range(32)}
    props: Mapping[str, Any] = {
        "id": "a",
        "state": "dead",
        "channel": "c",
        "due": ended,
        "created": ended,
        "ended": ended,
        "error": "e" * 500,
        "labels": orjson.dumps(labels).decode(),
    }
    assert len(str(props["labels"]).encode()) > MOST_LABELS and "labels" not in outcome_of(props, {})
    assert outcome_of({**props, "labels": '{"a":"b"}'}, {})["labels"] == {"a": "b"}
