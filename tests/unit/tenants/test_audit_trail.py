"""The audit trail: each administrative call has a record, whatever happens to it, and no record has a secret."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from shared.core.errors import Unavailable
from shared.extras.parts import build_routes
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


async def test_records_that_grew_old_while_no_app_ran_are_removed_within_days(world: World) -> None:
    await world.tenant()
    assert [row for row in world.rows(TENANTS) if row.pk.startswith("audit:")]
    # A year and ten months later.
    await world.clock.advance(670 * 86_400, settle=1)
    for _ in range(12):
        await world.app.audit.retain(world.now)
        await world.clock.advance(86_400, settle=1)
    assert not [row for row in world.rows(TENANTS) if row.pk.startswith("audit:")]


@pytest.mark.parametrize("start", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00Z", "2001-01-01T00:00:00Z"])
async def test_a_list_from_long_ago_has_all_records(world: World, start: str) -> None:
    await world.tenant()
    found = await world.admin.all("/api/v1/audit")
    assert found and await world.admin.all(f"/api/v1/audit?from={start}&to=9999-12-31T23:59:59.999Z") == found


def test_a_new_key_in_a_urls_query_is_a_change_that_shows_neither() -> None:
    before, after = ({"url": f"https://a.example/x?code={key}&n", "also": [f"http://b.example/?{key}"]} for key in ("old", "new"))
    masked, other = '"https://a.example/x?code=***&***"', '"http://b.example/?***"'
    assert differences(before, after) == [Change("also[0]", other, other), Change("url", masked, masked)]
    assert not differences(before, before)


def test_lists_are_compared_element_by_element_however_long_they_are() -> None:
    hosts = [f"orders{number}.example-company.com" for number in range(20)]
    rules = [{"audience": f"api://{name}", "hosts": hosts} for name in ("orders", "bills")]
    added = [rules[0], {**rules[1], "hosts": [*hosts, "evil.attacker.net"]}]
    assert differences({"rules": rules}, {"rules": added}) == [Change("rules[1].hosts[20]", "", '"evil.attacker.net"')]
    assert differences({"rules": added}, {"rules": rules}) == [Change("rules[1].hosts[20]", '"evil.attacker.net"', "")]
    first = {"audience": "api://x", "hosts": ["evil.attacker.net"]}
    assert differences({"rules": rules}, {"rules": [first, *rules]}) == [
        Change("rules[0].audience", "", '"api://x"'),
        Change("rules[0].hosts", "", '["evil.attacker.net"]'),
    ]
    assert differences({"a": [1, 2, 2]}, {"a": [1, 2, 3]}) == [Change("a[2]", "2", "3")]
    assert differences({"a": [1, 2]}, {"a": [2, 1]}) == [Change("a", "[1,2]", "[2,1]")]
    assert Change("hosts[19]", "", f'"{hosts[19]}"') in differences({}, {"hosts": hosts})


def test_values_that_are_false_or_empty_are_values() -> None:
    for empty, text in ((False, "false"), (0, "0"), ("", '""'), ([], "[]")):
        assert differences({"x": empty}, {"x": None}) == differences({"x": empty}, {}) == [Change("x", text, "")]
        assert differences({"x": None}, {"x": empty}) == [Change("x", "", text)]


def test_long_values_are_cut_around_what_differs() -> None:
    url = "https://a.example/" + "a" * 400
    [change] = differences({"url": url}, {"url": f"{url}/evil"})
    assert change.before != change.after and change.after.endswith('/evil"') and change.before.startswith("...")
    [long] = differences({"url": f"{url}1{url}"}, {"url": f"{url}2{url}"})
    assert len(long.before) == len(long.after) == 300 and "a1https" in long.before and "a2https" in long.after


def test_many_changes_hide_no_other_field_and_their_number_is_told() -> None:
    changes = differences({"z": 1}, {"a": [f"{number:03}" + '"' * 290 for number in range(200)], "limits": {"x": 1}, "z": 2})
    assert {"limits.x", "z"} <= {change.field for change in changes}
    left = 202 - (len(changes) - 1)
    assert changes[-1] == Change("...", "", f'"{left} further changes"') and len(changes) <= 51
    assert len(orjson.dumps([list(change) for change in changes])) < 32_000


@pytest.mark.parametrize(
    ("spec", "field", "path"),
    [
        ({**HTTP, "headers": {"authorization": "Bearer 0ne"}}, "headers", "headers.authorization"),
        (
            {"type": "kafka", "servers": "localhost:9092", "tls": False, "topic": "t", "username": "u", "password": "p0"},
            "password",
            "password",
        ),
        ({"type": "servicebus", "namespace": "a.servicebus.windows.net", "entity": "q", "key_name": "n", "key": "k0"}, "key", "key"),
    ],
)
async def test_secret_that_is_replaced_is_a_change_that_shows_neither(world: World, spec: dict[str, Any], field: str, path: str) -> None:
    assert (await world.admin.put(CHANNEL, spec)).status == 201
    new = {"authorization": "Bearer tw0"} if field == "headers" else "n3w"
    for value in (new, new, {"authorization": "***"} if field == "headers" else "***"):
        await world.clock.advance(1)
        assert (await world.admin.put(CHANNEL, {**spec, field: value})).status == 200
    kept, same, changed, _ = await records(world)
    assert changed["changes"] == [{"field": path, "before": '"***"', "after": '"***"'}]
    assert kept["changes"] == same["changes"] == []
    stored = str([row.props for row in world.rows(TENANTS) if row.pk.startswith("audit:")])
    assert not [secret for secret in ("0ne", "tw0", "p0", "k0", "n3w") if f"{secret}'" in stored or f'{secret}"' in stored]


async def test_an_operators_changes_of_a_tenants_events_are_recorded_without_its_data_and_those_of_its_app_are_not(world: World) -> None:
    await world.demo.put("/api/v1/schedules/s1", {"cron": "0 0 1 1 *", "payload": "pers0nal"})
    assert (await world.demo.post("/api/v1/events", {"id": "e1", "delay": "PT1H", "payload": "pers0nal"})).status == 201
    assert await records(world) == []
    steps = [
        ("PUT", "schedules/s1", {"cron": "0 0 2 1 *", "payload": "pers0nal too"}),
        ("DELETE", "schedules/s1", None),
        ("POST", "events", {"id": "e2", "delay": "PT1H", "payload": "pers0nal"}),
        ("PATCH", "events/e1", {"delay": "PT2H", "payload": "pers0nal too"}),
        ("DELETE", "events/e1", None),
        ("POST", "dead-letters/redrive", {}),
    ]
    for method, path, body in steps:
        await world.clock.advance(1)
        answer = await world.admin.call(method, f"/api/v1/{path}?tenant=demo", body)
        assert answer.status < 300, (path, answer.body)
    found = await records(world, "?tenant=demo&by=bootstrap")
    assert [(each["action"], each["outcome"]) for each in reversed(found)] == [
        (name, "done")
        for name in ("schedules_put", "schedules_delete", "events_create", "events_patch", "events_delete", "dead_letters_redrive")
    ]
    put, gone, made, moved, cancelled, _ = [each["changes"] for each in reversed(found)]
    assert {"field": "cron", "before": '"0 0 1 1 *"', "after": '"0 0 2 1 *"'} in put and {"field": "cron", "before": '"0 0 2 1 *"'} in gone
    assert made == [{"field": "id", "after": '"e2"'}] and "due" in {each["field"] for each in moved}
    assert {"field": "state", "before": '"scheduled"', "after": '"cancelled"'} in cancelled
    assert "pers0nal" not in str([row.props for row in world.rows(TENANTS) if row.pk.startswith("audit:")])


async def test_an_operators_grants_of_a_tenants_locks_are_recorded_and_their_renewals_are_not(world: World) -> None:
    lock, asked = "/api/v1/locks/nightly?tenant=demo", {"holder": "vm/7", "nonce": "n0nce", "ttl": "PT30S"}
    held = (await world.admin.put(lock, asked)).json()
    assert (await world.admin.put(lock, {**asked, "token": held["token"]})).status == 200
    assert (await world.admin.delete(f"{lock}&token={held['token']}")).status == 204
    assert (await world.demo.put("/api/v1/locks/own", asked)).status == 200
    released, granted = await records(world, "?tenant=demo")
    assert (granted["action"], released["action"]) == ("locks_put", "locks_delete")
    assert {"field": "holder", "after": '"vm/7"'} in granted["changes"]
    assert {"field": "state", "before": '"held"', "after": '"free"'} in released["changes"]
    assert "n0nce" not in str([granted, released])


async def test_the_pointer_to_a_kafka_messages_key_is_no_secret(world: World) -> None:
    spec = {"type": "kafka", "servers": "name.servicebus.windows.net:9093", "topic": "t", "key": "/order/id"}
    assert (await world.admin.put(CHANNEL, spec)).status < 300
    await world.clock.advance(1)
    assert (await world.admin.put(CHANNEL, {**spec, "key": "/order/customer"})).status == 200
    changed = (await records(world))[0]
    assert changed["changes"] == [{"field": "key", "before": '"/order/id"', "after": '"/order/customer"'}]


def test_every_call_of_an_apps_that_changes_something_is_recorded_if_an_operator_makes_it() -> None:
    routes = [route for route in build_routes() if "events" in route.scopes and route.method != "GET"]
    assert {route.name for route in routes if not (route.audited or route.audited_for_operators)} == {
        "bigben_cron_describe",
        "schedules_preview_rule",
    }
    nameless = {route.name for route in routes if "{tenant}" not in route.template and not route.of_tenant and route.about is None}
    assert nameless == {"bigben_schedule", "bigben_cron_describe"}, "an array of events may name many tenants"


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
