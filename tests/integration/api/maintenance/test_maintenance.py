"""Maintenance over HTTP: an event's course, fault domains, rehearsals, lists and notifications."""

from __future__ import annotations

from typing import Any

import pytest

from shared.cli.fleets.maintenance import status_text
from shared.core.clock import to_text
from shared.maintenance.timings import AGREEMENT_TIME
from shared.storage.names import MAINTENANCE
from tests.unit.scheduler.harness import World

from .agents import DB, EVENT, MAKE, MINUTE, OTHER, Agent, agents, all_report, decide, event, tick


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
    usual = {"lead_ms": 30_000, "leads_ms": {}, "require_central": False, "rules": [], "guard": "prepare", "catch_up_ms": 60_000}
    assert (await a.reports())["settings"] == usual
    rules = [{"type": "Freeze", "source": "Platform", "max_seconds": 0, "action": "approve"}, {"action": "hold"}]
    asked = {"lead": "PT1M", "leads": {"Preempt": "PT0S"}, "require_central": True, "rules": rules, "guard": "approve"}
    assert (await db.demo.put(DB, MAKE | {"maintenance": asked})).status == 200
    shown = (await a.reports())["settings"]
    leads = {"lead_ms": 60_000, "leads_ms": {"Preempt": 0}, "catch_up_ms": 600_000}
    assert shown == leads | {"require_central": True, "rules": rules, "guard": "approve"}


async def test_an_event_that_goes_without_having_started_is_cancelled_where_its_agent_says_so_else_vanished(db: World) -> None:
    (a,) = agents(db, "a")
    a.sees("WAITING").sees("FOREIGN", OTHER, on=("x",))
    await a.reports()
    a.sees_no_more(outcome="cancelled").sees_no_more(OTHER)
    await a.reports()
    assert (await event(db.demo))["status"] == "cancelled"
    assert (await event(db.demo, OTHER))["status"] == "vanished"


async def test_an_agent_that_falls_silent_ends_no_event_while_nobody_reports_that_it_is_gone(db: World) -> None:
    a, b = agents(db, "a", "b")
    a.sees("WAITING")
    await all_report(a, b)
    for _ in range(30):
        await db.clock.advance(60)
        await tick(db)
        await b.reports()
    found = await event(db.demo)
    assert (found["status"], found["alarms"]) == ("scheduled", ["silent"])
    a.sees_no_more()
    await a.reports()
    assert (await event(db.demo))["status"] == "vanished"


async def test_an_approval_that_an_agent_sent_by_itself_is_shown_and_cannot_be_held(db: World) -> None:
    a = Agent(db.demo, "a")
    a.sees("WAITING", source="User")
    await a.reports()
    assert (await event(db.demo))["approval"] is None
    a.sees("APPROVED")
    await a.reports()
    shown = (await event(db.demo))["approval"]
    assert (shown["state"], shown["by"], shown["node"]) == ("posted", "agent", "a")
    assert (await decide(db.demo, "hold")).code == "already-approved"
    a.sees_no_more()
    await a.reports()
    assert (await event(db.demo))["approval"] == shown, "it stays in the ledger"


async def test_an_approved_event_that_goes_before_a_document_shows_its_start_is_completed(db: World) -> None:
    """A user's reboot goes from one document to the next: the metadata service never shows it as started."""
    a = Agent(db.demo, "a")
    a.sees("WAITING", source="User")
    await a.reports()
    a.sees("APPROVED")
    await a.reports()
    a.sees_no_more(outcome="completed or cancelled")
    await a.reports()
    found = await event(db.demo)
    assert (found["status"], "started" in found) == ("completed", False)
    assert status_text(found) == "completed, not seen started"


async def test_a_named_node_whose_agent_has_not_reported_an_event_is_shown(db: World) -> None:
    a, b = (Agent(db.demo, name) for name in "ab")
    await b.reports()
    a.sees("WAITING", on=("a", "b"))
    await a.reports()
    shown = (await event(db.demo))["nodes"]
    assert (shown["b"]["phase"], shown["b"]["reason"]) == ("UNREPORTED", "its agent has not reported the event yet")
    await db.clock.advance(45)
    await a.reports()
    shown = (await event(db.demo))["nodes"]
    assert (shown["a"]["phase"], shown["b"]["reason"]) == ("WAITING", "its agent is silent")


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


async def test_names_of_machines_are_compared_without_case(db: World) -> None:
    a, b = agents(db, "a", "b")
    a.sees("WAITING", resources=["VM_A", "vm_b"])
    b.sees("WAITING", resources=["vm_a", "VM_B"])
    await all_report(a, b)
    await db.clock.advance(AGREEMENT_TIME / 1000 + 1)
    await all_report(a, b)
    await tick(db)
    found = await event(db.demo)
    assert (sorted(found["nodes"]), found["alarms"]) == (["a", "b"], ["too-wide"]), "and no disagreement"


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
