"""The story of one event: the steps of all its nodes and the app's decisions, in one list in order of time."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.maintenance.story import FIRST_STEPS, LAST_STEPS, MAX_REPORTED_STEPS, story_key
from shared.maintenance.timings import KEEP_EVENTS
from shared.storage.names import MAINTENANCE
from shared.storage.ports import ANY, Merge, RowQuery
from tests.texts import assert_text
from tests.unit.scheduler.harness import Client, World

from .agents import DB, EVENT, KEY, OTHER, Agent, agents, decide, event, tick


class Teller(Agent):
    """An agent that reports its steps. `skew`: milliseconds by which its clock is ahead."""

    skew = 0
    number = 0

    async def tells(self, phase: str, *actions: str, **more: Any) -> dict[str, Any]:
        """Report a phase with the steps that led to it, each a second after the last."""
        self.sees(phase, on=("a", "b", "c"), **more)
        steps = []
        for action in actions:
            await self.client.world.clock.advance(1)
            self.number += 1
            at = to_text(self.client.world.now + self.skew)
            steps.append({"number": self.number, "at": at, "event_id": EVENT, "action": action, "text": f"{self.node}: {action}"})
        return await self.reports(steps=steps, sent=to_text(self.client.world.now + self.skew))


def tellers(world: World) -> list[Teller]:
    return [Teller(world.demo, name, "0") for name in ("a", "b", "c")]


async def story(client: Client, event_id: str = EVENT, query: str = "") -> list[dict[str, Any]]:
    answer = await client.get(f"{DB}/maintenance/events/{event_id}/story{query}")
    assert answer.status == 200, answer
    items: list[dict[str, Any]] = answer.json()["items"]
    assert [each["at"] for each in items] == sorted(each["at"] for each in items)
    return items


async def test_the_steps_of_three_nodes_and_the_apps_decisions_are_one_list_in_order_of_time(
    db: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shared")
    a, b, c = tellers(db)
    # Its clock is an hour ahead.
    b.skew = 3_600_000
    for each in (a, b, c):
        assert (await each.tells("WAITING", "agent_event_seen"))["steps"] == MAX_REPORTED_STEPS
    assert (await decide(db.demo, "hold", reason="a backup runs")).status == 202
    await db.clock.advance(1)
    assert (await decide(db.demo, "approve", reason="it is done")).status == 202
    for each in (c, b, a):
        await each.tells("PREPARED", "agent_prepare_due", "agent_prepared")
    await db.clock.advance(2)
    leased = [await each.tells("PREPARED") for each in (a, b, c)]
    [approval] = [each["id"] for answer in leased for each in answer["approvals"]]
    [sender] = [each for each, answer in zip((a, b, c), leased, strict=True) if answer["approvals"]]
    await sender.result(approval)
    await tick(db)
    for each in (b, a, c):
        await each.tells("STARTED", "agent_event_started", status="Started")
    for each in (a, b, c):
        each.sees_no_more(outcome="completed")
        await each.reports(steps=[])
    await tick(db)
    found = await story(db.demo)
    told = [(each["node"], each["action"]) for each in found if each["by"] == "agent"]
    assert told == [
        *((node, "agent_event_seen") for node in "abc"),
        *((node, action) for node in "cba" for action in ("agent_prepare_due", "agent_prepared")),
        *((node, "agent_event_started") for node in "bac"),
    ]
    texts = [each["text"] for each in found if each["by"] == "app" and each["node"] is None]
    at = [next(index for index, text in enumerate(texts) if text.startswith(start)) for start in (
        "first reported: Freeze of 3 machines", "held by", "approved by", f"{sender.node} is to send", "Azure has the approval",
        "the event is started", "the event is completed",
    )]  # fmt: skip
    assert at == sorted(at) and texts[at[1]].endswith(": a backup runs")
    # The clock of b is corrected, to a second, and no other.
    assert {each["node"] for each in found if "clock_corrected_ms" in each} == {"b"}
    assert {each["clock_corrected_ms"] // 1000 for each in found if "clock_corrected_ms" in each} <= {-3600, -3601}
    # One page after the other is the same list, and one node's steps are a part of it.
    paged, cursor = list[dict[str, Any]](), ""
    while True:
        answer = (await db.demo.get(f"{DB}/maintenance/events/{EVENT}/story?limit=5{cursor}")).json()
        paged += answer["items"]
        if answer["next"] is None:
            break
        cursor = f"&cursor={answer['next']}"
    assert paged == found
    assert await story(db.demo, query="?node=b") == [each for each in found if each["node"] == "b"]
    # Each log line of the app about this maintenance carries the EventId.
    told_of = [record for record in caplog.records if str(getattr(record, "action", "")).startswith(("maintenance_", "lease_maintenance"))]
    lines = [record for record in told_of if "the fleet:" not in record.getMessage()]
    assert len(lines) >= 4 and [record.getMessage() for record in lines if EVENT not in str(getattr(record, "event_id", ""))] == []


async def test_a_repeated_report_adds_no_step_twice_and_steps_of_other_events_are_left_out(db: World) -> None:
    (a, *_) = tellers(db)
    await a.tells("WAITING", "agent_event_seen")
    stray = {"number": 7, "at": to_text(db.now), "event_id": OTHER, "action": "agent_event_seen", "text": "of no event"}
    again = {"number": 1, "at": to_text(db.now), "event_id": EVENT, "action": "agent_event_seen", "text": "again"}
    await a.reports(steps=[again, stray])
    assert [each["action"] for each in await story(db.demo, query="?node=a")] == ["agent_event_seen"]
    assert (await db.demo.get(f"{DB}/maintenance/events/{OTHER}/story")).status == 404


async def test_agents_of_a_former_release_have_their_phases_as_steps(db: World) -> None:
    a, b = agents(db, "a", "b")
    b.sees("FOREIGN", on=("a",))
    await b.reports()
    await a.sees("WAITING").reports()
    await a.sees("PREPARING").reports()
    await a.reports()
    await a.sees("PREPARE_FAILED", reason="exit code 1").reports()
    found = await story(db.demo, query="?node=a")
    phases = [each["text"] for each in found if each["action"] == "maintenance_phase"]
    assert_text("story.phases", phases, first="WAITING", second="PREPARING", third="PREPARE_FAILED", reason="exit code 1")
    assert [each["level"] for each in found if "FAILED" in each["text"]] == ["warning"]
    assert await story(db.demo, query="?node=b") == []


async def test_a_story_is_bounded_and_says_how_much_it_leaves_out(db: World) -> None:
    (a, *_) = tellers(db)
    for _ in range(3):
        await a.tells("WAITING", *["agent_restore_failed"] * 50)
    found = await story(db.demo, query="?node=a")
    assert len(found) == FIRST_STEPS + LAST_STEPS + 1
    assert found[FIRST_STEPS]["text"] == f"{150 - FIRST_STEPS - LAST_STEPS} further steps are not kept"
    one = {"number": 1, "at": to_text(db.now), "event_id": EVENT, "action": "x", "text": "y"}
    assert (await a.report(steps=[one] * (MAX_REPORTED_STEPS + 1))).status == 422
    assert (await a.report(steps=[{**one, "text": "y" * 301}])).status == 422


async def test_a_row_that_was_edited_stops_no_report(db: World) -> None:
    (a, *_) = tellers(db)
    await a.tells("WAITING", "agent_event_seen")
    await db.tables.write(MAINTENANCE, KEY, (Merge(story_key(EVENT, "a"), {"json0": "{"}, ANY),))
    await a.tells("PREPARED", "agent_prepared")
    assert [each["action"] for each in await story(db.demo, query="?node=a") if each["by"] == "agent"] == ["agent_prepared"]


async def test_a_story_is_removed_with_its_event(db: World) -> None:
    (a, *_) = tellers(db)
    await a.tells("WAITING", "agent_event_seen")
    a.sees_no_more(outcome="cancelled")
    await a.reports(steps=[])
    assert (await event(db.demo))["status"] == "cancelled" and len(await story(db.demo)) >= 3
    await db.clock.advance(KEEP_EVENTS / 1000 + 3600)
    await db.do(db.app.maintenance_sweeps.retain(db.now))
    assert (await db.demo.get(f"{DB}/maintenance/events/{EVENT}/story")).status == 404
    rows = await db.tables.query(RowQuery(MAINTENANCE, KEY, first="story:", end="story;"))
    assert rows.rows == []
