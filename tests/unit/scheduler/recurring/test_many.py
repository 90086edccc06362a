"""Many schedules: the limit of a tenant, and that one tenant's schedules do not delay another's."""

from __future__ import annotations

from typing import Any

import pytest

from shared.scheduler.recurring import chain
from shared.scheduler.timings import SCHEDULE_COUNT_FRESH_FOR
from tests.unit.scheduler.harness import Client, World, drive

from .faults import sweep
from .test_routes import SCHEDULES_URL, put


async def refused(client: Client, schedule: str) -> Any:
    before = client.world.dump()
    answer = await client.put(f"{SCHEDULES_URL}/{schedule}", {"cron": "0 0 1 6 *", "payload": 1})
    assert client.world.dump() == before
    return answer


async def test_tenant_has_as_many_schedules_as_its_limit_says_and_can_replace_them(world: World) -> None:
    client = await world.tenant("acme", limits={"schedules": 2})
    await put(client, "one", cron="0 0 1 6 *")
    await put(client, "two", cron="0 0 1 6 *")
    answer = await refused(client, "three")
    assert (answer.status, answer.code) == (429, "too-many-requests") and "may have 2 schedules" in answer.json()["detail"]
    await put(client, "two", cron="0 0 2 6 *")
    await put(world.demo, "three", cron="0 0 1 6 *")
    assert (await client.delete(f"{SCHEDULES_URL}/one")).status == 204
    await world.clock.advance(SCHEDULE_COUNT_FRESH_FOR)
    await put(client, "three", cron="0 0 1 6 *")
    assert (await refused(client, "one")).status == 429


async def test_tenant_without_a_limit_of_its_own_has_the_products(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.scheduler.recurring.limits.MOST_SCHEDULES", 1)
    await put(world.demo, "one", cron="0 0 1 6 *")
    assert "may have 1 schedule" in (await refused(world.demo, "two")).json()["detail"]


async def test_another_instance_counts_what_is_stored(world: World) -> None:
    client = await world.tenant("acme", limits={"schedules": 1})
    await put(client, "one", cron="0 0 1 6 *")
    world.app.scheduler.recurring._limits._known.clear()
    assert (await refused(client, "two")).status == 429


async def test_sweep_takes_tenants_in_turn_however_many_schedules_one_has(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    many, few = await world.tenant("aaa"), await world.tenant("zzz")
    for number in range(60):
        await put(many, f"s{number}", cron="5 8 * * *")
    await put(few, "only", cron="5 8 * * *")
    await world.clock.advance(200)
    # A sweep whose time is over after the first few schedules of each partition.
    monkeypatch.setattr(chain, "PAGE", 2)
    monkeypatch.setattr(chain, "CHAIN_RUN_FOR", -1.0)
    counts = await drive(world.clock, sweep(world))
    assert counts["stored"] < 60
    assert [event["id"] for event in await few.all("/api/v1/events")] == ["only:20270115T080500Z"]
    for _ in range(60):
        await drive(world.clock, sweep(world))
    assert len(await many.all("/api/v1/events")) == 60


async def test_summed_rate_of_a_tenants_schedules_is_bounded_when_they_are_made(world: World) -> None:
    client = await world.tenant("acme", limits={"events_per_second": 1})
    every = {"payload": 1, "every": "PT2S"}
    for name in ("a", "b"):
        assert (await client.put(f"/api/v1/schedules/{name}", every)).status == 201
    refused = await client.put("/api/v1/schedules/c", {"payload": 1, "cron": "* * * * *"})
    assert (refused.status, refused.code) == (429, "too-many-requests") and "occurrences per second" in refused.json()["detail"]
    # The same content, and a slower one, may replace what is there.
    assert (await client.put("/api/v1/schedules/b", every)).status == 200
    assert (await client.put("/api/v1/schedules/b", every | {"every": "PT1S"})).status == 429
    assert (await client.put("/api/v1/schedules/b", every | {"every": "PT4S"})).status == 200
    assert (await client.put("/api/v1/schedules/c", {"payload": 1, "cron": "* * * * *"})).status == 201
    assert (await client.put("/api/v1/schedules/d", every)).status == 429
    assert (await client.delete("/api/v1/schedules/a")).status == 204
    assert (await client.put("/api/v1/schedules/d", every)).status == 201
    # Other processes count what is stored.
    world.app.scheduler.recurring._limits._rates.clear()
    assert (await client.put("/api/v1/schedules/a", every)).status == 429
    # Tenants without the limit are free.
    other = await world.tenant("other")
    for number in range(5):
        assert (await other.put(f"/api/v1/schedules/{number}", every | {"every": "PT1S"})).status == 201


async def test_a_schedule_whose_next_occurrences_are_rare_counts_with_the_dense_ones_behind_them(world: World) -> None:
    client = await world.tenant("acme", limits={"events_per_second": 0.01})
    # The clock stands at the beginning of an hour, of which 22 minutes have an occurrence.
    dense = {"payload": 1, "cron": "0,20,40-59 * * * *"}
    assert (await client.put("/api/v1/schedules/a", dense)).status == 201
    assert (await client.put("/api/v1/schedules/b", dense)).status == 429
    assert (await client.put("/api/v1/schedules/c", {"payload": 1, "cron": "0 9 * * *"})).status == 201
