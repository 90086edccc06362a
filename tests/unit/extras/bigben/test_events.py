"""BigBen's events by its own words: what its clients send, what they are answered, what is delivered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from shared.core.clock import to_text
from shared.core.errors import Problem
from shared.delivery.channels.fake import DELIVERED
from shared.delivery.channels.ports import Verdict
from shared.extras.bigben.model import MAX_OF_ONE_ID
from shared.extras.bigben.service import IN_FLIGHT
from shared.scheduler.ingest.admission import Ingest
from shared.storage.names import IDS
from shared.tenants.model import Limits, Tenant
from shared.tenants.store import TenantDirectory
from shared.web.local_client import LocalClient
from tests.texts import assert_text
from tests.unit.scheduler.harness import DEMO, ROUTES, World
from tests.unit.web.hostile import HOSTILE, traced_memory

BASE = "/api/bigben/events"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    opened = await World().open()
    yield opened
    await opened.close()


def at(world: World, seconds: float) -> str:
    return to_text(world.now + int(seconds * 1000))


def request(world: World, seconds: float = 3600.0, **more: Any) -> dict[str, Any]:
    return {"id": "id123", "eventTime": at(world, seconds), "tenant": "demo", "payload": "P1"} | more


async def schedule(world: World, *requests: dict[str, Any], status: int = 200) -> list[dict[str, Any]]:
    answer = await world.demo.post(f"{BASE}/schedule", list(requests))
    assert answer.status == status, answer
    found: list[dict[str, Any]] = answer.json()
    assert len(found) == len(requests)
    return found


async def find(world: World, event: str = "id123") -> dict[str, Any]:
    answer = await world.demo.get(f"{BASE}/find?id={event}&tenant=demo")
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


def bodies(world: World) -> list[bytes]:
    return [got.delivery.body for got in world.receiver.received]


async def test_a_new_event_is_accepted_found_as_it_was_sent_and_delivered_whole(world: World) -> None:
    sent = request(world, 60)
    [reply] = await schedule(world, sent)
    assert reply == sent | {"mode": "UPSERT", "deliveryOption": "FULL_EVENT", "eventId": "id123", "eventStatus": "ACCEPTED"}
    assert await find(world) == reply | {"eventStatus": "UN_PROCESSED"}
    await world.run(70)
    [body] = bodies(world)
    assert orjson.loads(body) == reply | {"eventStatus": "TRIGGERED", "triggeredAt": sent["eventTime"]}
    assert (await find(world))["eventStatus"] == "PROCESSED"
    # The same event through the scheduler's own route.
    assert (await world.demo.event("id123"))["state"] == "delivered"


@pytest.mark.parametrize(
    ("payload", "delivered"), [("testP", b'"testP"'), ('{"order": 1.50}', b'{"order": 1.50}'), ({"n": 1}, b'{"n":1}'), ("17", b"17")]
)
async def test_payload_only_delivers_the_payload_and_json_in_a_string_as_that_json(world: World, payload: Any, delivered: bytes) -> None:
    [reply] = await schedule(world, request(world, 30, payload=payload, deliveryOption="PAYLOAD_ONLY"))
    assert reply["eventStatus"] == "ACCEPTED"
    found = await find(world)
    assert (found["payload"], found["deliveryOption"]) == (payload, "PAYLOAD_ONLY")
    await world.run(40)
    assert bodies(world) == [delivered]


REJECTED = [
    ({"tenant": None}, "tenant not present"),
    ({"eventTime": None}, "event time not present"),
    ({"tenant": "nobody"}, "tenant not registered / unknown tenant: nobody"),
    ({"tenant": "ABC/../demo"}, "tenant not registered / unknown tenant: ABC/../demo"),
    ({"eventTime": "time"}, "event time can not be parsed. Must be in ISO 8601 format."),
    ({"eventTime": "2030-01-01T00:00:00"}, "event time can not be parsed. Must be in ISO 8601 format."),
    ({"payload": None, "deliveryOption": "PAYLOAD_ONLY"}, "payload must not be null for deliveryOption PAYLOAD_ONLY"),
    ({"id": None}, "id not present"),
    ({"mode": "DROP"}, "can not be read: mode"),
    ({"id": 5}, "can not be read: id"),
    ({"payload": "x" * 262_200}, "the payload is larger than 262,144 bytes"),
]


@pytest.mark.parametrize(("change", "message"), REJECTED)
async def test_unacceptable_events_are_rejected_in_the_compatible_format_and_change_nothing(
    world: World, change: dict[str, Any], message: str
) -> None:
    before = world.without_caches(world.dump())
    [reply] = await schedule(world, request(world) | change, status=400)
    assert (reply["eventStatus"], reply["error"]) == ("REJECTED", {"code": 400, "message": message})
    assert {key: value for key, value in world.without_caches(world.dump()).items() if key not in before} == {}


async def test_good_events_go_in_beside_rejected_ones_with_206(world: World) -> None:
    good, bad, better = request(world, id="a"), request(world, id="b", tenant=None), request(world, id="c")
    replies = await schedule(world, good, bad, better, status=206)
    assert [reply["eventStatus"] for reply in replies] == ["ACCEPTED", "REJECTED", "ACCEPTED"]


async def test_an_event_of_another_tenant_is_rejected_like_one_of_none(world: World) -> None:
    acme = await world.tenant("acme")
    answer = await acme.post(f"{BASE}/schedule", [request(world)])
    assert answer.status == 400
    assert answer.json()[0]["error"]["message"].endswith(" unknown tenant: demo")
    assert (await acme.get(f"{BASE}/find?id=id123&tenant=demo")).status == 404
    assert (await world.nobody.post(f"{BASE}/schedule", [request(world)])).status == 401


@pytest.mark.parametrize("body", [b"{}", b"[1,]", b"[]", b"", b"null", b'[{"id": NaN}]'])
async def test_a_body_that_is_no_array_of_events_is_refused_whole(world: World, body: bytes) -> None:
    assert (await world.demo.post(f"{BASE}/schedule", body)).status == 422


async def test_upsert_again_changes_payload_and_time(world: World) -> None:
    await schedule(world, request(world, 600))
    first = await schedule(world, request(world, 600, payload="P2"))
    second = await schedule(world, request(world, 60, payload="P3", deliveryOption="PAYLOAD_ONLY"))
    assert [first[0]["eventStatus"], second[0]["eventStatus"]] == ["UPDATED", "UPDATED"]
    found = await find(world)
    assert (found["payload"], found["eventTime"], found["deliveryOption"]) == ("P3", second[0]["eventTime"], "PAYLOAD_ONLY")
    await world.run(700)
    assert bodies(world) == [b'"P3"']


async def test_the_same_request_again_fires_once(world: World) -> None:
    sent = request(world, 30)
    await schedule(world, sent)
    assert (await schedule(world, sent))[0]["eventStatus"] == "UPDATED"
    await world.run(40)
    assert (await schedule(world, sent))[0]["eventStatus"] == "PROCESSED"
    await world.run(40)
    assert len(bodies(world)) == 1


async def test_going_back_to_earlier_content_changes_the_event(world: World) -> None:
    first, other = request(world, 30, payload="P1"), request(world, 30, payload="P2")
    statuses = [(await schedule(world, each))[0]["eventStatus"] for each in (first, other, first)]
    assert statuses == ["ACCEPTED", "UPDATED", "UPDATED"]
    assert (await find(world))["payload"] == "P1"
    await world.run(40)
    assert [orjson.loads(body)["payload"] for body in bodies(world)] == ["P1"]


async def test_same_request_after_a_remove_is_a_new_event(world: World) -> None:
    sent, gone = request(world, 30), {"id": "id123", "tenant": "demo", "mode": "REMOVE"}
    replies = [(await schedule(world, each))[0] for each in (sent, gone, sent, gone, sent)]
    assert [reply["eventStatus"] for reply in replies] == ["ACCEPTED", "DELETED", "ACCEPTED", "DELETED", "ACCEPTED"]
    await world.run(40)
    assert len(bodies(world)) == 1


async def test_request_of_the_future_that_is_sent_again_after_its_time_fires_once(world: World) -> None:
    sent = request(world, 30)
    world.receiver.script("id123", Verdict("retry", error="503"))
    await schedule(world, sent)
    await world.run(40)
    assert (await schedule(world, sent))[0]["eventStatus"] == "TRIGGERED"
    assert (await find(world))["eventStatus"] == "TRIGGERED"
    world.receiver.script("id123", DELIVERED)
    await world.run(700)
    assert [got.verdict.outcome for got in world.receiver.received].count("delivered") == 1
    assert (await schedule(world, sent))[0]["eventStatus"] == "PROCESSED"


async def test_event_changed_to_a_past_time_is_triggered_at_once(world: World) -> None:
    await schedule(world, request(world, 600))
    [reply] = await schedule(world, request(world, -60))
    assert (reply["eventStatus"], "eventId" in reply) == ("TRIGGERED", False)
    await world.run(20)
    [body] = bodies(world)
    assert "eventId" not in orjson.loads(body)


async def test_several_requests_for_one_id_in_a_call_count_in_their_order(world: World) -> None:
    gone = {"id": "id123", "tenant": "demo", "mode": "REMOVE"}
    replies = await schedule(world, request(world, 600), request(world, 60, payload="P2"), gone, request(world, 30))
    assert [reply["eventStatus"] for reply in replies] == ["ACCEPTED", "UPDATED", "DELETED", "ACCEPTED"]
    await world.run(700)
    assert len(bodies(world)) == 1


async def test_a_flood_of_requests_for_one_id_is_refused_whole_and_says_why(world: World) -> None:
    await schedule(world, request(world, 600, payload="P0"))
    flood = [request(world, 60, payload=f"P{number}") for number in range(MAX_OF_ONE_ID)]
    gone = {"id": "id123", "tenant": "demo", "mode": "REMOVE"}
    answer = await world.demo.post(f"{BASE}/schedule", [*flood, gone, request(world, id="other")])
    *refused, other = answer.json()
    assert (answer.status, other["eventStatus"]) == (206, "ACCEPTED")
    assert {(reply["id"], reply["eventStatus"], reply["error"]["code"]) for reply in refused} == {("id123", "REJECTED", 400)}
    assert {reply.get("payload") for reply in refused} == {*(f"P{number}" for number in range(MAX_OF_ONE_ID)), None}
    assert_text("bigben.too-many-of-one-id", refused[0]["error"]["message"], count=MAX_OF_ONE_ID + 1, most=MAX_OF_ONE_ID)
    assert (await find(world))["payload"] == "P0", "none of them was carried out"
    replies = await schedule(world, *flood)
    assert [reply["eventStatus"] for reply in replies] == ["UPDATED"] * MAX_OF_ONE_ID
    assert (await find(world))["payload"] == f"P{MAX_OF_ONE_ID - 1}"


async def test_of_two_upserts_at_once_the_one_that_came_later_wins_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await schedule(world, request(world, 600, payload="P0"))
    same = (await find(world))["eventTime"]
    patch = world.app.scheduler.ingest.patch

    async def overtaken(*given: Any) -> Any:
        monkeypatch.setattr(world.app.scheduler.ingest, "patch", patch)
        change = await patch(*given)
        # The other one, with another time, between this one's look and its change.
        replies.append((await other.call("POST", f"{BASE}/schedule", [request(world, 60, payload="P2")])).json()[0])
        return change

    replies: list[dict[str, Any]] = []
    other = LocalClient(ROUTES, world.get_app, key=DEMO)
    monkeypatch.setattr(world.app.scheduler.ingest, "patch", overtaken)
    [reply] = await schedule(world, request(world, payload="P1") | {"eventTime": same})
    assert replies[0]["eventStatus"] == "UPDATED"
    assert (reply["eventStatus"], reply["error"]["code"]) == ("ERROR", 409)
    assert (await find(world))["eventTime"] == replies[0]["eventTime"] != same
    await world.run(100)
    assert [orjson.loads(body)["payload"] for body in bodies(world)] == ["P2"]


@pytest.mark.parametrize("later", ["first", "changed", "removed"])
async def test_upsert_that_is_carried_out_after_a_later_one_changes_nothing(
    world: World, later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when storage stalls and its client gives up and sends another one."""
    if later != "first":
        await schedule(world, request(world, 600, payload="P0"))
    generation = world.app.part("bigben").events._generation

    async def stalled(tenant: str, bigben_id: str) -> int:
        monkeypatch.setattr(world.app.part("bigben").events, "_generation", generation)
        gone = {"id": "id123", "tenant": "demo", "mode": "REMOVE"}
        new = gone if later == "removed" else request(world, 500, payload="NEW")
        assert (await other.call("POST", f"{BASE}/schedule", [new])).json()[0]["eventStatus"] in ("ACCEPTED", "UPDATED", "DELETED")
        return await generation(tenant, bigben_id)

    other = LocalClient(ROUTES, world.get_app, key=DEMO)
    monkeypatch.setattr(world.app.part("bigben").events, "_generation", stalled)
    [reply] = await schedule(world, request(world, 400, payload="OLD"))
    assert (reply["eventStatus"], reply["error"]["code"]) == ("ERROR", 409)
    await world.run(700)
    assert [orjson.loads(body)["payload"] for body in bodies(world)] == ([] if later == "removed" else ["NEW"])


async def test_registering_a_tenant_that_another_instance_has_just_made_keeps_its_settings(world: World) -> None:
    elsewhere = TenantDirectory(world.tables, world.clock, world.settings)
    assert await world.app.directory.tenant("shop") is None
    await elsewhere.put("shop", Tenant(limits=Limits(open_events=7)))
    wanted = {"tenant": "shop", "type": "HTTP", "props": {"url": "http://localhost:7072/shop"}}
    assert (await world.admin.post(f"{BASE}/tenant/register", wanted)).status == 200
    assert (await world.admin.get("/api/v1/tenants/shop")).json()["limits"]["open_events"] == 7


async def test_a_call_of_many_requests_keeps_few_reads_under_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    under_way, most = 0, 0
    get = world.tables.get

    async def counted(*place: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        try:
            return await get(*place)
        finally:
            under_way -= 1

    monkeypatch.setattr(world.tables, "get", counted)
    await schedule(world, *({"id": str(number), "tenant": "demo", "mode": "REMOVE"} for number in range(1_000)))
    assert most == IN_FLIGHT


async def test_an_id_may_be_used_again_when_its_event_is_over(world: World) -> None:
    for number in range(3):
        [reply] = await schedule(world, request(world, 30, payload=f"P{number}"))
        assert (reply["eventStatus"], reply["eventId"]) == ("ACCEPTED", "id123" + (f"~{number}" if number else ""))
        await world.run(40)
    assert [orjson.loads(body)["payload"] for body in bodies(world)] == ["P0", "P1", "P2"]
    assert (await find(world))["payload"] == "P2"


async def test_an_event_of_the_past_is_triggered_at_once(world: World) -> None:
    [reply] = await schedule(world, request(world, -60))
    assert reply["eventStatus"] == "TRIGGERED"
    assert reply["triggeredAt"]
    await world.run(20)
    assert len(bodies(world)) == 1


async def test_removed_events_are_not_delivered_and_unknown_ones_are_said_to_be(world: World) -> None:
    await schedule(world, request(world, 30))
    gone = {"id": "id123", "tenant": "demo", "mode": "REMOVE"}
    [reply] = await schedule(world, gone)
    assert (reply["eventStatus"], reply["eventId"]) == ("DELETED", "id123")
    assert (await schedule(world, gone))[0]["eventStatus"] == "DELETED"
    [unknown] = await schedule(world, gone | {"id": "other"})
    assert "eventStatus" not in unknown
    assert unknown["error"] == {"code": 404, "message": "event not found"}
    await world.run(40)
    assert bodies(world) == []


async def test_a_dry_run_delivers_a_copy_and_leaves_the_event(world: World) -> None:
    await schedule(world, request(world, 600))
    answer = await world.demo.post(f"{BASE}/dryrun?id=id123&tenant=demo")
    assert (answer.status, answer.json()["eventStatus"]) == (200, "UN_PROCESSED")
    await world.run(20)
    assert orjson.loads(bodies(world)[0])["id"] == "id123"
    assert (await find(world))["eventStatus"] == "UN_PROCESSED"
    await world.run(620)
    assert len(bodies(world)) == 2
    assert (await world.demo.post(f"{BASE}/dryrun?id=other&tenant=demo")).status == 404


async def test_a_dry_run_delivers_what_the_event_itself_delivers(world: World) -> None:
    [reply] = await schedule(world, request(world, 600))
    given = {"payload": "PGE+", "content_type": "text/xml", "target": {"path": "/orders", "method": "PUT"}, "timeout": "PT2S"}
    changed = await world.demo.patch(f"/api/v1/events/{reply['eventId']}", given)
    assert changed.status == 200
    assert (await world.demo.post(f"{BASE}/dryrun?id=id123&tenant=demo")).status == 200
    await world.run(620)
    copy, event = [each.delivery for each in world.receiver.received]
    assert (copy.body, copy.content_type, copy.timeout) == (b"<a>", "text/xml", 2000) and copy.id != event.id
    for name in ("body", "content_type", "event_target", "timeout"):
        assert getattr(copy, name) == getattr(event, name)


async def test_any_text_can_be_an_id(world: World) -> None:
    odd = "bestellung 17/ä ~ % 日本"
    [reply] = await schedule(world, request(world, 30, id=odd))
    assert (reply["id"], reply["eventStatus"]) == (odd, "ACCEPTED")
    await world.run(40)
    assert orjson.loads(bodies(world)[0])["id"] == odd


async def test_events_of_the_own_api_are_not_changed_by_the_compatible_one(world: World) -> None:
    await world.demo.create(id="id123")
    [reply] = await schedule(world, request(world))
    assert (reply["eventStatus"], reply["error"]["code"]) == ("ERROR", 409)
    assert (await world.demo.get(f"{BASE}/find?id=id123&tenant=demo")).status == 404


async def test_without_a_key_only_on_loopback_and_only_if_the_setting_says_so() -> None:
    world = await World(bigben_open=True).open()
    try:
        answer = await world.nobody.post(f"{BASE}/schedule", [request(world)])
        assert answer.status == 200
        assert (await world.nobody.get("/api/v1/events")).status == 401
        pages = [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}]
        for page in pages:
            assert (await world.nobody.post(f"{BASE}/schedule", [request(world)], page)).status == 401
        assert (await world.nobody.post(f"{BASE}/schedule", [request(world)], {"sec-fetch-site": "same-origin"})).status == 200
        wrong = await world.client("local-demo-kex").post(f"{BASE}/schedule", [request(world)])
        assert wrong.status == 401
    finally:
        await world.close()


async def test_tenants_are_registered_with_their_processor(world: World) -> None:
    wanted = {"tenant": "shop", "type": "HTTP", "props": {"url": "http://localhost:7072/shop", "headers": {"header1": "value1"}}}
    assert (await world.demo.post(f"{BASE}/tenant/register", wanted)).status == 403
    answer = await world.admin.post(f"{BASE}/tenant/register", wanted)
    assert answer.status == 200
    assert answer.json()["shop"] == wanted | {"props": {"url": "http://localhost:7072/shop", "headers": {"header1": "***"}}}
    assert set((await world.admin.get(f"{BASE}/tenants")).json()) == {"demo", "shop"}
    assert set((await world.demo.get(f"{BASE}/tenants")).json()) == {"demo"}
    [reply] = (await world.admin.post(f"{BASE}/schedule", [request(world, 30, tenant="shop")])).json()
    assert reply["eventStatus"] == "ACCEPTED"


@pytest.mark.parametrize(
    ("change", "pointer", "words"),
    [
        ({"tenant": "No Name"}, "/tenant", "1 to 40 of"),
        ({"tenant": None}, "/tenant", "1 to 40 of"),
        ({"type": "CUSTOM_CLASS"}, "/type", "classes are not supported"),
        ({"type": None}, "/type", "one of HTTP and MESSAGING"),
        ({"props": {}}, "/props/url", "must be a string"),
        ({"props": {"url": "http://10.0.0.1/"}}, "/url", "private or reserved"),
    ],
)
async def test_a_processor_that_cannot_be_is_refused(world: World, change: dict[str, Any], pointer: str, words: str) -> None:
    wanted = {"tenant": "shop", "type": "HTTP", "props": {"url": "https://example.com/"}} | change
    answer = await world.admin.post(f"{BASE}/tenant/register", wanted)
    assert answer.status == 422
    [error] = answer.json()["errors"]
    assert error["pointer"] == pointer and words in error["detail"]


async def test_the_row_that_counts_an_ids_uses_goes_with_its_last_event(world: World) -> None:
    for _ in range(3):
        await schedule(world, request(world, 30))
        await world.run(40)
    counting = [row for row in world.rows(IDS) if row.rk.startswith("!")]
    assert [row.props for row in counting] == [{"generation": 2}]
    await world.clock.advance(9 * 86_400, settle=1)
    await world.do(world.app.timers.run_once("retention_scan"))
    assert world.rows(IDS) == []
    [reply] = await schedule(world, request(world, 30))
    assert reply["eventId"] == "id123"


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_array_is_refused_without_building_it(world: World, name: str) -> None:
    make, status, _ = HOSTILE[name]
    raw = make()
    with traced_memory(40):
        answer = await world.demo.post(f"{BASE}/schedule", raw)
    assert answer.status == (400 if status == 200 else status)
    if answer.status == 400:
        assert [each["eventStatus"] for each in answer.json()] == ["REJECTED"]
    await schedule(world, request(world))


async def test_number_beyond_a_double_comes_back_as_sent(world: World) -> None:
    raw = b'[{"id":"big","eventTime":"%s","tenant":"demo","payload":{"n":1e400}}]' % at(world, 3600).encode()
    answer = await world.demo.post(f"{BASE}/schedule", raw)
    assert answer.status == 200 and b'"payload":{"n":1e400}' in answer.body
    answer = await world.demo.get(f"{BASE}/find?id=big&tenant=demo")
    assert b'"payload":{"n":1e400}' in answer.body


async def test_the_same_request_after_its_event_died_is_answered_with_the_reason(world: World) -> None:
    world.receiver.otherwise = Verdict("final", 400, "answered 400")
    wanted = request(world, 5)
    await schedule(world, wanted)
    await world.run(10)
    found = await find(world)
    assert found["eventStatus"] == "ERROR" and "400" in found["error"]["message"]
    [again] = await schedule(world, wanted)
    assert (again["eventStatus"], again["error"], again["triggeredAt"]) == ("ERROR", found["error"], found["triggeredAt"])
    await world.run(10)
    assert len(bodies(world)) == 1
    # Another content begins the id's next use.
    world.receiver.otherwise = DELIVERED
    [other] = await schedule(world, wanted | {"payload": "P2"})
    assert other["eventStatus"] == "TRIGGERED"
    await world.run(10)
    assert len(bodies(world)) == 2


@pytest.mark.parametrize(("status", "code", "answered"), [(503, "storage-unavailable", 200), (422, "invalid-content", 400)])
async def test_a_late_call_says_of_a_request_why_storing_it_failed(
    world: World, monkeypatch: pytest.MonkeyPatch, status: int, code: str, answered: int
) -> None:
    failed = Problem(status, code, "whether it is stored is not known", outcome="unknown" if status == 503 else None)

    async def each(*_: Any) -> list[Problem]:
        return [failed]

    monkeypatch.setattr("shared.extras.bigben.service.STORE_FOR", 0.0)
    monkeypatch.setattr(Ingest, "each", each)
    [reply] = await schedule(world, request(world), status=answered)
    assert reply["error"]["message"] == failed.detail, "and not that it was not carried out"
