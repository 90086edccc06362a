"""Figures of fleets: the first by name each, the others together, so that their alarms fire too."""

from __future__ import annotations

from typing import Any

import pytest

from shared.engine import sweeps
from shared.storage.names import MAINTENANCE
from tests.unit.scheduler.harness import World

from ..maintenance.agents import Agent, tick

MAKE: dict[str, Any] = {"partitions": 1, "maintenance": {}}


@pytest.fixture
async def fleets(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Three fleets, of which figures always tell one apart, and one more with an alarm."""
    monkeypatch.setattr(sweeps, "MAX_NAMED_FLEETS", 1)
    monkeypatch.setattr(sweeps, "MAX_NAMED_ALARMS", 1)
    for name in "abc":
        assert (await world.demo.put(f"/api/v1/fleets/{name}", MAKE)).status == 201
    return world


async def report(world: World, agent: Agent, fleet: str) -> None:
    agent.seq += 1
    assert (await world.demo.post(f"/api/v1/fleets/{fleet}/maintenance/reports", agent.body())).status == 200


async def fails(world: World, fleet: str) -> Agent:
    """A fleet's only agent: its node is not back in service after an event."""
    agent = Agent(world.demo, "n")
    agent.disabled = True
    for phase in ("STARTED", "RESTORE_FAILED"):
        await report(world, agent.sees(phase, status="Started"), fleet)
    return agent


async def look(world: World, **wanted: str) -> dict[tuple[str, str], float]:
    """A fresh look: figures of fleets by name and fleet, those with the labels `wanted`."""
    await world.clock.advance(10)
    samples = [each for family in await world.app.metrics.families() for each in family.samples if "fleet" in each.labels]
    return {(each.name, each.labels["fleet"]): each.value for each in samples if wanted.items() <= each.labels.items()}


async def failed(world: World) -> dict[str, float]:
    """Return how many events of each fleet have a node that is not back in service."""
    found = await look(world, alarm="restore-failed")
    return {fleet: value for (name, fleet), value in found.items() if name == "tocsin_maintenance_alarm"}


async def test_alarms_of_maintenance_are_reported_for_fleets_beyond_the_first_too(fleets: World) -> None:
    agents = {name: await fails(fleets, name) for name in "abc"}
    await tick(fleets, "stale_scan")
    assert await failed(fleets) == {"a": 1, "b": 1, "*": 1}
    agents["b"].sees("DONE")
    agents["b"].disabled = False
    await report(fleets, agents["b"], "b")
    await tick(fleets, "stale_scan")
    # It is still the only monitor of its fleet, which is an alarm too.
    assert await failed(fleets) == {"a": 1, "b": 0, "*": 1}
    assert (await fleets.demo.delete("/api/v1/fleets/c")).status in (200, 202, 204)
    await tick(fleets, "stale_scan")
    assert await failed(fleets) == {"a": 1, "b": 0}


async def test_a_fleets_entry_is_written_when_its_alarms_change_and_not_otherwise(fleets: World) -> None:
    await fails(fleets, "a")
    await tick(fleets, "stale_scan")
    before = await fleets.tables.get(MAINTENANCE, ":maintenance", "demo:a")
    await tick(fleets, "stale_scan")
    after = await fleets.tables.get(MAINTENANCE, ":maintenance", "demo:a")
    assert before is not None and before.props["alarms"] == '{"restore-failed":1,"single-monitor":1}' and after == before


async def test_for_several_fleets_servers_and_heartbeats_are_left_out(fleets: World) -> None:
    found = await look(fleets)
    report = {name for name, fleet in found if fleet == "*"}
    assert report == {"tocsin_lease_partitions_unserved", "tocsin_lease_partitions_stale", "tocsin_lease_alarm"}
    assert found["tocsin_lease_servers_needed", "a"] == 1
