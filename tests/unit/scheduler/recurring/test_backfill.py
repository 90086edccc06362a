"""Backfill: the occurrences of a past range become events now, and a repeated call doubles none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from shared.core.clock import to_datetime, to_text
from shared.core.errors import Unavailable
from shared.scheduler.ingest.writer import Writer
from tests.unit.scheduler.harness import World

PATH = "/api/v1/schedules/hourly"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World().open()
    assert (await world.demo.put(PATH, {"cron": "0 * * * *", "payload": {"n": 1.10}, "jitter": "PT10M"})).status == 201
    yield world
    await world.close()


def ago(world: World, **time: float) -> str:
    return to_text(world.now - timedelta(**time) // timedelta(milliseconds=1))


def delivered(world: World) -> list[str]:
    return sorted(str(row.props["id"]) for row in world.events() if row.props["state"] == "delivered" and "~b-" in str(row.props["id"]))


async def test_events_of_the_range_are_delivered_evenly_and_once(world: World) -> None:
    await world.demo.post(f"{PATH}/pause")
    body = {"from": ago(world, hours=24), "to": ago(world, hours=0), "id": "lost-day", "spread": "PT2M"}
    made = await world.demo.post(f"{PATH}/backfill", body)
    assert (made.status, made.json()) == (202, {"id": "lost-day", "created": 24, "existing": 0})
    await world.run(55)
    assert 8 <= len(delivered(world)) <= 14
    again = await world.demo.post(f"{PATH}/backfill", body)
    assert again.json() == {"id": "lost-day", "created": 0, "existing": 24}
    await world.run(80)
    found = delivered(world)
    hours = [to_datetime(world.now) - timedelta(hours=each) for each in range(26)]
    known = {f"hourly:{each:%Y%m%dT%H}0000Z~b-lost-day" for each in hours}
    assert len(found) == 24 and set(found) <= known


async def test_call_that_failed_half_way_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store, calls = Writer.store, 0

    async def fail(self: Writer, tenant: str, events: list[Any]) -> list[Any]:
        nonlocal calls
        calls += 1
        if calls == 1:
            await store(self, tenant, events[:5])
            raise Unavailable("away")
        return await store(self, tenant, events)

    monkeypatch.setattr(Writer, "store", fail)
    body = {"from": ago(world, hours=12), "to": ago(world, hours=0), "id": "x"}
    assert (await world.demo.post(f"{PATH}/backfill", body)).status == 503
    assert (await world.demo.post(f"{PATH}/backfill", body)).json() == {"id": "x", "created": 7, "existing": 5}
    await world.run(10)
    assert len(delivered(world)) == 12


async def test_bounds(world: World) -> None:
    for part, pointer in (({"to": ago(world, hours=-1)}, "/to"), ({"from": ago(world, days=50)}, "/to"), ({"id": "UP"}, "/id")):
        refused = await world.demo.post(f"{PATH}/backfill", {"from": ago(world, hours=3), "to": ago(world, hours=0), **part})
        assert refused.status == 422 and refused.json()["errors"][0]["pointer"] == pointer
    await world.admin.put("/api/v1/tenants/demo", {"limits": {"open_events": 2}})
    many = await world.demo.post(f"{PATH}/backfill", {"from": ago(world, hours=9), "to": ago(world, hours=0)})
    assert many.status == 429
    await world.run(5)
    assert delivered(world) == []
