"""Approvals through Azure Resource Manager."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.maintenance.service.fake_arm import Azure, serving, token
from tests.unit.scheduler.harness import World

from ..fleets import nodes
from .agents import DB, EVENT, agents, decide, event, tick

VM = "/subscriptions/5d9b/resourceGroups/rg-1/providers/Microsoft.Compute/virtualMachines/vm_a"


@pytest.fixture
async def manager() -> AsyncIterator[tuple[Azure, str]]:
    async with serving() as found:
        yield found


async def by_arm(world: World, endpoint: str) -> None:
    make = {"partitions": 1, "maintenance": {"transport": "arm", "catch_up": "PT0S"}}
    assert (await world.demo.put(DB, make)).status == 201
    world.app.arm._endpoint, world.app.arm._token = endpoint, token


async def test_an_approval_goes_once_to_azures_manager_once_all_have_prepared(world: World, manager: tuple[Azure, str]) -> None:
    there, endpoint = manager
    await by_arm(world, endpoint)
    (a,) = agents(world, "a")
    a.sees("WAITING")
    await a.reports(resource_id=VM)
    await decide(world.demo, "approve")
    await tick(world)
    assert there.calls == [], "not prepared"
    a.sees("PREPARED")
    assert (await a.reports(resource_id=VM))["approvals"] == [], "it is not the agents' to give"
    there.status = 503
    await tick(world)
    assert (await event(world.demo))["approval"]["state"] == "granted"
    there.status = 202
    await tick(world)
    await tick(world)
    path = f"{VM}/providers/Microsoft.Maintenance/scheduledevents/{EVENT}/acknowledge?api-version=2025-11-01"
    assert there.calls == [("POST", path, "Bearer a-token")] * 2
    assert (await event(world.demo))["approval"]["state"] == "posted"
    await world.app.arm.close()


async def test_azures_manager_takes_what_a_person_approves_for_a_machine_that_hangs(world: World, manager: tuple[Azure, str]) -> None:
    there, endpoint = manager
    await by_arm(world, endpoint)
    a, b = agents(world, "a", "b")
    a.sees("WAITING", on=("a", "b"))
    b.sees("PREPARING", on=("a", "b"))
    await a.reports(resource_id=VM)
    for _ in range(8):
        await b.reports()
        await world.clock.advance(5)
    await decide(world.demo, "approve")
    await tick(world)
    assert there.calls == [], "b lives, and has not prepared"
    b.sees("PREPARED")
    await b.reports()
    await tick(world)
    assert len(there.calls) == 1
    await world.app.arm.close()


async def test_a_hold_and_too_many_refusals_keep_azures_manager_from_being_asked(world: World, manager: tuple[Azure, str]) -> None:
    there, endpoint = manager
    await by_arm(world, endpoint)
    (a,) = agents(world, "a")
    a.sees("PREPARED")
    await a.reports(resource_id=VM)
    await decide(world.demo, "approve")
    await decide(world.demo, "hold")
    await tick(world)
    assert there.calls == []
    await decide(world.demo, "approve")
    there.status = 403
    for _ in range(7):
        await tick(world)
    assert len(there.calls) == 5
    assert (await event(world.demo))["approval"]["state"] == "expired"
    await world.app.arm.close()


async def test_azures_manager_is_not_asked_while_a_prepared_node_has_partitions(
    world: World, manager: tuple[Azure, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, endpoint = manager
    await by_arm(world, endpoint)
    monkeypatch.setattr(nodes, "WEB", DB)
    server = nodes.Node(world.demo, "a")
    await server.beats()
    assert (await server.claims(0))[0]
    (a,) = agents(world, "a")
    a.sees("PREPARED")
    await a.reports(resource_id=VM)
    await decide(world.demo, "approve")
    await tick(world)
    assert there.calls == []
    for _ in range(7):
        await world.clock.advance(5)
        await server.beats()
        await a.reports(resource_id=VM)
    await tick(world)
    assert len(there.calls) == 1, "they cannot leave, and had the time for it"
    await world.app.arm.close()


@pytest.mark.parametrize("resource_id", [VM, None])
async def test_an_approval_that_azure_has_not_taken_for_half_a_minute_is_an_alarm(world: World, resource_id: str | None) -> None:
    await by_arm(world, "http://127.0.0.1:9")
    (a,) = agents(world, "a")
    a.sees("PREPARED")
    more = {"resource_id": resource_id} if resource_id else {}
    await a.reports(**more)
    await decide(world.demo, "approve")
    await tick(world)
    await tick(world)
    assert (await event(world.demo))["alarms"] == []
    for _ in range(6):
        await world.clock.advance(5)
        await a.reports(**more)
        await tick(world)
    found = await event(world.demo)
    assert (found["approval"]["state"], found["alarms"]) == ("granted", ["approval-failed"])
    await world.app.arm.close()
