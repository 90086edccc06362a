"""Turns and replicas as the API shows them, and their removal when fleets, tenants and nodes end."""

from __future__ import annotations

from typing import Any

import pytest

from shared.storage.names import FLEETS, TURNS
from shared.storage.ports import ANY, Delete
from tests.unit.scheduler.harness import World

from .replicas import DB, KEY, MAKE, Replica, scan, turns


async def test_routes_name_the_replica_that_may_be_taking_so_that_readers_avoid_it(b: Replica, db: World) -> None:
    async def taking() -> Any:
        await db.clock.advance(2)
        return (await db.demo.get(f"{DB}/routes")).json()["taking"]

    assert await taking() is None
    epoch = await b.takes()
    assert await taking() == "b"
    await db.demo.post(f"{DB}/turns/{epoch}/revoke", {"note": "x"})
    assert await taking() == "b", "it may not have heard of that yet"
    b.taking = 0
    await b.reports(ready=False)
    assert await taking() is None


async def test_a_node_shows_what_it_is_as_a_replica(b: Replica, db: World) -> None:
    epoch = await b.takes(lag=3, load=0.5, failures=1)
    await db.clock.advance(4)
    node = (await db.demo.get(f"{DB}/nodes/b")).json()
    assert node["beat"] is None and node["turn"] == {
        "role": "secondary",
        "term": 7,
        "applied": 81231,
        "lag": 0,
        "load": 0.0,
        "failures": 0,
        "ready": True,
        "report_age_ms": 4000,
        "down": None,
        "skipped": "taking",
        "taking": epoch,
        "holds": epoch,
        "last_checkpoint": 0,
    }
    assert (await db.demo.get(f"{DB}/nodes/z")).status == 404


async def test_turns_are_listed_newest_first_page_by_page(b: Replica, db: World) -> None:
    assert await turns(db.demo) == []
    for sequence in range(1, 8):
        await b.done(await b.takes(), sequence)
    assert [turn["epoch"] for turn in await db.demo.all(f"{DB}/turns?limit=3")] == [7, 6, 5, 4, 3, 2, 1]
    await b.takes()
    first = (await db.demo.get(f"{DB}/turns?limit=1")).json()
    assert [turn["epoch"] for turn in first["items"]] == [8]
    await b.done(8, 8)
    await b.takes()
    rest = (await db.demo.get(f"{DB}/turns?limit=2&cursor={first['next']}")).json()
    assert [turn["epoch"] for turn in rest["items"]] == [7, 6], "what came since does not shift the pages"


async def test_a_fleet_that_ends_takes_its_turns_along_and_one_recreated_waits_for_the_last_one(b: Replica, db: World) -> None:
    await b.done(await b.takes(), 5)
    epoch = await b.takes()
    assert (await db.demo.delete(DB)).status == 204
    assert [row.rk for row in db.rows(TURNS, KEY)] == [] and db.rows(TURNS, ":turns") == []
    await db.clock.advance(6)
    assert (await b.report()).status == 404
    assert (await b.publish(epoch, 9)).status == 404
    assert (await db.demo.put(DB, MAKE)).status == 201
    assert (await b.report()).code == "unknown-replica"
    assert (await db.demo.get(f"{DB}/checkpoints/latest")).status == 404
    c = Replica(db.demo, "c")
    assert (await c.reports())["turn"] is None, "who took the last turn of the former fleet may still be at it"
    await db.clock.advance(594)
    assert (await c.reports())["turn"]["epoch"] == epoch + 1
    assert (await b.publish(epoch, 9)).code == "late"


async def test_rows_that_came_in_while_the_fleet_ended_are_removed_by_the_scan(b: Replica, db: World) -> None:
    await b.takes()
    await db.tables.write(FLEETS, KEY, (Delete("fleet", ANY),))
    await scan(db)
    assert db.rows(TURNS, KEY) == [] and db.rows(TURNS, ":turns") == []


async def test_a_tenant_that_is_gone_leaves_nothing_of_its_turns(world: World) -> None:
    acme = await world.tenant("acme", ["fleets"])
    assert (await acme.put(DB, MAKE)).status == 201
    b = Replica(acme, "b")
    await b.done(await b.takes(), 5)
    assert (await world.admin.delete("/api/v1/tenants/acme")).status in (202, 204)
    assert world.rows(TURNS) == []


async def test_the_scan_ends_and_grants_without_a_report(b: Replica, db: World) -> None:
    await b.takes()
    c = Replica(db.demo, "c")
    await c.reports()
    await db.clock.advance(595)
    await c.reports()
    await db.clock.advance(5)
    await scan(db)
    now, over = await turns(db.demo)
    assert (now["state"], now["holder"], over["reason"]) == ("granted", "c", "silent")
    before = db.dump()
    await scan(db)
    assert db.dump() == before, "nothing is due"


async def test_old_turns_and_replicas_that_are_gone_are_forgotten(b: Replica, db: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.checkpoints.protocol.KEEP_TURNS", 3)
    for sequence in range(1, 8):
        await b.done(await b.takes(), sequence)
    c = Replica(db.demo, "c")
    await c.reports(ready=False)
    await db.do(db.app.checkpoints.retain(db.now))
    assert [turn["epoch"] for turn in await turns(db.demo)] == [7, 6, 5, 4]
    await db.clock.advance(86_400)
    await b.reports(ready=False)
    await db.do(db.app.checkpoints.retain(db.now))
    assert [node["node"] for node in await db.demo.all(f"{DB}/nodes")] == ["b"]
    assert (await c.report()).code == "unknown-replica"
    await db.clock.advance(86_400)
    await db.do(db.app.checkpoints.retain(db.now))
    assert await db.demo.all(f"{DB}/nodes") == [] and db.rows(TURNS, ":turns") == []
    new = Replica(db.demo, "c")
    assert (await new.reports())["turn"]["epoch"] == 8, "epochs go on"
    assert db.rows(TURNS, ":turns")
