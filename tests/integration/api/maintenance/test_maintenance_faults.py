"""Faults around maintenance: reports at one moment, machines that never return, ids that do, and writes that are lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.storage.names import MAINTENANCE
from tests.unit.scheduler.harness import World

from .agents import DB, EVENT, MAKE, MINUTE, OTHER, Agent, agents, all_report, decide, delivery, event, tick, together

# -- one moment


async def test_of_two_domains_that_are_prepared_in_the_same_moment_one_may_approve(db: World, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = agents(db, "a", "b")
    a.sees("WAITING", notice=10 * MINUTE)
    b.sees("WAITING", OTHER, notice=11 * MINUTE)
    await all_report(a, b)
    a.sees("PREPARED")
    b.sees("PREPARED", OTHER)
    a.disabled = b.disabled = True
    together(db, monkeypatch)
    first, second = await asyncio.gather(a.holds(), b.holds())
    assert len(first) + len(second) == 1


async def test_an_approved_node_goes_first_though_another_domains_event_comes_sooner(db: World) -> None:
    a, b = agents(db, "a", "b")
    a.sees("WAITING", notice=10 * MINUTE)
    b.sees("PREPARED", OTHER, notice=11 * MINUTE)
    b.disabled = True
    await a.reports()
    assert await b.holds() == {}, "b may approve, and may be doing so now"
    a.sees("PREPARED")
    a.disabled = True
    assert await a.holds() == {EVENT: "b of fault domain 1 is prepared"}
    assert await b.holds() == {}, "nobody waits for the other"


async def test_fleets_own_approvals_of_one_moment_do_not_wait_for_each_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await world.demo.put(DB, {"partitions": 1, "maintenance": {"early": True, "catch_up": "PT0S"}})).status == 201
    a, b = agents(world, "a", "b")
    await all_report(a, b)
    a.sees("WAITING", notice=15 * MINUTE)
    b.sees("WAITING", OTHER, notice=15 * MINUTE)
    together(world, monkeypatch)
    await asyncio.gather(a.reports(), b.reports())
    asked = [bool((await agent.reports())["commands"]) for agent in (a, b)]
    assert sorted(asked) == [False, True]


async def test_an_event_that_takes_too_much_down_is_not_waited_for_by_those_after_it(world: World) -> None:
    assert (await world.demo.put(DB, {"partitions": 1, "maintenance": {"early": True, "catch_up": "PT0S"}})).status == 201
    a, b, c = agents(world, "a", "b", "c")
    await all_report(a, b, c)
    for agent in (a, b):
        agent.sees("WAITING", notice=15 * MINUTE, on=("a", "b"))
    c.sees("WAITING", OTHER, notice=16 * MINUTE)
    await all_report(a, b, c)
    assert [each["event_id"] for each in (await c.reports())["commands"]] == [OTHER]
    assert (await a.reports())["commands"] == []


async def test_a_node_that_was_done_with_an_event_is_waited_for_when_it_comes_back(db: World) -> None:
    a, b = (Agent(db.demo, name) for name in "ab")
    both = ("a", "b")
    a.sees("WAITING", on=both)
    b.sees("WAITING", on=both)
    await all_report(a, b)
    a.sees_no_more(outcome="cancelled")
    b.sees_no_more(outcome="cancelled")
    await all_report(a, b)
    assert (await event(db.demo))["status"] == "cancelled"
    b.sees("PREPARED", on=both)
    b.entries[EVENT].pop("outcome", None)
    assert list(await b.holds()) == [EVENT], "a has not prepared again"


# -- machines that never come back


async def test_a_machine_that_is_terminated_neither_keeps_its_event_open_nor_its_domain_down(db: World) -> None:
    a, b, c = agents(db, "a", "b", "c")
    a.sees("STARTED", status="Started", type="Terminate")
    a.disabled = True
    b.sees("FOREIGN", on=("a",), type="Terminate", status="Started")
    c.sees("FOREIGN", on=("a",), type="Terminate", status="Started")
    await all_report(a, b, c)
    b.sees_no_more()
    c.sees_no_more()
    c.sees("PREPARED", OTHER, notice=30 * MINUTE)
    c.disabled = True
    for _ in range(8):
        await db.clock.advance(5)
        await all_report(b, c)
    await tick(db)
    assert (await event(db.demo))["status"] == "completed"
    assert list(await c.holds()) == [OTHER], "what replaces it may still be catching up"
    for _ in range(14):
        await db.clock.advance(5)
        await all_report(b, c)
    await tick(db)
    assert await c.holds() == {}
    assert "a" not in await db.app.maintenance.nodes("demo:db")
    assert (await event(db.demo))["nodes"]["a"]["phase"] == "STARTED"


async def test_a_machine_whose_termination_was_rehearsed_or_called_off_is_not_forgotten_for_its_silence(db: World) -> None:
    a, b = agents(db, "a", "b")
    await all_report(a, b)
    asked = {"nodes": ["a"], "type": "Terminate", "notice": "PT1M", "duration_s": 9}
    made = await db.demo.post(f"{DB}/maintenance/rehearse", asked)
    a.sees("STARTED", made.json()["event_id"], type="Terminate", status="Started", source="User")
    a.sees("PREPARED", OTHER, type="Terminate", notice=10 * MINUTE)
    b.sees("FOREIGN", OTHER, on=("a",), type="Terminate", notice=10 * MINUTE)
    await all_report(a, b)
    b.sees_no_more(OTHER)
    assert (await db.demo.post(f"{DB}/maintenance/eventgrid", [delivery("Canceled", OTHER)])).status == 200
    for _ in range(30):
        await db.clock.advance(240)
        await b.reports()
    await tick(db, "stale_scan")
    assert (await event(db.demo, OTHER))["status"] == "cancelled"
    for _ in range(2):
        await db.clock.advance(240)
        await tick(db, "stale_scan")
    assert sorted(await db.app.maintenance.nodes("demo:db")) == ["a", "b"]


async def test_a_node_is_forgotten_a_week_after_its_agents_last_report(db: World) -> None:
    a, b = agents(db, "a", "b")
    await all_report(a, b)
    for _ in range(8):
        await db.clock.advance(20 * 3600)
        await b.reports()
    await tick(db, "stale_scan")
    assert sorted(await db.app.maintenance.nodes("demo:db")) == ["a", "b"]
    await db.clock.advance(10 * 3600)
    await b.reports()
    await tick(db, "stale_scan")
    assert sorted(await db.app.maintenance.nodes("demo:db")) == ["b"]
    await a.reports()
    assert sorted(await db.app.maintenance.nodes("demo:db")) == ["a", "b"]


# -- ids that come back


async def test_an_event_that_comes_back_after_it_was_given_up_is_taken_in_again(db: World) -> None:
    (a,) = agents(db, "a")
    a.sees("WAITING", notice=200 * 60 * MINUTE)
    await a.reports()
    a.sees_no_more()
    await a.reports()
    await db.clock.advance(27 * 3600)
    await tick(db, "retention_scan")
    a.sees("WAITING")
    assert (await a.report()).status == 200
    assert (await event(db.demo))["status"] == "scheduled"


async def test_an_event_that_comes_back_ends_by_what_became_of_it_then_and_is_reported_again(world: World) -> None:
    assert (await world.demo.put(DB, MAKE | {"notify": {"channel": "default", "kinds": ["maintenance"]}})).status == 201
    a, b = agents(world, "a", "b")
    await b.reports()
    a.sees("STARTED", status="Started")
    await a.reports()
    a.sees_no_more(outcome="completed")
    await a.reports()
    await tick(world, "stale_scan")
    await world.clock.advance(60)
    a.entries.clear()
    a.sees("WAITING")
    await a.reports()
    found = await event(world.demo)
    assert (found["status"], found.get("started"), found.get("ended")) == ("scheduled", None, None)
    await tick(world, "stale_scan")
    a.sees_no_more(outcome="cancelled")
    await a.reports()
    assert (await event(world.demo))["status"] == "cancelled"
    await tick(world, "stale_scan")
    notices = [each["payload"]["what"] for each in await world.demo.all("/api/v1/events?limit=100")]
    assert sorted(each for each in notices if each not in ("prepare", "alarm")) == ["cancelled", "completed", "scheduled"]


async def test_ids_of_any_shape_that_agents_report_can_be_asked_for_and_approved(db: World) -> None:
    (a,) = agents(db, "a")
    odd = "A:b_" + "x." * 61 + "Z0"
    assert len(odd) == 128
    a.sees("PREPARED", odd)
    await a.reports()
    assert (await event(db.demo, odd))["event_id"] == odd.lower()
    approval = (await decide(db.demo, "approve", odd)).json()["id"]
    assert [each["id"] for each in (await a.reports())["approvals"]] == [approval]
    assert (await a.result(approval)).status == 204


# -- more than fits


async def test_events_of_others_beyond_what_a_fleet_keeps_do_not_cut_an_agent_off(db: World) -> None:
    a, b = agents(db, "a", "b")
    for number in range(500):
        a.sees("FOREIGN", f"e{number}", on=("elsewhere",))
    for _ in range(6):
        await a.reports()
    b.sees("FOREIGN", "one-more", on=("elsewhere",))
    assert (await b.report()).status == 200
    assert len(await db.demo.all(f"{DB}/maintenance/events?limit=1000")) == 500
    b.sees("WAITING")
    assert (await b.report()).code == "too-many-events", "what is its own is not left out unseen"


async def test_more_nodes_than_a_fleet_takes_are_refused_until_an_operator_raises_the_limit(db: World) -> None:
    a, b = agents(db, "a", "b")
    assert (await db.admin.put("/api/v1/tenants/demo", {"limits": {"agents": 1}})).status == 200
    await a.reports()
    refused = await b.report()
    assert (refused.status, refused.code) == (409, "too-many-nodes") and "raise limits.agents" in refused.json()["detail"]
    await a.reports()
    assert (await db.admin.put("/api/v1/tenants/demo", {"limits": {"agents": 2}})).status == 200
    await b.reports()


# -- wire


async def test_values_of_any_case_are_accepted_and_a_missing_time_is_none(db: World) -> None:
    (a,) = agents(db, "a")
    a.sees("waiting", status="scheduled", source="platform")
    del a.entries[EVENT]["not_before"]
    await a.reports()
    found = await event(db.demo)
    assert (found["status"], found["source"], found["not_before"]) == ("scheduled", "Platform", None)
    assert found["nodes"]["a"]["phase"] == "WAITING"


async def test_an_approval_lasts_as_long_as_the_event_when_that_is_put_off(db: World) -> None:
    (a,) = agents(db, "a")
    a.sees("WAITING", notice=2 * MINUTE)
    await a.reports()
    await decide(db.demo, "approve")
    a.entries[EVENT]["not_before"] = to_text(db.now + 20 * MINUTE)
    await a.reports()
    await db.clock.advance(180)
    a.sees("PREPARED")
    assert len((await a.reports())["approvals"]) == 1


# -- rehearsals


async def test_a_node_that_hears_late_of_a_rehearsal_has_time_to_prepare_all_the_same(db: World) -> None:
    a, b = agents(db, "a", "b")
    await all_report(a, b)
    asked = {"nodes": ["a", "b"], "type": "Freeze", "notice": "PT1M", "duration_s": 9}
    made = await db.demo.post(f"{DB}/maintenance/rehearse", asked)
    await db.clock.advance(240)
    [notices] = (await a.reports())["rehearsals"]
    assert notices["not_before"] == to_text(db.now // 1000 * 1000 + MINUTE)
    assert notices["event_id"] == made.json()["event_id"]


async def test_a_rehearsal_begins_at_its_time_on_all_nodes_however_early_each_hears_of_it(db: World) -> None:
    a, b = agents(db, "a", "b")
    await all_report(a, b)
    asked = {"nodes": ["a", "b"], "type": "Freeze", "notice": "PT10M", "duration_s": 9}
    planned = to_text(db.now // 1000 * 1000 + 10 * MINUTE)
    made = (await db.demo.post(f"{DB}/maintenance/rehearse", asked)).json()
    assert made["begins_by"] == planned
    begins = []
    for node in (a, b):
        await db.clock.advance(150)
        begins += [each["not_before"] for each in (await node.reports())["rehearsals"]]
    assert begins == [planned, planned]


async def test_a_rehearsal_that_is_not_known_any_more_becomes_no_event(db: World) -> None:
    (a,) = agents(db, "a")
    a.sees("PREPARED", "rehearsal-602d9444-d2cd-49c7-8624-8643e7171297", source="User")
    assert await a.holds() == {}
    assert await db.demo.all(f"{DB}/maintenance/events") == []


# -- storage


async def test_a_fleet_whose_index_row_could_not_be_written_is_watched_once_its_agent_says_it_again(db: World) -> None:
    (a,) = agents(db, "a")
    write = db.tables.write
    failed: list[str] = []

    async def failing(table: str, pk: str, ops: Any) -> Any:
        if table == MAINTENANCE and pk == ":maintenance" and not failed:
            failed.append(pk)
            raise TimeoutError("storage is away")
        return await write(table, pk, ops)

    db.tables.write = failing  # type: ignore[method-assign]
    assert (await a.report()).status >= 500
    assert (await a.report()).status == 200
    assert (await tick(db, "stale_scan"))["maintenance"]["fleets"] == 1


async def test_a_report_that_a_fleets_end_overtakes_leaves_nothing_behind(db: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (a,) = agents(db, "a")
    plain, ended = db.tables.write, list[str]()

    async def write(table: str, pk: str, ops: Any) -> Any:
        if table == MAINTENANCE and pk == "demo:db" and not ended:
            ended.append(pk)
            await db.app.fleets.delete("demo", "db")
        return await plain(table, pk, ops)

    monkeypatch.setattr(db.tables, "write", write)
    await a.report()
    assert ended
    await tick(db, "retention_scan")
    assert db.rows(MAINTENANCE) == []


async def test_a_notice_whose_mark_was_lost_is_reported_once_and_without_a_warning(world: World, caplog: Any) -> None:
    assert (await world.demo.put(DB, MAKE | {"notify": {"channel": "default", "kinds": ["maintenance"]}})).status == 201
    a, b = agents(world, "a", "b")
    a.sees("WAITING")
    await all_report(a, b)
    write, lost = world.tables.write, list[str]()

    async def losing(table: str, pk: str, ops: Any) -> Any:
        if table == MAINTENANCE and not lost and any('"told":["' in str(getattr(op, "props", "")) for op in ops):
            lost.append(pk)
            # Somebody else's write came in between.
            return None
        return await write(table, pk, ops)

    world.tables.write = losing  # type: ignore[method-assign]
    await tick(world)
    assert lost
    await world.clock.advance(15)
    a.entries[EVENT]["not_before"] = to_text(world.now + 20 * MINUTE)
    await a.reports()
    await tick(world)
    notices = [each["payload"]["what"] for each in await world.demo.all("/api/v1/events?limit=100")]
    assert notices.count("scheduled") == 1
    assert not [each for each in caplog.records if getattr(each, "action", "") == "fleet_notice_refused"]
