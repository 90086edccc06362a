"""Regressions of the failover and the way back: each test is one hole."""

from __future__ import annotations

from typing import Any

import pytest

from shared.delivery.channels.ports import Verdict
from shared.extras.bigben.uses import use_row
from shared.extras.parts import BIGBEN
from shared.scheduler.keys import GATE, Address, event_row, shard_key
from shared.scheduler.protocol import changing, ingest, mirroring
from shared.scheduler.protocol.mirroring import SECOND, Way
from shared.scheduler.protocol.moving import REDRIVE
from shared.storage.names import EVENTS, IDS, LEDGER, SHARDS, SWEEPS
from shared.storage.ports import ANY, Merge

from .pair import PairWorld

WAY = Way("", SECOND, SECOND, "first", 0)


async def mirrored(world: PairWorld, **event: Any) -> str:
    """A new mirrored event; its id."""
    made = await world.demo.create(durability="mirrored", **event)
    return str(made["id"])


async def back(world: PairWorld) -> None:
    """The first is found again, and serves again."""
    world.find_first()
    await world.run(5)
    assert (await world.admin.post("/api/v1/storage/failback", {})).status == 202
    await world.run(60)
    mirror = (await world.storage_status())["mirror"]
    assert (mirror["active"], mirror["state"]) == ("first", "serving")


async def dead(world: PairWorld, **event: Any) -> str:
    """A mirrored event whose receiver refused it for good."""
    event_id = await mirrored(world, delay="PT5S", **event)
    world.receiver.script(event_id, Verdict("final", 400, "refused"))
    await world.run(40)
    assert world.first.states()[event_id] == world.second.states()[event_id] == "dead"
    world.receiver.script(event_id, Verdict("delivered", 204))
    return event_id


async def test_event_that_was_redriven_on_the_second_is_not_dead_again_on_the_first(pair: PairWorld) -> None:
    event_id = await dead(pair)
    # Longer than clocks may differ: the way back goes by what ended since.
    await pair.clock.advance(7_200)
    await pair.fail_over()
    assert (await pair.demo.post(f"/api/v1/events/{event_id}/redrive", {})).status == 202
    await pair.run(30)
    assert (await pair.demo.event(event_id))["state"] == "delivered"
    await back(pair)
    assert (await pair.demo.event(event_id))["state"] == "delivered"
    assert not pair.second._tables[SWEEPS].get(mirroring.AGAIN_PK)


async def test_redriven_event_is_counted_once_on_either_side(pair: PairWorld) -> None:
    async def figures() -> tuple[int, int]:
        stats = (await pair.demo.get("/api/v1/stats")).json()
        return stats["dead"], stats["delivered"]

    first, second = await dead(pair), await dead(pair)
    assert await figures() == (2, 0)
    assert (await pair.demo.post(f"/api/v1/events/{first}/redrive", {})).status == 202
    await pair.run(30)
    assert await figures() == (1, 1)
    await pair.fail_over()
    pair.find_first()
    await pair.run(10)
    assert await figures() == (1, 1)
    assert (await pair.demo.post(f"/api/v1/events/{second}/redrive", {})).status == 202
    await pair.run(30)
    assert await figures() == (0, 2)
    await back(pair)
    assert await figures() == (0, 2)


async def test_unannounced_redrive_is_copied_by_the_timer(pair: PairWorld) -> None:
    event_id = await dead(pair)
    shard = next(row.pk for row in pair.events_of(pair.first) if row.props["id"] == event_id)
    points = [False]

    def fails(table: str, ops: Any) -> bool:
        points[0] = points[0] or (table == EVENTS and any(row.props.get("target") for row in pair.events_of(pair.first)))
        return points[0]

    pair.second.fails = fails
    assert (await pair.demo.post(f"/api/v1/events/{event_id}/redrive", {})).status == 503
    pair.second.fails = None
    copy = pair.second._tables[EVENTS][shard].rows["e000"]
    assert "target" not in copy.props
    await pair.run(400)
    assert pair.second._tables[EVENTS][shard].rows["e000"].props["target"]
    assert not pair.first._tables[SWEEPS].get(mirroring.AGAIN_PK)


async def test_redrive_that_slept_through_failover_and_way_back_does_not_place_a_second_copy(pair: PairWorld) -> None:
    event_id = await dead(pair)
    [row] = [row for row in pair.events_of(pair.first) if row.props["id"] == event_id]
    # It is marked in the first account, and the second account does not get to know of that.
    pair.second.fails = lambda table, ops: table == EVENTS and any(REDRIVE in each.props for each in pair.events_of(pair.first))
    assert (await pair.demo.post(f"/api/v1/events/{event_id}/redrive", {})).status == 503
    pair.second.fails = None
    [marked] = [each for each in pair.events_of(pair.first) if each.props["id"] == event_id]
    assert REDRIVE in marked.props and REDRIVE not in row.props
    await pair.run(5)
    await pair.fail_over()
    assert (await pair.demo.post(f"/api/v1/events/{event_id}/redrive", {})).status == 202
    await pair.run(30)
    await back(pair)
    places = {each.pk for each in pair.events_of(pair.first)}
    for seen in (row, marked):
        steps = changing.redrive(row.pk, {row.rk: seen}, pair.now, "slept", lambda shard: mirroring.mirror(shard, WAY._replace(epoch=3)))
        placed = await pair.do(pair.app.scheduler.runner.run(steps))
        assert placed is not None and placed[row.rk].shard in places
    assert {each.pk for each in pair.events_of(pair.first)} == places


async def test_dead_event_whose_redrive_was_not_copied_is_dead_again_after_the_way_back(pair: PairWorld) -> None:
    event_id = await dead(pair)
    # Longer than clocks may differ: the way back goes by what ended since.
    await pair.clock.advance(7_200)
    pair.second.fails = lambda table, ops: table == EVENTS and any(row.props.get("target") for row in pair.events_of(pair.first))
    assert (await pair.demo.post(f"/api/v1/events/{event_id}/redrive", {})).status == 503
    pair.lose_first()
    pair.second.fails = None
    await pair.run(5)
    await pair.fail_over()
    await back(pair)
    assert (await pair.demo.event(event_id))["state"] == "dead"
    assert (await pair.demo.post(f"/api/v1/events/{event_id}/redrive", {})).status == 202
    await pair.run(30)
    assert (await pair.demo.event(event_id))["state"] == "delivered"


async def test_an_event_redriven_twice_and_announced_once_is_found_delivered_after_a_failover(pair: PairWorld) -> None:
    event_id = await dead(pair)
    pair.second.fails = lambda table, ops: table == EVENTS and any(row.props.get("target") for row in pair.events_of(pair.first))
    assert (await pair.demo.post(f"/api/v1/events/{event_id}/redrive", {})).status == 503
    pair.second.fails = None
    pair.receiver.script(event_id, Verdict("final", 400, "refused"))
    await pair.run(30)
    assert (await pair.demo.event(event_id))["state"] == "dead"
    pair.receiver.script(event_id, Verdict("delivered", 204))
    assert (await pair.demo.post(f"/api/v1/events/{event_id}/redrive", {})).status == 202
    await pair.run(30)
    await pair.fail_over()
    assert (await pair.demo.event(event_id))["state"] == "delivered"


async def test_move_that_was_cut_off_before_its_place_was_filed_is_served_after_the_way_back(pair: PairWorld) -> None:
    event_id = await mirrored(pair, delay="PT300S")
    # The place is made, with the event in it; then the account goes.
    pair.first.fails = lambda table, ops: table == SHARDS and bool(ops)
    assert (await pair.demo.patch(f"/api/v1/events/{event_id}", {"delay": "PT400S"})).status == 503
    pair.first.fails = None
    await pair.fail_over()
    # The second finishes it, at the same place.
    assert (await pair.demo.patch(f"/api/v1/events/{event_id}", {"delay": "PT500S"})).status == 200
    await back(pair)
    await pair.run(600)
    assert pair.deliveries() == {event_id: 1}


async def test_move_that_was_cut_off_and_forgotten_does_not_come_back_with_the_next_move(pair: PairWorld) -> None:
    event_id = await mirrored(pair, delay="PT3000S")
    pair.first.fails = lambda table, ops: table == SHARDS and bool(ops)
    stale = {"delay": "PT300S", "payload": "stale"}
    assert (await pair.demo.patch(f"/api/v1/events/{event_id}", stale)).status == 503
    pair.first.fails = None
    await pair.fail_over()
    await back(pair)
    wanted = await pair.demo.patch(f"/api/v1/events/{event_id}", {"delay": "PT2000S"})
    assert wanted.status == 200 and wanted.json()["payload"] == {"n": 1}
    assert (await pair.demo.event(event_id))["due"] == wanted.json()["due"]
    await pair.run(1900)
    assert pair.deliveries() == {}
    await pair.run(200)
    assert pair.deliveries() == {event_id: 1}
    assert pair.first.states() == pair.second.states() == {event_id: "delivered"}


async def test_event_that_moved_twice_is_alive_at_one_place_of_the_copy_whichever_is_copied_first(pair: PairWorld) -> None:
    event_id = await mirrored(pair, delay="PT600S")
    at = Address(shard_key("demo", event_id[:16]), event_row(0))
    runner = pair.app.scheduler.runner
    for due, nonce in ((700_000, "m"), (800_000, "n")):
        answer = await pair.do(runner.run(changing.move(at, pair.now + due, {}, nonce)))
        assert isinstance(answer, changing.Done)
    assert await pair.do(runner.run(mirroring.mirror(answer.row.pk, WAY)))
    alive = [row for row in pair.events_of(pair.second) if row.props["state"] not in ("moved", "moving")]
    assert [(row.pk, row.props["state"]) for row in alive] == [(answer.row.pk, "scheduled")]


async def test_what_was_never_acknowledged_is_removed_from_shards_that_ended_long_before_the_way_back(pair: PairWorld) -> None:
    kept = await mirrored(pair, delay="PT60S")
    pair.second.fails = lambda table, ops: table == EVENTS and bool(ops)
    body = {"id": "half", "delay": "PT61S", "payload": 1, "durability": "mirrored"}
    assert (await pair.demo.post("/api/v1/events", body)).status == 503
    assert pair.first.states() == {kept: "scheduled", "half": "scheduled"}
    pair.second.fails = None
    await pair.run(4)
    await pair.fail_over()
    await pair.run(60)
    assert pair.second.states() == {kept: "delivered"}
    await pair.clock.advance(4 * 3_600)
    await back(pair)
    assert pair.first.states() == {kept: "delivered"}
    assert (await pair.demo.post("/api/v1/events", body)).status == 201
    await pair.run(120)
    assert pair.deliveries() == {kept: 1, "half": 1}


async def test_fast_event_accepted_while_no_side_serves_fires_on_the_first(pair: PairWorld) -> None:
    await pair.fail_over()
    pair.find_first()
    await pair.run(5)
    assert (await pair.admin.post("/api/v1/storage/failback", {})).status == 202
    await pair.run(5)
    assert (await pair.storage_status())["mirror"]["state"] == "syncing"
    answer = await pair.demo.post("/api/v1/events", {"delay": "PT1S", "payload": 1, "durability": "fast"})
    assert answer.status == 202
    await pair.run(200)
    assert pair.deliveries() == {answer.json()["id"]: 1}


async def test_event_left_in_the_firsts_queue_is_stored_where_its_cancel_was(pair: PairWorld) -> None:
    pair.first_queues.away = True
    pair.first_queues.hold = True
    answer = await pair.demo.post("/api/v1/events", {"delay": "PT300S", "payload": 1, "durability": "fast"})
    assert answer.status == 202
    assert (await pair.admin.post("/api/v1/storage/failover", {})).status == 202
    await pair.run(50)
    assert (await pair.demo.delete(f"/api/v1/events/{answer.json()['id']}")).status == 204
    pair.first_queues.away = pair.first_queues.hold = False
    await pair.run(400)
    assert pair.deliveries() == {}
    assert (await pair.demo.event(answer.json()["id"]))["state"] == "cancelled"


async def test_tenant_that_is_changed_while_no_side_serves_stays_so(pair: PairWorld) -> None:
    await pair.fail_over()
    pair.find_first()
    await pair.run(5)
    assert (await pair.admin.post("/api/v1/storage/failback", {})).status == 202
    await pair.run(20)
    assert (await pair.storage_status())["mirror"]["state"] == "syncing"
    late = await pair.tenant("late")
    listed = (await pair.admin.get("/api/v1/tenants/demo/keys")).json()["items"]
    assert (await pair.admin.delete(f"/api/v1/tenants/demo/keys/{listed[0]['prefix']}")).status == 204
    assert {row.rk for row in pair.rows_of(pair.first, "TocsinTenants") if row.pk == "tenant"} == {"demo", "late"}
    await pair.run(120)
    assert (await pair.storage_status())["mirror"]["active"] == "first"
    assert (await late.create(delay="PT1H"))["tenant"] == "late"
    assert (await pair.demo.post("/api/v1/events", {"delay": "PT1H", "payload": 1})).status == 401


async def test_lag_is_none_after_the_way_back(pair: PairWorld) -> None:
    await mirrored(pair, delay="PT3600S")
    await pair.fail_over()
    await pair.run(30)
    await back(pair)
    assert (await pair.storage_status())["mirror"]["lag_ms"] == 0
    assert (await pair.demo.get("/api/v1/stats")).json()["mirror_lag_ms"] == 0


async def test_way_back_is_called_off_by_another_failover(pair: PairWorld) -> None:
    event_id = await mirrored(pair, delay="PT300S")
    await pair.fail_over()
    pair.find_first()
    await pair.run(5)
    pair.first.fails = lambda table, ops: table == EVENTS and bool(ops)
    assert (await pair.admin.post("/api/v1/storage/failback", {})).status == 202
    await pair.run(3)
    pair.lose_first()
    assert (await pair.storage_status())["mirror"]["state"] == "copying"
    assert (await pair.admin.post("/api/v1/storage/failover", {})).status == 202
    assert (await pair.storage_status())["mirror"]["state"] == "serving"
    pair.first.fails = None
    pair.find_first()
    await pair.run(400)
    assert (await pair.storage_status())["mirror"]["active"] == "second"
    assert pair.deliveries() == {event_id: 1}


async def test_first_lost_again_while_nobody_serves_is_overtaken_again(pair: PairWorld) -> None:
    event_id = await mirrored(pair, delay="PT300S")
    await pair.fail_over()
    pair.find_first()
    await pair.run(5)
    assert (await pair.admin.post("/api/v1/storage/failback", {})).status == 202
    await pair.run(10)
    assert (await pair.storage_status())["mirror"]["state"] == "syncing"
    await pair.fail_over()
    await pair.run(300)
    assert pair.deliveries() == {event_id: 1}


async def test_id_that_the_first_alone_knows_is_not_given_again_while_it_answers(pair: PairWorld) -> None:
    made = await pair.demo.create(id="order-1", delay="PT1H")
    await pair.fail_over()
    assert (await pair.demo.post("/api/v1/events", {"id": "order-2", "delay": "PT1H", "payload": 1})).status == 201
    pair.find_first()
    await pair.run(5)
    again = await pair.demo.post("/api/v1/events", {"id": "order-1", "delay": "PT1H", "payload": {"n": 1}})
    assert (again.status, again.json()["due"]) == (200, made["due"])
    assert (await pair.demo.post("/api/v1/events", {"id": "order-1", "delay": "PT2H", "payload": {"n": 1}})).status == 409


async def test_end_of_a_standard_event_that_the_second_served_is_in_the_firsts_lists_after_the_way_back(pair: PairWorld) -> None:
    plain = (await pair.demo.create(delay="PT200S"))["id"]
    await pair.fail_over()
    pair.find_first()
    await pair.run(5)
    # It is due while no process serves mirrored events; its owner is on the second.
    await pair.run(130)
    assert (await pair.admin.post("/api/v1/storage/failback", {})).status == 202
    await pair.run(120)
    assert (await pair.storage_status())["mirror"]["active"] == "first"
    assert pair.deliveries() == {plain: 1}
    assert [event["id"] for event in await pair.demo.all("/api/v1/events")] == [plain]
    await pair.run(60)
    assert not pair.second._tables[LEDGER]


async def test_account_that_hangs_makes_few_calls_to_the_other_wait(pair: PairWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.storage.several.tables.FOLLOW_FOR", 0.01)
    monkeypatch.setattr("shared.scheduler.mirror.pair.ID_CHECK_TIMEOUT", 0.01)
    await pair.fail_over()
    pair.find_first()
    await pair.run(5)
    pair.first.hangs = True
    asked = pair.first.transactions.copy()
    for number in range(20):
        assert (await pair.demo.post("/api/v1/events", {"id": f"n{number}", "delay": "PT1H", "payload": 1})).status == 201
        assert (await pair.admin.put(f"/api/v1/tenants/t{number}", {})).status == 201
    assert pair.first.transactions == asked and pair.first.waiting == 2
    pair.first.hangs = False


async def test_which_use_of_an_id_is_the_present_one_is_known_to_both(pair: PairWorld) -> None:
    runner = pair.app.scheduler.runner
    pk, rk = use_row("demo", "job")
    await pair.first.write(IDS, pk, (mirroring.Insert(rk, {"generation": 1}),))
    await mirrored(pair, id="job~1", delay="PT5S")
    assert pair.second._tables[IDS][pk].rows[rk].props["generation"] == 1
    await pair.first.write(IDS, pk, (Merge(rk, {"generation": 12}, ANY),))
    assert await pair.do(runner.run(mirroring.mirror_id("demo", "job~12", WAY, BIGBEN.beside_ids)))
    assert pair.second._tables[IDS][pk].rows[rk].props["generation"] == 12
    await pair.first.write(IDS, pk, (Merge(rk, {"generation": 1}, ANY),))
    await pair.run(30)
    await pair.clock.advance(8 * 86_400)
    await pair.do(pair.app.timers.run_once("retention_scan"))
    assert pair.first._tables[IDS] == {} and list(pair.second._tables[IDS]) == [pk]


async def test_copies_that_are_in_step_are_not_written_again(pair: PairWorld) -> None:
    event_id = await mirrored(pair, delay="PT3600S")
    shard = shard_key("demo", event_id[:16])
    before = pair.second._tables[EVENTS][shard].rows[GATE].etag
    assert await pair.do(pair.app.scheduler.runner.run(mirroring.mirror(shard, WAY)))
    assert pair.second._tables[EVENTS][shard].rows[GATE].etag == before
    assert await pair.do(pair.app.scheduler.runner.run(ingest.known_id("demo", event_id))) is None


async def every_minute(world: PairWorld) -> str:
    """A schedule whose next occurrences are stored in the first; its URL."""
    url = "/api/v1/schedules/s"
    assert (await world.demo.put(url, {"every": "PT1M", "channel": "default", "payload": 1})).status == 201
    await world.run(20)
    assert set(world.first.states().values()) == {"scheduled"} and world.second.states() == {}
    return url


@pytest.mark.parametrize("verb", ["pause", "delete"])
async def test_end_of_a_schedule_is_not_acknowledged_while_the_first_may_have_its_occurrences(pair: PairWorld, verb: str) -> None:
    url = await every_minute(pair)

    async def end() -> int:
        return (await (pair.demo.post(f"{url}/pause", {}) if verb == "pause" else pair.demo.delete(url))).status

    await pair.fail_over()
    assert await end() == 503
    await pair.run(900, step=1.0)
    assert pair.deliveries() == {} and await end() == 503
    pair.find_first()
    await pair.run(5)
    assert await end() in (200, 204, 404)
    await pair.run(900, step=1.0)
    # The first occurrence was due when the schedule was ended; the other three that were stored ahead were not.
    assert pair.deliveries() == {"s:20270115T080100Z": 1}
    ended = dict.fromkeys((f"s:20270115T080{minute}00Z" for minute in (2, 3, 4, 5)), "cancelled")
    assert pair.first.states() == {"s:20270115T080100Z": "delivered"} | ended


async def test_schedule_goes_on_while_the_first_is_away_and_can_be_paused_once_its_occurrences_are_the_seconds(pair: PairWorld) -> None:
    url = await every_minute(pair)
    await pair.fail_over()
    await pair.run(1_200, step=1.0)
    started = pair.deliveries()
    assert len(started) >= 10 and set(started.values()) == {1}
    assert (await pair.demo.post(f"{url}/pause", {})).status == 200
    started = pair.deliveries()
    await pair.run(600, step=1.0)
    assert pair.deliveries() == started


@pytest.mark.parametrize("change", ["move", "cancel"])
async def test_change_by_a_process_that_believes_that_the_first_serves_is_undone_by_the_next_pass(pair: PairWorld, change: str) -> None:
    event_id = await mirrored(pair, delay="PT5M")
    [row] = pair.events_of(pair.first)
    await pair.fail_over()
    pair.find_first()
    await pair.run(5)
    assert (await pair.admin.post("/api/v1/storage/failback", {})).status == 202
    await pair.run(5)
    assert (await pair.storage_status())["mirror"]["state"] == "syncing"
    # The copying has been here; it is not acknowledged, because the second refuses.
    address = Address(row.pk, row.rk)
    steps = changing.cancel(address, pair.now, "x") if change == "cancel" else changing.move(address, pair.now, {}, "x")
    await pair.app.scheduler.runner.run(steps)
    await pair.run(60)
    assert (await pair.storage_status())["mirror"]["active"] == "first"
    assert (await pair.demo.event(event_id))["state"] == "scheduled"
    await pair.run(300)
    assert (await pair.demo.event(event_id))["state"] == "delivered"
    assert len(pair.receiver.received) == 1
