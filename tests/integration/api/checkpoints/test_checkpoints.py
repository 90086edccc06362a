"""Turns over HTTP: grants, publishes, revocations, roles, and what there is to see."""

from __future__ import annotations

from typing import Any

import pytest

from shared.storage.names import FLEETS, TURNS
from shared.storage.ports import ANY, Delete
from tests.unit.scheduler.harness import World

from .replicas import DB, KEY, MINUTE, Replica, scan, turns

MAKE = {"partitions": 1, "checkpoints": {"timeout": {"initial": "PT10M", "min": "PT1M", "max": "PT1H"}}}


@pytest.fixture
async def db(world: World) -> World:
    assert (await world.demo.put(DB, MAKE)).status == 201
    return world


@pytest.fixture
async def b(db: World) -> Replica:
    return Replica(db.demo, "b")


async def test_a_secondary_gets_a_turn_takes_it_and_publishes(b: Replica, db: World) -> None:
    primary = Replica(db.demo, "a", "primary")
    assert await primary.reports() == {"turn": None, "revoked": [], "report_ms": 5000}
    answer = await b.reports()
    # 0.7 x (ten minutes - 2 s): its clock may run at 0.7 of the true rate.
    assert answer == {"turn": {"epoch": 1, "limit_ms": 418600}, "revoked": [], "report_ms": 5000}
    b.taking = 1
    assert (await b.reports()) == {"turn": None, "revoked": [], "report_ms": 5000}
    [turn] = await turns(db.demo)
    assert (turn["epoch"], turn["holder"], turn["state"], turn["timeout_ms"], turn["sequence"]) == (1, "b", "taking", 600_000, None)
    assert await b.done(1, 81231)
    [turn] = await turns(db.demo)
    assert (turn["state"], turn["sequence"]) == ("done", 81231)
    latest = (await db.demo.get(f"{DB}/checkpoints/latest")).json()
    assert latest.pop("at") and latest == {
        "epoch": 1,
        "node": "b",
        "sequence": 81231,
        "location": "https://backups.example/81231",
        "bytes": 1024,
    }


async def test_only_one_has_a_turn_at_a_time_and_they_take_turns(db: World) -> None:
    replicas = [Replica(db.demo, "a", "primary"), *(Replica(db.demo, node) for node in "bcde")]
    holders: list[str] = []
    for _ in range(60):
        for each in replicas:
            turn = (await each.reports())["turn"]
            if turn is not None:
                each.taking = turn["epoch"]
                holders.append(each.node)
        for each in replicas:
            if each.taking:
                assert not (await each.reports())["revoked"]
                assert sum(bool(other.taking) for other in replicas) == 1
                await each.done(each.taking, 100 + len(holders))
        await db.clock.advance(5)
    assert set(holders) == {"b", "c", "d", "e"}
    counts = [holders.count(node) for node in "bcde"]
    assert max(counts) - min(counts) <= 2
    assert [turn["holder"] for turn in reversed(await turns(db.demo))] == holders


async def test_a_repeated_report_is_answered_from_what_is_stored_with_the_limit_of_now(b: Replica, db: World) -> None:
    body = {**b.body(), "seq": 1}
    first = (await db.demo.post(f"{DB}/replicas/b/report", body)).json()
    await db.clock.advance(20)
    before = db.dump()
    again = (await db.demo.post(f"{DB}/replicas/b/report", body)).json()
    assert first["turn"]["limit_ms"] - again["turn"]["limit_ms"] == 14_000, "0.7 of the 20 s that have passed"
    for change in ({"role": "primary"}, {"taking": {"epoch": 1}}):
        other = (await db.demo.post(f"{DB}/replicas/b/report", body | change)).json()
        assert other["turn"] is None, "what it says now is not stored, but it could not begin"
    assert db.dump() == before


async def test_an_answer_that_got_lost_is_made_up_for_by_the_next_while_half_of_the_turn_is_left(b: Replica, db: World) -> None:
    await b.reports()
    await db.clock.advance(100)
    assert (await b.reports())["turn"] == {"epoch": 1, "limit_ms": 348600}
    await db.clock.advance(201)
    # It takes nothing, and too little is left: so the turn ends, and the next begins.
    answer = await b.reports()
    assert answer["turn"] == {"epoch": 2, "limit_ms": 418600}
    over = (await turns(db.demo))[1]
    assert (over["state"], over["reason"], over["attempts"]) == ("timed-out", "short", 2)


async def test_nobody_gets_a_turn_while_one_that_was_handed_out_lasts_whatever_became_of_its_holder(b: Replica, db: World) -> None:
    await b.takes()
    c = Replica(db.demo, "c")
    for _ in range(11):
        assert (await c.reports())["turn"] is None
        await db.clock.advance(50)
    new = Replica(db.demo, "b", born=5)
    assert (await new.reports())["turn"] is None, "the turn was handed out to its former process"
    await db.clock.advance(49)
    assert (await c.reports())["turn"] is None
    await db.clock.advance(1)
    assert (await c.reports())["turn"] == {"epoch": 2, "limit_ms": 418600} or (await new.reports())["turn"]["epoch"] == 2
    assert [(turn["state"], turn.get("reason")) for turn in await turns(db.demo)][1] == ("timed-out", "restarted")


async def test_a_late_checkpoint_of_a_lost_turn_never_becomes_the_latest(b: Replica, db: World) -> None:
    epoch = await b.takes()
    await db.clock.advance(10 * MINUTE)
    answer = await b.publish(epoch, 99999)
    assert (answer.status, answer.code) == (409, "late"), "nobody has ended it yet, but its time is over"
    [turn] = await turns(db.demo)
    assert (turn["state"], turn["late"]) == ("timed-out", True)
    b.taking = 0
    assert await b.takes() == 2
    assert (await b.publish(1, 99999)).code == "late", "nor after the next was granted"
    assert (await db.demo.get(f"{DB}/checkpoints/latest")).status == 404
    before = db.dump()
    assert (await b.publish(1, 99998)).code == "late"
    assert db.dump() == before, "the mark is there already"


async def test_the_latest_never_goes_backwards_and_a_publish_is_safe_to_repeat(b: Replica, db: World) -> None:
    assert await b.done(await b.takes(), 500)
    assert not await b.done(await b.takes(), 400)
    assert (await db.demo.get(f"{DB}/checkpoints/latest")).json()["sequence"] == 500
    before = db.dump()
    assert (await b.publish(2, 400)).json() == {"latest": False}
    assert (await b.publish(1, 500)).json() == {"latest": True}
    assert (await b.publish(2, 401)).code == "late"
    await b.takes()
    assert (await b.publish(1, 500)).json() == {"latest": True}, "the answer was lost, and the next turn has begun"
    assert db.dump().keys() > before.keys()


async def test_a_lost_publish_heals_with_the_reports_last_checkpoint(b: Replica, db: World) -> None:
    epoch = await b.takes()
    b.taking, b.last = 0, 700
    answer = await b.reports()
    assert answer["turn"]["epoch"] == epoch + 1
    over = (await turns(db.demo))[1]
    assert (over["state"], over["sequence"]) == ("done", None), "done, though nothing was published"
    assert (await db.demo.get(f"{DB}/checkpoints/latest")).status == 404


async def test_it_heals_over_a_restart_too(b: Replica, db: World) -> None:
    epoch = await b.takes()
    new = Replica(db.demo, "b", born=7)
    new.last = 700
    assert (await new.reports())["turn"]["epoch"] == epoch + 1


async def test_a_process_whose_clock_begins_where_that_of_the_one_before_did_gets_in(b: Replica, db: World) -> None:
    first = Replica(db.demo, "c", born=0)
    await first.reports()
    await first.reports()
    again = Replica(db.demo, "c", born=0)
    assert (await again.report()).status == (await again.report()).status == 200


async def test_a_registration_that_comes_late_frees_no_turn_and_its_checkpoint_counts(b: Replica, db: World) -> None:
    late = {**b.body(), "seq": 1}
    epoch = await b.takes()
    assert (await db.demo.post(f"{DB}/replicas/b/report", late)).json()["turn"] is None
    c = Replica(db.demo, "c")
    assert (await c.reports())["turn"] is None
    await db.clock.advance(30)
    assert (await b.reports())["revoked"] == []
    assert await b.done(epoch, 500)
    assert [turn["state"] for turn in await turns(db.demo)] == ["done"]


@pytest.mark.parametrize("how", ["wants none", "is silent"])
async def test_a_turn_that_its_holder_will_not_fetch_goes_to_another_at_once(how: str, b: Replica, db: World) -> None:
    c = Replica(db.demo, "c")
    await b.takes()
    await c.reports()
    b.fields = {"ready": False}
    await b.done(1, 100)
    # Granted while c is away: never handed out.
    await b.reports()
    granted = (await turns(db.demo))[0]
    assert (granted["epoch"], granted["holder"], granted["state"]) == (2, "c", "granted")
    if how == "wants none":
        await c.reports(ready=False)
    else:
        await db.clock.advance(61)
    b.fields = {}
    turn = (await b.reports())["turn"]
    assert turn is not None and turn["epoch"] == 3
    over = (await turns(db.demo))[1]
    assert (over["state"], over["reason"]) == ("timed-out", "short" if how == "wants none" else "silent")


async def test_giving_up_ends_a_turn_at_once_and_timed_out_turns_become_longer(b: Replica, db: World) -> None:
    await b.takes()
    b.taking = 0
    await db.clock.advance(5)
    assert (await b.reports())["turn"]["epoch"] == 2
    assert [(turn["state"], turn["reason"]) for turn in (await turns(db.demo))[1:]] == [("timed-out", "failed")]
    b.taking = 2
    await b.reports()
    await db.clock.advance(419)
    b.taking = 0
    await b.reports()
    now, over = (await turns(db.demo))[:2]
    assert (over["reason"], over["timeout_ms"], now["timeout_ms"]) == ("limit", 600_000, 900_000)


async def test_early_ends_bring_shorter_turns(db: World) -> None:
    b = Replica(db.demo, "b")
    for sequence in range(1, 30):
        epoch = await b.takes()
        await db.clock.advance(20)
        await b.done(epoch, sequence)
    timeout = (await turns(db.demo))[0]["timeout_ms"]
    assert timeout == 60_000, "the least that the fleet allows"
    first = [turn["timeout_ms"] for turn in await turns(db.demo)][:-4:-1]
    assert first == [600_000, 459_071, 353_375], "a quarter of the way each time"


# -- roles


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


# -- revoking


async def test_a_revoked_turn_cannot_be_published_and_the_next_waits_for_its_holder(b: Replica, db: World) -> None:
    epoch = await b.takes()
    c = Replica(db.demo, "c")
    await db.clock.advance(100)
    answer = await db.demo.post(f"{DB}/turns/{epoch}/revoke", {"note": "its disk is full"})
    assert (answer.status, answer.json()) == (202, {"free_after_ms": 500_000})
    [turn] = await turns(db.demo)
    assert (turn["state"], turn["note"], bool(turn["author"])) == ("revoked", "its disk is full", True)
    assert (await b.publish(epoch, 81231)).code == "late"
    before = db.dump()
    again = await db.demo.post(f"{DB}/turns/{epoch}/revoke", {"note": "again"})
    assert (again.status, again.json()) == (202, {"free_after_ms": 500_000})
    assert db.dump() == before
    assert (await c.reports())["turn"] is None
    assert (await b.reports())["revoked"] == [epoch]
    assert (await c.reports())["turn"] is None
    b.taking = 0
    await b.reports()
    handed = [each["turn"] for each in (await b.reports(), await c.reports()) if each["turn"]]
    assert [turn["epoch"] for turn in handed] == [epoch + 1]
    answer = await db.demo.post(f"{DB}/turns/{epoch}/revoke", {"note": "too late"})
    assert (answer.status, answer.code) == (409, "already-ended")


async def test_the_next_turn_after_a_revoked_one_comes_at_the_latest_when_its_time_is_over(b: Replica, db: World) -> None:
    epoch = await b.takes()
    c = Replica(db.demo, "c")
    await db.demo.post(f"{DB}/turns/{epoch}/revoke", {"note": "gone"})
    await db.clock.advance(599)
    assert (await c.reports())["turn"] is None
    await db.clock.advance(1)
    assert (await c.reports())["turn"]["epoch"] == epoch + 1


# -- who is skipped


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


# -- views


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


# -- fleets that end


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


# -- sweeps


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
