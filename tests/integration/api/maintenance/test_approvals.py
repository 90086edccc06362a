"""Approvals of maintenance over HTTP: by a person, by rules, early, and their posts to Azure."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.harness import World

from .agents import DB, EVENT, MINUTE, OTHER, Agent, agents, all_report, decide, event, tick


async def test_a_prepared_node_waits_for_the_other_nodes_of_the_event(db: World) -> None:
    a, b = (Agent(db.demo, name) for name in "ab")
    both = ("a", "b")
    a.sees("PREPARED", on=both)
    b.sees("PREPARING", on=both)
    await b.reports()
    assert await a.holds() == {EVENT: "b is preparing"}
    b.sees("PREPARED")
    assert await b.holds() == {}
    assert await a.holds() == {EVENT: "b approves it for all"}


async def test_an_approval_has_the_nodes_prepare_then_is_leased_to_one_agent_and_posted_once(
    db: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    a, b = agents(db, "a", "b")
    a.sees("WAITING")
    b.sees("FOREIGN", on=("a",))
    await all_report(a, b)
    granted = await decide(db.demo, "approve")
    assert (granted.status, granted.json()["state"]) == (202, "granted")
    assert (await decide(db.demo, "approve")).json() == granted.json(), "once"
    approval = granted.json()["id"]
    answer = await a.reports()
    assert answer["approvals"] == []
    assert [(each["event_id"], each["do"]) for each in answer["commands"]] == [(EVENT, "prepare")]
    a.sees("PREPARED")
    await db.clock.advance(10)
    [leased] = (await a.reports())["approvals"]
    assert (leased["id"], leased["event_id"], leased["lease_ms"]) == (approval, EVENT, 5000)
    assert (await b.reports())["approvals"] == [], "it is with a"
    assert (await b.result(approval)).code == "lease-lost"
    assert (await a.result(approval)).status == 204
    assert (await a.result(approval)).status == 204, "said twice"
    assert [each for each in caplog.records if getattr(each, "action", "") == "maintenance_posted"][1:] == [], "logged once"
    assert (await event(db.demo))["approval"]["state"] == "posted"
    assert (await a.reports())["approvals"] == []
    a.sees("STARTED", status="Started")
    await a.reports()
    assert (await event(db.demo))["approval"]["state"] == "closed"


async def test_an_approval_goes_to_the_primary_first_to_another_after_five_silent_seconds_and_at_once_when_azure_is_away(db: World) -> None:
    a, b, c = (Agent(db.demo, name) for name in "abc")
    a.sees("PREPARED")
    for node in (b, c):
        node.sees("FOREIGN", on=("a",))
    await all_report(a, b, c)
    # The agent of the prepared node is lost, and no turn stands.
    await db.clock.advance(40)
    await all_report(b, c)
    approval = (await decide(db.demo, "approve")).json()["id"]
    assert not (await c.reports())["approvals"], "b is primary, as a is named"
    assert (await b.reports())["approvals"]
    await db.clock.advance(6)
    assert (await c.reports())["approvals"]
    assert (await b.result(approval)).code == "lease-lost"
    assert (await c.result(approval, "unreachable")).status == 204
    assert (await b.reports())["approvals"]
    assert (await b.result(approval, "gone")).status == 204
    assert (await event(db.demo))["approval"]["state"] == "closed"


async def test_an_approval_goes_to_the_agent_whose_turn_it_is_and_to_no_other(db: World) -> None:
    a, b = agents(db, "a", "b")
    a.sees("PREPARED")
    b.sees("FOREIGN", on=("a",))
    await all_report(a, b)
    await decide(db.demo, "approve")
    await db.clock.advance(6)
    assert (await b.reports())["approvals"] == [], "the agent of a may be sending its own approval"
    assert (await a.reports())["approvals"]


async def test_an_approval_that_azure_keeps_refusing_is_given_up_and_reported(db: World) -> None:
    (a,) = agents(db, "a")
    a.sees("PREPARED")
    await a.reports()
    approval = (await decide(db.demo, "approve")).json()["id"]
    for number in range(5):
        assert (await a.reports())["approvals"], number
        assert (await a.result(approval, "refused")).status == 204
        await a.reports()
        assert (await event(db.demo))["alarms"] == (["approval-failed"] if number < 4 else [])
        await db.clock.advance(6)
    assert (await event(db.demo))["approval"]["state"] == "expired"


async def test_an_approval_expires_at_not_before_when_azure_goes_on_by_itself(db: World) -> None:
    a, b = agents(db, "a", "b")
    a.sees("WAITING", notice=MINUTE)
    await all_report(a, b)
    await decide(db.demo, "approve")
    await db.clock.advance(61)
    await tick(db)
    assert (await event(db.demo))["approval"]["state"] == "expired"
    a.sees("PREPARED")
    assert (await a.reports())["approvals"] == []


async def test_a_hold_keeps_agents_from_approving_and_an_approval_lifts_it(db: World) -> None:
    (a,) = agents(db, "a")
    a.sees("WAITING")
    await a.reports()
    held = await decide(db.demo, "hold", reason="a repair is under way")
    assert (held.status, held.json()["state"]) == (202, "held")
    reason = next(iter((await a.holds()).values()))
    assert reason.startswith("held by ") and reason.endswith(": a repair is under way")
    assert (await event(db.demo))["approval"]["state"] == "held"
    a.sees("PREPARED")
    assert await a.holds() == {EVENT: reason}
    assert (await decide(db.demo, "approve")).json()["state"] == "granted"
    assert (await a.reports())["approvals"]
    assert (await decide(db.demo, "hold")).status == 202, "taken back before Azure has it"
    assert not (await a.reports())["approvals"]


async def test_what_has_started_or_is_over_can_be_neither_approved_nor_held(db: World) -> None:
    (a,) = agents(db, "a")
    a.sees("STARTED", status="Started")
    await a.reports()
    for verb in ("approve", "hold"):
        assert (await decide(db.demo, verb)).code == "already-started"
    a.sees("PREPARED", OTHER)
    await a.reports()
    approval = (await decide(db.demo, "approve", OTHER)).json()["id"]
    await a.reports()
    await a.result(approval)
    assert (await decide(db.demo, "hold", OTHER)).code == "already-approved"
    assert (await decide(db.demo, "approve", "no-such-event")).status == 404


async def test_a_fleet_that_wants_it_has_its_domains_approved_early_one_after_the_other(world: World) -> None:
    make = {"partitions": 1, "maintenance": {"early": True, "catch_up": "PT0S"}}
    assert (await world.demo.put(DB, make)).status == 201
    names = "abc"
    found = agents(world, *names)
    ids = {name: f"{number}02d9444-d2cd-49c7-8624-8643e7171297" for number, name in enumerate(names)}
    for agent in found:
        agent.sees("WAITING", ids[agent.node], notice=15 * MINUTE)
    await all_report(*found)
    order: list[str] = []
    for _ in range(20):
        await world.clock.advance(5)
        for agent in found:
            mine = agent.entries[ids[agent.node]]
            answer = await agent.reports()
            asked = [each["event_id"] for each in answer["commands"]]
            phase = mine["phase"]
            if phase == "WAITING" and asked:
                mine["phase"], agent.disabled = "PREPARED", True
                order.append(agent.node)
            elif phase == "PREPARED" and answer["approvals"]:
                assert (await agent.result(answer["approvals"][0]["id"])).status == 204
                mine |= {"phase": "STARTED", "status": "Started", "not_before": None}
            elif phase == "STARTED":
                mine["phase"], agent.disabled = "DONE", False
            assert sum(each.disabled for each in found) <= 1
    assert order == ["a", "b", "c"]
    assert all(agent.entries[ids[agent.node]]["phase"] == "DONE" for agent in found)


async def test_a_rule_approves_events_of_one_type_as_soon_as_their_nodes_are_prepared(world: World) -> None:
    rules = [{"type": "Redeploy", "action": "prepare", "early": True}]
    make = {"partitions": 1, "maintenance": {"rules": rules, "catch_up": "PT0S"}}
    answer = await world.demo.put(DB, make)
    assert (answer.status, answer.json()["maintenance"]["rules"]) == (201, rules)
    a, b, c = found = agents(world, "a", "b", "c")
    c.sees("WAITING", "freeze", notice=60 * MINUTE)
    a.sees("WAITING", "first", type="Redeploy", notice=4 * 24 * 60 * MINUTE)
    b.sees("WAITING", "second", type="Redeploy", notice=5 * 24 * 60 * MINUTE)
    await all_report(*found)
    asked = {agent.node: [each["event_id"] for each in (await agent.reports())["commands"]] for agent in found}
    assert asked == {"a": ["first"], "b": [], "c": []}, "one fault domain after the other, and the other type at its time"
    a.disabled = True
    a.sees("PREPARED", "first")
    answer = await a.reports()
    assert [each["event_id"] for each in answer["approvals"]] == ["first"]
    assert answer["settings"]["rules"] == [{"action": "prepare", "type": "Redeploy"}], "agents of former versions read the rules"
    assert (await a.result(answer["approvals"][0]["id"])).status == 204
    a.disabled = False
    a.sees_no_more("first")
    await all_report(*found)
    assert [each["event_id"] for each in (await b.reports())["commands"]] == ["second"]


@pytest.mark.parametrize("action", ["approve", "hold", "ignore"])
async def test_a_rule_that_is_early_without_preparing_is_refused(world: World, action: str) -> None:
    answer = await world.demo.put(DB, {"partitions": 1, "maintenance": {"rules": [{"action": action, "early": True}]}})
    assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, "/maintenance/rules/0")


async def test_a_decision_needs_no_reason(db: World) -> None:
    a = Agent(db.demo, "a").sees("WAITING")
    await a.reports()
    for verb, state in (("hold", "held"), ("approve", "granted")):
        answer = await db.demo.post(f"{DB}/maintenance/events/{EVENT}/{verb}")
        assert (answer.status, answer.json()["state"]) == (202, state)


async def test_one_agent_approves_an_event_of_many_nodes_though_all_have_prepared_in_one_moment(db: World) -> None:
    names = tuple("abcdefgh")
    nodes = [Agent(db.demo, name) for name in names]
    for node in nodes:
        node.sees("WAITING", on=names)
    await all_report(*nodes)
    for node in nodes:
        node.sees("PREPARED")
    await all_report(*nodes)
    held = [await node.holds() for node in nodes]
    assert sum(not found for found in held) == 1
    [first] = [node for node, found in zip(nodes, held, strict=True) if not found]
    assert all(found == {EVENT: f"{first.node} approves it for all"} for found in held if found)
    # It never does: its own file may forbid it.
    await db.clock.advance(21)
    again = [node.node for node in nodes if node is not first and not await node.holds()]
    assert len(again) == 1, "another one may now"


async def test_no_lease_of_an_approval_is_given_while_a_named_agent_may_approve_by_itself(db: World) -> None:
    a, b = agents(db, "a", "b")
    a.sees("PREPARED")
    b.sees("FOREIGN", on=("a",))
    await all_report(a, b)
    assert await a.holds() == {}
    await decide(db.demo, "approve")
    assert (await b.reports())["approvals"] == []
    a.sees("APPROVED")
    await a.reports()
    await db.clock.advance(25)
    await a.reports()
    assert (await b.reports())["approvals"] == [], "Azure has it"


async def test_a_leased_approval_waits_for_the_turn_of_another_agent_and_is_not_held_then(db: World) -> None:
    a, b = (Agent(db.demo, name) for name in "ab")
    both = ("a", "b")
    a.sees("WAITING", on=both)
    b.sees("WAITING", on=both)
    await all_report(a, b)
    b.sees("PREPARED")
    await b.reports()
    a.sees("PREPARED")
    assert await a.holds() == {}
    assert await b.holds() == {EVENT: "a approves it for all"}
    await decide(db.demo, "approve")
    await db.clock.advance(6)
    assert (await b.reports())["approvals"] == [], "the agent of a may be sending its own"
    await db.clock.advance(16)
    answer = await b.reports()
    assert (len(answer["approvals"]), answer["hold"]) == (1, [])
