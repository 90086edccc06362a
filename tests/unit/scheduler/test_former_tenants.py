"""A tenant that takes the name of a deleted one sees nothing of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest

from shared.core.errors import Unavailable
from shared.scheduler.timings import KEEP_FINISHED
from shared.storage.names import EVENTS, LEDGER, QUEUE_INGEST, TENANTS
from shared.storage.ports import RowQuery
from shared.tenants.model import Tenant

from .harness import World

ACME = "/api/v1/tenants/acme"
DAY = 86_400


async def open_event(world: World) -> None:
    await (await world.tenant("acme")).create(id="secret")


async def finished_event(world: World) -> None:
    await (await world.tenant("acme")).create(id="secret", delay="PT0S")
    await world.run(5)


async def reject(world: World) -> None:
    client = await world.tenant("acme")
    await world.queues.send(QUEUE_INGEST, f'{{"tenant": "acme", "key": "{client.key}", "event": "secret"}}')
    await world.run(2)


@pytest.mark.parametrize("leave", [open_event, finished_event, reject])
async def test_name_of_a_tenant_that_left_something_is_not_given_away(world: World, leave: Callable[[World], Awaitable[None]]) -> None:
    await leave(world)
    assert (await world.admin.delete(ACME)).status == 204
    before = world.dump()
    answer = await world.admin.put(ACME, {})
    assert (answer.status, answer.code) == (409, "events-left") and "inherit" in answer.json()["detail"]
    assert world.dump() == before
    for method in ("GET", "DELETE"):
        assert (await world.admin.call(method, ACME)).status == 404
    assert "acme" not in [tenant["name"] for tenant in (await world.admin.get("/api/v1/tenants")).json()["items"]]
    assert (await world.admin.put(f"{ACME}/channels/default", {"type": "queue", "queue": "alarms"})).status == 404


async def test_name_is_not_given_away_when_an_event_came_in_after_the_deletion(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client, directory = await world.tenant("acme"), world.app.directory
    known = {"key": await directory.key(str(client.key)), "tenant": Tenant(), "target": await directory.target("acme", "default")}
    assert (await world.admin.delete(ACME)).status == 204
    await world.do(world.app.timers.run_once("retention_scan"))
    with monkeypatch.context() as patch:
        # As another instance does for some seconds, because it does not know of the deletion yet.
        for what, answer in known.items():
            patch.setattr(directory, what, AsyncMock(return_value=answer))
        await client.create(id="secret")
    await world.clock.advance(60, settle=1)
    answer = await world.admin.put(ACME, {})
    assert (answer.status, answer.code) == (409, "events-left")
    assert (await world.admin.put(f"{ACME}?inherit=true", {})).status == 201


async def test_name_of_a_tenant_that_left_nothing_is_free_at_once(world: World) -> None:
    await world.tenant("acme")
    assert (await world.admin.delete(ACME)).status == 204
    assert (await world.admin.put(ACME, {})).status == 201


async def test_a_request_that_says_so_takes_over_what_was_left_but_no_key_and_no_channel(world: World) -> None:
    await open_event(world)
    former = (await world.admin.get(ACME)).json()
    key = await world.key("acme", ["events"])
    await world.admin.delete(ACME)
    await world.clock.advance(10)
    answer = await world.admin.put(f"{ACME}?inherit=true", {})
    assert answer.status == 201 and answer.json()["created"] > former["created"]
    assert (await key.get("/api/v1/events")).status == 401
    assert (await world.admin.get(f"{ACME}/channels")).json()["items"] == []
    owner = await world.key("acme", ["events"])
    assert (await owner.event("secret"))["state"] == "scheduled"


async def test_name_is_free_once_retention_has_removed_the_last_event(world: World) -> None:
    await finished_event(world)
    await world.admin.delete(ACME)
    await world.clock.advance(DAY, settle=1)
    await world.do(world.app.timers.run_once("retention_scan"))
    assert (await world.admin.put(ACME, {})).status == 409
    await world.clock.advance(KEEP_FINISHED / 1000, settle=1)
    await world.do(world.app.timers.run_once("retention_scan"))
    assert world.rows(LEDGER, "acme") == [] and world.events() == [] and world.rows(EVENTS) == []
    assert (await world.admin.put(ACME, {})).status == 201
    successor = await world.key("acme", ["events"])
    assert (await successor.get("/api/v1/events/secret")).status == 404 and await successor.all("/api/v1/events") == []


async def test_name_is_not_given_away_while_what_was_left_is_unknown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await open_event(world)
    await world.admin.delete(ACME)

    async def away(*_: object, **__: object) -> None:
        raise Unavailable("throttled")

    with monkeypatch.context() as patch:
        patch.setattr(world.tables, "query", away)
        assert (await world.admin.put(ACME, {})).status == 503
    assert (await world.admin.get(ACME)).status == 404


async def test_tenant_is_deleted_although_what_it_left_is_unknown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.tenant("acme")
    query = world.tables.query

    async def away(asked: RowQuery) -> Any:
        if asked.table == LEDGER:
            raise Unavailable("throttled")
        return await query(asked)

    with monkeypatch.context() as patch:
        patch.setattr(world.tables, "query", away)
        assert (await world.admin.delete(ACME)).status == 204
        assert (await world.admin.get(ACME)).status == 404
        assert (await world.admin.put(ACME, {})).status == 503
    assert (await world.admin.put(ACME, {})).status == 201


async def test_tenants_that_are_gone_and_left_nothing_are_forgotten(world: World) -> None:
    await finished_event(world)
    await world.admin.delete(ACME)
    assert (await world.do(world.app.timers.run_once("retention_scan")))["retention"] == {}
    await world.clock.advance(KEEP_FINISHED / 1000 + DAY, settle=1)
    assert (await world.do(world.app.timers.run_once("retention_scan")))["retention"] == {"removed": 1, "tenants": 1}
    assert [row.rk for row in world.rows(TENANTS, "tenant")] == ["demo"]
