"""The summary of all tenants, the worst first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest

from shared.delivery.channels.ports import Verdict
from shared.fleets.watch.alarms import Alarm
from shared.fleets.watch.rules import WatchState
from shared.fleets.watch.state import WATCHED, watch_state_props
from shared.ops import tenant_overview
from shared.ops.metrics import service as metrics
from shared.ops.tenant_overview import TenantSummary, worst_first
from shared.storage.names import SWEEPS
from shared.storage.ports import Upsert
from tests.unit.scheduler.harness import Client, World

OVERVIEW = "/api/v1/tenant-overview"
NUMBERS = count()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """The application on storage in memory, with the tenant demo."""
    world = await World().open()
    yield world
    await world.close()


async def look(world: World, query: str = "", after: float = 31) -> dict[str, Any]:
    """Return the overview at a time at which no earlier summary is reused."""
    await world.clock.advance(after)
    answer = await world.admin.get(OVERVIEW + query)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


async def item(world: World, tenant: str) -> dict[str, Any]:
    [found] = [each for each in (await look(world))["items"] if each["tenant"] == tenant]
    return found


async def let_die(world: World, client: Client, number: int = 1) -> list[str]:
    """Let some events of a tenant die."""
    died = [f"dying-{next(NUMBERS)}" for _ in range(number)]
    for event_id in died:
        world.receiver.script(event_id, Verdict("final", 400), Verdict("delivered", 200))
        await client.create(id=event_id, delay="PT1S")
    await world.run(5)
    return died


async def test_tenants_without_trouble_are_listed_by_name(world: World) -> None:
    await world.tenant("acme")
    found = await look(world)
    assert [each["tenant"] for each in found["items"]] == ["acme", "demo"]
    assert (found["tenants"], found["quiet"], found["next"]) == (2, 2, None)
    assert {each["urgency"] for each in found["items"]} == {"none"} and "incomplete" not in found


async def test_tenants_in_trouble_come_first_the_late_before_the_dead_before_the_paused(world: World) -> None:
    _, dead, late, _ = [await world.tenant(name) for name in ("a-paused", "b-dead", "c-late", "d-fleet")]
    assert (await world.admin.post("/api/v1/tenants/a-paused/channels/default/pause")).status == 200
    await let_die(world, dead)
    alarm = WatchState(alarms={"forgotten": Alarm("forgotten", 5, ("1",), 1)})
    assert (await (await world.key("d-fleet", ["fleets"])).put("/api/v1/fleets/db", {"partitions": 1})).status == 201
    await world.tables.write(SWEEPS, WATCHED, (Upsert("d-fleet:db", watch_state_props(alarm)),))
    await late.create(delay="PT1S")
    # No sweep runs: nobody serves the event.
    found = await look(world, after=60)
    assert [(each["tenant"], each["urgency"]) for each in found["items"]] == [
        ("c-late", "urgent"),
        ("b-dead", "soon"),
        ("a-paused", "soon"),
        ("d-fleet", "later"),
        ("demo", "none"),
    ]
    assert [each["overdue"] for each in found["items"]] == [1, 0, 0, 0, 0]
    assert [each["dead"] for each in found["items"]] == [0, 1, 0, 0, 0]
    assert found["items"][2]["blocked"] == [{"channel": "default", "state": "paused"}] and found["items"][2]["blocked_channels"] == 1
    assert found["items"][3]["fleets"] == 1 and found["quiet"] == 1


async def test_a_dead_event_counts_once_until_it_is_redriven_whether_its_minute_has_ended_or_not(world: World) -> None:
    world.receiver.script("patient", Verdict("retry", 503, retry_after=600.0), Verdict("delivered", 200))
    await world.demo.create(id="patient", delay="PT1S")
    one, other = await let_die(world, world.demo, 2)
    assert (await item(world, "demo"))["dead"] == 2, "while another event of the minute is retried"
    assert (await world.demo.post(f"/api/v1/events/{one}/redrive")).status == 202
    assert (await item(world, "demo"))["dead"] == 1
    await world.run(620)
    seen = await item(world, "demo")
    assert (seen["dead"], seen["retrying"], seen["open"]) == (1, 0, 0), "once the minute has ended"
    assert (await world.demo.post(f"/api/v1/events/{other}/redrive")).status == 202
    await world.run(5)
    assert (await item(world, "demo"))["dead"] == 0


async def test_a_dead_event_counts_for_a_day(world: World) -> None:
    await let_die(world, world.demo)
    await world.run(40)
    assert (await item(world, "demo"))["dead"] == 1
    await world.clock.advance(86_400)
    assert (await item(world, "demo"))["dead"] == 0


async def test_the_figures_are_those_of_the_tenants_own_stats(world: World) -> None:
    await let_die(world, world.demo, 3)
    await world.demo.create(delay="PT1H")
    seen, stats = await item(world, "demo"), (await world.demo.get("/api/v1/stats")).json()
    assert {name: seen[name] for name in ("open", "overdue", "stuck", "dead", "retrying")} == {
        name: stats[name] for name in ("open", "overdue", "stuck", "dead", "retrying")
    }


async def test_pages_continue_and_a_foreign_cursor_is_refused(world: World) -> None:
    for name in ("a", "b", "c"):
        await world.tenant(name)
    first = await look(world, "?limit=3")
    second = await look(world, f"?limit=3&cursor={first['next']}", after=0)
    assert [each["tenant"] for each in (*first["items"], *second["items"])] == ["a", "b", "c", "demo"] and second["next"] is None
    assert (await world.admin.get(f"{OVERVIEW}?cursor=x")).status == 422


async def test_only_the_operator_sees_all_tenants(world: World) -> None:
    assert (await world.nobody.get(OVERVIEW)).status == 401
    for scope in ("events", "read", "metrics"):
        assert (await (await world.key("demo", [scope])).get(OVERVIEW)).status == 403


async def test_a_deleted_tenant_is_left_out(world: World) -> None:
    await (await world.tenant("acme")).create(delay="PT1H")
    assert (await world.admin.delete("/api/v1/tenants/acme")).status == 204
    assert [each["tenant"] for each in (await look(world))["items"]] == ["demo"]


async def test_calls_share_one_summary_and_many_tenants_are_read_less_often(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await look(world)
    world.tables.transactions.clear()
    for _ in range(5):
        assert (await world.admin.get(OVERVIEW)).status == 200
    assert world.tables.transactions.total() == 0
    assert (await look(world, after=10))["read_at"] != (await look(world, after=10))["read_at"]
    monkeypatch.setattr(tenant_overview, "TTL_EACH", 100.0)
    found = await look(world, after=200)
    assert (await look(world, after=50))["read_at"] == found["read_at"]
    assert (await look(world, after=20))["read_at"] != found["read_at"]


async def test_a_summary_makes_two_requests_for_each_tenant(world: World) -> None:
    await look(world)
    queries = []
    for name in ("a", "b"):
        await world.tenant(name)
        world.tables.transactions.clear()
        await look(world)
        queries.append(world.tables.transactions["query"])
    assert queries[1] - queries[0] == 2


async def test_what_could_not_be_counted_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.tenant("acme")
    assert (await world.admin.post("/api/v1/tenants/demo/channels/default/pause")).status == 200
    monkeypatch.setattr(tenant_overview, "MOST_TENANTS", 1)
    found = await look(world)
    assert found["incomplete"] and [each["blocked_channels"] for each in found["items"]] == [0, 0], "acme comes first"
    monkeypatch.setattr(tenant_overview, "MOST_TENANTS", 2)
    assert "incomplete" not in await look(world)
    await world.demo.create(delay="PT1S")
    monkeypatch.setattr(metrics, "MOST_GATES", 0)
    assert (await look(world))["incomplete"]


def test_the_order_is_the_same_whatever_order_the_tenants_are_read_in() -> None:
    def one(tenant: str, **figures: Any) -> TenantSummary:
        zero = dict.fromkeys(("stuck", "overdue", "dead", "blocked_channels", "fleets", "urgent_fleets", "retrying", "open"), 0)
        return TenantSummary(tenant=tenant, urgency=figures.pop("urgency"), blocked=[], **zero | figures)

    order = [
        one("z", urgency="urgent", stuck=1, overdue=1),
        one("y", urgency="urgent", overdue=9),
        one("x", urgency="urgent", urgent_fleets=1, fleets=1),
        one("w", urgency="soon", dead=2),
        one("v", urgency="soon", dead=1, blocked_channels=3),
        one("a", urgency="soon", blocked_channels=1),
        one("b", urgency="soon", blocked_channels=1),
        one("u", urgency="later", fleets=1),
        one("t", urgency="none", retrying=5, open=5),
        one("s", urgency="none", open=100),
    ]
    assert worst_first(reversed(order)) == order == worst_first(order)
