"""Durability `fast`, from outside: acknowledged once it is queued, looked up at once, stored later."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.core.errors import Rejected, Unavailable
from shared.scheduler.ingest import admission
from shared.scheduler.ingest.messages import MARK, sign_message, signing_key
from shared.scheduler.shard.queued_ids import SHAPE
from shared.storage.names import IDS, QUEUE_INGEST, SHARDS
from tests.unit.scheduler.harness import START, Client, World

from ..calls import EVENTS, changes_nothing
from .test_batch import BATCH

FAST: dict[str, Any] = {"delay": "PT1H", "payload": {"n": 1}, "durability": "fast"}


async def queued(client: Client, **event: Any) -> str:
    """A new event that is not stored yet; its id."""
    answer = await client.post(EVENTS, FAST | event)
    assert answer.status == 202, answer
    return str(answer.json()["id"])


def waiting(world: World) -> int:
    """Messages in the ingest queue."""
    return len(world.queues._queues[QUEUE_INGEST].messages)


async def test_event_is_acknowledged_from_the_queue_and_looked_up_at_once(world: World) -> None:
    answer = await world.demo.post(EVENTS, FAST)
    event = answer.json()
    assert (answer.status, answer.headers["location"]) == (202, f"{EVENTS}/{event['id']}")
    assert event == {
        "id": event["id"],
        "tenant": "demo",
        "state": "queued",
        "due": to_text(START + 3_600_000),
        "created": to_text(START),
        "durability": "fast",
    }
    assert world.events() == [] and world.rows(SHARDS) == [] and waiting(world) == 1
    found = await world.demo.get(f"{EVENTS}/{event['id']}")
    assert (found.json(), found.headers["etag"]) == (event, answer.headers["etag"])


async def test_event_is_stored_as_it_was_acknowledged_and_fires_once(world: World) -> None:
    payload = b'{"a": [1.0, 1e2, 12345678901234567890]}'
    rest = b'"labels": {"k": "v\\""}, "expires": "PT1H"}'
    raw = b'{"durability": "fast", "delay": "PT15S", "payload": ' + payload + b", " + rest
    answer = await world.demo.post(EVENTS, raw)
    event_id = answer.json()["id"]
    await world.run(2)
    stored = await world.demo.event(event_id)
    assert (stored["state"], stored["labels"], stored["expires"]) == ("scheduled", {"k": 'v"'}, "PT1H")
    assert {name: stored[name] for name in ("due", "created", "durability")} == {
        name: answer.json()[name] for name in ("due", "created", "durability")
    }
    await world.run(16)
    [got] = world.receiver.of(event_id)
    assert (got.delivery.body, got.delivery.due) == (payload, START + 15_000)
    assert (await world.demo.event(event_id))["state"] == "delivered"
    assert waiting(world) == 0


async def test_events_that_come_together_share_messages(world: World) -> None:
    client = await world.tenant()

    async def all_at_once() -> list[Any]:
        calls = [who.without_time().post(EVENTS, FAST | {"payload": number}) for number in range(30) for who in (client, world.demo)]
        return await asyncio.gather(*calls)

    answers = await world.do(all_at_once())
    assert {answer.status for answer in answers} == {202} and len({answer.json()["id"] for answer in answers}) == 60
    assert waiting(world) <= 2
    await world.run(1)
    assert len(world.events()) == 60
    for number, answer in enumerate(answers):
        assert (await (client, world.demo)[number % 2].event(answer.json()["id"]))["payload"] == number // 2


async def test_a_batch_of_all_kinds_answers_each_line_for_itself(world: World) -> None:
    events = [
        FAST,
        FAST | {"id": "mine"},
        {"delay": "PT1H", "payload": 2},
        FAST | {"payload": "x" * 41_000},
        FAST | {"channel": "no"},
        FAST,
    ]
    answer = await world.demo.post(BATCH, events)
    results = answer.json()["results"]
    assert [line["status"] for line in results] == [202, 422, 201, 413, 422, 202]
    assert (answer.json()["accepted"], answer.json()["rejected"]) == (3, 3)
    assert waiting(world) == 1
    states = [(await world.demo.event(results[at]["id"]))["state"] for at in (0, 2, 5)]
    assert states == ["queued", "scheduled", "queued"]
    await world.run(1)
    assert len(world.events()) == 3


async def test_a_large_batch_goes_into_few_messages(world: World) -> None:
    answer = await world.demo.post(BATCH, [FAST | {"payload": "x" * 500}] * 1000)
    assert {line["status"] for line in answer.json()["results"]} == {202}
    assert waiting(world) <= 1000 * 850 / 48_000 + 2
    await world.run(3)
    assert len(world.events()) == 1000 and waiting(world) == 0


@pytest.mark.parametrize(
    ("floor", "wish", "status", "shown"),
    [
        (None, None, 201, None),
        (None, "fast", 202, "fast"),
        (None, "standard", 201, None),
        ("fast", None, 202, "fast"),
        ("fast", "standard", 201, None),
        ("fast", "fast", 202, "fast"),
        ("standard", "fast", 201, None),
        ("standard", None, 201, None),
    ],
)
async def test_an_event_gets_what_it_asks_for_but_never_less_than_the_floor(
    world: World, floor: str | None, wish: str | None, status: int, shown: str | None
) -> None:
    client = await world.tenant(durability=floor)
    asked = {"delay": "PT1H", "payload": 1} | ({"durability": wish} if wish else {})
    answer = await client.post(EVENTS, asked)
    assert (answer.status, answer.json().get("durability")) == (status, shown)


async def test_mirrored_without_a_second_account_is_refused(world: World) -> None:
    answer = await changes_nothing(world.demo, "POST", EVENTS, FAST | {"durability": "mirrored"})
    assert (answer.status, answer.pointers) == (422, ["/durability"])
    answer = await changes_nothing(world.admin, "PUT", "/api/v1/tenants/acme", {"durability": "mirrored"})
    assert (answer.status, answer.pointers) == (422, ["/durability"])


@pytest.mark.parametrize(
    ("change", "status", "pointer"),
    [
        ({"id": "mine"}, 422, "/id"),
        ({"payload": "x" * 40_959}, 413, "/payload"),
        ({"payload": "x" * 40_000, "labels": {f"l{number}": "é" * 256 for number in range(32)}}, 413, ""),
        ({"channel": "nowhere"}, 422, "/channel"),
        ({"due": "2030-01-01T00:00:00Z"}, 422, ""),
    ],
)
async def test_what_cannot_be_queued_is_refused_with_the_reason(world: World, change: Any, status: int, pointer: str) -> None:
    answer = await changes_nothing(world.demo, "POST", EVENTS, FAST | change)
    assert (answer.status, answer.pointers) == (status, [pointer])


async def test_ids_of_queued_events_cannot_be_chosen(world: World) -> None:
    event_id = await queued(world.demo)
    answer = await changes_nothing(world.demo, "POST", EVENTS, {"id": event_id, "delay": "PT1H", "payload": 1})
    assert (answer.status, answer.pointers) == (422, ["/id"])


async def test_limits_are_asked_before_an_event_is_queued(world: World) -> None:
    client = await world.tenant(limits={"events_per_second": 2})
    answers = [await client.post(EVENTS, FAST) for _ in range(3)]
    assert [answer.status for answer in answers] == [202, 202, 429]
    assert waiting(world) == 2


async def test_an_event_that_was_never_queued_is_not_found(world: World) -> None:
    event_id = await queued(world.demo)
    client = await world.tenant()
    for who, other in ((client, event_id), (world.demo, event_id[:-1] + ("0" if event_id[-1] != "0" else "1"))):
        for method, url, body in (
            ("GET", f"{EVENTS}/{other}", None),
            ("DELETE", f"{EVENTS}/{other}", None),
            ("PATCH", f"{EVENTS}/{other}", {"payload": 2}),
            ("POST", f"{EVENTS}/{other}/fire", None),
            ("POST", f"{EVENTS}/{other}/redrive", None),
        ):
            assert (await changes_nothing(who, method, url, body)).status == 404


async def test_a_queued_event_can_be_changed_a_moment_later(world: World) -> None:
    event_id = await queued(world.demo)
    url = f"{EVENTS}/{event_id}"
    for method, path, body in (("PATCH", url, {"payload": 2}), ("PATCH", url, {"delay": "PT1S"}), ("POST", f"{url}/fire", None)):
        answer = await changes_nothing(world.demo, method, path, body)
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (409, "still-queued", "1")
    assert (await changes_nothing(world.demo, "POST", f"{url}/redrive")).code == "still-queued"
    await world.run(1)
    assert (await world.demo.patch(url, {"payload": 2})).status == 200
    assert (await world.demo.post(f"{url}/fire")).status == 202
    await world.run(3)
    [got] = world.receiver.of(event_id)
    assert got.delivery.body == b"2"


async def test_an_event_cancelled_in_the_queue_never_fires(world: World) -> None:
    event_id = await queued(world.demo, delay="PT3S")
    assert (await world.demo.delete(f"{EVENTS}/{event_id}")).status == 204
    shown = await world.demo.event(event_id)
    assert shown["state"] == "cancelled" and not {"payload", "channel"} & set(shown)
    again = await world.demo.delete(f"{EVENTS}/{event_id}")
    assert (again.status, again.code) == (409, "already-final")
    await world.run(90)
    assert waiting(world) == 0 and world.receiver.received == []
    assert await world.demo.event(event_id) == shown
    assert world.rows(SHARDS) == []
    stats = (await world.demo.get("/api/v1/stats")).json()
    assert (stats["open"], stats["cancelled"], stats["delivered"]) == (0, 1, 0)
    [listed] = await world.demo.all(f"{EVENTS}?state=cancelled&from={shown['due']}&to={to_text(START + 3_001)}")
    assert listed == shown


async def test_an_event_cancelled_as_soon_as_it_is_stored_never_fires(world: World) -> None:
    event_id = await queued(world.demo, delay="PT30S")
    await world.run(1)
    assert (await world.demo.delete(f"{EVENTS}/{event_id}")).status == 204
    await world.run(60)
    assert world.receiver.received == []
    assert (await world.demo.event(event_id))["payload"] == {"n": 1}


async def test_of_a_cancel_and_the_storing_of_its_event_at_once_exactly_one_wins(world: World) -> None:
    cancelled: set[str] = set()
    ids = [await queued(world.demo, delay="PT20S", payload=number) for number in range(60)]
    messages = await world.queues.receive(QUEUE_INGEST)
    while more := await world.queues.receive(QUEUE_INGEST):
        messages += more

    async def after(turns: int, work: Coroutine[Any, Any, None]) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await work

    async def cancel(event_id: str) -> None:
        answer = await world.demo.without_time().delete(f"{EVENTS}/{event_id}")
        assert answer.status == 204
        cancelled.add(event_id)

    async def all_at_once() -> None:
        serving = [after(number * 7 % 40, world.app.scheduler.intake.serve(message)) for number, message in enumerate(messages)]
        cancelling = [after(number * 13 % 40, cancel(event_id)) for number, event_id in enumerate(ids) if number % 5]
        await asyncio.gather(*serving, *cancelling)

    await world.do(all_at_once())
    kept = {(await world.demo.event(event_id)).get("payload", "gone") == "gone" for event_id in cancelled}
    assert kept == {True, False}, "both orders are wanted here"
    await world.run(100)
    assert {got.delivery.id for got in world.receiver.received} == set(ids) - cancelled
    assert len(world.receiver.received) == len(ids) - len(cancelled)
    for event_id in ids:
        assert (await world.demo.event(event_id))["state"] == ("cancelled" if event_id in cancelled else "delivered")


async def test_a_cancel_of_what_has_changed_since_is_refused(world: World) -> None:
    answer = await world.demo.post(EVENTS, FAST)
    url, etag = f"{EVENTS}/{answer.json()['id']}", answer.headers["etag"]
    assert (await changes_nothing(world.demo, "DELETE", url, if_match='"other"')).status == 412
    await world.run(1)
    assert (await world.demo.delete(url, {"if-match": etag})).status == 412
    second = await world.demo.post(EVENTS, FAST)
    assert (await world.demo.delete(f"{EVENTS}/{second.json()['id']}", {"if-match": second.headers["etag"]})).status == 204


async def test_a_replayed_message_makes_no_second_event(world: World) -> None:
    event_id = await queued(world.demo, delay="PT10S")
    [message] = await world.queues.receive(QUEUE_INGEST)
    for _ in range(2):
        await world.do(world.app.scheduler.intake.serve(message))
    await world.run(15)
    await world.do(world.app.scheduler.intake.serve(message))
    await world.run(80)
    assert world.receiver.delivered() == [event_id] and len(world.events()) == 1


async def test_what_was_let_in_ends_in_a_state_even_if_its_channel_is_gone(world: World) -> None:
    event_id = await queued(world.demo, delay="PT2S")
    assert (await world.admin.delete("/api/v1/tenants/demo/channels/default")).status == 204
    await world.run(10)
    event = await world.demo.event(event_id)
    assert event["state"] == "dead" and "channel" in event["error"]


async def test_without_the_queue_nothing_is_acknowledged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise Unavailable("away")

    async def never(*_: Any, **__: Any) -> None:
        raise Rejected("no rights")

    monkeypatch.setattr(world.queues, "send", away)
    answer = await changes_nothing(world.demo, "POST", EVENTS, FAST)
    # A send is repeated after a lost answer: even when it fails in the end, the message may be in.
    assert (answer.status, answer.code) == (503, "storage-unavailable") and "did not confirm" in answer.json()["detail"]
    results = (await world.demo.post(BATCH, [FAST, {"delay": "PT1H", "payload": 1}])).json()["results"]
    assert [line["status"] for line in results] == [503, 201]
    monkeypatch.setattr(world.queues, "send", never)
    assert (await changes_nothing(world.demo, "POST", EVENTS, FAST)).status == 500


async def test_tables_that_are_away_keep_an_event_queued_until_they_are_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    event_id = await queued(world.demo, delay="PT2S")
    write = world.tables.write
    down = True

    async def away(table: str, *rest: Any) -> Any:
        if down and table == IDS:
            raise Unavailable("away")
        return await write(table, *rest)

    monkeypatch.setattr(world.tables, "write", away)
    await world.run(300, step=1.0)
    assert (await world.demo.event(event_id))["state"] == "queued" and waiting(world) == 1
    down = False
    await world.run(125, step=1.0)
    event = await world.demo.event(event_id)
    assert (event["state"], event["created"]) == ("delivered", to_text(START))
    assert world.receiver.delivered() == [event_id]
    # It is listed under the time it was stored, since it was overdue by then.
    assert [each["id"] for each in await world.demo.all(f"{EVENTS}?from={to_text(START + 120_000)}")] == [event_id]


async def test_an_event_that_waited_for_a_week_is_a_dead_letter(world: World) -> None:
    event_id = await queued(world.demo, delay="PT2S")
    await world.clock.advance(7 * 86_400)
    assert (await world.demo.get(f"{EVENTS}/{event_id}")).status == 404
    await world.run(30)
    event = await world.demo.event(event_id)
    assert event["state"] == "dead" and "seven days" in event["error"] and world.receiver.received == []
    assert (await world.demo.post(f"{EVENTS}/{event_id}/redrive")).status == 202
    await world.run(5)
    assert world.receiver.delivered() == [event_id]


async def test_an_event_is_forgotten_in_the_end_and_not_called_queued_again(world: World) -> None:
    event_id = await queued(world.demo, delay="PT2S")
    await world.run(10)
    assert (await world.demo.event(event_id))["state"] == "delivered"
    await world.clock.advance(8 * 86_400)
    await world.do(world.app.timers.run_once("retention_scan"))
    assert world.events() == [] and (await world.demo.get(f"{EVENTS}/{event_id}")).status == 404


async def test_a_forged_message_stores_nothing(world: World) -> None:
    await queued(world.demo)
    [message] = await world.queues.receive(QUEUE_INGEST)
    await world.queues.delete(QUEUE_INGEST, message)
    entry = message.text.partition('"events":[')[2].removesuffix("]}").replace('"tenant":"demo"', '"tenant":"acme"')
    for key in (b"", signing_key("guessed")):
        await world.queues.send(QUEUE_INGEST, sign_message(key, [entry.encode()]))
    await world.run(2)
    assert world.events() == [] and message.text.startswith(MARK)
    rejects = (await world.admin.get("/api/v1/rejects")).json()["items"]
    assert [reject["problem"]["type"].rpartition("/")[2] for reject in rejects] == ["forged", "forged"]


async def test_rows_of_standard_events_do_not_grow(world: World) -> None:
    await world.demo.create(durability="standard")
    [row] = world.events()
    assert not {"durability", "asked"} & set(row.props)
    assert not SHAPE.fullmatch(str(row.props["id"]))
    assert admission.durability_of(None, None) == "standard"


async def test_a_fast_tenants_events_are_fast_unless_they_ask_for_more(world: World) -> None:
    acme = await world.tenant("acme", durability="fast")
    event = {"delay": "PT1H", "payload": 1}
    statuses = [(await acme.post("/api/v1/events", event | more)).status for more in ({}, {"durability": "standard"}, {"id": "mine"})]
    assert statuses == [202, 201, 201]
    assert (await acme.post("/api/v1/events", event | {"id": "other", "durability": "fast"})).status == 422
