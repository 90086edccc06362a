"""An event that also names VMs without an agent of the fleet: other fleets of the tenant are asked, and what nobody knows is held."""

from __future__ import annotations

from typing import Any

import pytest

from shared.maintenance.service.reports import SEARCH_AGE
from tests.texts import assert_text
from tests.unit.scheduler.harness import Client, World

from .agents import EVENT, MAKE, Agent, all_report, decide, tick

WEB = "/api/v1/fleets/web"
READY: dict[str, str] = {}
SETTINGS: Any = MAKE["maintenance"]


async def make_web(client: Client, **maintenance: Any) -> Agent:
    """Make the fleet `web`, of whose node d is in the same scope as the nodes of `db`. Return the agent of d."""
    made = await client.put(WEB, {"partitions": 1, "maintenance": SETTINGS | maintenance})
    assert made.status == 201, made
    return Agent(client, "d", fleet=WEB)


async def pass_search_age(world: World) -> None:
    await world.clock.advance(SEARCH_AGE)


async def test_a_vm_of_another_fleet_is_waited_for(db: World) -> None:
    a, d = Agent(db.demo, "a"), await make_web(db.demo)
    await all_report(a.sees("WAITING", on=("a", "d")), d.sees("WAITING", on=("a", "d")))
    a.sees("PREPARED")
    assert_text("maintenance.other-fleet", (await a.holds())[EVENT], vm="vm_d", fleet="web")
    d.sees("PREPARE_FAILED")
    assert await d.holds() == {}
    assert EVENT in await a.holds()
    d.sees("PREPARED")
    assert (await d.holds(), await a.holds()) == (READY, READY), "both fleets agree"


async def test_names_are_compared_in_any_case_and_a_fleet_that_comes_later_is_found(db: World) -> None:
    a = Agent(db.demo, "a").sees("PREPARED", on=("A", "D"))
    a.entries[EVENT]["resources"] = ["VM_A", "VM_D"]
    assert EVENT in await a.holds()
    d = (await make_web(db.demo)).sees("PREPARED", on=("a", "d"))
    d.scope = "SET"
    await d.reports()
    await pass_search_age(db)
    assert await a.holds() == READY


async def test_a_vm_that_nobody_knows_holds_the_event(db: World) -> None:
    a = Agent(db.demo, "a").sees("PREPARED", on=("a", "nobody"))
    assert_text("maintenance.unknown-vm", (await a.holds())[EVENT], vm="vm_nobody")
    await pass_search_age(db)
    assert EVENT in await a.holds()


async def test_a_fleet_can_ignore_what_nobody_knows_but_not_what_another_fleet_knows(world: World) -> None:
    a = Agent(world.demo, "a")
    ignore = {"partitions": 1, "maintenance": SETTINGS | {"strangers": "ignore"}}
    assert (await world.demo.put("/api/v1/fleets/db", ignore)).status == 201
    assert (await world.demo.get("/api/v1/fleets/db")).json()["maintenance"]["strangers"] == "ignore"
    await world.demo.put("/api/v1/fleets/usual", {"partitions": 1})
    shown = {each["name"]: each["maintenance"]["strangers"] for each in (await world.demo.get("/api/v1/fleets")).json()["items"]}
    assert shown == {"db": "ignore", "usual": "hold"} and (await world.demo.delete("/api/v1/fleets/usual")).status == 204
    assert await a.sees("PREPARED", on=("a", "nobody")).holds() == READY
    d = (await make_web(world.demo)).sees("WAITING", "other", on=("a", "d"))
    await d.reports()
    a.sees("PREPARED", "other", on=("a", "d"))
    assert list(await a.holds()) == ["other"]


async def test_a_fleet_of_another_tenant_is_not_asked(db: World) -> None:
    a, foreign = Agent(db.demo, "a"), await db.tenant("acme", ["fleets"])
    d = await make_web(foreign)
    await d.sees("PREPARED", on=("a", "d")).reports()
    assert_text("maintenance.unknown-vm", (await a.sees("PREPARED", on=("a", "d")).holds())[EVENT], vm="vm_d")


async def test_a_vm_of_the_same_name_in_another_scope_is_another_vm(db: World) -> None:
    a, d = Agent(db.demo, "a"), await make_web(db.demo)
    d.scope = "other"
    await d.sees("PREPARED", on=("a", "d")).reports()
    assert EVENT in await a.sees("PREPARED", on=("a", "d")).holds()


@pytest.mark.parametrize("rule", ["hold", "ignore"])
async def test_a_fleet_with_a_rule_that_approves_nothing_does_not_agree(db: World, rule: str) -> None:
    a, d = Agent(db.demo, "a"), await make_web(db.demo, rules=[{"action": rule}])
    await d.sees("PREPARED", on=("a", "d")).reports()
    assert EVENT in await a.sees("PREPARED", on=("a", "d")).holds()


async def test_a_hold_in_the_other_fleet_holds_and_an_agreement_is_withdrawn(db: World) -> None:
    a, d = Agent(db.demo, "a"), await make_web(db.demo)
    await all_report(a.sees("PREPARED", on=("a", "d")), d.sees("PREPARED", on=("a", "d")))
    await pass_search_age(db)
    assert await a.holds() == READY
    held = await db.demo.post(f"{WEB}/maintenance/events/{EVENT}/hold", {"reason": "no"})
    assert held.status == 202, held
    await d.reports()
    assert EVENT in await a.holds()


async def test_a_node_of_the_other_fleet_that_is_no_longer_prepared_withdraws_its_agreement(db: World) -> None:
    a, d = Agent(db.demo, "a"), await make_web(db.demo)
    await all_report(a.sees("PREPARED", on=("a", "d")), d.sees("PREPARED", on=("a", "d")))
    await d.sees("PREPARING").reports()
    await pass_search_age(db)
    assert EVENT in await a.holds()


async def test_the_guard_of_the_other_fleet_decides_for_its_nodes(db: World) -> None:
    a, d = Agent(db.demo, "a"), await make_web(db.demo)
    down = Agent(db.demo, "e", "1", fleet=WEB).sees("STARTED", "down", status="Started")
    down.disabled = True
    await all_report(down, d.sees("PREPARED", on=("a", "d")))
    a.sees("PREPARED", on=("a", "d"))
    assert EVENT in await a.holds()
    down.disabled = False
    await down.sees_no_more("down").reports(caught_up=True)
    await d.reports()
    await pass_search_age(db)
    assert await a.holds() == READY


async def test_a_person_approves_without_the_other_fleet(db: World) -> None:
    a = Agent(db.demo, "a").sees("PREPARED", on=("a", "nobody"))
    assert EVENT in await a.holds()
    assert (await decide(db.demo, "approve")).status == 202
    assert [each["event_id"] for each in (await a.reports())["approvals"]] == [EVENT]


async def test_an_event_with_an_unknown_vm_is_not_approved_early(world: World) -> None:
    early = {"partitions": 1, "maintenance": SETTINGS | {"early": True}}
    assert (await world.demo.put("/api/v1/fleets/db", early)).status == 201
    a = Agent(world.demo, "a").sees("WAITING", on=("a", "nobody"))
    await a.reports()
    await tick(world)
    assert (await a.reports())["commands"] == []
