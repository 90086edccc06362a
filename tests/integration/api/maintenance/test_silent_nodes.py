"""Events of users on nodes that cannot answer: a person's approval is relayed at once, and the fleet approves after some silence."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.scheduler.harness import World

from .agents import DB, EVENT, OTHER, Agent, agents, all_report, decide, event


async def fleet(world: World, **maintenance: Any) -> tuple[Agent, Agent]:
    """Make the fleet. Return its agents `dead`, which has reported once, and `other`, which shares its documents."""
    assert (await world.demo.put(DB, {"partitions": 1, "maintenance": {"catch_up": "PT1M", **maintenance}})).status == 201
    dead, other = Agent(world.demo, "dead", domain="0"), Agent(world.demo, "other", domain="1")
    await all_report(dead, other)
    return dead, other


async def leased(agent: Agent) -> list[str]:
    """Report. Return the ids of the events with an approval for this agent."""
    return [each["event_id"] for each in (await agent.reports())["approvals"]]


async def wait(world: World, seconds: int, *agents: Agent) -> None:
    """Let time pass, with a report of these agents now and every five seconds."""
    await all_report(*agents)
    for _ in range(seconds // 5):
        await world.clock.advance(5)
        await all_report(*agents)


@pytest.mark.parametrize("source", ["User", "Platform"])
async def test_a_persons_approval_for_a_dead_node_is_relayed_by_another_agent(world: World, source: str) -> None:
    _, other = await fleet(world)
    other.sees("FOREIGN", on=("dead",), source=source)
    await wait(world, 25 if source == "User" else 60, other)
    assert (await decide(world.demo, "approve")).status == 202
    answer = await other.reports()
    assert [each["event_id"] for each in answer["approvals"]] == [EVENT]
    assert (await other.result(answer["approvals"][0]["id"])).status == 204
    assert (await event(world.demo))["approval"]["state"] == "posted"


async def test_a_persons_approval_of_a_users_event_does_not_wait_for_a_node_that_has_not_reported_it(world: World) -> None:
    _, other = await fleet(world)
    other.sees("FOREIGN", on=("dead",), source="User")
    await other.reports()
    await decide(world.demo, "approve")
    assert await leased(other) == [EVENT]


async def test_a_persons_approval_waits_for_a_node_that_reports_and_has_not_prepared(world: World) -> None:
    alive, other = await fleet(world)
    alive.sees("PREPARING", source="User")
    other.sees("FOREIGN", on=("dead",), source="User")
    await all_report(alive, other)
    await decide(world.demo, "approve")
    await wait(world, 60, alive, other)
    assert await leased(other) == []
    alive.sees("PREPARED", source="User")
    assert await leased(alive) == [EVENT]


async def test_without_a_person_a_users_event_of_a_silent_node_is_approved_after_half_a_minute(world: World) -> None:
    _, other = await fleet(world)
    other.sees("FOREIGN", on=("dead",), source="User")
    await wait(world, 30, other)
    assert await leased(other) == []
    await world.clock.advance(1)
    assert await leased(other) == [EVENT]
    approval = (await event(world.demo))["approval"]
    assert (approval["by"], approval["reason"], approval["state"]) == ("fleet", "its nodes are silent", "granted")


async def test_the_fleet_sets_the_silence(world: World) -> None:
    _, other = await fleet(world, silence="PT2M")
    assert (await world.demo.get(DB)).json()["maintenance"]["silence"] == "PT2M"
    other.sees("FOREIGN", on=("dead",), source="User")
    await wait(world, 120, other)
    assert await leased(other) == []
    await world.clock.advance(1)
    assert await leased(other) == [EVENT]


async def test_a_platform_event_of_a_silent_node_waits_for_a_person_or_its_time(world: World) -> None:
    _, other = await fleet(world)
    other.sees("FOREIGN", on=("dead",))
    await wait(world, 120, other)
    assert await leased(other) == []


async def test_a_rule_of_the_fleet_that_holds_users_events_holds_those_of_silent_nodes(world: World) -> None:
    _, other = await fleet(world, rules=[{"source": "User", "type": "Reboot", "action": "hold"}])
    other.sees("FOREIGN", on=("dead",), source="User", type="Reboot").sees("FOREIGN", OTHER, on=("dead",), source="User")
    await wait(world, 60, other)
    assert await leased(other) == [OTHER]


async def test_a_silent_node_does_not_keep_live_nodes_from_approving_a_users_event(world: World) -> None:
    _, other = await fleet(world, quorum={"domains_down": 2}, rules=[{"source": "User", "action": "prepare"}])
    other.sees("PREPARED", on=("dead", "other"), source="User")
    assert await other.holds() == {EVENT: "dead has not reported it"}
    await wait(world, 30, other)
    await world.clock.advance(1)
    assert await other.holds() == {}
    assert (await event(world.demo))["approval"] is None, "its own rules decide"


async def test_a_node_that_answers_again_is_not_told_to_prepare(world: World) -> None:
    back, other = await fleet(world)
    other.sees("FOREIGN", on=("dead",), source="User")
    await wait(world, 40, other)
    back.sees("WAITING", source="User")
    assert (await back.reports())["commands"] == []


async def test_a_person_forgets_a_lost_node_by_a_call_with_a_key(world: World) -> None:
    assert (await world.demo.put(DB, {"partitions": 1})).status == 201
    a, b = agents(world, "a", "b")
    await all_report(a, b)
    url = f"{DB}/maintenance/nodes/a/forget"
    assert (await world.demo.post(url)).code == "agent-live"
    await world.clock.advance(1000)
    assert (await world.demo.with_key(None).post(url)).status == 401
    assert (await world.demo.post(url)).status == 204
    assert (await world.demo.post(url)).status == 404
