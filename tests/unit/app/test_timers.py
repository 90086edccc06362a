"""The sweep: a job that fails, or that storage does not answer, neither stops nor delays the others, and busy jobs run again soon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import orjson
import pytest

from shared.app import timers
from shared.app.timer_jobs import under_way
from shared.app.timers import PERIODS, SOON, SOON_LATEST, Job, Jobs, SweepFailed, Timers
from shared.core.clock import Millis, SettableClock
from shared.core.errors import Unavailable
from shared.ops.health.rules import SILENT_PERIODS
from shared.scheduler.wakes.service import SWEEP_ROW, times_of
from shared.storage import Storage
from shared.storage.memory import MemoryQueues, MemoryTables
from shared.storage.names import ALL_QUEUES, ALL_TABLES, PK_TICKS, QUEUE_SWEEPS, SWEEPS
from shared.storage.ports import RowQuery, Upsert
from tests.waiting import eventually


class Stage:
    """Jobs of one part each, on storage in memory."""

    def __init__(self, jobs: Mapping[str, Mapping[str, Job]]) -> None:
        self.clock = SettableClock()
        self.tables, self.queues = MemoryTables(self.clock), MemoryQueues(self.clock)
        parts = {job: tuple(named.items()) for job, named in jobs.items()}
        self.stretch = 1.0
        self.timers = Timers(
            Storage(self.tables, self.queues), self.clock, Jobs(parts, under_way=_has_counts), stretch=lambda: self.stretch
        )

    async def open(self) -> Stage:
        await self.tables.ensure(ALL_TABLES)
        await self.queues.ensure(ALL_QUEUES)
        return self

    async def ticks(self) -> dict[str, tuple[int, int]]:
        page = await self.tables.query(RowQuery(SWEEPS, PK_TICKS))
        return {row.rk: (int(row.props["at"]), int(row.props["failed"])) for row in page.rows if "at" in row.props}


def _has_counts(job: str, counts: timers.Counts) -> bool:
    return any(number for part in counts.values() for number in part.values())


async def silent(now: Millis) -> Mapping[str, int]:
    await asyncio.Event().wait()
    return {}


async def idle(now: Millis) -> Mapping[str, int]:
    return {}


async def busy(now: Millis) -> Mapping[str, int]:
    return {"under_way": 1}


async def fails(now: Millis) -> Mapping[str, int]:
    raise ValueError("a bug")


async def test_a_part_that_storage_does_not_answer_ends_and_the_other_has_run_beside_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(timers, "RUN_FOR", {"scheduler_scan": 0.01})
    ran: list[Millis] = []

    async def recurring(now: Millis) -> Mapping[str, int]:
        ran.append(now)
        return {"stored": 1}

    stage = await Stage({"scheduler_scan": {"dispatch": silent, "recurring": recurring}}).open()
    with caplog.at_level(logging.WARNING), pytest.raises(SweepFailed, match=r"scheduler_scan: dispatch failed"):
        await stage.timers.run_once("scheduler_scan")
    assert len(ran) == 1
    assert [vars(record)["action"] for record in caplog.records] == ["sweep_cut_off"]
    assert await stage.ticks() == {"scheduler_scan": (stage.clock.now(), 1)}


@pytest.mark.parametrize("job", PERIODS)
async def test_parts_of_a_job_do_not_wait_for_each_other(job: str) -> None:
    dispatched = asyncio.Event()

    async def first(now: Millis) -> Mapping[str, int]:
        await dispatched.wait()
        return {"sent": 1}

    async def second(now: Millis) -> Mapping[str, int]:
        dispatched.set()
        return {"stored": 1}

    stage = await Stage({job: {"first": first, "second": second}}).open()
    assert await stage.timers.run_once(job) == {"first": {"sent": 1}, "second": {"stored": 1}}


async def test_a_failed_job_does_not_stop_the_others_and_the_sweep_names_it() -> None:
    stage = await Stage({"scheduler_scan": {"dispatch": fails}, "lease_scan": {"takeover": idle}, "stale_scan": {"leases": fails}}).open()
    with pytest.raises(SweepFailed, match=r"scheduler_scan: dispatch .*; stale_scan: leases "):
        await stage.timers.sweep()
    now = stage.clock.now()
    assert await stage.ticks() == {"scheduler_scan": (now, 1), "lease_scan": (now, 0), "stale_scan": (now, 1)}


async def test_the_quick_jobs_go_on_each_period_while_a_slow_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "SWEEP_PERIOD", 0.02)
    monkeypatch.setattr(timers, "DECIDED_WITHIN", 0.01)
    monkeypatch.setattr(timers, "RUN_FOR", {"scheduler_scan": 0.01, "retention_scan": 300.0})
    third, runs = asyncio.Event(), {"scheduler_scan": 0, "retention_scan": 0}

    async def quick(now: Millis) -> Mapping[str, int]:
        runs["scheduler_scan"] += 1
        if runs["scheduler_scan"] == 3:
            third.set()
        return {}

    async def slow(now: Millis) -> Mapping[str, int]:
        runs["retention_scan"] += 1
        await third.wait()
        return {}

    stage = await Stage({"scheduler_scan": {"dispatch": quick}, "retention_scan": {"retention": slow}}).open()
    await stage.timers.sweep()
    assert runs["scheduler_scan"] >= 3 and runs["retention_scan"] == 1


async def test_a_job_runs_at_its_own_period_whichever_instance_ran_it_last() -> None:
    stage = await Stage({"scheduler_scan": {"dispatch": idle}, "retention_scan": {"retention": idle}}).open()
    assert set(await stage.timers.sweep()) == {"scheduler_scan", "retention_scan"}, "no run is stored yet"
    await stage.clock.advance(3500)
    assert set(await stage.timers.sweep()) == {"scheduler_scan"}
    await stage.clock.advance(70)
    assert set(await stage.timers.sweep()) == {"scheduler_scan", "retention_scan"}
    await stage.tables.write(SWEEPS, PK_TICKS, [Upsert("retention_scan", {"at": stage.clock.now() + 86_400_000})])
    assert "retention_scan" in await stage.timers.sweep(), "a clock that was ahead does not keep the job from its work"


async def test_a_job_that_can_wait_runs_half_as_often_while_storage_refuses_requests() -> None:
    stage = await Stage({"scheduler_scan": {"dispatch": idle}, "retention_scan": {"retention": idle}}).open()
    await stage.timers.sweep()
    stage.stretch = 8.0
    await stage.clock.advance(PERIODS["retention_scan"] + 60)
    assert set(await stage.timers.sweep()) == {"scheduler_scan"}
    await stage.clock.advance(PERIODS["retention_scan"] - 60)
    assert set(await stage.timers.sweep()) == {"scheduler_scan", "retention_scan"}
    assert timers.MAX_STRETCH < SILENT_PERIODS, "the app stays ready"


async def test_a_busy_or_failed_job_runs_again_before_the_next_sweep_and_an_idle_one_does_not() -> None:
    jobs = {"scheduler_scan": {"dispatch": busy}, "lease_scan": {"takeover": fails}, "stale_scan": {"leases": busy}}
    stage = await Stage(jobs).open()
    with pytest.raises(SweepFailed):
        await stage.timers.sweep()
    began = stage.clock.now()
    assert await stage.queues.receive(QUEUE_SWEEPS) == []
    for wait in SOON:
        await stage.clock.advance(15)
        (message,) = await stage.queues.receive(QUEUE_SWEEPS)
        assert orjson.loads(message.text) == {"jobs": ["scheduler_scan", "lease_scan"], "at": began + round(1000 * wait)}
        await stage.timers.run_soon(message.text)
        ticks = await stage.ticks()
        now = stage.clock.now()
        assert ticks == {"scheduler_scan": (now, 0), "lease_scan": (now, 1), "stale_scan": (began, 0)}
    await stage.clock.advance(15)
    assert await stage.queues.receive(QUEUE_SWEEPS) == [], "a run in between plans no further ones"


async def test_a_job_that_takes_long_runs_again_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "DECIDED_WITHIN", 0.01)
    decided = asyncio.Event()

    async def slow(now: Millis) -> Mapping[str, int]:
        await decided.wait()
        return {"under_way": 1}

    stage = await Stage({"scheduler_scan": {"dispatch": slow}, "lease_scan": {"takeover": busy}}).open()
    sweep = asyncio.create_task(stage.timers.sweep())

    async def planned() -> bool:
        return await stage.queues.length(QUEUE_SWEEPS) == len(SOON)

    await eventually(planned, "the runs of the quick job, planned while the slow one runs", pause=0.01)
    decided.set()
    await sweep
    await stage.clock.advance(60)
    found = [orjson.loads(message.text)["jobs"] for message in await stage.queues.receive(QUEUE_SWEEPS)]
    assert sorted(found) == [["lease_scan"]] * 3 + [["scheduler_scan"]] * 3


async def test_a_sweep_right_after_a_run_in_between_plans_the_next_ones_in_its_place() -> None:
    stage = await Stage({job: {"part": busy} for job in PERIODS}).open()
    await stage.timers.sweep()
    await stage.clock.advance(46)
    for message in await stage.queues.receive(QUEUE_SWEEPS):
        await stage.timers.run_soon(message.text)
    await stage.clock.advance(9)
    assert await stage.timers.sweep(past_due=True) == {"stale_scan": {"part": {"under_way": 1}}}
    assert await stage.queues.length(QUEUE_SWEEPS) == 2 * len(SOON)


async def test_the_timer_is_not_silent_while_a_slow_job_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "SWEEP_PERIOD", 0.02)
    released = asyncio.Event()

    async def slow(now: Millis) -> Mapping[str, int]:
        await released.wait()
        return {}

    stage = await Stage({"scheduler_scan": {"dispatch": idle}, "stale_scan": {"leases": slow}}).open()
    monkeypatch.setattr(timers, "RUN_FOR", {"scheduler_scan": 0.01, "stale_scan": 300.0})
    sweep = asyncio.create_task(stage.timers.sweep())
    await asyncio.sleep(0)
    await stage.clock.advance(120)

    async def noted() -> bool:
        row = await stage.tables.get(SWEEPS, PK_TICKS, SWEEP_ROW)
        return row is not None and times_of(row).began == stage.clock.now()

    await eventually(noted, "the start of the quick jobs' next run", pause=0.01)
    released.set()
    await sweep


@pytest.mark.parametrize(("took", "waits"), [(0.0, [15, 30, 45]), (12.0, [15, 30, 45]), (20.0, [30]), (44.0, [45]), (50.0, [])])
def test_runs_in_between_leave_room_for_each_other(took: float, waits: list[int]) -> None:
    assert timers.runs_between(took) == waits


async def test_an_idle_sweep_reads_once_writes_twice_and_sends_nothing() -> None:
    stage = await Stage({job: {"part": idle} for job in PERIODS}).open()
    await stage.timers.sweep()
    stage.tables.transactions.clear()
    await stage.timers.sweep()
    assert {name: stage.tables.transactions[name] for name in ("get", "query", "write")} == {"get": 0, "query": 1, "write": 2}
    assert await stage.queues.length(QUEUE_SWEEPS) == 0


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"jobs": ["scheduler_scan"]}', '{"jobs": 3, "at": 0}', '{"jobs": ["unknown"], "at": 9e12}']
)
async def test_a_message_that_is_not_the_sweeps_or_names_a_job_of_another_version_does_nothing(text: str) -> None:
    stage = await Stage({"scheduler_scan": {"dispatch": busy}}).open()
    await stage.timers.run_soon(text)
    assert await stage.ticks() == {}


async def test_a_message_that_comes_too_late_is_left_out() -> None:
    stage = await Stage({"scheduler_scan": {"dispatch": busy}}).open()
    text = orjson.dumps({"jobs": ["scheduler_scan"], "at": stage.clock.now() - SOON_LATEST - 1}).decode()
    await stage.timers.run_soon(text)
    assert await stage.ticks() == {}


async def test_a_queue_that_refuses_the_messages_fails_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    stage = await Stage({"scheduler_scan": {"dispatch": busy}}).open()

    async def refuse(queue: str, text: str, *, visible_in: float = 0.0) -> None:
        raise Unavailable("away")

    monkeypatch.setattr(stage.queues, "send", refuse)
    with caplog.at_level(logging.WARNING):
        assert await stage.timers.sweep() == {"scheduler_scan": {"dispatch": {"under_way": 1}}}
    assert [vars(record)["action"] for record in caplog.records] == ["sweep_unplanned"]


@pytest.mark.parametrize(
    ("job", "counts", "expected"),
    [
        ("scheduler_scan", {"dispatch": {"seen": 9, "under_way": 0}, "recurring": {"stored": 3}}, False),
        ("scheduler_scan", {"dispatch": {"under_way": 1}}, True),
        ("scheduler_scan", {"recurring": {"waiting": 1}}, True),
        ("scheduler_scan", {"recurring": {"partly": 1}}, True),
        ("lease_scan", {"takeover": {}, "turns": {}, "maintenance": {}}, False),
        ("lease_scan", {"takeover": {"fleets": 2, "idle": 2}}, False),
        ("lease_scan", {"takeover": {"fleets": 2, "idle": 1}}, True),
        ("lease_scan", {"takeover": {"fleets": 1, "idle": 1}, "turns": {"fleets": 1}}, True),
    ],
)
def test_which_counts_show_unfinished_work(job: str, counts: timers.Counts, expected: bool) -> None:
    assert under_way(job, counts) is expected


def test_one_cause_of_delay_makes_no_occurrence_and_no_shard_late() -> None:
    from shared.scheduler.recurring.chain import CLEAR_FOR
    from shared.scheduler.timings import CLAIM_TAKEN_OVER_AFTER, DISPATCH_AHEAD, OCCURRENCES_AHEAD, SILENCE

    period, soon = timers.SWEEP_PERIOD, SOON[0]
    assert timers.RUN_FOR["scheduler_scan"] < period, "a sweep that is cut off costs no other"
    assert 1000 * period + SILENCE <= DISPATCH_AHEAD
    # A schedule is stored just after a sweep, and the next one leaves its partition out. The process of the third is killed while it has
    # claimed occurrences: the lock of the timer (60 s), the next minute, two runs in another process.
    assert 1000 * (2 * period + 60 + period + CLAIM_TAKEN_OVER_AFTER + soon) <= OCCURRENCES_AHEAD
    assert 1000 * period < CLEAR_FOR < 1000 * 2 * period, "one sweep leaves a partition out, even if it comes late"


async def test_a_process_that_starts_dispatches_at_once_only_after_minutes_without_a_sweep() -> None:
    ran: list[Millis] = []

    async def dispatch(now: Millis) -> Mapping[str, int]:
        ran.append(now)
        return {}

    stage = await Stage({"scheduler_scan": {"dispatch": dispatch}}).open()
    assert await stage.timers.catch_up() and len(ran) == 1, "the process that stored the first events may have ended before its first sweep"
    await stage.clock.advance(119)
    assert not await stage.timers.catch_up()
    await stage.clock.advance(1)
    assert await stage.timers.catch_up() and len(ran) == 2
    assert not await stage.timers.catch_up() and len(ran) == 2
    assert await stage.queues.length(QUEUE_SWEEPS) == 0


async def test_a_backlog_that_is_found_at_the_start_is_drained_further_before_the_next_sweep() -> None:
    stage = await Stage({"scheduler_scan": {"dispatch": busy}}).open()
    assert await stage.timers.catch_up() and await stage.queues.receive(QUEUE_SWEEPS) == []
    for wait in SOON:
        await stage.clock.advance(15)
        (message,) = await stage.queues.receive(QUEUE_SWEEPS)
        assert orjson.loads(message.text)["jobs"] == ["scheduler_scan"], wait


async def test_a_sweep_at_the_start_that_fails_stops_nothing() -> None:
    stage = await Stage({"scheduler_scan": {"dispatch": fails}}).open()
    with pytest.raises(SweepFailed):
        await stage.timers.run_once("scheduler_scan")
    await stage.clock.advance(120)
    assert await stage.timers.catch_up()
