"""Tokens of Entra: only the operator's list gives them, and every door to another one is closed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.core.errors import UnsafeSettings
from tests.unit.delivery.entra.jwts import CLIENT
from tests.unit.delivery.entra.test_audiences import STOLEN, TRICKS
from tests.unit.scheduler.harness import World, make_settings

TENANT = "/api/v1/tenants/demo"
CHANNEL = f"{TENANT}/channels/orders"
RULES = [{"audience": "api://orders", "hosts": ["orders.example.com", "*.eu.orders.example.com"]}]


def http(**change: Any) -> dict[str, Any]:
    return {"type": "http", "url": "https://orders.example.com/hook", "entra_audience": "api://orders"} | change


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World(token_client_id=CLIENT).open()
    yield world
    await world.close()


def faults(answer: Any) -> list[tuple[str, str]]:
    assert answer.status == 422, answer.body
    return [(each["pointer"], each["detail"]) for each in answer.json()["errors"]]


async def test_a_listed_channel_is_stored_and_its_target_has_the_rules(world: World) -> None:
    made = (await world.admin.put(TENANT, {"entra_audiences": RULES})).json()
    assert made["entra_audiences"] == RULES
    answer = await world.admin.put(CHANNEL, http())
    assert answer.status == 201 and answer.json()["entra_audience"] == "api://orders"
    assert (await world.admin.put(CHANNEL, http(url="https://a.eu.orders.example.com/"))).status == 200
    target = await world.app.tenants.directory.target("demo", "orders")
    assert target is not None and [rule.model_dump() for rule in target.audiences] == RULES
    assert "entra_audience" not in (await world.admin.get(f"{TENANT}/channels/default")).json()


async def test_no_door_takes_an_audience_of_azures_services(world: World) -> None:
    for audience in (*STOLEN, *TRICKS):
        rules = [{"audience": audience, "hosts": ["orders.example.com"]}]
        for query in ("", "?dry_run=true"):
            ((pointer, _),) = faults(await world.admin.put(f"{TENANT}{query}", {"entra_audiences": rules}))
            assert pointer == "/entra_audiences/0/audience", audience
            ((pointer, _),) = faults(await world.admin.put(f"{CHANNEL}{query}", http(entra_audience=audience)))
            assert pointer.endswith("/entra_audience"), audience
    assert "entra_audiences" not in (await world.admin.get(TENANT)).json()


async def test_a_host_off_the_list_is_refused(world: World) -> None:
    await world.admin.put(TENANT, {"entra_audiences": RULES})
    for url in (
        *(
            "https://evil.example/",
            "https://orders.example.com.evil.example/",
            "https://xorders.example.com/",
            "https://orders.example.com./",
        ),
        *("https://orders.example.com:8443/", "https://eu.orders.example.com/", "https://a.b.eu.orders.example.com/"),
        *("https://8.8.8.8/", "https://[2606:4700::1111]/", "https://[::ffff:8.8.8.8]/"),
    ):
        ((pointer, detail),) = faults(await world.admin.put(CHANNEL, http(url=url)))
        assert pointer == "/entra_audience" and "does not have the host" in detail, url


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"url": "http://localhost/"}, "/url"),
        ({"url": "https://me:pw@orders.example.com/"}, "/url"),
        ({"url": "https://evil.example\\@orders.example.com/"}, "/url"),
        ({"url": "https://orders.example.com@evil.example/"}, "/url"),
        ({"headers": {"Authorization": "Bearer x"}}, "/headers/Authorization"),
    ],
)
async def test_a_channel_that_cannot_carry_a_token_is_refused(world: World, change: dict[str, Any], pointer: str) -> None:
    await world.admin.put(TENANT, {"entra_audiences": RULES})
    assert [each[0] for each in faults(await world.admin.put(CHANNEL, http(**change)))] == [pointer]
    queue = {"type": "queue", "queue": "orders", "entra_audience": "api://orders"}
    assert faults(await world.admin.put(CHANNEL, queue))[0][0].endswith("entra_audience")


async def test_the_rule_of_another_tenant_gives_nothing(world: World) -> None:
    await world.admin.put("/api/v1/tenants/other", {"entra_audiences": RULES})
    ((pointer, detail),) = faults(await world.admin.put(CHANNEL, http()))
    assert pointer == "/entra_audience" and "api://orders" in detail


async def test_keys_of_a_tenant_change_neither_rules_nor_channels(world: World) -> None:
    for scope in ("events", "fleets", "read"):
        key = (await world.admin.post(f"{TENANT}/keys", {"scopes": [scope]})).json()["key"]
        caller = world.client(key)
        assert (await caller.put(TENANT, {"entra_audiences": RULES})).status == 403
        assert (await caller.put(CHANNEL, http())).status == 403
    assert (await world.demo.put(TENANT, {"entra_audiences": RULES})).status == 403


async def test_bigbens_routes_neither_make_nor_keep_a_token(world: World) -> None:
    await world.admin.put(TENANT, {"entra_audiences": RULES})
    assert (await world.admin.put(f"{TENANT}/channels/default", http())).status == 200
    props = {"url": "https://orders.example.com/hook", "entra_audience": "api://orders", "headers": {}}
    assert (await world.admin.post("/api/bigben/events/tenant/register", {"tenant": "demo", "type": "HTTP", "props": props})).status == 200
    assert "entra_audience" not in (await world.admin.get(f"{TENANT}/channels/default")).json()


async def test_a_removed_rule_reaches_the_target_of_every_instance_within_seconds(world: World) -> None:
    await world.admin.put(TENANT, {"entra_audiences": RULES})
    await world.admin.put(CHANNEL, http())
    other = World(clock=world.clock, token_client_id=CLIENT)
    other.storage = world.storage
    await other.open()
    for each in (world, other):
        target = await each.app.tenants.directory.target("demo", "orders")
        assert target is not None and target.audiences
    await world.admin.put(TENANT, {})
    await world.clock.advance(1.1)
    here = await world.app.tenants.directory.target("demo", "orders")
    await world.clock.advance(5)
    there = await other.app.tenants.directory.target("demo", "orders")
    assert here is not None and there is not None and (here.audiences, there.audiences) == ((), ())
    await other.close()


async def test_changes_of_the_list_stand_in_the_audit_trail(world: World) -> None:
    await world.admin.put(TENANT, {"entra_audiences": RULES})
    (record, *_) = await world.admin.all("/api/v1/audit")
    (change,) = [each for each in record["changes"] if each["field"] == "entra_audiences"]
    assert record["action"] == "tenants_put" and "before" not in change
    assert "api://orders" in change["after"] and "orders.example.com" in change["after"]


async def test_without_the_second_identity_channels_that_ask_are_refused() -> None:
    world = await World().open()
    await world.admin.put(TENANT, {"entra_audiences": RULES})
    ((pointer, detail),) = faults(await world.admin.put(CHANNEL, http()))
    assert pointer == "/entra_audience" and "TOCSIN_TOKEN_CLIENT_ID" in detail
    await world.close()


@pytest.mark.parametrize("setting", ["client_id", "mirror_client_id"])
def test_the_apps_own_identity_is_refused_as_the_second(setting: str) -> None:
    with pytest.raises(UnsafeSettings, match="the app's own identity"):
        make_settings(token_client_id=CLIENT, **{setting: CLIENT.upper()})


def test_a_client_id_has_its_form() -> None:
    with pytest.raises(UnsafeSettings, match="TOCSIN_TOKEN_CLIENT_ID"):
        make_settings(token_client_id="me")
