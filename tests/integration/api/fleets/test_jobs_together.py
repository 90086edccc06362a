"""One fleet, all jobs: leases leave a node before its maintenance, and turns skip it, or give it a turn before its disk is lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.scheduler.harness import World

from ..checkpoints import replicas
from ..checkpoints.replicas import Replica
from ..maintenance import agents
from ..maintenance.agents import DB, EVENT, MINUTE, OTHER, Agent, all_report, decide, event, tick
from . import nodes
from .nodes import Node

MAKE: dict[str, Any] = {"partitions": 4, "limits": {"max_per_server": 4}, "maintenance": {"catch_up": "PT0S"}}


@pytest.fixture
async def db(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(nodes, "WEB", DB)
    assert agents.DB == replicas.DB == DB
    assert (await world.demo.put(DB, MAKE)).status == 201
    return world


async def beat(world: World, *servers: Node) -> dict[str, set[int]]:
    """Let the servers follow their orders a few times. Return their partitions."""
    has: dict[str, set[int]] = {}
    for _ in range(8):
        for server in servers:
            answer = await server.beats()
            await nodes.quiet(world)
            for number in answer["release"]:
                await server.release(number, answer["held"][str(number)])
            if answer["assign"]:
                await server.claims(*answer["assign"])
            has[server.name] = {int(number) for number in answer["held"]}
        await world.clock.advance(2)
    return has


async def test_leases_leave_a_node_before_it_prepares_and_return_when_it_is_back(db: World) -> None:
    a, b = Node(db.demo, "a", 1), Node(db.demo, "b", 2)
    has = await beat(db, a, b)
    assert (len(has["a"]), len(has["b"])) == (2, 2)
    agent, other = Agent(db.demo, "a", "0"), Agent(db.demo, "b", "1")
    agent.sees("WAITING", notice=MINUTE + 30_000)
    await agents.all_report(agent, other)
    assert len((await beat(db, a, b))["a"]) == 2, "it is far away"
    await agents.all_report(agent, other)
    assert len((await beat(db, a, b))["a"]) == 2

    await agents.all_report(agent, other)
    [intent] = (await db.demo.get(f"{DB}/nodes/a")).json()["intents"]
    assert (intent["verb"], intent["author"]) == ("maintain", "maintenance")
    agent.disabled = True
    agent.sees("PREPARED")
    assert await agent.holds() == {EVENT: "2 partitions must leave a first"}
    has = await beat(db, a, b)
    assert (len(has["a"]), len(has["b"])) == (0, 4)
    assert (await a.claims(0))[1] == {0: "maintenance"}
    await other.reports()
    assert await agent.holds() == {}
    node = (await db.demo.get(f"{DB}/nodes/a")).json()
    assert (node["maintenance"]["leaving"], node["maintenance"]["events"][EVENT]["phase"]) == (True, "PREPARED")

    agent.disabled = False
    agent.sees_no_more()
    await agent.reports()
    assert (await event(db.demo))["status"] == "vanished"
    assert (await db.demo.get(f"{DB}/nodes/a")).json()["intents"] == []
    has = await beat(db, a, b)
    assert (len(has["a"]), len(has["b"])) == (2, 2)


async def test_partitions_stay_where_no_other_server_could_have_them(db: World) -> None:
    a = Node(db.demo, "a")
    assert len((await beat(db, a))["a"]) == 4
    agent = Agent(db.demo, "a").sees("PREPARING", notice=MINUTE)
    await agent.reports()
    assert len((await beat(db, a))["a"]) == 4


async def test_partitions_do_not_leave_for_a_server_that_they_leave_too(db: World) -> None:
    a, b = Node(db.demo, "a", 1), Node(db.demo, "b", 2)
    await beat(db, a, b)
    agent = Agent(db.demo, "a", "0").sees("PREPARING", notice=MINUTE)
    other = Agent(db.demo, "b", "1").sees("PREPARING", OTHER, notice=MINUTE)
    for _ in range(2):
        await all_report(agent, other)
        await tick(db, "stale_scan")
        has = await beat(db, a, b)
        assert (len(has["a"]), len(has["b"])) == (0, 4), "b is hit as well, and serves until then"
    agent.sees_no_more()
    await all_report(agent, other)
    await tick(db, "stale_scan")
    has = await beat(db, a, b)
    assert (len(has["a"]), len(has["b"])) == (4, 0)


async def test_a_persons_approval_takes_the_place_of_the_fleets_which_waits_for_what_cannot_leave(db: World) -> None:
    assert (await db.demo.put(DB, MAKE | {"maintenance": {"catch_up": "PT0S", "early": True}})).status == 200
    a = Node(db.demo, "a")
    await beat(db, a)
    agent = Agent(db.demo, "a").sees("WAITING")
    for _ in range(4):
        assert (await agent.reports())["commands"] == []
        await beat(db, a)
    assert (await event(db.demo))["approval"]["by"] == "fleet"
    assert (await decide(db.demo, "approve")).status == 202
    assert [each["do"] for each in (await agent.reports())["commands"]] == ["prepare"]
    agent.sees("PREPARED")
    assert len((await agent.reports())["approvals"]) == 1


async def test_partitions_that_cannot_leave_do_not_stop_what_a_person_approves(db: World) -> None:
    a = Node(db.demo, "a")
    assert len((await beat(db, a))["a"]) == 4
    agent = Agent(db.demo, "a").sees("WAITING")
    await agent.reports()
    assert (await agents.decide(db.demo, "approve")).status == 202
    assert (await agent.reports())["commands"] == [], "they have their time to leave"
    for _ in range(4):
        await beat(db, a)
    assert [each["do"] for each in (await agent.reports())["commands"]] == ["prepare"]
    agent.sees("PREPARED")
    assert len((await agent.reports())["approvals"]) == 1


@pytest.mark.parametrize("early", [False, True], ids=["a person's", "the fleet's own"])
async def test_an_approval_goes_out_by_way_of_no_agent_while_a_prepared_node_has_partitions(db: World, early: bool) -> None:
    a, b = Node(db.demo, "a", 1), Node(db.demo, "b", 2)
    await beat(db, a, b)
    if early:
        assert (await db.demo.put(DB, MAKE | {"maintenance": {"catch_up": "PT0S", "early": True}})).status == 200
    agent, other = Agent(db.demo, "a", "0"), Agent(db.demo, "b", "1")
    other.sees("FOREIGN", on=("a",))
    await other.reports()
    agent.sees("PREPARED")
    agent.disabled = True
    await agent.reports()
    if not early:
        assert (await agents.decide(db.demo, "approve")).status == 202
    for each in (other, agent, other):
        assert (await each.reports())["approvals"] == []
    assert await agent.holds() == {EVENT: "2 partitions must leave a first"}
    assert len((await beat(db, a, b))["a"]) == 0
    assert sorted([len((await each.reports())["approvals"]) for each in (other, agent)]) == [0, 1]


async def test_what_a_person_approves_waits_no_longer_for_partitions_than_a_hand_off_takes(db: World) -> None:
    a = Node(db.demo, "a")
    await beat(db, a)
    agent, other = Agent(db.demo, "a", "0").sees("PREPARED"), Agent(db.demo, "b", "1").sees("FOREIGN", on=("a",))
    await agents.all_report(agent, other)
    assert (await agents.decide(db.demo, "approve")).status == 202
    for _ in range(2):
        assert (await other.reports())["approvals"] == []
        assert (await agent.reports())["approvals"] == []
        await beat(db, a)
    assert sorted([len((await each.reports())["approvals"]) for each in (other, agent)]) == [0, 1]


async def test_a_node_that_found_the_event_to_be_none_for_it_keeps_its_partitions_and_no_approval_waits_for_them(db: World) -> None:
    a, b = Node(db.demo, "a", 1), Node(db.demo, "b", 2)
    await beat(db, a, b)
    agent, other = Agent(db.demo, "a", "0"), Agent(db.demo, "b", "1")
    agent.sees("PREPARED", on=("a", "b"))
    other.sees("APPROVED", on=("a", "b"))
    await agents.all_report(agent, other)
    assert len((await beat(db, a, b))["b"]) == 4
    shown = (await agents.event(db.demo))["approval"]
    assert (shown["state"], shown["node"]) == ("posted", "b"), "its agent has approved the event for both"
    await db.clock.advance(5)
    assert [(await each.reports())["approvals"] for each in (agent, other)] == [[], []], "Azure has one approval already"


async def test_the_timer_repeats_maintenance_drains_and_leaves_manual_controls_alone(db: World) -> None:
    a, b = Node(db.demo, "a", 1), Node(db.demo, "b", 2)
    await beat(db, a, b)
    assert (await db.demo.post(f"{DB}/nodes/a/drain", {"note": "by hand"})).status == 200
    agent = Agent(db.demo, "a").sees("WAITING", notice=MINUTE + 15_000)
    await agent.reports()
    assert [each["verb"] for each in (await db.demo.get(f"{DB}/nodes/a")).json()["intents"]] == ["drain"]
    await beat(db, a, b)
    await tick(db)
    assert [each["verb"] for each in (await db.demo.get(f"{DB}/nodes/a")).json()["intents"]] == ["drain", "maintain"]
    agent.sees_no_more()
    await agent.reports()
    await tick(db, "stale_scan")
    assert [each["verb"] for each in (await db.demo.get(f"{DB}/nodes/a")).json()["intents"]] == ["drain"]


async def test_a_replica_that_is_about_to_be_hit_gets_no_turn(db: World) -> None:
    primary, a, b = Replica(db.demo, "p", "primary"), Replica(db.demo, "a"), Replica(db.demo, "b")
    agent = Agent(db.demo, "a").sees("WAITING", notice=2 * MINUTE)
    await agent.reports()
    holders = set()
    for number in range(1, 5):
        await primary.reports()
        for replica in (a, b):
            turn = (await replica.reports())["turn"]
            if turn is not None:
                replica.taking = turn["epoch"]
                holders.add(replica.node)
                await replica.reports()
                await replica.done(turn["epoch"], number)
        await agent.reports()
        await db.clock.advance(5)
    assert holders == {"b"}
    assert (await db.demo.get(f"{DB}/nodes/a")).json()["turn"]["skipped"] == "maintenance"


async def test_a_replica_that_is_to_lose_its_disk_goes_first(db: World) -> None:
    primary = Replica(db.demo, "p", "primary")
    others = {name: Replica(db.demo, name) for name in "abcdefgh"}
    agent = Agent(db.demo, "h").sees("WAITING", notice=40 * MINUTE, type="Redeploy")
    await agent.reports()
    for each in others.values():
        each.fields["ready"] = False
    await primary.reports()
    for each in others.values():
        await each.reports()
    for each in others.values():
        each.fields["ready"] = True
    turn = None
    for name in "habcdefg":
        answer = await others[name].reports()
        if answer["turn"] is not None:
            turn = name
            break
    assert turn == "h"
