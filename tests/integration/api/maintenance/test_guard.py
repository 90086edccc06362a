"""The guard `prepare` over the API: reservations for nodes of three fault domains, who has which guard, and former agents."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.storage.names import MAINTENANCE
from tests.unit.scheduler.harness import World

from .agents import DB, KEY, MINUTE, Agent, all_report, event, tick, together

MAKE: dict[str, Any] = {"partitions": 1, "maintenance": {"catch_up": "PT0S", "lead": "PT1M"}}


async def three(world: World, **maintenance: Any) -> tuple[Agent, Agent, Agent]:
    """Make the fleet. Return its agents, one in each fault domain. Each sees an event of its own with the same NotBefore."""
    make = {"partitions": 1, "maintenance": MAKE["maintenance"] | maintenance}
    assert (await world.demo.put(DB, make)).status == 201
    found = Agent(world.demo, "a", "0"), Agent(world.demo, "b", "1"), Agent(world.demo, "c", "2")
    await all_report(*found)
    for agent in found:
        agent.sees("WAITING", f"event-{agent.node}")
    return found


async def permission(agent: Agent) -> dict[str, str]:
    """Report. Return the reasons of refusals by event; '' for permission."""
    answer = await agent.reports()
    return {each["event_id"]: each.get("reason", "") for each in answer["permissions"]}


async def test_of_three_nodes_with_one_not_before_one_has_permission_until_it_is_back(world: World) -> None:
    a, b, c = await three(world)
    assert [await permission(agent) for agent in (a, b, c)] == [
        {"event-a": ""},
        {"event-b": "event-a goes first"},
        {"event-c": "event-a goes first"},
    ]
    a.disabled = True
    for phase in ("PREPARING", "PREPARED", "APPROVED", "STARTED", "RESTORING"):
        a.sees(phase, "event-a", status="Started" if phase == "STARTED" else "Scheduled")
        await a.reports()
        assert "" not in (*(await permission(b)).values(), *(await permission(c)).values()), phase
    a.disabled = False
    a.sees_no_more("event-a")
    await a.reports()
    assert (await permission(b), await permission(c)) == ({"event-b": ""}, {"event-c": "event-b goes first"})


@pytest.mark.parametrize(("lead", "first"), [(600_000, "event-b"), (850_000, "event-a")])
async def test_an_earlier_not_before_takes_the_reservation_unless_the_holder_may_begin_soon(world: World, lead: int, first: str) -> None:
    """lead: the lead in the file of the holder's node, in milliseconds."""
    a, b, _ = await three(world)
    a.fields["lead_ms"] = lead
    assert await permission(a) == {"event-a": ""}
    b.sees("WAITING", "event-b", on=("b",), not_before=to_text(world.now + 14 * MINUTE))
    found = await permission(b) | await permission(a)
    assert [event_id for event_id, why in found.items() if not why] == [first]


async def test_the_api_shows_who_has_permission(world: World) -> None:
    a, b, _ = await three(world)
    await all_report(a, b)
    first, second = await event(world.demo, "event-a"), await event(world.demo, "event-b")
    assert first["permission"] == {"state": "granted", "reserved": first["first_seen"]}
    assert second["permission"] == {"state": "refused", "reason": "event-a goes first"}
    node = (await world.demo.get(f"{DB}/nodes/b")).json()["maintenance"]["events"]["event-b"]
    assert node["permission"] == {"state": "refused", "reason": "event-a goes first"}


async def test_a_node_that_prepares_without_permission_raises_an_alarm_until_the_other_is_back(world: World) -> None:
    a, b, _ = await three(world)
    a.sees("PREPARED", "event-a")
    b.sees("PREPARED", "event-b")
    await all_report(a, b)
    assert ((await event(world.demo, "event-a"))["alarms"], (await event(world.demo, "event-b"))["alarms"]) == ([], ["forced"])
    a.sees_no_more("event-a")
    await a.reports()
    await tick(world)
    assert (await event(world.demo, "event-b"))["alarms"] == []


async def test_a_refused_node_reports_every_second_once_its_time_has_come(world: World) -> None:
    a, b, _ = await three(world)
    await a.reports()
    assert (await b.reports())["next_report_ms"] == 5000
    await world.clock.advance(14 * 60 - 5)
    await a.reports()
    assert (await b.reports())["next_report_ms"] == 1000


async def test_an_event_of_more_domains_than_may_be_down_blocks_no_other(world: World) -> None:
    a, b, c = await three(world)
    for agent in (a, b):
        agent.entries.clear()
        agent.sees("PREPARED", "wide", on=("a", "b"))
    await all_report(a, b)
    assert await permission(c) == {"event-c": ""}
    found = await event(world.demo, "wide")
    assert (found["alarms"], found["permission"]) == (["too-wide"], {"state": "granted"})
    assert (await a.holds()).keys() == {"wide"}


async def test_reports_at_the_same_time_get_one_reservation(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await world.demo.put(DB, MAKE)).status == 201
    # The monitors stay what they are, so that reports have no other row in common than that of the reservations.
    await all_report(Agent(world.demo, "x", "3"), Agent(world.demo, "y", "4"))
    found = Agent(world.demo, "a", "0"), Agent(world.demo, "b", "1"), Agent(world.demo, "c", "2")
    await all_report(*found)
    for agent in found:
        agent.sees("WAITING", f"event-{agent.node}")
    together(world, monkeypatch, writers=3)
    answers = await asyncio.gather(*(permission(agent) for agent in found))
    assert sorted("" in answer.values() for answer in answers) == [False, False, True]


async def test_a_new_fleet_has_the_guard_prepare_and_a_change_that_leaves_it_out_keeps_it(world: World) -> None:
    made = (await world.demo.put(DB, MAKE)).json()["maintenance"]
    assert made["guard"] == "prepare"
    changed = (await world.demo.put(DB, {"partitions": 1})).json()["maintenance"]
    assert changed["guard"] == "prepare"
    assert "guard" not in (await world.demo.put(DB, {"partitions": 1, "maintenance": {"guard": "approve"}})).json()["maintenance"]
    assert "guard" not in (await world.demo.put(DB, MAKE)).json()["maintenance"]


async def test_a_change_to_the_guard_approve_ends_the_reservations(world: World) -> None:
    a, b, _ = await three(world)
    await a.reports()
    assert (await world.demo.put(DB, {"partitions": 1, "maintenance": {"guard": "approve"}})).status == 200
    await b.reports()
    assert json.loads(str(next(row for row in world.rows(MAINTENANCE, KEY) if row.rk == "guard").props["json0"])) == {"reserved": {}}


@pytest.mark.parametrize("phase", ["PREPARING", "PREPARED"])
async def test_agents_of_a_former_release_prepare_without_asking_and_others_wait_for_them(world: World, phase: str) -> None:
    old, new, _ = await three(world, lead="PT30S")
    old.disabled = True
    old.sees(phase, "event-a", notice=15 * MINUTE)
    await old.reports()
    reason = (await permission(new))["event-b"]
    assert reason == f"a of fault domain 0 is {phase.lower()}"
