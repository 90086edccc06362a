"""Durability `mirrored` from outside: what is acknowledged is on both sides, and either side can go on alone with it."""

from __future__ import annotations

import asyncio
from typing import Any

import azure.functions as func
import pytest

from shared.app.timers import TICKED
from shared.app.triggers import queue_functions
from shared.core.errors import OutcomeUnknown
from shared.scheduler.ingest.admission import Admitted
from shared.scheduler.keys import MIRRORED, index_partitions
from shared.scheduler.model import EventIn
from shared.scheduler.properties.receipts import receipts_of
from shared.scheduler.queue_functions import SECOND
from shared.storage.names import EVENTS, IDS, LEDGER, SHARDS, SWEEPS
from shared.storage.ports import Row
from shared.storage.several import account_stamps

from .pair import MortalTables, PairWorld

BATCH = "/api/v1/events/batch"


async def make(world: PairWorld, count: int, seconds: float, **event: Any) -> list[str]:
    """Create mirrored events that are due in this many seconds. Return their ids."""
    events = [{"delay": f"PT{seconds}S", "payload": number, "durability": "mirrored", **event} for number in range(count)]
    answer = await world.demo.post(BATCH, events)
    assert answer.status == 200 and answer.json()["accepted"] == count, answer
    return [result["id"] for result in answer.json()["results"]]


async def test_acknowledged_event_is_in_both_accounts(pair: PairWorld) -> None:
    ids = await make(pair, 120, 600)
    assert {event_id[0] for event_id in ids} == {MIRRORED}
    assert pair.first.states() == pair.second.states() == dict.fromkeys(ids, "scheduled")
    assert len(pair.second._tables[SHARDS]) == 1
    plain = await pair.demo.create(delay="PT10M")
    assert plain["id"][0] == "0" and plain["id"] not in pair.second.states()


async def test_client_ids_are_known_to_both_and_a_replay_is_answered_by_what_both_have(pair: PairWorld) -> None:
    made = await pair.demo.create(id="order-1", delay="PT10M", durability="mirrored")
    assert len(pair.second._tables[IDS]) == 1 and pair.second.states() == {"order-1": "scheduled"}
    again = await pair.demo.post("/api/v1/events", {"id": "order-1", "delay": "PT10M", "durability": "mirrored", "payload": {"n": 1}})
    assert (again.status, again.json()["due"]) == (200, made["due"])


async def test_an_overtaken_post_is_answered_with_an_event_that_both_accounts_have(pair: PairWorld) -> None:
    event = {"id": "doc", "delay": "PT10M", "collapse": "PT1H", "durability": "mirrored", "payload": 1}
    assert (await pair.demo.post("/api/v1/events", event)).status == 201
    old = pair.app.arrivals.next()
    pair.second.fails = lambda table, ops: table.endswith(EVENTS) and bool(ops)
    assert (await pair.demo.post("/api/v1/events", event | {"payload": 2})).status == 503

    async def overtaken() -> Admitted:
        return await pair.app.scheduler.collapsing.post("demo", EventIn.model_validate(event), b"0", old)

    with pytest.raises(OutcomeUnknown):
        await pair.do(overtaken())
    pair.second.fails = None
    await pair.run(5)
    assert (await pair.do(overtaken())).row.props["body"] == "2"
    [copy] = [row for row in events_of(pair.second) if row.props["state"] != "moved"]
    assert copy.props["body"] == "2" and receipts_of(copy.props)[-1].receipt.number > old.number


def events_of(tables: MortalTables) -> list[Row]:
    """Return the events of an account, as they are."""
    return [row for part in tables._tables[EVENTS].values() for row in part.rows.values() if row.rk.startswith("e")]


async def test_nothing_is_acknowledged_while_the_copy_cannot_be_written_and_plain_events_do_not_mind(pair: PairWorld) -> None:
    old = (await make(pair, 1, 600))[0]
    pair.second.away = True
    body = {"delay": "PT5M", "payload": 1, "durability": "mirrored"}
    for answer in (
        await pair.demo.post("/api/v1/events", body),
        await pair.demo.post("/api/v1/events", body | {"id": "a"}),
        await pair.demo.delete(f"/api/v1/events/{old}"),
        await pair.demo.patch(f"/api/v1/events/{old}", {"delay": "PT1M"}),
    ):
        assert (answer.status, int(answer.headers["retry-after"]) >= 1) == (503, True)
    await pair.demo.create(delay="PT1M")
    pair.second.away = False
    await pair.run(5)
    assert (await pair.demo.post("/api/v1/events", body | {"id": "a"})).status in (200, 201)
    assert (await pair.demo.delete(f"/api/v1/events/{old}")).status in (204, 409)
    assert pair.second.states()[old] == "cancelled"


async def test_a_pair_in_step_fires_once_finishes_on_both_sides_and_leaves_no_index_row(pair: PairWorld) -> None:
    ids = await make(pair, 150, 30)
    assert (await pair.demo.delete(f"/api/v1/events/{ids[0]}")).status == 204
    await pair.run(60)
    assert pair.deliveries() == dict.fromkeys(ids[1:], 1)
    assert pair.first.states() == pair.second.states()
    for tables in (pair.first, pair.second):
        assert not any(tables._tables[SHARDS].get(partition) for partition in index_partitions(MIRRORED))
    assert (await pair.storage_status())["mirror"]["lag_ms"] == 0


async def test_settlements_follow_within_five_seconds_and_the_lag_is_reported(pair: PairWorld) -> None:
    # The last of them keeps its owner from finishing.
    ids = [*(await make(pair, 20, 10)), *(await make(pair, 1, 28))]
    await pair.run(11)
    assert set(pair.deliveries()) == set(ids[:-1])
    await pair.run(6)
    behind = [event_id for event_id in ids[:-1] if pair.second.states()[event_id] != "delivered"]
    assert behind == []
    mirror = (await pair.storage_status())["mirror"]
    assert (mirror["active"], mirror["state"]) == ("first", "serving") and mirror["lag_ms"] <= 17_000


async def test_failover_in_mid_run_loses_nothing_fires_nothing_cancelled_and_doubles_only_what_was_not_copied(pair: PairWorld) -> None:
    ids = [event_id for seconds in range(4, 70, 3) for event_id in await make(pair, 20, seconds)]
    cancelled = ids[5::40]
    for event_id in cancelled:
        assert (await pair.demo.delete(f"/api/v1/events/{event_id}")).status == 204
    await pair.run(31)
    copied = {event_id for event_id, state in pair.second.states().items() if state == "delivered"}
    before = pair.deliveries()
    assert 0 < len(copied) <= len(before) < len(ids) - len(cancelled)
    await pair.fail_over()
    await pair.run(150)
    after = pair.deliveries()
    assert set(after) == set(ids) - set(cancelled)
    doubles = {event_id for event_id, count in after.items() if count > 1}
    assert doubles <= set(before) - copied
    states = pair.second.states()
    assert {states[event_id] for event_id in cancelled} == {"cancelled"}
    assert {states[event_id] for event_id in ids if event_id not in cancelled} == {"delivered"}


async def test_second_account_serves_everything_new_and_says_503_for_what_only_the_first_has(pair: PairWorld) -> None:
    plain = await pair.demo.create(delay="PT1H")
    mirrored = (await make(pair, 3, 3600))[0]
    await pair.fail_over()
    assert (await pair.demo.get(f"/api/v1/events/{plain['id']}")).status == 503
    assert (await pair.demo.event(mirrored))["state"] == "scheduled"
    new = await pair.demo.create(delay="PT30S", id="there")
    assert (await pair.demo.delete(f"/api/v1/events/{mirrored}")).status == 204
    moved = await pair.demo.create(delay="PT1H")
    assert (await pair.demo.patch(f"/api/v1/events/{moved['id']}", {"delay": "PT20S"})).status == 200
    assert (await pair.admin.put("/api/v1/tenants/late", {})).status == 201
    await pair.run(60)
    assert pair.deliveries() == {new["id"]: 1, moved["id"]: 1}


async def test_mirrored_events_answer_503_until_the_second_may_serve(pair: PairWorld) -> None:
    mirrored = (await make(pair, 1, 3600))[0]
    pair.lose_first()
    assert (await pair.admin.post("/api/v1/storage/failover", {})).status == 202
    mirror = (await pair.storage_status())["mirror"]
    assert (mirror["active"], mirror["state"]) == ("second", "waiting") and 40 < mirror["serves_in_s"] <= 46
    answer = await pair.demo.delete(f"/api/v1/events/{mirrored}")
    assert answer.status == 503 and int(answer.headers["retry-after"]) >= 1
    await pair.run(47)
    assert (await pair.demo.delete(f"/api/v1/events/{mirrored}")).status == 204


async def test_owner_on_the_first_stops_when_the_fence_is_raised_though_its_account_is_well(pair: PairWorld) -> None:
    ids = [event_id for seconds in range(5, 95, 5) for event_id in await make(pair, 5, seconds)]
    await pair.run(20)
    # The account was not lost; an operator only thought so.
    assert (await pair.admin.post("/api/v1/storage/failover", {})).status == 202
    await pair.run(1)
    raised = pair.now
    await pair.run(200)
    assert set(pair.deliveries()) == set(ids)
    gap = [each.began for each in pair.receiver.received if raised + 11_000 < each.began < raised + 44_000]
    assert gap == []
    assert set(pair.second.states().values()) == {"delivered"}


async def test_failback_brings_everything_home_and_the_first_serves_again(pair: PairWorld) -> None:
    kept = await make(pair, 30, 400)
    ended = await make(pair, 30, 20)
    named = (await pair.demo.create(id="named", delay="PT400S", durability="mirrored"))["id"]
    await pair.run(10)
    await pair.fail_over()
    new = [(await pair.demo.create(delay="PT300S"))["id"], (await pair.demo.create(delay="PT300S", id="made-there"))["id"]]
    assert (await pair.demo.delete(f"/api/v1/events/{kept[0]}")).status == 204
    assert (await pair.demo.patch(f"/api/v1/events/{named}", {"delay": "PT280S"})).status == 200
    assert (await pair.admin.put("/api/v1/tenants/late", {})).status == 201
    await pair.run(30)
    pair.find_first()
    await pair.run(5)
    assert (await pair.admin.post("/api/v1/storage/failback", {})).status == 202
    await pair.run(120)
    mirror = (await pair.storage_status())["mirror"]
    assert (mirror["active"], mirror["state"], mirror["failback"]["failed"]) == ("first", "serving", 0)
    assert (await pair.app.serving()) is pair.app
    assert (await pair.admin.get("/api/v1/tenants/late")).status == 200
    states = pair.first.states()
    assert states[kept[0]] == "cancelled" and {states[event_id] for event_id in ended} == {"delivered"}
    assert {states[event_id] for event_id in (*new, named, *kept[1:])} == {"scheduled"}
    for event_id in (kept[1], named, *new):
        assert (await pair.demo.event(event_id))["state"] == "scheduled"
    # And the pair is whole again: the copies follow what the first does now.
    fresh = (await make(pair, 1, 150))[0]
    assert pair.second.states()[fresh] == "scheduled"
    await pair.run(400)
    counts = pair.deliveries()
    assert {event_id: counts.get(event_id) for event_id in (*kept[1:], named, *new, fresh)} == dict.fromkeys(
        (*kept[1:], named, *new, fresh), 1
    )
    assert kept[0] not in counts
    assert pair.first.states() == pair.second.states()


async def test_failback_takes_from_the_first_what_was_never_acknowledged(pair: PairWorld) -> None:
    # Half-way: in the first account only.
    pair.second.fails = lambda table, ops: table == EVENTS and bool(ops)
    body = {"id": "half", "delay": "PT300S", "payload": 1, "durability": "mirrored"}
    assert (await pair.demo.post("/api/v1/events", body)).status == 503
    assert pair.first.states() == {"half": "scheduled"} and pair.second.states() == {}
    pair.second.fails = None
    await pair.run(4)
    await pair.fail_over()
    assert (await pair.demo.post("/api/v1/events", body)).status == 201
    pair.find_first()
    await pair.run(5)
    assert (await pair.admin.post("/api/v1/storage/failback", {})).status == 202
    await pair.run(400)
    assert pair.deliveries() == {"half": 1}


@pytest.mark.parametrize("lost", ["tables", "stamp", "the pair's stamp"])
async def test_failback_to_an_account_that_lost_its_data_is_refused_with_the_reason(pair: PairWorld, lost: str) -> None:
    mirrored = (await make(pair, 1, 3600))[0]
    await pair.fail_over()
    pair.find_first()
    await pair.run(5)
    kept = dict(pair.first._tables)
    if lost == "tables":
        pair.first._tables.clear()
    else:
        pair.first._tables[SWEEPS] = {}
        if lost == "the pair's stamp":
            await account_stamps.home_stamp(pair.first)
    answer = await pair.admin.post("/api/v1/storage/failback", {})
    assert (answer.status, answer.json()["type"].rpartition("/")[2]) == (409, "first-not-recognised")
    mirror = (await pair.storage_status())["mirror"]
    assert (mirror["active"], mirror["state"]) == ("second", "serving")
    assert (await pair.demo.event(mirrored))["state"] == "scheduled"
    pair.first._tables.clear()
    pair.first._tables.update(kept)
    assert (await pair.admin.post("/api/v1/storage/failback", {})).status == 202


async def test_storage_is_for_operators_and_says_when_there_is_no_pair(pair: PairWorld) -> None:
    for method, url in (("GET", "/api/v1/storage"), ("POST", "/api/v1/storage/failover"), ("POST", "/api/v1/storage/failback")):
        assert (await pair.demo.call(method, url, {} if method == "POST" else None)).status == 403
    assert (await pair.admin.post("/api/v1/storage/failover", {"to": "third"})).status == 422
    answer = await pair.admin.post("/api/v1/storage/failback", {})
    assert answer.status == 202 and answer.json()["mirror"]["state"] == "serving"


async def test_what_the_second_missed_of_tenants_and_keys_is_made_up_for(pair: PairWorld) -> None:
    acme = await pair.tenant("acme")
    pair.second.away = True
    assert (await pair.admin.put("/api/v1/tenants/acme/channels/other", {"type": "http", "url": "http://localhost:7072/y"})).status == 201
    late = await pair.tenant("late")
    listed = (await pair.admin.get("/api/v1/tenants/acme/keys")).json()["items"]
    assert (await pair.admin.delete(f"/api/v1/tenants/acme/keys/{listed[0]['prefix']}")).status == 204
    pair.second.away = False
    await pair.run(4)
    assert (await pair.do(pair.app.failover.sweep(pair.now)))["followed"] > 0
    assert (await pair.do(pair.app.failover.sweep(pair.now)))["followed"] == 0
    await pair.fail_over()
    assert (await pair.admin.get("/api/v1/tenants/acme/channels/other")).status == 200
    assert (await late.create(delay="PT1H"))["tenant"] == "late"
    assert (await acme.post("/api/v1/events", {"delay": "PT1H", "payload": 1})).status == 401


async def test_retention_removes_both_copies(pair: PairWorld) -> None:
    await make(pair, 3, 5)
    await pair.demo.create(id="named", delay="PT5S", durability="mirrored")
    await pair.run(30)
    await pair.clock.advance(8 * 86_400)
    counts = await pair.do(pair.app.timers.run_once("retention_scan"))
    assert counts["retention"]["removed"] == 1, "they share a shard"
    for tables in (pair.first, pair.second):
        assert not tables._tables[EVENTS] and not tables._tables[IDS] and not tables._tables[LEDGER]


async def test_mirrored_shards_wait_while_it_is_unknown_which_side_serves(pair: PairWorld) -> None:
    ids = await make(pair, 10, 20)
    await pair.run(1)
    pair.second.away = True
    await pair.run(60)
    assert pair.deliveries() == {}
    pair.second.away = False
    await pair.run(60)
    assert pair.deliveries() == dict.fromkeys(ids, 1)
    assert set(pair.second.states().values()) == {"delivered"}


async def test_figures_show_the_lag_of_the_copies(pair: PairWorld) -> None:
    await make(pair, 1, 3600)
    assert (await pair.demo.get("/api/v1/stats")).json()["mirror_lag_ms"] == 0
    await pair.fail_over()
    assert (await pair.demo.get("/api/v1/stats")).status == 503


async def test_readiness_shows_each_account(pair: PairWorld) -> None:
    await pair.run(1)
    answer = await pair.nobody.get("/api/readyz")
    assert answer.json()["storage"] == {"reachable": True, "accounts": {"0": True, "m": True}}
    assert {each["role"]: each["reachable"] for each in (await pair.storage_status())["accounts"]} == {"home": True, "second": True}


async def test_a_process_that_starts_while_the_first_account_is_away_dispatches_on_the_second(pair: PairWorld) -> None:
    await make(pair, 1, 3600)
    await pair.fail_over()
    # No timer runs: its lease may be in the account that is away.
    await pair.clock.advance(600)
    young = asyncio.ensure_future(pair.app.recover())
    started = pair.now
    await pair.clock.advance(5, settle=15)
    [tick] = [row for row in pair.rows_of(pair.second, SWEEPS) if row.rk == TICKED]
    assert int(tick.props["at"]) >= started
    young.cancel()


async def test_the_state_of_storage_names_the_functions_that_poll_each_account(pair: PairWorld) -> None:
    def registered(suffix: str) -> list[str]:
        app = func.FunctionApp()
        app.register_functions(queue_functions(pair.get_app, suffix=suffix))
        return [each.get_function_name() for each in app.get_functions()]

    shown = {each["role"]: each["listeners"] for each in (await pair.storage_status())["accounts"]}
    assert {role: sorted(names) for role, names in shown.items()} == {
        "home": sorted(registered("")),
        "second": sorted(registered(SECOND)),
    }


async def test_mirrored_events_are_left_out_of_express_delivery_and_others_are_not() -> None:
    world = PairWorld(express_events=5)
    await world.open()
    mirrored = await world.demo.create(delay="PT0S", durability="mirrored")
    assert world.app.scheduler.counters["shards_express"] == 0
    plain = await world.demo.create(delay="PT0S")
    assert world.app.scheduler.counters["shards_express"] == 1
    await world.run(6)
    assert {each.id for each in world.receiver.received} == {mirrored["id"], plain["id"]}
    await world.close()
