"""Sweeps and timers: dispatch, repair, retention, and what a tick leaves behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from shared.app.timers import Jobs, SweepFailed, Timers
from shared.core.clock import Millis, SettableClock
from shared.core.errors import Unavailable
from shared.delivery.channels.ports import Verdict
from shared.engine.stored_forms import STORED_FORMS, TICK_FORMS
from shared.scheduler import timings
from shared.scheduler.keys import NEWS, index_key, index_partition, shard_key
from shared.scheduler.sweeps import index
from shared.storage import Storage
from shared.storage.memory import MemoryQueues, MemoryTables
from shared.storage.names import EVENTS, IDS, LEDGER, PK_TICKS, QUEUE_SHARDS, SHARDS, SWEEPS
from shared.storage.ports import Insert, Merge, RowQuery

from ..harness import START, World

DAY = 86_400.0
HOUR = 3_600_000


async def dispatch(world: World) -> Counter[str]:
    return await world.app.scheduler.sweeps.dispatch(world.now)


async def retain(world: World) -> Counter[str]:
    return await world.app.scheduler.sweeps.retain(["demo"], world.now)


# ---- dispatch and repair


async def test_sweep_sends_what_is_due_within_two_minutes_and_leaves_the_rest(world: World) -> None:
    await world.demo.create(delay="PT1H")
    assert (await dispatch(world))["sent"] == 0
    await world.clock.advance(3600 - 119)
    assert (await dispatch(world))["sent"] == 1
    [sent] = world.queues._queues[QUEUE_SHARDS].messages.values()
    assert timings.WAKE_EARLY - 1_000 <= START + HOUR - sent.visible <= timings.WAKE_EARLY + timings.OPEN_BEFORE + 10
    assert (await dispatch(world))["sent"] == 0, "a timer that fires twice does no harm"


async def test_message_of_a_shard_with_many_events_comes_earlier(world: World) -> None:
    body = [{"delay": "PT1H", "payload": 1}] * 900
    assert (await world.demo.post("/api/v1/events/batch", body)).json()["accepted"] == 900
    await world.clock.advance(3600 - 119)
    assert (await dispatch(world))["sent"] == 1
    [sent] = world.queues._queues[QUEUE_SHARDS].messages.values()
    assert START + HOUR - sent.visible > timings.WAKE_EARLY + 900 * timings.WAKE_EARLY_EACH - 1_000


async def test_sweep_costs_the_same_whatever_waits_far_ahead(world: World) -> None:
    async def cost() -> dict[str, int]:
        before = Counter(world.tables.transactions)
        await dispatch(world)
        return dict(Counter(world.tables.transactions) - before)

    few = await cost()
    for minute in range(120):
        await world.demo.create(due=f"2027-01-16T{minute // 60:02}:{minute % 60:02}:00Z")
    assert await cost() == few


async def test_overdue_shard_without_an_owner_is_sent_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.demo.create(delay="PT1S")
    await world.queues.receive(QUEUE_SHARDS)
    await world.clock.advance(30)
    assert (await dispatch(world))["resent"] == 0
    await world.clock.advance(30)
    found = await dispatch(world)
    assert (found["resent"], found["overdue"]) == (1, 1)
    assert "had no owner" in caplog.text


async def test_shard_whose_owner_is_alive_is_left_alone(world: World) -> None:
    world.receiver.takes = 100.0
    await world.demo.create(delay="PT1S")
    await world.run(80)
    assert (await dispatch(world))["resent"] == 0
    assert world.app.scheduler.counters["shards_taken"] == 1


async def test_shard_that_was_filed_and_never_filled_is_finished_and_leaves_no_trace(world: World) -> None:
    shard = shard_key("demo", "0123456789abcdef")
    props = {"state": "pending", "wake": START, "bucket": "202701150800", "tenant": "demo"}
    await world.tables.write(SHARDS, index_partition(shard), (Insert(index_key(shard, START), props),))
    await world.run(20)
    assert world.rows(SHARDS) == []
    assert [row.props["accepted"] for row in world.rows(LEDGER)] == [0], "so that retention finds its gate"


# ---- retention


async def finished(world: World, **event: Any) -> dict[str, Any]:
    made = await world.demo.create(**({"delay": "PT1S"} | event))
    await world.run(5)
    return made


async def test_finished_shard_is_kept_for_seven_days_and_then_gone_with_its_id(world: World) -> None:
    made = await finished(world, id="mine")
    assert await retain(world) == {}
    await world.clock.advance(7 * DAY - 60)
    assert await retain(world) == {} and (await world.demo.event("mine"))["state"] == "delivered"
    await world.clock.advance(120)
    assert await retain(world) == {"removed": 1}
    assert [world.rows(table) for table in (EVENTS, LEDGER, IDS, SHARDS)] == [[], [], [], []]
    assert (await world.demo.get(f"/api/v1/events/{made['id']}")).status == 404
    assert (await world.demo.create(id="mine", payload="another"))["state"] == "scheduled"


async def test_retention_pauses_between_pages_while_storage_refuses_requests(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        await finished(world)
        await world.clock.advance(120)
    await world.clock.advance(8 * DAY)
    query, began = world.tables.query, list[float]()

    async def slow(asked: RowQuery) -> Any:
        if asked.table == LEDGER and asked.where:
            began.append(world.clock.monotonic())
            await world.clock.sleep(2)
        return await query(asked)

    monkeypatch.setattr(world.tables, "query", slow)
    monkeypatch.setattr(index, "RETAIN_PAGE", 1)
    monkeypatch.setattr(world.app.scheduler.sweeps, "_pressure", SimpleNamespace(stretch=3.0))
    running = asyncio.create_task(retain(world))
    await world.clock.advance(60)
    assert await running == {"removed": 2}
    assert began[1] - began[0] == pytest.approx(2 + 2 * (3.0 - 1)), "the page took 2 s"


async def old_shards(world: World, count: int) -> None:
    """Leave finished shards with an event each, whose time is over."""
    for _ in range(count):
        await finished(world)
        await world.clock.advance(60)
    await world.clock.advance(8 * DAY)


class Removals:
    """Makes each removal of a shard take some seconds. most: greatest number of removals side by side."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.most = self._under_way = 0
        remove = world.app.scheduler.sweeps._remove

        async def slow(*given: Any) -> str:
            self._under_way += 1
            self.most = max(self.most, self._under_way)
            await world.clock.sleep(seconds)
            self._under_way -= 1
            return await remove(*given)

        monkeypatch.setattr(world.app.scheduler.sweeps, "_remove", slow)


@pytest.mark.parametrize(("events", "most"), [(index.RETAIN_EVENTS, 12), (3, 3)])
async def test_finished_shards_are_removed_side_by_side_up_to_a_number_of_events(
    world: World, monkeypatch: pytest.MonkeyPatch, events: int, most: int
) -> None:
    await old_shards(world, 12)
    monkeypatch.setattr(index, "RETAIN_EVENTS", events)
    removals = Removals(world, monkeypatch, 1)
    assert await world.do(world.app.scheduler.sweeps.retain(["demo"], world.now)) == {"removed": 12}
    assert removals.most == most and world.rows(EVENTS) == []


async def test_retention_goes_on_each_minute_after_a_run_that_was_too_short(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await old_shards(world, 3)
    monkeypatch.setattr(index, "RETAIN_EVENTS", 1)
    Removals(world, monkeypatch, timings.RETENTION_RUN_FOR / 2 + 1)
    found = [(await world.do(world.app.timers.run_once(job)))["retention"] for job in ("retention_scan", "stale_scan", "stale_scan")]
    assert found == [{"removed": 2, "cut": 1}, {"removed": 1}, {}]


async def test_runs_of_retention_begin_with_different_tenants_and_count_those_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "RETAIN_TENANTS", 1)
    query, asked = world.tables.query, list[str]()

    async def slow(wanted: RowQuery) -> Any:
        if wanted.where:
            asked.append(wanted.pk)
            await world.clock.sleep(10)
        return await query(wanted)

    monkeypatch.setattr(world.tables, "query", slow)
    names = ["a", "b", "c"]
    for minute in range(3):
        assert await world.do(world.app.scheduler.sweeps.retain(names, minute * 60_000, 5.0)) == {"cut": 2}
    assert asked == names


async def test_runs_that_remove_rejects_begin_with_different_tenants(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    query, asked = world.tables.query, list[str]()

    async def noted(wanted: RowQuery) -> Any:
        asked.append(wanted.pk)
        return await query(wanted)

    monkeypatch.setattr(world.tables, "query", noted)
    for minute in range(3):
        await world.app.scheduler.rejects.retain(["a", "b"], minute * 60_000)
    assert asked[::6] == [":rejects", "a:rejects", "b:rejects"], "two ranges of three partitions each"


async def test_retention_that_storage_refuses_begins_with_no_further_tenant(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    query, asked = world.tables.query, list[str]()

    async def refuse(wanted: RowQuery) -> Any:
        if wanted.where:
            asked.append(wanted.pk)
            raise Unavailable("503")
        return await query(wanted)

    monkeypatch.setattr(world.tables, "query", refuse)
    with pytest.raises(Unavailable):
        await world.app.scheduler.sweeps.retain([f"t{number}" for number in range(40)], world.now)
    assert 1 <= len(asked) <= index.RETAIN_TENANTS


async def test_dead_letters_are_kept_for_thirty_days(world: World) -> None:
    world.receiver.otherwise = Verdict("final", 400, "answered 400")
    await finished(world)
    await world.clock.advance(29 * DAY)
    assert await retain(world) == {} and len(await world.demo.all("/api/v1/dead-letters")) == 1
    await world.clock.advance(2 * DAY)
    assert await retain(world) == {"removed": 1} and await world.demo.all("/api/v1/dead-letters") == []


async def test_shard_an_event_has_moved_from_is_kept_while_the_event_lives(world: World) -> None:
    made = await world.demo.create(delay="PT1S")
    assert (await world.demo.patch(f"/api/v1/events/{made['id']}", {"delay": "P20D"})).status == 200
    await world.run(5)
    for _ in range(4):
        await world.clock.advance(3 * DAY)
        await retain(world)
        assert (await world.demo.event(made["id"]))["state"] == "scheduled"
    kept = [row for row in world.rows(LEDGER)]
    assert len(kept) == 1 and kept[0].props["keep"] > world.now
    await world.clock.advance(9 * DAY)
    await world.run(20)
    assert (await world.demo.event(made["id"]))["state"] == "delivered"
    for _ in range(12):
        await world.clock.advance(DAY)
        await retain(world)
    assert world.rows(EVENTS) == [] and world.rows(LEDGER) == []


async def test_a_move_that_stopped_before_its_pointer_delivers_once_although_its_copy_is_gone_by_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await world.demo.create(delay="P60D")
    write = world.tables.write

    async def dies(table: str, pk: str, ops: Any) -> Any:
        if any(isinstance(op, Merge) and op.props.get("state") == "moved" for op in ops):
            raise RuntimeError("the process is gone")
        return await write(table, pk, ops)

    with monkeypatch.context() as patch:
        patch.setattr(world.tables, "write", dies)
        assert (await world.demo.post(f"/api/v1/events/{made['id']}/fire")).status == 500
    await world.run(30)
    assert len(world.receiver.received) == 1
    await world.clock.advance(8 * DAY)
    assert await retain(world) == {"removed": 1}
    [row] = world.events()
    assert row.props["state"] == "moved"
    await world.clock.advance(53 * DAY)
    await world.run(20)
    assert len(world.receiver.received) == 1, "the owner of the former place must not place the event once more"


async def test_id_that_names_another_place_by_now_is_left_alone(world: World) -> None:
    await finished(world, id="mine")
    [row] = world.rows(IDS)
    await world.tables.write(IDS, row.pk, (Merge(row.rk, {"at": "00-0000000000000000-demo/e000"}, row.etag),))
    await world.clock.advance(8 * DAY)
    assert await retain(world) == {"removed": 1}
    assert len(world.rows(IDS)) == 1


async def test_removal_that_is_cut_short_is_carried_on_by_the_next(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await finished(world, id="mine")
    await world.clock.advance(8 * DAY)
    write, left = world.tables.write, [0]
    for allowed in range(10):
        left[0] = allowed

        async def dies(table: str, pk: str, ops: Any) -> Any:
            if not left[0]:
                raise RuntimeError("the process is gone")
            left[0] -= 1
            return await write(table, pk, ops)

        monkeypatch.setattr(world.tables, "write", dies)
        try:
            await retain(world)
        except RuntimeError:
            kept = [row for row in world.rows(LEDGER) if not row.rk.startswith(NEWS)]
            assert len(kept) == 1, "what is left can still be found"
            continue
        break
    assert [world.rows(table) for table in (EVENTS, LEDGER, IDS)] == [[], [], []]


async def test_large_shard_is_removed_whole(world: World) -> None:
    answer = await world.demo.post("/api/v1/events/batch", [{"delay": "PT1S", "payload": 1}] * 350)
    assert answer.json()["accepted"] == 350
    await world.run(10)
    assert len(world.receiver.received) == 350
    await world.clock.advance(8 * DAY)
    await retain(world)
    assert world.rows(EVENTS) == [] and world.rows(LEDGER) == []


async def test_timer_of_retention_goes_through_every_tenant(world: World) -> None:
    client = await world.tenant("acme")
    for each in (world.demo, client):
        await each.create(delay="PT1S")
    await world.run(5)
    await world.clock.advance(8 * DAY)
    assert (await world.app.timers.run_once("retention_scan"))["retention"] == {"removed": 2}


# ---- timers


async def timers(**jobs: Any) -> tuple[Timers, MemoryTables, SettableClock]:
    clock = SettableClock(START)
    tables = MemoryTables(clock)
    await tables.ensure((SWEEPS,))
    return Timers(Storage(tables, MemoryQueues(clock)), clock, Jobs({"scan": list(jobs.items())})), tables, clock


async def counted(now: Millis) -> Counter[str]:
    return Counter(seen=now)


async def fails(now: Millis) -> Counter[str]:
    raise RuntimeError("broken")


async def test_failing_job_does_not_stop_the_next_and_is_named_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    ran: list[Millis] = []

    async def after(now: Millis) -> Counter[str]:
        ran.append(now)
        return Counter()

    running, tables, _ = await timers(first=counted, second=fails, third=after)
    with pytest.raises(SweepFailed, match="scan: second failed"):
        await running.run_once("scan")
    assert ran == [START] and "second of scan failed" in caplog.text
    row = await tables.get(SWEEPS, PK_TICKS, "scan")
    assert row is not None and row.props == {"at": START, "failed": 1, TICK_FORMS: STORED_FORMS}


async def test_tick_leaves_its_time_and_answers_the_counts_of_each_job() -> None:
    running, tables, clock = await timers(first=counted)
    assert await running.run_once("scan") == {"first": {"seen": START}}
    await clock.advance(15)
    await running.run_once("scan")
    row = await tables.get(SWEEPS, PK_TICKS, "scan")
    assert row is not None and row.props == {"at": START + 15_000, "failed": 0, TICK_FORMS: STORED_FORMS}


async def test_readiness_shows_the_timers_ticks(world: World) -> None:
    await world.app.timers.run_once("scheduler_scan")
    await world.clock.advance(20)
    ready = (await world.nobody.get("/api/readyz")).json()
    assert ready["timers"]["scheduler_scan"] == {"age_s": 20.0, "late": False}


# ---- figures


async def test_figures_are_those_of_gates_and_of_the_last_days_ledger(world: World) -> None:
    await finished(world)
    await finished(world)
    stats = world.app.scheduler.stats
    await world.demo.create()
    found = await stats.of("demo", world.now)
    assert (found["open"], found["delivered"], found["overdue"], found["late_ms"]) == (1, 2, 0, {"p50": 0, "p99": 0, "max": 0})
    late = {"p50": 0, "p99": 0, "max": 0}
    assert found["channels"] == {"default": {"state": "ok", "held": 0, "delivered": 2, "dead": 0, "late_ms": late}}
    await world.clock.advance(2 * DAY)
    found = await stats.of("demo", world.now)
    assert (found["open"], found["delivered"], found["overdue"], found["channels"]) == (1, 0, 1, {})
