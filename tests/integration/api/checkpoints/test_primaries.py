"""Primaries and turns over HTTP: claims, forgotten claims, and which replicas get no turn."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.harness import World

from .replicas import DB, MINUTE, Replica, scan, turns


async def test_a_primary_never_gets_a_turn_and_a_holder_that_becomes_primary_is_waited_out(b: Replica, db: World) -> None:
    c = Replica(db.demo, "c", "primary")
    await c.reports()
    epoch = await b.takes()
    c.role, b.role, b.term = "secondary", "primary", 8
    answer = await b.reports()
    assert answer == {"turn": None, "revoked": [epoch], "report_ms": 5000}
    b.taking = 0
    for _ in range(119):
        assert (await b.reports())["turn"] is None
        assert (await c.reports())["turn"] is None, "it says that it takes nothing, but nobody is let in before its time"
        await db.clock.advance(5)
    await db.clock.advance(5)
    assert (await c.reports())["turn"]["epoch"] == epoch + 1
    assert (await turns(db.demo))[1]["reason"] == "promoted"


async def test_two_primaries_cannot_claim_the_same_term_and_a_lower_one_is_stale(db: World) -> None:
    a, b = Replica(db.demo, "a", "primary"), Replica(db.demo, "b", "primary")
    await a.reports()
    before = db.dump()
    assert (await b.report()).code == "term-conflict"
    b.term, b.seq = 6, 0
    assert (await b.report()).code == "stale-term"
    assert db.dump() == before
    b.term, b.seq = 8, 0
    assert (await b.report()).status == 200
    before = db.dump()
    assert (await a.report()).code == "stale-term", "it is primary no more"
    assert db.dump() == before
    a.role = "secondary"
    assert (await a.reports())["turn"]["epoch"] == 1


WHY = {"note": "a claimed it by mistake"}


async def test_a_claim_of_the_largest_term_is_forgotten_by_an_operator_and_the_next_primary_claims_its_own(db: World) -> None:
    a, b = Replica(db.demo, "a", "primary"), Replica(db.demo, "b", "primary")
    assert (await db.demo.post(f"{DB}/primary/forget", WHY)).status == 204, "nobody has claimed anything yet"
    a.term = 2**53 - 1
    await a.reports()
    b.term = 8
    assert (await b.report()).code == "stale-term"
    assert (await db.demo.post(f"{DB}/primary/forget", WHY)).status == 204
    b.seq = 0
    assert (await b.reports())["turn"] is None
    a.term = 7
    assert (await a.report()).code == "stale-term", "what is claimed from here on counts as before"
    before = db.dump()
    assert (await db.demo.post("/api/v1/fleets/nobody/primary/forget", WHY)).code == "not-found"
    assert db.dump() == before


async def test_a_forgotten_claim_frees_no_turn_and_its_claimer_gets_none(db: World) -> None:
    b, c = Replica(db.demo, "b"), Replica(db.demo, "c")
    epoch = await b.takes()
    b.role, b.term = "primary", 2**53 - 1
    assert (await b.reports())["revoked"] == [epoch]
    b.taking = 0
    assert (await db.demo.post(f"{DB}/primary/forget", WHY)).status == 204
    await scan(db)
    assert (await c.reports())["turn"] is None, "the turn of one that became primary is waited out"
    await db.clock.advance(600)
    for turn in range(epoch + 1, epoch + 4):
        answer = await c.reports()
        assert answer["turn"]["epoch"] == turn, "the other's last report says that it is primary"
        assert (await b.reports())["turn"] is None
        assert await c.done(turn, 100 * turn)


async def test_secondaries_of_a_group_without_a_primary_take_turns_too(b: Replica) -> None:
    assert (await b.reports())["turn"]["epoch"] == 1


async def test_a_silent_lagging_or_unwilling_replica_gets_no_turn(db: World) -> None:
    assert (await db.demo.put(DB, {"partitions": 1, "checkpoints": {"max_lag": 10}})).status == 200
    b, c, d, e = (Replica(db.demo, node) for node in "bcde")
    assert (await b.reports(ready=False))["turn"] is None
    assert (await c.reports(lag=11))["turn"] is None
    assert (await e.reports(taking={"epoch": 17})) == {"turn": None, "revoked": [17], "report_ms": 5000}
    await db.clock.advance(61)
    assert (await d.reports())["turn"]["epoch"] == 1
    nodes = {node["node"]: node["turn"] for node in await db.demo.all(f"{DB}/nodes")}
    assert {node: (turn["skipped"], turn["down"]) for node, turn in nodes.items()} == {
        "b": ("down", "silent"),
        "c": ("down", "silent"),
        "d": (None, None),
        "e": ("down", "silent"),
    }
    await b.reports(ready=False)
    await c.reports(lag=11)
    nodes = {node["node"]: node["turn"] for node in await db.demo.all(f"{DB}/nodes")}
    assert (nodes["b"]["skipped"], nodes["c"]["skipped"], nodes["d"]["holds"]) == ("not ready", "lag", 1)


async def test_a_new_primary_whose_time_runs_faster_ends_no_turn_early(db: World) -> None:
    """Ringmaster's example, with 10 minutes for its 10 seconds: dilations of 1.0, 1.25 and 0.8, and a failover after 8 of the 10."""
    old, holder, new = Replica(db.demo, "a", "primary"), Replica(db.demo, "b", rate=1 / 1.25), Replica(db.demo, "c", rate=1 / 0.8)
    other = Replica(db.demo, "d")
    await old.reports()
    given = (await holder.reports())["turn"]
    holder.taking = given["epoch"]
    for half_minutes in range(20):
        true = 30.0 * half_minutes
        if true < 480:
            await old.reports()
            await holder.reports()
        elif new.role == "secondary":
            new.role, new.term = "primary", 8
            holder_counts, primary_counts = true / 1.25, true / 0.8
            assert holder_counts * 1000 < given["limit_ms"] and primary_counts == 600, "by its own clock the turn would be over"
        assert (await new.reports())["turn"] is None
        assert (await other.reports())["turn"] is None, "the turn lasts until its time is over in the store's time"
        await db.clock.advance(30)
    assert given["limit_ms"] < 600 / 1.25 * 1000, "the holder has stopped by itself"
    assert (await other.reports())["turn"]["epoch"] == given["epoch"] + 1


@pytest.mark.parametrize(("rate", "down"), [(0.75, None), (1.3, None), (0.55, "clock"), (1.9, "clock")])
async def test_a_replica_whose_clock_is_out_of_bounds_counts_as_down(db: World, rate: float, down: str | None) -> None:
    b = Replica(db.demo, "b", rate=rate)
    for _ in range(30):
        await b.reports(ready=False)
        await db.clock.advance(5)
    turn = (await b.reports())["turn"]
    assert (turn is None) == (down is not None)
    assert (await db.demo.get(f"{DB}/nodes/b")).json()["turn"]["down"] == down


async def test_turns_are_no_closer_than_the_fleets_interval(db: World) -> None:
    assert (await db.demo.put(DB, {"partitions": 1, "checkpoints": {"interval": "PT1H"}})).status == 200
    b = Replica(db.demo, "b")
    await b.done(await b.takes(), 5)
    for _ in range(59):
        await db.clock.advance(MINUTE)
        assert (await b.reports())["turn"] is None
    await db.clock.advance(MINUTE)
    assert (await b.reports())["turn"]["epoch"] == 2
