"""Rates and concurrency as their users see them, and what flow control costs."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shared.core.settings import Settings
from shared.delivery.flow import rules
from shared.storage.names import LIMITS

from ..harness import World
from .flowing import DEFAULT, HTTP, Instances, batch, begun, calls, channel, most_within, states

# -- rates


async def test_rate_of_a_channel_is_kept_and_what_waits_can_be_cancelled(world: World) -> None:
    await channel(world, limits={"deliveries_per_second": 10})
    made = await batch(world, 150)
    await world.run(9)
    waiting = [row for row in world.events() if row.props["state"] == "scheduled"]
    assert len(waiting) >= 60, "what cannot go out within three seconds is not claimed"
    gone = str(waiting[-1].props["id"])
    assert (await world.demo.delete(f"/api/v1/events/{gone}")).status == 204
    await world.run(25)
    times = begun(world)
    assert len(times) == 149 and gone not in world.receiver.delivered() and len(made) == 150
    assert most_within(times, 1_000) <= 2 * 10 and most_within(times, 5_000) <= 10 * (5 + 1)
    assert times[-1] - times[0] <= 16_000, "and used"


async def test_rate_holds_over_instances_and_channels_of_a_tenant(two: Instances) -> None:
    assert (await two.admin.put("/api/v1/tenants/demo", {"limits": {"deliveries_per_second": 20}})).status == 200
    await channel(two, "b")
    await two.run(6)
    for name in ("default", "b"):
        await two.demo.post("/api/v1/events/batch", [{"delay": "PT5S", "payload": 1, "channel": name}] * 100)
    await two.run(40)
    times = sorted([*begun(two), *begun(two, "b")])
    assert len(times) == 200
    assert most_within(times, 1_000) <= 2 * 20 and most_within(times, 4_000) <= 20 * (4 + 1)
    assert times[-1] - times[0] <= 20_000


async def test_slow_rate_keeps_no_owner_busy_and_few_events_claimed(world: World) -> None:
    await channel(world, limits={"deliveries_per_second": 0.1})
    await batch(world, 5)
    claimed = 0
    for _ in range(60):
        await world.run(1)
        claimed = max(claimed, states(world).get("firing", 0))
    assert claimed <= 2
    times = begun(world)
    assert len(times) >= 4 and all(later - earlier >= 9_999 for earlier, later in pairwise(times))
    await world.run(60)
    assert states(world) == {"delivered": 5}


async def test_rate_costs_less_than_a_write_per_event(world: World) -> None:
    await channel(world, limits={"deliveries_per_second": 100})
    await batch(world, 500)
    before = calls(world)
    await world.run(12)
    assert len(world.receiver.received) == 500
    limits = [row for row in world.rows(LIMITS) if row.rk == "rate:deliveries:default"]
    assert len(limits) == 1
    assert calls(world) - before < 100


# -- concurrency


async def test_concurrency_of_a_channel_holds_over_instances(two: Instances) -> None:
    await channel(two, limits={"concurrency": 3})
    two.receiver.takes = 1.0
    most = 0
    await batch(two, 60)
    for _ in range(160):
        await two.run(0.25)
        most = max(most, two.receiver.in_flight)
    assert most == 3
    assert states(two) == {"delivered": 60}
    assert begun(two)[-1] - begun(two)[0] <= 32_000, "and used"


async def test_slots_of_an_instance_that_died_come_back(two: Instances) -> None:
    await channel(two, limits={"concurrency": 1})
    dead = two.apps[0].scheduler.flow
    await dead.holds(object(), "demo", {"default": 1}, bool)
    stuck = asyncio.ensure_future(dead.lanes.slot(dead.lanes.lane("demo", "default"), backlog=False).__aenter__())
    await two.clock.advance(1)
    assert stuck.done(), "it holds the one slot"
    for task in asyncio.all_tasks():
        if task.get_coro().__qualname__.startswith("Lanes."):  # type: ignore[union-attr]
            task.cancel()
    two.apps = two.apps[1:] * 2
    at = two.now
    await two.demo.post("/api/v1/events/batch", [{"delay": "PT1S", "payload": 1}] * 3)
    await two.run(60)
    assert states(two) == {"delivered": 3}
    assert begun(two)[0] - at >= rules.LEASE - 2_000


async def test_concurrency_of_a_tenant_is_shared_by_its_channels(world: World) -> None:
    assert (await world.admin.put("/api/v1/tenants/demo", {"limits": {"concurrency": 4}})).status == 200
    await channel(world, "b")
    await world.run(6)
    world.receiver.takes = 0.5
    for name in ("default", "b"):
        await world.demo.post("/api/v1/events/batch", [{"delay": "PT5S", "payload": 1, "channel": name}] * 20)
    most = 0
    for _ in range(120):
        await world.run(0.25)
        most = max(most, world.receiver.in_flight)
    assert most == 4 and states(world) == {"delivered": 40}


# -- costs, and the platform


async def test_without_limits_the_table_of_limits_is_not_touched(world: World) -> None:
    await batch(world, 100)
    await world.run(10)
    assert len(world.receiver.received) == 100 and world.rows(LIMITS) == []


async def test_owners_at_once_are_what_the_host_lets_in() -> None:
    queues = json.loads(Path("host.json").read_text())["extensions"]["queues"]
    assert Settings.model_fields["owners"].default == queues["batchSize"] + queues["newBatchThreshold"]


@pytest.mark.parametrize(
    ("limits", "pointer"),
    [
        ({"deliveries_per_second": 0}, "/limits/deliveries_per_second"),
        ({"concurrency": 0}, "/limits/concurrency"),
        ({"concurrency": 1.5}, "/limits/concurrency"),
        ({"events_per_second": 5}, "/limits/events_per_second"),
    ],
)
async def test_limits_that_make_no_sense_are_422_and_change_nothing(world: World, limits: dict[str, Any], pointer: str) -> None:
    before = world.dump()
    answer = await world.admin.put(DEFAULT, HTTP | {"limits": limits})
    assert (answer.status, [each["pointer"] for each in answer.json()["errors"]]) == (422, [pointer])
    assert world.dump() == before


async def test_limits_are_shown_as_they_were_put(world: World) -> None:
    shown = await channel(world, "fast", limits={"deliveries_per_second": 2.5})
    assert shown["limits"] == {"deliveries_per_second": 2.5, "concurrency": None}
    assert "limits" not in await channel(world, "free")
