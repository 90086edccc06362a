"""Maintenance over HTTP: reports and what they come to, approvals, holds, rehearsals, Event Grid, and bad input."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.maintenance.timings import AGREEMENT_TIME
from shared.storage.names import MAINTENANCE
from tests.unit.scheduler.harness import World

from ..calls import changes_nothing
from .agents import DB, EVENT, MINUTE, OTHER, Agent, all_report, decide, delivery, event, tick

MAKE: dict[str, Any] = {"partitions": 1, "maintenance": {"catch_up": "PT1M"}}


@pytest.fixture
async def db(world: World) -> World:
    assert (await world.demo.put(DB, MAKE)).status == 201
    return world


def agents(world: World, *names: str) -> list[Agent]:
    """Agents in fault domains of their own."""
    return [Agent(world.demo, name, domain=str(number)) for number, name in enumerate(names)]


async def test_an_event_goes_its_way_from_notice_to_restore(db: World) -> None:
    a, b = agents(db, "a", "b")
    idle = await a.reports()
    assert (idle["approvals"], idle["hold"], idle["commands"], idle["rehearsals"]) == ([], [], [], [])
    assert 240_000 <= idle["next_report_ms"] <= 360_000
    b.sees("FOREIGN", on=("a",))
    a.sees("WAITING")
    assert (await a.reports())["next_report_ms"] == 5000
    await b.reports()
    found = await event(db.demo)
    assert (found["status"], found["type"], found["resources"], found["scope"]) == ("scheduled", "Freeze", ["vm_a"], "set")
    assert {node: each["phase"] for node, each in found["nodes"].items()} == {"a": "WAITING"}
    assert (found["impact"]["notice_ms"], found["impact"]["advertised_ms"]) == (15 * MINUTE, 9000)

    a.disabled = True
    a.sees("PREPARED")
    assert await a.holds() == {}
    a.sees("APPROVED")
    await a.reports()
    a.sees("STARTED", status="Started", observed_ms=7000)
    await a.reports()
    assert (await event(db.demo))["status"] == "started"
    b.sees("FOREIGN", status="Started")
    await b.reports()
    await db.clock.advance(20)
    b.sees_no_more()
    await b.reports()
    assert (await event(db.demo))["status"] == "started", "one still lists it"
    a.sees("RESTORING", status="Started")
    await a.reports()
    ended = await event(db.demo)
    assert (ended["status"], ended["nodes"]["a"]["phase"], ended["impact"]["lasted_ms"]) == ("completed", "RESTORING", 20_000)
    assert ended["impact"]["observed_ms"] == {"a": 7000}
    a.disabled = False
    a.sees_no_more(outcome="completed")
    assert (await a.reports())["next_report_ms"] >= 240_000
    assert (await event(db.demo))["nodes"]["a"]["phase"] == "DONE"


async def test_an_answer_carries_what_the_fleets_definition_asks_of_its_agents(db: World) -> None:
    (a,) = agents(db, "a")
    assert (await a.reports())["settings"] == {"lead_ms": 30_000, "leads_ms": {}, "require_central": False, "rules": []}
    rules = [{"type": "Freeze", "source": "Platform", "max_seconds": 0, "action": "approve"}, {"action": "hold"}]
    asked = {"lead": "PT1M", "leads": {"Preempt": "PT0S"}, "require_central": True, "rules": rules}
    assert (await db.demo.put(DB, MAKE | {"maintenance": asked})).status == 200
    shown = (await a.reports())["settings"]
    assert shown == {"lead_ms": 60_000, "leads_ms": {"Preempt": 0}, "require_central": True, "rules": rules}


async def test_an_event_that_goes_without_having_started_is_cancelled_where_its_agent_says_so_else_vanished(db: World) -> None:
    (a,) = agents(db, "a")
    a.sees("WAITING").sees("FOREIGN", OTHER, on=("x",))
    await a.reports()
    a.sees_no_more(outcome="cancelled").sees_no_more(OTHER)
    await a.reports()
    assert (await event(db.demo))["status"] == "cancelled"
    assert (await event(db.demo, OTHER))["status"] == "vanished"


async def test_an_agent_that_falls_silent_never_ends_an_event(db: World) -> None:
    a, b = agents(db, "a", "b")
    a.sees("WAITING")
    b.sees("FOREIGN", on=("a",))
    await all_report(a, b)
    b.sees_no_more()
    await b.reports()
    for _ in range(30):
        await db.clock.advance(60)
        await tick(db)
        await b.reports()
    found = await event(db.demo)
    assert (found["status"], found["alarms"]) == ("scheduled", ["silent"])
    a.sees_no_more()
    await a.reports()
    assert (await event(db.demo))["status"] == "vanished"


async def test_what_the_agents_disagree_about_is_an_alarm(db: World) -> None:
    a, b = agents(db, "a", "b")
    a.sees("WAITING")
    b.sees("FOREIGN", on=("a",), type="Reboot")
    for _ in range(10):
        await all_report(a, b)
        await db.clock.advance(5)
    await tick(db)
    assert (await event(db.demo))["alarms"] == ["disagreement"]
    b.sees("FOREIGN", on=("a",), type="Freeze")
    b.entries[EVENT]["not_before"] = a.entries[EVENT]["not_before"]
    await b.reports()
    assert (await event(db.demo))["alarms"] == []


async def test_agents_that_learn_of_a_change_one_after_the_other_do_not_disagree(db: World) -> None:
    a, b = agents(db, "a", "b")
    a.sees("WAITING")
    b.sees("FOREIGN", on=("a",))
    b.entries[EVENT]["not_before"] = a.entries[EVENT]["not_before"]
    for _ in range(8):
        await all_report(a, b)
        await db.clock.advance(5)
    for minutes in (20, 25):
        later = to_text(db.now + minutes * MINUTE)
        for agent in (a, b):
            agent.entries[EVENT]["not_before"] = later
            await agent.reports()
            await tick(db)
            assert (await event(db.demo))["alarms"] == []
            await db.clock.advance(5)
    b.entries[EVENT]["duration_s"] = 3
    for _ in range(9):
        await all_report(a, b)
        await tick(db)
        assert (await event(db.demo))["alarms"] == []
        await db.clock.advance(5)
    await all_report(a, b)
    assert (await event(db.demo))["alarms"] == ["disagreement"]


async def test_an_agent_that_fell_silent_before_a_change_does_not_disagree(db: World) -> None:
    a, b = agents(db, "a", "b")
    a.sees("WAITING")
    b.sees("FOREIGN", on=("a",))
    b.entries[EVENT]["not_before"] = a.entries[EVENT]["not_before"]
    await all_report(a, b)
    a.entries[EVENT]["not_before"] = to_text(db.now + 20 * MINUTE)
    for _ in range(12):
        await a.reports()
        await tick(db)
        assert (await event(db.demo))["alarms"] == []
        await db.clock.advance(5)


async def test_an_event_that_has_been_started_for_long_is_an_alarm_and_failures_of_hooks_are(db: World) -> None:
    a, b = agents(db, "a", "b")
    a.sees("STARTED", status="Started").sees("PREPARE_FAILED", OTHER)
    await all_report(a, b)
    assert (await event(db.demo, OTHER))["alarms"] == ["prepare-failed"]
    for _ in range(32):
        await db.clock.advance(60)
        await all_report(a, b)
    assert (await event(db.demo))["alarms"] == ["prolonged"]
    a.disabled = True
    a.sees("RESTORE_FAILED", status="Started")
    await a.reports()
    assert (await event(db.demo))["alarms"] == ["restore-failed"]


async def test_a_prepared_node_waits_for_the_other_nodes_of_the_event(db: World) -> None:
    a, b = (Agent(db.demo, name) for name in "ab")
    both = ("a", "b")
    a.sees("PREPARED", on=both)
    b.sees("PREPARING", on=both)
    await b.reports()
    assert await a.holds() == {EVENT: "b is preparing"}
    b.sees("PREPARED")
    assert await b.holds() == {}
    assert await a.holds() == {}


async def test_the_guard_lets_one_fault_domain_of_a_location_go_down_at_a_time_in_the_order_of_their_times(db: World) -> None:
    a, b, c = agents(db, "a", "b", "c")
    far = Agent(db.demo, "far", domain="9", location="northeurope")
    a.sees("PREPARED", notice=10 * MINUTE)
    b.sees("PREPARED", OTHER, notice=11 * MINUTE)
    far.sees("STARTED", "d3b0a3a8-0000-4000-8000-000000000000", status="Started")
    a.disabled = b.disabled = True
    await all_report(a, b, c, far)
    assert await a.holds() == {}, "it comes first"
    assert await b.holds() == {OTHER: "a of fault domain 0 is prepared"}
    a.sees("STARTED", status="Started")
    await a.reports()
    assert await b.holds() == {OTHER: "a of fault domain 0 is started"}
    a.sees("RESTORING", status="Started")
    await a.reports()
    assert await b.holds() == {OTHER: "a of fault domain 0 is restoring"}
    a.sees_no_more()
    a.disabled = False
    await a.reports()
    assert await b.holds() == {OTHER: "a of fault domain 0 is catching up"}
    await a.reports(caught_up=True)
    assert await b.holds() == {}


async def test_catching_up_ends_by_time_too(db: World) -> None:
    a, b = agents(db, "a", "b")
    a.disabled = True
    a.sees("RESTORING")
    await a.reports()
    a.disabled = False
    a.sees_no_more()
    await a.reports()
    b.sees("PREPARED", OTHER)
    assert list(await b.holds()) == [OTHER]
    await db.clock.advance(61)
    assert await b.holds() == {}


async def test_two_nodes_of_one_fault_domain_may_go_down_together(db: World) -> None:
    a, b = (Agent(db.demo, name, domain="7") for name in "ab")
    a.sees("STARTED", status="Started")
    b.sees("PREPARED", OTHER)
    await a.reports()
    assert await b.holds() == {}


async def test_more_fault_domains_down_than_may_be_is_an_alarm_of_the_fleet(db: World, caplog: Any) -> None:
    a, b = agents(db, "a", "b")
    a.sees("STARTED", status="Started")
    b.sees("STARTED", OTHER, status="Started")
    await all_report(a, b)
    await tick(db)
    assert [each.alarm for each in caplog.records if getattr(each, "action", "") == "maintenance_alarm"] == ["domains-down westeurope"]


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
    a, b = agents(db, "a", "b")
    a.sees("PREPARED")
    b.sees("FOREIGN", on=("a",))
    await all_report(a, b)
    approval = (await decide(db.demo, "approve")).json()["id"]
    assert not (await a.reports())["approvals"], "b is primary, as a is named"
    assert (await b.reports())["approvals"]
    assert await a.holds() == {EVENT: "the approval is with another agent"}
    await db.clock.advance(6)
    assert (await a.reports())["approvals"]
    assert (await b.result(approval)).code == "lease-lost"
    assert (await a.result(approval, "unreachable")).status == 204
    assert (await b.reports())["approvals"]
    assert (await b.result(approval, "gone")).status == 204
    assert (await event(db.demo))["approval"]["state"] == "closed"


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


async def test_a_rehearsal_reaches_its_nodes_and_is_over_when_they_are_done(db: World) -> None:
    a, b = agents(db, "a", "b")
    await all_report(a, b)
    made = await db.demo.post(f"{DB}/maintenance/rehearse", {"nodes": ["a"], "type": "Freeze", "notice": "PT5M", "duration_s": 9})
    assert made.status == 202
    shown = (await a.reports())["rehearsals"]
    assert [(each["event_id"], each["not_before"]) for each in shown] == [
        (made.json()["event_id"], to_text(db.now // 1000 * 1000 + 300_000))
    ]
    assert (await b.reports())["rehearsals"] == []
    a.sees("PREPARED", made.json()["event_id"], notice=5 * MINUTE, source="User")
    assert await a.holds() == {}
    assert (await decide(db.demo, "approve", made.json()["event_id"])).code == "already-started"
    a.sees_no_more(made.json()["event_id"])
    answer = await a.reports()
    assert answer["rehearsals"] == []
    found = await event(db.demo, made.json()["event_id"])
    assert (found["status"], found["rehearsal"], found["nodes"]["a"]["phase"]) == ("completed", True, "DONE")


async def test_two_monitors_in_different_domains_and_hand_over_when_the_primary_is_named_or_silent(db: World) -> None:
    a, b, c = agents(db, "a", "b", "c")
    await a.reports()
    assert (await a.reports())["monitors"]["primary"] == "a"
    b.domain = "0"
    await all_report(b, c)
    await tick(db, "stale_scan")
    assert (await a.reports())["monitors"] == {"primary": "a", "secondary": "c", "epoch": 1}
    a.sees("WAITING")
    assert (await a.reports())["monitors"] == {"primary": "c", "secondary": "b", "epoch": 2}
    c.sees("FOREIGN", on=("a",))
    b.sees("FOREIGN", on=("a",))
    await all_report(a, b, c)
    for _ in range(8):
        await db.clock.advance(5)
        await all_report(a, b)
    await tick(db)
    assert (await b.reports())["monitors"]["primary"] == "b"


async def test_a_single_monitor_is_an_alarm_until_there_is_a_second_elsewhere(db: World, caplog: Any) -> None:
    def raised() -> list[str]:
        return [
            f"{each.action[12:]} {getattr(each, 'alarm', '')}".strip()
            for each in caplog.records
            if "maintenance_alarm" in getattr(each, "action", "")
        ]

    caplog.set_level("INFO")
    a, b = agents(db, "a", "b")
    b.domain = a.domain
    await a.reports()
    await tick(db, "stale_scan")
    assert raised() == ["alarm single-monitor"]
    await b.reports()
    await tick(db, "stale_scan")
    assert raised()[1:] == ["alarm monitors-together", "alarm_cleared single-monitor"]
    b.domain = "1"
    await b.reports()
    await tick(db, "stale_scan")
    assert raised()[3:] == ["alarm_cleared monitors-together"]


async def test_a_later_report_counts_and_an_earlier_one_is_refused(db: World) -> None:
    (a,) = agents(db, "a")
    await a.reports(seq=5)
    assert (await a.report(seq=4)).code == "stale-seq"
    assert (await a.report(seq=5)).status == 200


GOOD = {
    "node": "a",
    "seq": 9,
    "vm": "vm_a",
    "scope": "set",
    "location": "",
    "fault_domain": "0",
    "boot_id": "",
    "incarnation": 1,
    "disabled": False,
    "events": [],
}
ENTRY = {"event_id": EVENT, "type": "Freeze", "status": "Scheduled", "not_before": None, "phase": "WAITING"}


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"seq": 0}, "/seq"),
        ({"node": "a b"}, "/node"),
        ({"vm": ""}, "/vm"),
        ({"incarnation": "3"}, "/incarnation"),
        ({"disabled": None}, "/disabled"),
        ({"events": None}, "/events"),
        ({"more": 1}, "/more"),
        ({"events": [ENTRY | {"phase": "ASLEEP"}]}, "/events/0/phase"),
        ({"events": [ENTRY | {"status": "Completed"}]}, "/events/0/status"),
        ({"events": [ENTRY | {"not_before": "Mon, 19 Sep 2016 18:29:47 GMT"}]}, "/events/0/not_before"),
        ({"events": [ENTRY | {"resources": [""]}]}, "/events/0/resources/0"),
        ({"events": [ENTRY | {"duration_s": -2}]}, "/events/0/duration_s"),
        ({"events": [ENTRY] * 501}, "/events"),
    ],
)
async def test_a_bad_report_is_refused_with_where_and_why_and_changes_nothing(db: World, change: dict[str, Any], pointer: str) -> None:
    answer = await changes_nothing(db.demo, "POST", f"{DB}/maintenance/reports", GOOD | change)
    assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, pointer)


async def test_unknown_fleets_events_approvals_and_nodes_have_different_errors(db: World) -> None:
    a = Agent(db.demo, "a").sees("WAITING")
    await a.reports()
    assert (await changes_nothing(db.demo, "POST", "/api/v1/fleets/nope/maintenance/reports", GOOD)).status == 404
    assert (await changes_nothing(db.demo, "GET", f"{DB}/maintenance/events/nope")).status == 404
    result = {"node": "a", "outcome": "posted"}
    assert (await changes_nothing(db.demo, "POST", f"{DB}/maintenance/approvals/nope.1/result", result)).status == 404
    body = {"nodes": ["a", "b"], "type": "Freeze"}
    answer = await changes_nothing(db.demo, "POST", f"{DB}/maintenance/rehearse", body)
    assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, "/nodes/1")
    answer = await changes_nothing(db.demo, "POST", f"{DB}/maintenance/rehearse", {"nodes": [], "type": "Freeze"})
    assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, "/nodes")


async def test_an_agents_key_speaks_for_its_own_node_alone(db: World) -> None:
    key = await db.key("demo", ["agent"], fleet="db", node="a")
    assert (await Agent(key, "a").report()).status == 200
    assert (await Agent(key, "b").report()).code == "not-your-node"
    assert (await key.post(f"{DB}/maintenance/events/{EVENT}/approve", {})).code == "missing-scope"


async def test_event_grid_is_a_source_beside_the_agents_and_knows_how_events_end(db: World) -> None:
    url = f"{DB}/maintenance/eventgrid"
    (a,) = agents(db, "a")
    await a.reports()
    assert (await db.demo.post(url, [delivery("Scheduled")])).status == 200
    found = await event(db.demo)
    assert (found["status"], found["resources"], found["scope"], found["not_before"]) == (
        "scheduled",
        ["vm_a"],
        "set",
        "2033-09-19T18:29:47.000Z",
    )
    a.sees("WAITING")
    await a.reports()
    assert (await db.demo.post(url, [delivery("Canceled")])).status == 200
    await tick(db)
    assert (await event(db.demo))["status"] == "scheduled", "an agent still lists it"
    a.sees_no_more()
    await a.reports()
    assert (await event(db.demo))["status"] == "cancelled"


@pytest.mark.parametrize("early", [False, True])
async def test_an_event_without_a_readable_not_before_waits_for_a_person(world: World, early: bool) -> None:
    assert (await world.demo.put(DB, {"partitions": 1, "maintenance": {"early": early, "catch_up": "PT0S"}})).status == 201
    (a,) = agents(world, "a")
    a.sees("WAITING", not_before=None)
    assert (await a.reports())["commands"] == []
    a.disabled = True
    a.sees("PREPARED", not_before=None)
    assert "NotBefore cannot be read" in (await a.holds())[EVENT]
    assert (await decide(world.demo, "approve")).status == 202
    (lease,) = (await a.reports())["approvals"]
    assert lease["event_id"] == EVENT


async def test_one_object_of_event_grid_is_taken_like_an_array_of_one(db: World) -> None:
    await all_report(*agents(db, "a"))
    assert (await db.demo.post(f"{DB}/maintenance/eventgrid", delivery("Scheduled", Resources=["VM_A"]))).status == 200
    found = await event(db.demo)
    assert (found["status"], found["scope"]) == ("scheduled", "set")


async def test_names_of_machines_are_compared_without_case(db: World) -> None:
    a, b = agents(db, "a", "b")
    a.sees("WAITING", resources=["VM_A", "vm_b"])
    b.sees("WAITING", resources=["vm_a", "VM_B"])
    await all_report(a, b)
    await db.clock.advance(AGREEMENT_TIME / 1000 + 1)
    await all_report(a, b)
    await tick(db)
    found = await event(db.demo)
    assert (sorted(found["nodes"]), found["alarms"]) == (["a", "b"], [])


async def test_event_grid_alone_can_bring_an_event_to_its_end(db: World) -> None:
    url = f"{DB}/maintenance/eventgrid"
    a, b = agents(db, "a", "b")
    await all_report(a, b)
    for status in ("Scheduled", "Started", "Completed"):
        assert (await db.demo.post(url, [delivery(status)])).status == 200
    await tick(db)
    assert (await event(db.demo))["status"] == "completed"


@pytest.mark.parametrize(
    "other",
    [
        delivery("Scheduled", Resources=["elsewhere"]),
        delivery("Scheduled", ResourceType="ManagedCluster"),
        delivery("Started", EventId=17),
        delivery("Paused"),
        delivery("Scheduled", Resources="vm_a"),
        {"eventType": "Microsoft.Storage.BlobCreated", "data": {}},
        {"eventType": "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted", "data": None},
        {"eventType": "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted", "data": {"resourceInfo": []}},
        "text",
        None,
        [],
    ],
)
async def test_other_shapes_of_deliveries_are_taken_and_ignored(db: World, other: Any) -> None:
    await Agent(db.demo, "a").reports()
    answer = await changes_nothing(db.demo, "POST", f"{DB}/maintenance/eventgrid", [other])
    assert answer.status == 200


async def test_a_subscription_of_event_grid_is_validated(db: World) -> None:
    asked = {"id": "1", "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent", "data": {"validationCode": "512d38b6"}}
    answer = await db.demo.post(f"{DB}/maintenance/eventgrid", [asked])
    assert (answer.status, answer.json()) == (200, {"validationResponse": "512d38b6"})
    alone = await db.demo.post(f"{DB}/maintenance/eventgrid", asked)
    assert (alone.status, alone.json()) == (200, {"validationResponse": "512d38b6"})
    assert (await db.demo.post(f"{DB}/maintenance/eventgrid", "text")).status == 422
    assert (await db.nobody.post(f"{DB}/maintenance/eventgrid", [asked])).status == 401


async def test_events_are_listed_open_ones_first_and_page_by_page(db: World) -> None:
    (a,) = agents(db, "a")
    ids = [f"{number}02d9444-d2cd-49c7-8624-8643e7171297" for number in range(5)]
    for each in ids:
        a.sees("WAITING", each)
        await a.reports()
        await db.clock.advance(1)
    a.sees_no_more(ids[4], outcome="cancelled")
    await a.reports()
    found = [each["event_id"] for each in await db.demo.all(f"{DB}/maintenance/events?limit=2")]
    assert found == [ids[3], ids[2], ids[1], ids[0], ids[4]]


async def test_the_channel_hears_of_each_step_and_of_the_time_to_prepare(world: World) -> None:
    make = MAKE | {"notify": {"channel": "default", "kinds": ["maintenance"]}}
    assert (await world.demo.put(DB, make)).status == 201
    (a, b) = agents(world, "a", "b")
    a.sees("WAITING")
    await all_report(a, b)
    await tick(world)
    shown = {each["payload"]["what"]: each for each in await world.demo.all("/api/v1/events?limit=100")}
    assert set(shown) == {"scheduled", "prepare"}
    assert shown["prepare"]["due"] == to_text(world.now // 1000 * 1000 + 15 * MINUTE - 30_000)
    a.sees_no_more(outcome="cancelled")
    await a.reports()
    await tick(world, "stale_scan")
    await tick(world, "stale_scan")
    shown = {each["payload"]["what"]: each for each in await world.demo.all("/api/v1/events?limit=100")}
    assert set(shown) == {"scheduled", "prepare", "cancelled"}
    payload = shown["cancelled"]["payload"]
    assert (payload["fleet"], payload["event_id"], payload["kind"]) == ("db", EVENT, "maintenance")


async def test_the_ledger_forgets_after_ninety_days_and_a_fleet_that_ends_leaves_nothing(db: World) -> None:
    (a,) = agents(db, "a")
    a.sees("WAITING")
    await a.reports()
    a.sees_no_more()
    await a.reports()
    await db.clock.advance(27 * 3600)
    await tick(db, "retention_scan")
    assert (await event(db.demo))["status"] == "vanished"
    await db.clock.advance(90 * 86_400)
    await tick(db, "retention_scan")
    assert (await db.demo.get(f"{DB}/maintenance/events/{EVENT}")).status == 404
    a.entries.clear()
    await a.reports()
    assert (await db.demo.delete(DB)).status == 204
    assert db.rows(MAINTENANCE) == []


async def test_all_agents_of_a_scope_may_report_the_same_event_at_once(db: World) -> None:
    crowd = [Agent(db.demo, f"n{number}", domain=str(number % 3)) for number in range(12)]
    names = tuple(agent.node for agent in crowd)
    for agent in crowd:
        agent.sees("PREPARING", on=names)
    answers = await asyncio.gather(*(agent.report() for agent in crowd))
    for _ in range(5):
        # Whoever met the others too often says it again, as agents do.
        late = [agent for agent, answer in zip(crowd, answers, strict=True) if answer.status != 200]
        assert all(answer.status in (200, 409) for answer in answers)
        answers = [await agent.report() for agent in late] or answers
        crowd = late or crowd
    found = await event(db.demo)
    assert (set(found["nodes"]), {each["phase"] for each in found["nodes"].values()}) == (set(names), {"PREPARING"})


@pytest.mark.parametrize(("busy", "most"), [(False, 4), (True, 6)])
async def test_a_report_costs_few_transactions(db: World, busy: bool, most: int) -> None:
    crowd = [Agent(db.demo, f"n{number}", domain=str(number % 3)) for number in range(5)]
    for agent in crowd:
        if busy:
            agent.sees("FOREIGN", on=("elsewhere",))
        await agent.reports()
    await tick(db, "stale_scan")
    await all_report(*crowd)
    counted = Counter[str]()
    for name in ("get", "query", "write"):
        plain = getattr(db.tables, name)

        def count(*args: Any, _name: str = name, _plain: Any = plain, **more: Any) -> Any:
            counted[_name] += 1
            return _plain(*args, **more)

        setattr(db.tables, name, count)
    await crowd[2].reports()
    # Fleet, own row, what is open; where something is, all nodes; and one write.
    assert counted.total() <= most, counted


async def test_a_decision_needs_no_reason(db: World) -> None:
    a = Agent(db.demo, "a").sees("WAITING")
    await a.reports()
    for verb, state in (("hold", "held"), ("approve", "granted")):
        answer = await db.demo.post(f"{DB}/maintenance/events/{EVENT}/{verb}")
        assert (answer.status, answer.json()["state"]) == (202, state)
