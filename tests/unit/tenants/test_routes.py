"""The routes of tenants, keys and channels as an operator meets them."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.errors import Problem, Unavailable
from shared.delivery.channels.model import KafkaChannel
from shared.extras.parts import build_routes
from shared.web.auth import KeyRecord, authorize
from shared.web.etag import etag_of

from .conftest import World

HTTP = {"type": "http", "url": "https://hooks.example.com/x"}
KAFKA = {"type": "kafka", "servers": "ns.servicebus.windows.net:9093", "topic": "alarms"}
ACME = "/api/v1/tenants/acme"


@pytest.fixture
async def acme(world: World) -> World:
    assert (await world.admin.put(ACME, {})).status == 201
    return world


async def test_a_key_shows_its_own_tenant_and_scopes(acme: World) -> None:
    reader = (await acme.admin.post(f"{ACME}/keys", {"scopes": ["read"]})).json()
    found = await acme.client(reader["key"]).get("/api/v1/key")
    assert (found.status, found.json()) == (200, {"prefix": reader["prefix"], "tenant": "acme", "scopes": ["read"]})
    assert (await acme.admin.get("/api/v1/key")).json() == {"prefix": "bootstrap", "scopes": ["admin"]}
    agent = (await acme.admin.post(f"{ACME}/keys", {"scopes": ["agent"], "fleet": "web", "node": "vm-1"})).json()
    assert (await acme.client(agent["key"]).get("/api/v1/key")).status == 403


async def test_a_tenants_life(world: World) -> None:
    made = await world.admin.put(ACME, {"limits": {"events_per_second": 2.5}, "retry": {"first": "PT10S"}})
    assert (made.status, made.headers["location"]) == (201, ACME)
    body = made.json()
    assert (body["name"], body["durability"], body["limits"]["events_per_second"]) == ("acme", None, 2.5)
    assert (body["retry"]["first"], body["retry"]["max"]) == ("PT10S", "PT1H")
    assert body["created"] == "2027-01-15T08:00:00.000Z"
    shown = await world.admin.get(ACME)
    assert (shown.status, shown.json(), shown.headers["etag"]) == (200, body, made.headers["etag"])
    again = await world.admin.put(ACME, {}, {"if-match": shown.headers["etag"]})
    assert (again.status, again.json()["limits"]["events_per_second"]) == (200, None)
    assert (await world.admin.put(ACME, {}, {"if-match": shown.headers["etag"]})).status == 412
    assert (await world.admin.delete(ACME, {"if-match": shown.headers["etag"]})).code == "precondition-failed"
    gone = await world.admin.delete(ACME, {"if-match": again.headers["etag"]})
    assert (gone.status, gone.body) == (204, b"")
    assert (await world.admin.get(ACME)).code == "not-found"
    assert (await world.admin.delete(ACME)).status == 404


async def test_what_a_put_answers_can_be_put_again(acme: World) -> None:
    body = (await acme.admin.get(ACME)).json()
    for name in ("name", "uid", "created"):
        del body[name]
    assert (await acme.admin.put(ACME, body)).status == 200


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"durability": "fastest"}, "/durability"),
        ({"limits": {"events_per_second": 0}}, "/limits/events_per_second"),
        ({"limits": {"nope": 1}}, "/limits/nope"),
        ({"retry": {"attempts": 0}}, "/retry/attempts"),
        ({"retry": {"first": "5s"}}, "/retry/first"),
        ({"name": "acme"}, "/name"),
    ],
)
async def test_wrong_settings_are_422_and_change_nothing(world: World, body: dict[str, Any], pointer: str) -> None:
    answer = await world.admin.put(ACME, body)
    assert (answer.status, answer.pointers) == (422, [pointer])
    assert (await world.admin.get(ACME)).status == 404


@pytest.mark.parametrize("name", ["Acme", "-a", "a-", "a_b", "x" * 41, "a.b", "a%2Fb", "%00"])
async def test_names_that_are_none_are_422_to_put_and_404_to_get(world: World, name: str) -> None:
    assert (await world.admin.put(f"/api/v1/tenants/{name}", {})).pointers == ["{tenant}"]
    assert (await world.admin.get(f"/api/v1/tenants/{name}")).status == 404


async def test_a_list_is_walked_by_its_cursor(world: World) -> None:
    for name in ("a", "b", "c"):
        await world.admin.put(f"/api/v1/tenants/{name}", {})
    first = (await world.admin.get("/api/v1/tenants?limit=2")).json()
    assert [item["name"] for item in first["items"]] == ["a", "b"]
    second = (await world.admin.get(f"/api/v1/tenants?limit=2&cursor={first['next']}")).json()
    assert ([item["name"] for item in second["items"]], second["next"]) == (["c"], None)
    assert (await world.admin.get(f"/api/v1/tenants/a/keys?cursor={first['next']}")).pointers == ["?cursor"]


async def test_a_keys_life(acme: World) -> None:
    made = await acme.admin.post(f"{ACME}/keys", {"scopes": ["events", "fleets"], "note": "ci"})
    assert (made.status, made.headers["cache-control"]) == (201, "no-store")
    body = made.json()
    assert set(body) == {"key", "prefix", "scopes", "note", "created"}
    assert made.headers["location"] == f"{ACME}/keys/{body['prefix']}"
    listed = (await acme.admin.get(f"{ACME}/keys")).json()
    assert listed == {"items": [{name: body[name] for name in ("prefix", "scopes", "note", "created")}], "next": None}
    client = acme.admin.with_key(body["key"])
    assert (await client.get("/api/v1/tenants")).status == 403
    assert (await acme.admin.delete(f"{ACME}/keys/{body['prefix']}")).status == 204
    assert (await client.get("/api/v1/tenants")).status == 401
    assert (await acme.admin.delete(f"{ACME}/keys/{body['prefix']}")).status == 404


def test_a_key_to_read_permits_what_changes_nothing() -> None:
    key = KeyRecord("acme", "k", frozenset({"read"}))
    permitted, refused = set(), set()
    for route in build_routes():
        if route.scopes:
            try:
                authorize(key, route.scopes, reads=route.reads)
                permitted.add((route.method if route.method == "GET" else route.name, route.scopes <= {"events", "fleets", "agent"}))
            except Problem:
                refused.add((route.method, "admin" in route.scopes or route.scopes == {"agent"}))
    computing = {("schedules_preview_rule", True), ("bigben_cron_describe", True)}
    assert permitted == {("GET", True), *computing}
    assert {method for method, _ in refused} == {"GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"}
    assert ("GET", False) not in refused


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"scopes": ["events"], "expires": "2020-01-01T00:00:00Z"}, "/expires"),
        ({"scopes": ["events"], "expires": "soon"}, "/expires"),
        ({}, "/scopes"),
        ({"scopes": []}, "/scopes"),
        ({"scopes": ["root"]}, "/scopes/0"),
        ({"scopes": ["events", "events"]}, ""),
        ({"scopes": ["agent"]}, ""),
        ({"scopes": ["agent"], "fleet": "web"}, ""),
        ({"scopes": ["agent", "admin"], "fleet": "web", "node": "n"}, ""),
        ({"scopes": ["events"], "node": "n"}, ""),
        ({"scopes": ["agent"], "fleet": "web", "node": "a/b"}, "/node"),
        ({"scopes": ["events"], "note": "a\nb"}, "/note"),
        ({"scopes": ["events"], "key": "mine"}, "/key"),
    ],
)
async def test_keys_that_make_no_sense_are_422(acme: World, body: dict[str, Any], pointer: str) -> None:
    answer = await acme.admin.post(f"{ACME}/keys", body)
    assert (answer.status, answer.pointers) == (422, [pointer])
    assert (await acme.admin.get(f"{ACME}/keys")).json()["items"] == []


async def test_a_channels_life(acme: World) -> None:
    url = f"{ACME}/channels/ops"
    made = await acme.admin.put(url, HTTP | {"headers": {"authorization": "Bearer hunter2"}, "timeout": "PT5S"})
    assert made.status == 201
    body = made.json()
    assert body["secret"].startswith("whsec_")
    assert (body["headers"], body["timeout"], body["paused"]) == ({"authorization": "***"}, "PT5S", False)
    shown = await acme.admin.get(url)
    assert shown.json() == {name: value for name, value in body.items() if name != "secret"}
    assert b"hunter2" not in made.body + shown.body
    assert (await acme.admin.put(url, HTTP)).status == 200
    rotated = (await acme.admin.post(f"{url}/secret/rotate")).json()
    assert set(rotated) == {"secret", "previous_until"}
    assert rotated["secret"] != body["secret"]
    again = [(await acme.admin.post(f"{url}/secret/rotate", {"id": "lost-answer"})).json() for _ in range(2)]
    assert again[0] == again[1] and again[0]["secret"] != rotated["secret"]
    assert (await acme.admin.post(f"{url}/secret/rotate", {"id": "No"})).status == 422
    paused = await acme.admin.post(f"{url}/pause", {"reason": "moving"})
    assert (paused.json()["paused"], paused.json()["reason"]) == (True, "moving")
    assert (await acme.admin.post(f"{url}/pause")).json()["paused"] is True
    resumed = await acme.admin.post(f"{url}/resume")
    assert (resumed.json()["paused"], "reason" in resumed.json(), acme.called_back) == (False, False, ["acme"])
    listed = (await acme.admin.get(f"{ACME}/channels")).json()
    assert [item["name"] for item in listed["items"]] == ["ops"]
    assert (await acme.admin.delete(url, {"if-match": '"other"'})).status == 412
    assert (await acme.admin.delete(url, {"if-match": resumed.headers["etag"]})).status == 204
    assert (await acme.admin.get(url)).status == 404


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (HTTP | {"url": "http://a.example/"}, "/url"),
        (HTTP | {"url": "https://127.0.0.1/"}, "/url"),
        (HTTP | {"headers": {"ce-id": "x"}}, "/headers/ce-id"),
        (HTTP | {"headers": {"x": "a\r\nb"}}, "/headers/x"),
        (HTTP | {"headers": {"x": "***"}}, "/headers/x"),
        (HTTP | {"timeout": "PT0S"}, "/timeout"),
        (HTTP | {"timeout": "PT61S"}, "/timeout"),
        (HTTP | {"secret": "mine"}, "/secret"),
        ({"type": "smtp"}, "/type"),
        ({"type": "queue", "queue": "tocsin-shards"}, "/queue"),
        ({"type": "eventgrid", "endpoint": "http://a.example/"}, "/endpoint"),
        (KAFKA | {"servers": "broker.example:9092"}, "/servers"),
        (KAFKA | {"servers": "broker.example"}, "/servers"),
        (KAFKA | {"topic": "a b"}, "/topic"),
        (KAFKA | {"key": "machine"}, "/key"),
        (KAFKA | {"tls": False}, "/tls"),
        (KAFKA | {"username": "u"}, ""),
        (KAFKA | {"username": "u", "password": "p"}, "/username"),
        (KAFKA | {"username": "u", "password": "***"}, "/password"),
        ([], ""),
    ],
)
async def test_channels_that_could_do_harm_are_422_and_not_stored(acme: World, body: Any, pointer: str) -> None:
    answer = await acme.admin.put(f"{ACME}/channels/ops", body)
    assert (answer.status, answer.pointers) == (422, [pointer])
    assert (await acme.admin.get(f"{ACME}/channels/ops")).status == 404


async def test_password_of_a_kafka_channel_is_masked_and_kept_only_for_the_same_servers(acme: World) -> None:
    url = f"{ACME}/channels/bus"
    spec = KAFKA | {"servers": "localhost:9092", "username": "u", "password": "hunter2"}
    made = await acme.admin.put(url, spec)
    assert (made.status, made.json()["password"]) == (201, "***")
    assert (await acme.admin.put(url, spec | {"password": "***", "topic": "other"})).status == 200
    target = await acme.directory.target("acme", "bus")
    assert target is not None and isinstance(target.spec, KafkaChannel) and target.spec.password == "hunter2"
    elsewhere = await acme.admin.put(url, spec | {"password": "***", "servers": "localhost:9999"})
    assert (elsewhere.status, elsewhere.pointers) == (422, ["/password"])
    assert "hunter2" not in (await acme.admin.get(url)).body.decode()


async def test_tenants_are_for_admins_only(acme: World) -> None:
    key = (await acme.admin.post(f"{ACME}/keys", {"scopes": ["events", "fleets"]})).json()["key"]
    client = acme.admin.with_key(key)
    for method, url in (("GET", ACME), ("PUT", ACME), ("GET", f"{ACME}/keys"), ("PUT", f"{ACME}/channels/c"), ("DELETE", ACME)):
        assert (await client.call(method, url, {})).code == "missing-scope"
    assert (await acme.admin.with_key(None).get(ACME)).status == 401


async def test_storage_that_is_away_is_503(acme: World) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("throttled")

    acme.tables.get = away  # type: ignore[method-assign]
    answer = await acme.admin.get(ACME)
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "storage-unavailable", "1")


def test_entity_tags_are_not_the_stores_own() -> None:
    assert etag_of('W/"1"') != 'W/"1"'
