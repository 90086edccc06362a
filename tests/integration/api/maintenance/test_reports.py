"""Agents' reports: which are accepted, which agents monitor Azure, and what a report costs."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.unit.scheduler.harness import World

from ..calls import changes_nothing
from .agents import DB, EVENT, Agent, agents, all_report, event, tick


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


async def test_an_agents_key_speaks_for_its_own_node_alone(db: World) -> None:
    key = await db.key("demo", ["agent"], fleet="db", node="a")
    assert (await Agent(key, "a").report()).status == 200
    assert (await Agent(key, "b").report()).code == "not-your-node"
    assert (await key.post(f"{DB}/maintenance/events/{EVENT}/approve", {})).code == "missing-scope"


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


async def test_a_rehearsal_says_by_when_it_begins_what_it_waits_for_and_refuses_a_dead_agent(db: World) -> None:
    a, b = agents(db, "a", "b")
    await all_report(a, b)
    asked = {"nodes": ["a", "b"], "type": "Freeze", "notice": "PT20S"}
    made = (await db.demo.post(f"{DB}/maintenance/rehearse", asked)).json()
    waits = (await event(db.demo, made["event_id"]))["waits_for"]
    assert waits == [f"the next report of {name}; an idle agent reports every 5 minutes" for name in "ab"]
    await db.clock.advance(300)
    [begins] = {each["not_before"] for each in (await a.reports())["rehearsals"]}
    assert begins <= made["begins_by"]
    assert (await event(db.demo, made["event_id"]))["waits_for"] == waits[1:]
    a.sees("WAITING", made["event_id"])
    await b.reports()
    await a.reports()
    assert "waits_for" not in await event(db.demo, made["event_id"])
    await db.clock.advance(400)
    await a.reports()
    refused = await db.demo.post(f"{DB}/maintenance/rehearse", asked)
    assert (refused.status, refused.pointers) == (422, ["/nodes/1"])
