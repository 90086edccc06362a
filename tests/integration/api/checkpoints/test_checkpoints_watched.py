"""Signals about turns: alarms, gauges, log lines; and what turns cost."""

from __future__ import annotations

from typing import Any

import pytest

from shared.checkpoints.service.service import nothing_pending
from tests.unit.scheduler.harness import World

from .replicas import DB, MINUTE, Replica, scan

MAKE: dict[str, Any] = {"partitions": 1, "notify": {"channel": "default"}}


@pytest.fixture
async def db(world: World) -> World:
    assert (await world.demo.put(DB, MAKE)).status == 201
    return world


async def inspect(world: World) -> set[str]:
    """The minute's look: alarms that last."""
    await world.do(world.app.watch.inspect.run_once(world.now))
    body = (await world.demo.get(f"{DB}/leases/stale")).json()
    return {alarm["subjects"][0] for alarm in body["alarms"] if alarm["alarm"] == "turns"}


async def test_three_turns_in_a_row_that_time_out_raise_an_alarm_and_one_that_is_done_clears_it(db: World, caplog: Any) -> None:
    b = Replica(db.demo, "b")
    for _ in range(3):
        assert await inspect(db) == set()
        await b.takes()
        b.taking = 0
        await b.reports(ready=False)
    assert await inspect(db) == {"3 turns in a row timed out"}
    assert [record.__dict__["fleet"] for record in caplog.records if record.__dict__.get("action") == "lease_turns_stuck"] == ["demo:db"]
    await db.run(5)
    [payload] = [event["payload"] for event in await db.demo.all("/api/v1/events?channel=default&from=2027-01-15T00:00:00Z")]
    assert (payload["alarm"], payload["kind"], payload["state"]) == ("turns", "stale", "raised")
    await b.done(await b.takes(), 5)
    assert await inspect(db) == set()


async def test_an_alarm_is_raised_when_no_replica_is_fit_for_three_silences(db: World) -> None:
    b = Replica(db.demo, "b")
    await b.done(await b.takes(), 5)
    await b.reports(taking={"epoch": 99})
    await db.clock.advance(3 * MINUTE - 1)
    assert await inspect(db) == set()
    await db.clock.advance(1)
    assert await inspect(db) == {"no secondary is fit for a turn"}
    await b.reports()
    assert await inspect(db) == set()


async def test_unwilling_replicas_and_the_primary_raise_no_alarm(db: World) -> None:
    b, a = Replica(db.demo, "b"), Replica(db.demo, "a", "primary")
    await b.reports(ready=False)
    await a.reports()
    await db.clock.advance(60 * MINUTE)
    assert await inspect(db) == set()


async def test_gauges_show_turns(db: World) -> None:
    b, c = Replica(db.demo, "b"), Replica(db.demo, "c")
    await c.reports(ready=False)
    await b.done(await b.takes(), 77)
    await db.clock.advance(61)
    await b.takes()
    await db.clock.advance(9)
    text = (await db.do(db.app.metrics.text())).decode()
    place = '{fleet="db",tenant="demo"}'
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(("tocsin_turn", "tocsin_checkpoint")))
    assert {name.removesuffix(place): float(value) for name, value in found.items()} == {
        "tocsin_turn_replicas": 2,
        "tocsin_turn_replicas_down": 1,
        "tocsin_turn_taking": 1,
        "tocsin_turn_age_seconds": 9,
        "tocsin_turn_timeout_seconds": 450.5,
        "tocsin_turn_misses": 0,
        "tocsin_turns_granted_total": 2,
        "tocsin_checkpoint_sequence": 77,
        "tocsin_checkpoint_age_seconds": 70,
    }


async def test_a_time_out_a_revocation_and_a_late_checkpoint_are_logged(db: World, caplog: Any) -> None:
    caplog.set_level("INFO")
    b = Replica(db.demo, "b")
    epoch = await b.takes()
    b.taking = 0
    await b.reports()
    await b.publish(epoch, 5)
    await db.demo.post(f"{DB}/turns/2/revoke", {"note": "why not"})
    actions = [record.__dict__.get("action") for record in caplog.records]
    assert [action for action in actions if str(action).startswith("turn_")] == ["turn_timed_out", "turn_late", "turn_revoked"]


async def test_ten_minutes_of_five_replicas_cost_so_many_requests(db: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/explain/checkpoints.md and docs/explain/scale.md show the figures of an hour."""
    replicas = [Replica(db.demo, "a", "primary"), *(Replica(db.demo, node) for node in "bcde")]
    for each in replicas:
        # They are registered already.
        await each.reports(ready=False)
    await db.clock.advance(5)
    # The costs of maintenance are tested elsewhere.
    monkeypatch.setattr(db.app.checkpoints, "_pending", nothing_pending)
    db.tables.transactions.clear()
    made, until = 0, 0
    for second in range(0, 600, 5):
        for each in replicas:
            if each.taking and second >= until:
                made += 1
                await each.done(each.taking, made)
            answer = await each.reports()
            if answer["turn"] is not None:
                each.taking, until = answer["turn"]["epoch"], second + 40
        if second % 15 == 0:
            await scan(db)
        await db.clock.advance(5)
    counts = db.tables.transactions
    reports, scans = 5 * 120, 40
    assert made >= 10
    # A report and a publish: a read and a write. A scan: the index, the fleet's turns; the fleet. Every 5 s: the fleet's
    # terms, and the marks of changes of tenants. Every minute: the caller's key and tenant.
    assert {name: counts[name] for name in ("get", "query", "write")} == {
        "get": 2 * 120 + scans + 2 * 10,
        "query": reports + made + 2 * scans,
        "write": reports + made,
    }
