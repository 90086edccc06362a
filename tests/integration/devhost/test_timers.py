"""Timer triggers on a clock that the test moves: schedules, past due runs, start-up runs."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from devhost.host.settings import SettingsError
from devhost.host.timers import NEVER, TimerFunctions, TimerSchedule
from devhost.worker.model import FunctionInfo, InvocationResult, Invoker, TypedValue
from tests.waiting import wait_until, within

from .conftest import Process

START = datetime(2026, 1, 1, 12, 0, 3, tzinfo=UTC)


class ManualClock:
    """A clock that moves exactly as far as its callers sleep."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> datetime:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.time += timedelta(seconds=seconds)


class StubWorker:
    """Records runs; the n-th takes `durations[n]` seconds of the manual clock. Stops the timers after the last one."""

    def __init__(self, clock: ManualClock, durations: list[float]) -> None:
        self.clock = clock
        self.durations = durations
        self.runs: list[tuple[str, bool]] = []
        self.requests: list[Any] = []
        self.timers: TimerFunctions | None = None

    async def invoke(self, function: FunctionInfo, data: TypedValue) -> InvocationResult:
        request = json.loads(data[1])
        self.requests.append(request)
        self.runs.append((f"{self.clock.now():%H:%M:%S}", request["IsPastDue"]))
        self.clock.time += timedelta(seconds=self.durations[len(self.runs) - 1])
        if len(self.runs) == len(self.durations):
            assert self.timers is not None
            self.timers.stop_ticking()
        return InvocationResult(None, None)


async def run(durations: list[float], early: float = 0.0, **binding: Any) -> StubWorker:
    clock = ManualClock()
    worker = StubWorker(clock, durations)
    function = FunctionInfo("f", ({"type": "timerTrigger", "name": "timer", **binding},))
    worker.timers = TimerFunctions(cast(Invoker, worker), [function], clock, lambda: early)
    worker.timers.start()
    await within(asyncio.gather(*worker.timers._tasks), "the end of the timers")
    return worker


async def test_runs_come_at_the_times_of_the_schedule() -> None:
    worker = await run([0, 0, 0], schedule="*/15 * * * * *")
    assert worker.runs == [("12:00:15", False), ("12:00:30", False), ("12:00:45", False)]


async def test_ticks_during_a_long_run_collapse_into_one_past_due_call() -> None:
    worker = await run([50, 0, 0], schedule="*/15 * * * * *")
    assert worker.runs == [("12:00:15", False), ("12:01:05", True), ("12:01:15", False)]


async def test_run_on_startup_comes_first_and_the_schedule_goes_on() -> None:
    worker = await run([1, 0], schedule="*/15 * * * * *", runOnStartup=True)
    assert worker.runs == [("12:00:03", False), ("12:00:15", False)]


async def test_request_names_last_and_next_run() -> None:
    worker = await run([0, 0], schedule="0 */5 * * * *")
    assert worker.requests == [
        {
            "Schedule": {"AdjustForDST": True},
            "ScheduleStatus": {"Last": NEVER, "LastUpdated": NEVER, "Next": "2026-01-01T12:10:00+00:00"},
            "IsPastDue": False,
        },
        {
            "Schedule": {"AdjustForDST": True},
            "ScheduleStatus": {
                "Last": "2026-01-01T12:05:00+00:00",
                "LastUpdated": "2026-01-01T12:05:00+00:00",
                "Next": "2026-01-01T12:15:00+00:00",
            },
            "IsPastDue": False,
        },
    ]


async def test_a_tick_may_come_three_milliseconds_early_and_comes_once() -> None:
    worker = await run([0, 0, 0], early=0.003, schedule="*/15 * * * * *")
    assert worker.runs == [("12:00:14", False), ("12:00:29", False), ("12:00:44", False)]


async def test_without_a_monitor_there_is_no_status_and_nothing_is_past_due() -> None:
    worker = await run([50, 0], schedule="*/15 * * * * *", useMonitor=False)
    assert worker.requests == [{"Schedule": {"AdjustForDST": True}, "ScheduleStatus": None, "IsPastDue": False}] * 2


async def test_schedule_may_be_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SCHEDULE", "30 * * * * *")
    assert (await run([0], schedule="%MY_SCHEDULE%")).runs == [("12:00:30", False)]


@pytest.mark.parametrize("schedule", ["%NO_SUCH_SETTING%", "* * *", "61 * * * * *", "every minute", "@hourly", ""])
async def test_wrong_schedule_is_refused_with_the_name_of_the_function(schedule: str) -> None:
    with pytest.raises(SettingsError, match="function 'f': schedule"):
        await run([0], schedule=schedule)


@pytest.mark.parametrize(
    ("expression", "following"),
    [
        ("0 0 0 13 * 5", datetime(2026, 2, 13, tzinfo=UTC)),  # the 13th AND a Friday
        ("0 30 9 * * Mon-Fri", datetime(2026, 1, 2, 9, 30, tzinfo=UTC)),
        ("0 0 0 1 Mar *", datetime(2026, 3, 1, tzinfo=UTC)),
        ("*/5 * * * *", datetime(2026, 1, 1, 12, 5, tzinfo=UTC)),  # five fields: second 0
        ("5,10 * * * * *", datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)),
        ("0 0 */6 * * *", datetime(2026, 1, 1, 18, tzinfo=UTC)),
    ],
)
def test_next_occurrence(expression: str, following: datetime) -> None:
    assert TimerSchedule(expression).next(START) == following


def test_timer_function_of_an_app_runs_on_startup_and_then_by_schedule(sample: Process) -> None:
    wait_until(lambda: len(sample.notes("tick")) >= 3, "three ticks")
    first, *_, last = sample.notes("tick")
    assert first["past_due"] is False and first["status"]["Last"] == NEVER
    assert last["status"]["Last"] > first["status"]["Last"] and last["schedule"] == {"AdjustForDST": True}
