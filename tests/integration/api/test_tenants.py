"""Tenants, keys and channels, from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.storage.names import TENANTS
from tests.unit.scheduler.harness import ADMIN, World

ALL = "/api/v1/tenants"
ACME = f"{ALL}/acme"
HOOK = {"type": "http", "url": "https://hooks.example.com/x"}
QUEUE = {"type": "queue", "queue": "alarms"}
GRID = {"type": "eventgrid", "endpoint": "https://topic.westeurope-1.eventgrid.azure.net/api/events"}


@pytest.fixture
async def closed() -> AsyncIterator[World]:
    """An application that opens nothing beside public https."""
    world = await World(egress_allow="").open()
    yield world
    await world.close()


async def unchanged(world: World, method: str, url: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
    before = world.dump()
    answer = await world.admin.call(method, url, body, headers)
    assert world.dump() == before
    return answer


async def test_tenant_is_made_read_replaced_and_removed(world: World) -> None:
    settings = {"durability": "standard", "retry": {"attempts": 3}, "limits": {"events_per_second": 10.5, "open_events": 7}}
    made = await world.admin.put(ACME, settings)
    assert (made.status, made.headers["location"]) == (201, ACME)
    assert made.json()["limits"] == {
        "events_per_second": 10.5,
        "open_events": 7,
        "payload_bytes": None,
        "deliveries_per_second": None,
        "concurrency": None,
    }
    found = await world.admin.get(ACME)
    assert (found.status, found.body, found.headers["etag"]) == (200, made.body, made.headers["etag"])
    assert "acme" in [tenant["name"] for tenant in (await world.admin.get(ALL)).json()["items"]]
    replaced = await world.admin.put(ACME, {}, {"if-match": found.headers["etag"]})
    assert (replaced.status, replaced.json()["limits"]["open_events"]) == (200, None)
    assert "location" not in replaced.headers
    assert (await unchanged(world, "PUT", ACME, settings, {"if-match": found.headers["etag"]})).status == 412
    assert (await unchanged(world, "DELETE", ACME, None, {"if-match": found.headers["etag"]})).status == 412
    assert (await world.admin.delete(ACME, {"if-match": replaced.headers["etag"]})).status == 204
    for method in ("GET", "DELETE"):
        assert (await unchanged(world, method, ACME)).code == "not-found"
    assert (await unchanged(world, "PUT", f"{ALL}/new", {}, {"if-match": "*"})).status == 412


@pytest.mark.parametrize("url", [f"{ACME}/keys", f"{ACME}/channels", f"{ACME}/channels/c", f"{ACME}/keys/tsn_aaaaaaaa", ACME])
async def test_what_belongs_to_no_tenant_is_404(world: World, url: str) -> None:
    for method, body in (("GET", None), ("DELETE", None), ("POST", {"scopes": ["events"]})):
        answer = await unchanged(world, method, url, body)
        assert answer.status == 404
        # A path that no route fits has no problem document: the host answers it.
        assert answer.code in ("not-found", "")


async def test_every_verb_of_a_channel_that_is_not_there_is_404(world: World) -> None:
    url = f"{ALL}/demo/channels/nowhere"
    for method in ("GET", "DELETE"):
        assert (await unchanged(world, method, url)).code == "not-found"
    for verb in ("pause", "resume", "secret/rotate"):
        assert (await unchanged(world, "POST", f"{url}/{verb}")).code == "not-found"
    assert (await unchanged(world, "PUT", f"{ALL}/nobody/channels/c", HOOK)).code == "not-found"
    assert (await unchanged(world, "PUT", f"{url}", HOOK, {"if-match": "*"})).status == 412


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"limits": {"events_per_second": "10"}}, ["/limits/events_per_second"]),
        ({"limits": {"events_per_second": 0}}, ["/limits/events_per_second"]),
        ({"limits": {"events_per_second": True}}, ["/limits/events_per_second"]),
        ({"limits": {"open_events": -1}}, ["/limits/open_events"]),
        ({"limits": {"open_events": 1.5}}, ["/limits/open_events"]),
        ({"limits": {"payload_bytes": 262_145}}, ["/limits/payload_bytes"]),
        ({"limits": {"concurrency": 0, "deliveries_per_second": -1}}, ["/limits/deliveries_per_second", "/limits/concurrency"]),
        ({"limits": {"speed": 1}}, ["/limits/speed"]),
        ({"limits": []}, ["/limits"]),
        ({"retry": {"max": "P8D"}}, ["/retry/max"]),
        ({"retry": {"attempts": 101}}, ["/retry/attempts"]),
        ({"durability": "eternal"}, ["/durability"]),
        ({"name": "acme"}, ["/name"]),
        ([], [""]),
        (b"{", [""]),
        (b'{"limits":{"events_per_second":NaN}}', [""]),
        (None, [""]),
    ],
)
async def test_settings_that_are_wrong_are_422_and_change_nothing(world: World, body: Any, pointers: list[str]) -> None:
    for url in (ACME, f"{ALL}/demo"):
        answer = await unchanged(world, "PUT", url, body)
        assert (answer.status, answer.pointers) == (422, pointers)


@pytest.mark.parametrize("name", ["Acme", "a_b", "-a", "a" * 41, "a%00", "a%0A", "%C3%A4", "a%2Fb", "."])
async def test_names_that_are_none_are_422_to_make_and_404_to_look_for(world: World, name: str) -> None:
    for url, pointer, body in (
        (f"{ALL}/{name}", "{tenant}", {}),
        (f"{ALL}/demo/channels/{name}", "{name}", HOOK),
    ):
        assert (await unchanged(world, "PUT", url, body)).pointers == [pointer]
        assert (await unchanged(world, "GET", url)).status == 404
        assert (await unchanged(world, "DELETE", url)).status == 404


async def test_key_is_shown_once_stored_as_a_hash_listed_by_prefix_and_revoked(world: World) -> None:
    await world.admin.put(ACME, {})
    made = await world.admin.post(f"{ACME}/keys", {"scopes": ["events"], "note": "Grüße"})
    assert (made.status, made.headers["cache-control"]) == (201, "no-store")
    key, prefix = made.json()["key"], made.json()["prefix"]
    assert made.headers["location"] == f"{ACME}/keys/{prefix}" and key.startswith(prefix)
    [listed] = (await world.admin.get(f"{ACME}/keys")).json()["items"]
    assert (listed["prefix"], listed["scopes"], listed["note"], "key" in listed) == (prefix, ["events"], "Grüße", False)
    assert not any(key in str(value) for row in world.rows(TENANTS) for value in (row.rk, row.pk, *row.props.values()))
    client = world.client(key)
    assert (await client.get("/api/v1/events")).status == 200
    for wrong in ('"other"', 'W/"x"'):
        assert (await unchanged(world, "DELETE", f"{ACME}/keys/{prefix}", None, {"if-match": wrong})).status == 412
    assert (await world.admin.delete(f"{ACME}/keys/{prefix}", {"if-match": "*"})).status == 204
    assert (await client.get("/api/v1/events")).status == 401
    assert (await unchanged(world, "DELETE", f"{ACME}/keys/{prefix}")).status == 404


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, ["/scopes"]),
        ({"scopes": []}, ["/scopes"]),
        ({"scopes": "events"}, ["/scopes"]),
        ({"scopes": ["root", 1]}, ["/scopes/0", "/scopes/1"]),
        ({"scopes": ["events", "events"]}, [""]),
        ({"scopes": ["agent"]}, [""]),
        ({"scopes": ["agent", "fleets"], "fleet": "web", "node": "n"}, [""]),
        ({"scopes": ["events"], "fleet": "web"}, [""]),
        ({"scopes": ["agent"], "fleet": "Web", "node": "a/b"}, ["/fleet", "/node"]),
        ({"scopes": ["events"], "note": "a\x00"}, ["/note"]),
        ({"scopes": ["events"], "note": "x" * 201}, ["/note"]),
        ({"scopes": ["events"], "key": "mine"}, ["/key"]),
    ],
)
async def test_key_that_makes_no_sense_is_422_and_is_not_made(world: World, body: Any, pointers: list[str]) -> None:
    answer = await unchanged(world, "POST", f"{ALL}/demo/keys", body)
    assert (answer.status, answer.pointers) == (422, pointers)


async def test_agents_key_does_nothing_with_events(world: World) -> None:
    client = await world.key("demo", ["agent"], fleet="web", node="vm-1")
    assert (await client.get("/api/v1/events")).code == "missing-scope"


@pytest.mark.parametrize(
    "spec",
    [HOOK, HOOK | {"headers": {"x-token": "hunter2"}, "timeout": "PT5S"}, QUEUE, QUEUE | {"account": "other1"}, GRID],
)
async def test_channel_is_made_read_replaced_and_removed(world: World, spec: dict[str, Any]) -> None:
    await world.admin.put(ACME, {})
    url = f"{ACME}/channels/ops"
    made = await world.admin.put(url, spec)
    assert (made.status, made.headers["location"], made.headers["cache-control"]) == (201, url, "no-store")
    body = made.json()
    assert ("secret" in body) == (spec["type"] == "http") and b"hunter2" not in made.body
    found = await world.admin.get(url)
    assert found.json() == {name: value for name, value in body.items() if name != "secret"}
    assert found.headers["etag"] == made.headers["etag"]
    again = await world.admin.put(url, spec, {"if-match": made.headers["etag"]})
    assert again.status == 200 and "secret" not in again.json()
    assert (await unchanged(world, "PUT", url, spec, {"if-match": '"other"'})).status == 412
    assert (await unchanged(world, "DELETE", url, None, {"if-match": '"other"'})).status == 412
    assert [channel["name"] for channel in (await world.admin.get(f"{ACME}/channels")).json()["items"]] == ["ops"]
    assert (await world.admin.delete(url, {"if-match": again.headers["etag"]})).status == 204
    assert (await unchanged(world, "DELETE", url)).status == 404


async def test_channel_is_paused_resumed_and_its_secret_rotated(world: World) -> None:
    url = f"{ALL}/demo/channels/ops"
    secret = (await world.admin.put(url, HOOK)).json()["secret"]
    paused = await world.admin.post(f"{url}/pause", {"reason": "moving"})
    assert (paused.status, paused.json()["paused"], paused.json()["reason"]) == (200, True, "moving")
    assert (await world.admin.post(f"{url}/pause")).json()["paused"] is True
    assert (await world.admin.post(f"{url}/resume")).json()["paused"] is False
    rotated = await world.admin.post(f"{url}/secret/rotate")
    assert (rotated.status, set(rotated.json())) == (200, {"secret", "previous_until"})
    assert rotated.json()["secret"].startswith("whsec_") and rotated.json()["secret"] != secret
    assert secret.encode() not in (await world.admin.get(url)).body
    await world.admin.put(f"{ALL}/demo/channels/q", QUEUE)
    answer = await unchanged(world, "POST", f"{ALL}/demo/channels/q/secret/rotate")
    assert (answer.status, answer.code) == (409, "not-signed")
    assert (await unchanged(world, "POST", f"{url}/pause", {"reason": 5})).pointers == ["/reason"]
    assert (await unchanged(world, "POST", f"{url}/pause", {"why": "x"})).pointers == ["/why"]


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        (HOOK | {"url": "http://hooks.example.com/"}, ["/url"]),
        (HOOK | {"url": "https://10.0.0.1/"}, ["/url"]),
        (HOOK | {"url": "https://[::ffff:169.254.169.254]/"}, ["/url"]),
        (HOOK | {"url": "https://2130706433/"}, ["/url"]),
        (HOOK | {"url": "https://a.example\\@b.example/"}, ["/url"]),
        (HOOK | {"url": "https://user:pass@a.example/"}, ["/url"]),
        (HOOK | {"url": "file:///etc/passwd"}, ["/url"]),
        (HOOK | {"url": "https://a.example/#f"}, ["/url"]),
        (HOOK | {"url": 17}, ["/url"]),
        ({"type": "http"}, ["/url"]),
        (HOOK | {"headers": {"webhook-id": "1"}}, ["/headers/webhook-id"]),
        (HOOK | {"headers": {"a b": "1"}}, ["/headers/a b"]),
        (HOOK | {"headers": {"x": "a\r\nb: c"}}, ["/headers/x"]),
        (HOOK | {"headers": {"X": "1", "x": "2"}}, ["/headers/x"]),
        (HOOK | {"headers": {"x": "***"}}, ["/headers/x"]),
        (HOOK | {"headers": {"x": 1}}, ["/headers/x"]),
        (HOOK | {"timeout": "PT61S"}, ["/timeout"]),
        (HOOK | {"timeout": 5}, ["/timeout"]),
        (HOOK | {"queue": "alarms"}, ["/queue"]),
        (HOOK | {"secret": "whsec_x"}, ["/secret"]),
        ({"type": "smtp"}, ["/type"]),
        ({"url": "https://a.example/"}, ["/type"]),
        (QUEUE | {"queue": "tocsin-shards"}, ["/queue"]),
        (QUEUE | {"queue": "A"}, ["/queue"]),
        (QUEUE | {"account": "a.b"}, ["/account"]),
        (GRID | {"endpoint": "http://a.example/"}, ["/endpoint"]),
        (GRID | {"endpoint": "https://127.0.0.1:1"}, ["/endpoint"]),
    ],
)
async def test_channel_that_could_do_harm_is_422_and_is_not_made(closed: World, body: Any, pointers: list[str]) -> None:
    world = closed
    for name in ("ops", "default"):
        answer = await unchanged(world, "PUT", f"{ALL}/demo/channels/{name}", body)
        assert (answer.status, answer.pointers) == (422, pointers)
        assert b"pass@" not in answer.body


async def test_lists_are_walked_by_their_cursors(world: World) -> None:
    for number in range(7):
        await world.admin.put(f"{ALL}/t{number}", {})
        await world.admin.put(f"{ALL}/demo/channels/c{number}", HOOK)
        await world.admin.post(f"{ALL}/demo/keys", {"scopes": ["events"]})
    for url, key, count in ((ALL, "name", 8), (f"{ALL}/demo/channels", "name", 8), (f"{ALL}/demo/keys", "prefix", 8)):
        for limit in (1, 3, 8, 1000):
            pages = await world.admin.pages(f"{url}?limit={limit}")
            found = [item[key] for page in pages for item in page]
            assert len(found) == count and found == sorted(set(found))
            assert all(len(page) == limit for page in pages[:-1])
        for query, pointer in (("limit=0", "?limit"), ("limit=1001", "?limit"), ("cursor=abc", "?cursor"), ("name=x", "?name")):
            assert (await unchanged(world, "GET", f"{url}?{query}")).pointers == [pointer]
    cursor = (await world.admin.get(f"{ALL}/demo/keys?limit=1")).json()["next"]
    assert (await world.admin.get(f"{ALL}/t0/keys?cursor={cursor}")).pointers == ["?cursor"]


async def test_tenant_that_is_removed_takes_its_keys_and_channels_along(world: World) -> None:
    client = await world.tenant("acme")
    assert (await client.get("/api/v1/events")).status == 200
    assert (await world.admin.delete(ACME)).status == 204
    assert (await client.get("/api/v1/events")).status == 401
    assert (await world.admin.put(ACME, {})).status == 201
    assert (await client.get("/api/v1/events")).status == 401
    for part in ("keys", "channels"):
        assert (await world.admin.get(f"{ACME}/{part}")).json() == {"items": [], "next": None}


async def test_bootstrap_key_is_no_tenants_and_cannot_be_listed_or_revoked(world: World) -> None:
    assert (await unchanged(world, "DELETE", f"{ALL}/demo/keys/bootstrap")).status == 404
    for row in world.rows(TENANTS):
        assert ADMIN not in str(row)


async def test_tenants_take_no_tenant_parameter(world: World) -> None:
    assert (await unchanged(world, "GET", f"{ALL}?tenant=demo")).pointers == ["?tenant"]
