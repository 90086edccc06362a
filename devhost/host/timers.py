"""Timer triggers: six-field NCRONTAB schedules in UTC, one run at a time a function.

Ticks that pass while a run is under way, or while the machine sleeps, collapse into one call. It has IsPastDue set if the
function has a schedule monitor (`useMonitor`); without one, the host sends no ScheduleStatus, and IsPastDue is never set. The
schedule outlives the hosts of one devhost and not the devhost: one that starts begins afresh, unlike a real host with `useMonitor`. As in
the host, a tick may come up to `EARLIEST` before its time.
"""

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from croniter import CroniterError, croniter

from devhost.host.settings import SettingsError, resolve
from devhost.worker.model import FunctionInfo, Invoker, TypedValue

log = logging.getLogger("devhost.timers")

NEVER = "0001-01-01T00:00:00+00:00"
EARLIEST = 0.003
"""Seconds by which a tick may come too early."""
EARLY_SHARE = 0.25
"""Share of the ticks that come early: 47 of 192 of the Functions host did."""


class TimerClock(Protocol):
    """The clock that timers use."""

    def now(self) -> datetime:
        """The time in UTC."""

    async def sleep(self, seconds: float) -> None:
        """Returns after that time."""


class SystemTimerClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The time in UTC."""
        return datetime.fromtimestamp(time.time(), UTC)

    async def sleep(self, seconds: float) -> None:
        """Returns after that time, or a little earlier."""
        await asyncio.sleep(seconds)


class TimerSchedule:
    """An NCRONTAB expression: seconds first, day of month and day of week must both match."""

    def __init__(self, expression: str) -> None:
        """`expression` has six fields, or five for second 0; ValueError for anything else."""
        fields = expression.split()
        if len(fields) == 5:
            fields.insert(0, "0")
        if len(fields) != 6:
            raise ValueError(f"{expression!r} is not an NCRONTAB expression of six fields")
        self._text = " ".join(fields)
        try:
            self.next(datetime.now(UTC))
        except (CroniterError, ValueError, KeyError) as error:
            raise ValueError(f"{expression!r} is not an NCRONTAB expression: {error}") from error

    def next(self, after: datetime) -> datetime:
        """The first occurrence later than `after`, in UTC."""
        occurrences: Any = croniter(self._text, after, second_at_beginning=True, day_or=False)  # untyped
        found: datetime = occurrences.get_next(datetime)
        return found


class ScheduleMonitor:
    """The times of monitored timers, which outlive a host: one that starts after a missed tick runs the function at once."""

    def __init__(self) -> None:
        self.last: dict[str, str] = {}
        self.next: dict[str, datetime] = {}


class TimerFunctions:
    """All timer-triggered functions."""

    def __init__(
        self,
        worker: Invoker,
        functions: list[FunctionInfo],
        clock: TimerClock | None = None,
        early: Callable[[], float] = lambda: random.uniform(0.0, EARLIEST) if random.random() < EARLY_SHARE else 0.0,
        monitor: ScheduleMonitor | None = None,
    ) -> None:
        """Read the schedules, which may be `%SETTING%`; SettingsError names the function whose schedule is wrong. early: draws the seconds
        by which a tick comes too early. monitor: of the hosts before this one."""
        ours = [function for function in functions if function.trigger["type"] == "timerTrigger"]
        clock, monitor = clock or SystemTimerClock(), monitor or ScheduleMonitor()
        self.timers = [Timer(worker, function, clock, early, monitor) for function in ours]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts one task a timer; the first run is at the next occurrence, or at once for `runOnStartup`."""
        self._tasks = [asyncio.create_task(timer.run(), name=f"timer {timer.name}") for timer in self.timers]

    async def run_now(self, name: str) -> bool:
        """Run a timer's function at once, beside its schedule; return False if there is no such timer."""
        for timer in self.timers:
            if timer.name == name:
                await timer.run_now()
                return True
        return False

    def stop_ticking(self) -> None:
        """Starts no more runs; one that is under way goes on."""
        for timer, task in zip(self.timers, self._tasks, strict=False):
            timer.stopping = True
            if not timer.busy:
                task.cancel()

    async def cut(self) -> None:
        """End as a host that is killed: runs that are under way are abandoned."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Waits for runs that are under way."""
        self.stop_ticking()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Timer:
    """One function and its schedule."""

    def __init__(
        self, worker: Invoker, function: FunctionInfo, clock: TimerClock, early: Callable[[], float], monitor: ScheduleMonitor
    ) -> None:
        self.name = function.name
        self.stopping = False
        self.busy = False
        self._worker = worker
        self._function = function
        self._clock, self._early = clock, early
        # The worker library's own default.
        self._monitored = bool(function.trigger.get("useMonitor", True))
        self._monitor = monitor
        try:
            self.schedule = TimerSchedule(resolve(function.trigger["schedule"]))
        except (ValueError, SettingsError) as error:
            raise SettingsError(f"function {self.name!r}: schedule: {error}") from error

    async def run(self) -> None:
        """Calls the function at each occurrence until `stopping`."""
        due = self.schedule.next(self._clock.now())
        planned = self._monitor.next.get(self.name)
        if self._monitored and planned is not None and planned <= self._clock.now():
            await self._fire(past_due=True)
        elif self._function.trigger.get("runOnStartup"):
            await self._fire(past_due=False)
        self._monitor.next[self.name] = due
        while not self.stopping:
            past_due = self._clock.now() >= due
            at = due - timedelta(seconds=self._early())
            while (left := (at - self._clock.now()).total_seconds()) > 0:
                # In pieces: the sleep follows the monotonic clock, which a suspended machine or a clock step leaves behind.
                await self._clock.sleep(min(left, 60.0))
            # A later occurrence has passed as well: the process was held up, all of them are this one call.
            past_due = past_due or self.schedule.next(due) <= self._clock.now()
            # Counting on from a due time lets a tick that passes during the run be seen as past due afterwards.
            following = self.schedule.next(max(due, self._clock.now()))
            await self._fire(past_due=past_due)
            self._monitor.next[self.name] = due = following

    async def run_now(self) -> None:
        """Call the function at once."""
        await self._worker.invoke(self._function, self._request(past_due=False))

    async def _fire(self, *, past_due: bool) -> None:
        self.busy = True
        try:
            await self._worker.invoke(self._function, self._request(past_due))
        finally:
            self.busy = False

    def _request(self, past_due: bool) -> TypedValue:
        now = self._clock.now()
        last = self._monitor.last.get(self.name, NEVER)
        status = {"Last": last, "LastUpdated": last, "Next": self.schedule.next(now).isoformat()}
        self._monitor.last[self.name] = now.isoformat()
        monitored = {"ScheduleStatus": status, "IsPastDue": past_due} if self._monitored else {"ScheduleStatus": None, "IsPastDue": False}
        return "json", json.dumps({"Schedule": {"AdjustForDST": True}, **monitored})
