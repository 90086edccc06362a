"""Timers: a job that fails, or that storage does not answer, does not keep the others from their work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest

from shared.app import timers
from shared.app.timers import Job, SweepFailed, Timers
from shared.core.clock import Millis, SettableClock
from shared.ops.health.service import PK_TICKS
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES, SWEEPS


async def timers_of(jobs: Mapping[str, Job], timer: str) -> tuple[Timers, MemoryTables]:
    clock = SettableClock()
    tables = MemoryTables(clock)
    await tables.ensure(ALL_TABLES)
    return Timers(tables, clock, {timer: tuple(jobs.items())}), tables


async def silent(now: Millis) -> Mapping[str, int]:
    await asyncio.Event().wait()
    return {}


async def test_a_job_that_storage_does_not_answer_ends_and_the_other_has_run_beside_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(timers, "RUN_FOR", {"scheduler_scan": 0.01})
    ran: list[Millis] = []

    async def recurring(now: Millis) -> Mapping[str, int]:
        ran.append(now)
        return {"stored": 1}

    with caplog.at_level(logging.WARNING):
        made, tables = await timers_of({"dispatch": silent, "recurring": recurring}, "scheduler_scan")
        with pytest.raises(SweepFailed, match="scheduler_scan: dispatch failed"):
            await made.run_once("scheduler_scan")
    assert len(ran) == 1
    assert [vars(record)["action"] for record in caplog.records] == ["sweep_cut_off"]
    tick = await tables.get(SWEEPS, PK_TICKS, "scheduler_scan")
    assert tick is not None and tick.props["failed"] == 1


async def test_sweeps_of_the_scheduler_do_not_wait_for_each_other() -> None:
    dispatched = asyncio.Event()

    async def dispatch(now: Millis) -> Mapping[str, int]:
        await dispatched.wait()
        return {"sent": 1}

    async def recurring(now: Millis) -> Mapping[str, int]:
        dispatched.set()
        return {"stored": 1}

    made, _ = await timers_of({"dispatch": dispatch, "recurring": recurring}, "scheduler_scan")
    assert await made.run_once("scheduler_scan") == {"dispatch": {"sent": 1}, "recurring": {"stored": 1}}


@pytest.mark.parametrize("timer", ["scheduler_scan", "stale_scan"])
async def test_a_failed_job_does_not_stop_the_others(timer: str) -> None:
    async def fails(now: Millis) -> Mapping[str, int]:
        raise ValueError("a bug")

    ran: list[str] = []

    async def works(now: Millis) -> Mapping[str, int]:
        ran.append("works")
        return {}

    made, _ = await timers_of({"fails": fails, "works": works}, timer)
    with pytest.raises(SweepFailed, match=f"{timer}: fails failed"):
        await made.run_once(timer)
    assert ran == ["works"]


def test_a_cut_off_sweep_and_the_next_tick_fit_into_the_time_by_which_sweeps_work_ahead() -> None:
    from shared.scheduler.timings import CLAIM_TAKEN_OVER_AFTER, OCCURRENCES_AHEAD

    period = timers.PERIODS["scheduler_scan"]
    assert 1000 * (timers.RUN_FOR["scheduler_scan"] + 2 * period) < OCCURRENCES_AHEAD
    assert 1000 * (CLAIM_TAKEN_OVER_AFTER + 3 * period) < OCCURRENCES_AHEAD
