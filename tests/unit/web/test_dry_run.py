"""`?dry_run=true`: a PUT checks everything and answers what it would store, and stores nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.scheduler.harness import World

TENANT, CHANNEL = "/api/v1/tenants/demo", "/api/v1/tenants/demo/channels/second"
SCHEDULE, FLEET = "/api/v1/schedules/nightly", "/api/v1/fleets/web"
CHANNEL_BODY = {"type": "http", "url": "http://localhost:7072/second", "headers": {"x-team": "blue"}}
NIGHTLY = {"cron": "30 2 * * *"}
STORED: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (CHANNEL, CHANNEL_BODY, CHANNEL_BODY | {"headers": {"x-team": "red"}}, {"type": "queue", "queue": "tocsin-own"}),
    (SCHEDULE, NIGHTLY | {"payload": 1}, NIGHTLY | {"payload": 2}, NIGHTLY | {"payload": 1, "channel": "none"}),
    (FLEET, {"partitions": 4}, {"partitions": 4, "servers": {"minimum": 2}}, {"partitions": 8}),
]


def _caller(world: World, path: str) -> Any:
    return world.admin if path.startswith(TENANT) else world.demo


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World().open()
    yield world
    await world.close()


def _definition(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in ("created", "next", "last")}


@pytest.mark.parametrize(("path", "body", "changed", "refused"), STORED, ids=["channel", "schedule", "fleet"])
async def test_stores_nothing_and_says_what_it_would_store(
    world: World, path: str, body: dict[str, Any], changed: dict[str, Any], refused: dict[str, Any]
) -> None:
    caller = _caller(world, path)
    before = world.dump()
    planned = await caller.put(f"{path}?dry_run=true", body)
    assert (planned.status, "etag" in planned.headers, planned.json().get("secret")) == (201, False, None)
    assert world.dump() == before and (await caller.get(path)).status == 404

    made = await caller.put(path, body)
    assert made.status == 201
    before = world.dump()
    same = await caller.put(f"{path}?dry_run=true", body)
    assert (same.status, same.headers["etag"]) == (200, made.headers["etag"])
    other = await caller.put(f"{path}?dry_run=true", changed, {"if-match": made.headers["etag"]})
    assert (other.status, "etag" in other.headers) == (200, False)
    wrong = await caller.put(f"{path}?dry_run=true", refused)
    assert wrong.status == (await caller.put(path, refused)).status == 422
    assert (await caller.put(f"{path}?dry_run=true", changed, {"if-match": '"former"'})).status == 412
    assert world.dump() == before
    stored = await caller.put(path, changed)
    assert _definition(stored.json()) == _definition(other.json())


CRON_FAULT = {"cron": "61 * * * *", "payload": 1}


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/api/v1/tenants/new/channels/c", CHANNEL_BODY | {"url": "http://10.0.0.1/"}, "/url"),
        ("/api/v1/tenants/new/channels/c", CHANNEL_BODY | {"headers": {"host": "x"}}, "/headers/host"),
        ("/api/v1/tenants/new/channels/c", CHANNEL_BODY | {"headers": {"x-key": "***"}}, "/headers/x-key"),
        ("/api/v1/tenants/new/channels/c", {"type": "queue", "queue": "tocsin-own"}, "/queue"),
        ("/api/v1/schedules/nightly?tenant=new", CRON_FAULT, "/cron"),
        ("/api/v1/fleets/web?tenant=new", {"partitions": 0}, "/partitions"),
        ("/api/v1/calendars/bank?tenant=new", {"dates": ["2027-02-30"]}, "/dates/0"),
    ],
)
async def test_faults_in_a_tenant_that_does_not_exist_yet_come_before_its_absence(
    world: World, path: str, body: dict[str, Any], pointer: str
) -> None:
    before = world.dump()
    asked = f"{path}{'&' if '?' in path else '?'}dry_run=true"
    refused = await world.admin.put(asked, body)
    assert (refused.status, refused.json()["errors"][0]["pointer"]) == (422, pointer)
    # Without a dry run, the absence is all that is said, and a key of another tenant learns nothing in either case.
    if "tenant=" in path:
        assert (await world.admin.put(path, body)).status == 404
        assert (await world.demo.put(asked, body)).status == 403
    assert world.dump() == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/tenants/new/channels/c", CHANNEL_BODY | {"client_certificate": "mine"}),
        ("/api/v1/tenants/new/channels/c", {"type": "servicebus", "namespace": "a.servicebus.windows.net", "entity": "orders"}),
        ("/api/v1/schedules/nightly?tenant=new", NIGHTLY | {"payload": 1}),
        ("/api/v1/fleets/web?tenant=new", {"partitions": 4}),
        ("/api/v1/calendars/bank?tenant=new", {"dates": ["2027-02-28"]}),
    ],
)
async def test_a_sound_definition_in_a_tenant_that_does_not_exist_yet_is_404(world: World, path: str, body: dict[str, Any]) -> None:
    asked = f"{path}{'&' if '?' in path else '?'}dry_run=true"
    assert (await world.admin.put(asked, body)).status == 404


async def test_tenant_and_the_same_settings_again(world: World) -> None:
    before = world.dump()
    assert (await world.admin.put("/api/v1/tenants/new?dry_run=true", {})).status == 201
    assert (await world.admin.put("/api/v1/tenants/new/channels/c?dry_run=true", CHANNEL_BODY)).status == 404
    tag = (await world.admin.get(TENANT)).headers["etag"]
    limits = {"limits": {"open_events": 7}}
    planned = await world.admin.put(f"{TENANT}?dry_run=true", limits)
    assert (planned.json()["limits"]["open_events"], "etag" in planned.headers) == (7, False)
    assert world.dump() == before
    changed = await world.admin.put(TENANT, limits)
    again = await world.admin.put(TENANT, limits)
    assert tag != changed.headers["etag"] == again.headers["etag"]
    assert [each for each in await world.admin.all("/api/v1/audit") if each["tenant"] == "new"] == [], "a dry run leaves no record"
