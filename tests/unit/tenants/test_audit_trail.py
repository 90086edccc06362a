"""The audit trail: each administrative call has a record, whatever happens to it, and no record has a secret."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.app.routes import build_routes
from shared.core.errors import Unavailable
from shared.storage.names import TENANTS
from shared.storage.ports import Insert, Merge, Op
from shared.web.audited import Change, differences
from tests.unit.scheduler.harness import World

CHANNEL = "/api/v1/tenants/demo/channels/audit"
HTTP = {"type": "http", "url": "https://hooks.example.com/a"}
DAY = 86_400


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World().open()
    yield world
    await world.close()


async def records(world: World, query: str = "") -> list[dict[str, Any]]:
    return await world.admin.all(f"/api/v1/audit{query}")


def test_calls_of_operators_are_audited_and_those_of_machines_are_not() -> None:
    routes = build_routes()
    audited = {route.name for route in routes if route.audited}
    assert {"tenants_put", "keys_create", "channels_pause", "fleets_put", "leases_pin", "turns_revoke", "maintenance_approve"} <= audited
    assert audited >= {route.name for route in routes if route.scopes == {"admin"} and route.method != "GET"}
    assert not audited & {"events_create", "leases_beat", "maintenance_report", "maintenance_eventgrid", "turns_publish"}
    assert routes["channels_pause"].shown_by is routes["channels_get"] and routes["keys_create"].shown_by is None


def test_every_audited_call_but_those_of_the_whole_installation_says_which_tenant_it_concerns() -> None:
    audited = [route for route in build_routes() if route.audited]
    nameless = {route.name for route in audited if "{tenant}" not in route.template and not route.of_tenant and route.about is None}
    assert nameless == {"storage_failover", "storage_failback", "storage_forms_raise"}


async def test_registration_of_bigben_is_recorded_under_its_tenant_with_the_change_of_its_channel_alone(world: World) -> None:
    names = ["victim", *[f"a{number:02d}" for number in range(20)]]
    for name in names:
        await world.admin.put(f"/api/v1/tenants/{name}", {})
        await world.admin.put(f"/api/v1/tenants/{name}/channels/default", {**HTTP, "url": "https://hooks.example.com/good"})
    await world.clock.advance(1)
    hijack = {"tenant": "victim", "type": "HTTP", "props": {"url": "https://hooks.example.com/hijacked"}}
    assert (await world.admin.post("/api/bigben/events/tenant/register", hijack)).status == 200
    await world.clock.advance(1)
    assert (await world.admin.post("/api/bigben/events/tenant/register", {**hijack, "tenant": "new"})).status == 200
    await world.clock.advance(1)
    assert (await world.admin.post("/api/bigben/events/tenant/register", {**hijack, "tenant": "No Name" * 9000})).status in (413, 422)
    assert (await world.admin.post("/api/bigben/events/tenant/register", {**hijack, "tenant": "No Name"})).status == 422
    [changed] = await records(world, "?tenant=victim&action=bigben_register")
    moved = {"field": "url", "before": '"https://hooks.example.com/good"', "after": '"https://hooks.example.com/hijacked"'}
    assert moved in changed["changes"] and {each["field"] for each in changed["changes"]} <= {"url", "updated", "warnings"}
    [new] = await records(world, "?tenant=new&action=bigben_register")
    assert {"field": "url", "after": moved["after"]} in new["changes"]
    refused = (await records(world, "?action=bigben_register"))[0]
    assert (refused["tenant"], refused["outcome"], refused["changes"]) == (None, "refused", [])


async def test_record_says_who_changed_what_from_what_to_what(world: World) -> None:
    made = (await world.admin.post("/api/v1/tenants/demo/keys", {"scopes": ["admin"]})).json()
    operator = world.client(made["key"])
    await world.clock.advance(1)
    secrets = {"headers": {"X-Key": "s3cret-value"}, "url": f"{HTTP['url']}?code=s3cret-code&s3cret"}
    await operator.put(CHANNEL, {**HTTP, **secrets})
    await world.clock.advance(1)
    await operator.put(CHANNEL, {**HTTP, "timeout": "PT3S"})
    await world.clock.advance(1)
    await operator.post(f"{CHANNEL}/pause", {"reason": "repair"})
    await world.clock.advance(1)
    await operator.delete(CHANNEL)
    gone, paused, changed, new, key = await records(world)
    assert [each["action"] for each in (gone, paused, changed, new, key)] == [
        *("channels_delete", "channels_pause", "channels_put", "channels_put", "keys_create"),
    ]
    assert {each["by"] for each in (gone, paused, changed, new)} == {made["prefix"]} and key["by"] == "bootstrap"
    assert changed["changes"] == [
        {"field": "headers.X-Key", "before": '"***"'},
        {"field": "timeout", "before": '"PT15S"', "after": '"PT3S"'},
        {"field": "url", "before": '"https://hooks.example.com/a?code=***&***"', "after": '"https://hooks.example.com/a"'},
    ]
    assert {"field": "paused", "before": "false", "after": "true"} in paused["changes"]
    assert {"field": "reason", "after": '"repair"'} in paused["changes"]
    assert gone["outcome"] == "done" and {each["field"] for each in gone["changes"]} >= {"url", "type"}
    assert {"field": "scopes", "after": '["admin"]'} in key["changes"]
    stored = str([row.props for row in world.rows(TENANTS) if row.pk.startswith("audit:")])
    assert "s3cret" not in stored and made["key"] not in stored and "whsec_" not in stored


async def test_refused_call_changes_nothing_and_has_a_record_too(world: World) -> None:
    assert (await world.admin.put(CHANNEL, {**HTTP, "url": "http://10.0.0.1/"})).status == 422
    await world.clock.advance(1)
    assert (await world.admin.delete("/api/v1/tenants/demo/keys/tsn_none")).status == 404
    assert [(each["action"], each["outcome"], each["status"], each["changes"]) for each in await records(world)] == [
        ("keys_delete", "refused", 404, []),
        ("channels_put", "refused", 422, []),
    ]


async def test_without_a_record_there_is_no_change_and_without_an_end_it_is_unknown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write = world.tables.write
    broken: type[Op] = Insert

    async def fail(table: str, pk: str, ops: list[Op]) -> Any:
        if pk.startswith("audit:") and isinstance(ops[0], broken):
            raise Unavailable("away")
        return await write(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", fail)
    assert (await world.admin.put(CHANNEL, HTTP)).status == 503 and (await world.admin.get(CHANNEL)).status == 404
    broken = Merge
    assert (await world.admin.put(CHANNEL, HTTP)).status == 201
    [record] = await records(world)
    assert (record["outcome"], record["status"], record["changes"]) == ("unknown", None, [])


async def test_call_that_is_done_does_not_fail_because_its_changes_cannot_be_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write, get, stored = world.tables.write, world.tables.get, False

    async def notice(table: str, pk: str, ops: list[Op]) -> Any:
        nonlocal stored
        stored = stored or ops[0].rk == "channel:audit"
        return await write(table, pk, ops)

    async def fail(table: str, pk: str, rk: str) -> Any:
        if stored and rk == "channel:audit":
            raise Unavailable("away")
        return await get(table, pk, rk)

    monkeypatch.setattr(world.tables, "write", notice)
    monkeypatch.setattr(world.tables, "get", fail)
    assert (await world.admin.put(CHANNEL, HTTP)).status == 201
    [record] = await records(world)
    assert (record["outcome"], record["status"], record["changes"]) == ("done", 201, [])


async def test_list_is_filtered_and_walked_over_months_and_a_year_is_kept(world: World) -> None:
    for month in range(14):
        await world.admin.put(f"/api/v1/tenants/t{month}", {})
        await world.clock.advance(31 * DAY)
        await world.app.audit.retain(world.now)
    found = await records(world, "?limit=3")
    assert [each["tenant"] for each in found] == [f"t{month}" for month in range(13, 1, -1)]
    assert [each["tenant"] for each in await records(world, "?tenant=t9")] == ["t9"]
    assert await records(world, "?by=nobody") == [] and len(await records(world, "?action=tenants_put&by=bootstrap")) == len(found)
    middle = found[4]["at"]
    assert [each["tenant"] for each in await records(world, f"?from={middle}")] == [f"t{month}" for month in range(13, 8, -1)]
    assert [each["tenant"] for each in await records(world, f"?to={middle}&limit=2")] == [f"t{month}" for month in range(8, 1, -1)]
    assert (await world.demo.get("/api/v1/audit")).status == 403


def test_a_new_key_in_a_urls_query_is_a_change_that_shows_neither() -> None:
    before, after = ({"url": f"https://a.example/x?code={key}&n", "also": [f"http://b.example/?{key}"]} for key in ("old", "new"))
    masked, other = '"https://a.example/x?code=***&***"', '["http://b.example/?***"]'
    assert differences(before, after) == [Change("also", other, other), Change("url", masked, masked)]
    assert not differences(before, before)


def test_differences_leave_out_secrets_and_what_changes_by_itself() -> None:
    before = {"name": "a", "limits": {"x": 1, "y": None}, "servers": 3, "secret": "s1"}
    after = {"name": "a", "limits": {"x": 2, "y": [1]}, "servers": 4, "secret": "s2"}
    assert differences(before, after, frozenset({"limits"})) == [Change("limits.x", "1", "2"), Change("limits.y", "", "[1]")]
    assert differences({}, after) == [
        Change("limits.x", "", "2"),
        Change("limits.y", "", "[1]"),
        Change("name", "", '"a"'),
        Change("servers", "", "4"),
    ]
