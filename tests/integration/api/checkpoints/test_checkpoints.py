"""Turns over HTTP: grants, publishes, lost answers and revocations."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.harness import World

from .replicas import DB, MINUTE, Replica, turns


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
