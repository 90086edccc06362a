"""The overview of a tenant's fleets."""

from __future__ import annotations

from typing import Any

from tests.unit.scheduler.harness import World

from .agents import DB, EVENT, agents

OVERVIEW = "/api/v1/fleet-overview"


async def inspected(world: World) -> dict[str, Any]:
    """Return the overview after the sweep of a minute."""
    for part in (world.app.watch.inspect.run_once, world.app.maintenance_sweeps.inspect):
        await world.do(part(world.now))
    answer = await world.demo.get(OVERVIEW)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


async def test_fleets_that_need_a_person_come_first_and_the_others_are_counted(db: World) -> None:
    for name in ("quiet-1", "quiet-2"):
        assert (await db.demo.put(f"/api/v1/fleets/{name}", {"partitions": 1})).status == 201
    a, b = agents(db, "a", "b")
    b.domain = "1"
    a.sees()
    await a.reports()
    await b.reports()
    found = await inspected(db)
    assert (found["fleets"], found["quiet"], found["in_maintenance"], found["items"]) == (3, 3, 1, [])
    held = await db.demo.post(f"{DB}/maintenance/events/{EVENT}/hold", {"reason": "a repair"})
    assert held.status == 202
    found = await inspected(db)
    [item] = found["items"]
    assert (item["fleet"], item["urgency"], item["agents"], item["open_events"], found["quiet"]) == ("db", "soon", 2, 1, 2)
    need = {"source": "approvals", "what": "waiting", "count": 1, "text": "1 approval waiting", "subjects": [], "since": None}
    assert item["needs"] == [need]


async def test_silent_agents_are_named_until_they_report_again(db: World) -> None:
    a, b = agents(db, "a", "b")
    b.domain = "1"
    await a.reports()
    await b.reports()
    await db.clock.advance(16 * 60)
    await a.reports()
    [item] = (await inspected(db))["items"]
    [need] = [each for each in item["needs"] if each["source"] == "agents"]
    assert (need["what"], need["count"], need["subjects"]) == ("silent", 1, ["b"])
    await b.reports()
    assert (await inspected(db))["items"] == []


async def test_the_overview_has_pages_and_names_and_reads_no_fleet(db: World) -> None:
    (a,) = agents(db, "a")
    await a.reports()
    for name in ("c", "d"):
        assert (await db.demo.put(f"/api/v1/fleets/{name}", {"partitions": 1})).status == 201
    assert [each["fleet"] for each in (await inspected(db))["items"]] == ["db"]
    db.tables.transactions.clear()
    found = (await db.demo.get(f"{OVERVIEW}?limit=1&names=true")).json()
    assert found["names"] == ["c", "d", "db"] and found["next"] is None
    assert db.tables.transactions["query"] == 3 and db.tables.transactions["get"] <= 2, "beside the look-up of the key"
    assert (await db.demo.get(f"{OVERVIEW}?cursor=x")).status == 422
