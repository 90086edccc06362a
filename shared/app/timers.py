"""The sweep: one timer function that runs the jobs of the service side by side, each in its own period.

A job has parts, and a part is `run(now) -> counts`: an idempotent pass over stored state. The end of each run is stored in `TocsinSweeps`,
which `readyz` reads. A job with unfinished work runs three more times before the next minute: the sweep sends itself delayed messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson

from ..core.clock import Clock, Millis
from ..core.errors import StorageError, TocsinError
from ..engine.stored_forms import TICK_FORMS, StoredForms
from ..scheduler.timings import SILENCE
from ..scheduler.wakes.rules import LOOKED_OLD
from ..scheduler.wakes.service import ASKED_EVERY, SILENT_FROM, SWEEP_ROW, Wakes
from ..storage import Storage
from ..storage.names import BULK_JOBS, PK_TICKS, QUEUE_SWEEPS, SWEEPS
from ..storage.ports import Merge, Props, Row, RowQuery, Upsert

log = logging.getLogger(__name__)

type Job = Callable[[Millis], Awaitable[Mapping[str, int]]]
"""A part of a job."""
type Counts = dict[str, dict[str, int]]
"""The counts of a job's parts, by name."""

SCHEDULES: Mapping[str, str] = {"sweep": "0 * * * * *"}
"""NCRONTAB expressions by timer function, seconds first, UTC."""
PERIODS: Mapping[str, float] = {"scheduler_scan": 60.0, "lease_scan": 60.0, "stale_scan": 60.0, "retention_scan": 3600.0}
"""Seconds between two runs of each job of the sweep."""
TICKED: Final = "scheduler_scan"
"""The job whose tick says when events were last dispatched."""

SOON_FUNCTION: Final = "sweep_soon"
"""The function that carries out the runs that the sweep plans, and whole sweeps while the timer is silent. Its queue is `QUEUE_SWEEPS`."""
SWEEP_PERIOD: Final = 60.0
"""Seconds between two sweeps, as `SCHEDULES` sets it."""
SOON: Final = (15.0, 30.0, 45.0)
"""Seconds after a sweep at which a job with unfinished work runs again."""
SOON_LATEST: Final[Millis] = 15_000
"""Lateness from which such a run is left out: by then the next one, or the next sweep, takes place."""
WATCHED_AFTER: Final = SILENT_FROM / 1000 + 1.0
"""Seconds after the start of a sweep with unfinished work at which somebody looks if the timer has stopped."""
WATCHED_AFTER_MESSAGE: Final = ASKED_EVERY / 1000 + 1.0
"""The same after a sweep that a message has made."""
DECIDED_WITHIN: Final = 10.0
"""Seconds that the sweep waits for all its jobs before it plans the runs in between. Jobs that take longer are planned when they end."""

RUN_FOR: Mapping[str, float] = {"scheduler_scan": 55.0, BULK_JOBS: 55.0, "lease_scan": 55.0, "stale_scan": 300.0, "retention_scan": 300.0}
"""Seconds after which a part of the job is cancelled, which every part tolerates; the next run goes on.

The first three end before the next minute, so that a request that storage does not answer costs them no sweep. The others may be slow: the
first three still run each minute meanwhile. All end well before the host's limit of ten minutes.
"""
MAX_STRETCH: Final = 2.0
"""Largest factor on the period of such a job while storage refuses requests. `readyz` allows three periods."""
JUST_RUN: Final[Millis] = 10_000
"""Age of a job's last run up to which a sweep that makes up for a missed tick leaves it out. Less than the pauses of `SOON`: where the
instances of the timer go to zero, each tick is a missed one, and a run before it must not take its place."""
_HOURLY_SLACK: Final[Millis] = 30_000
"""A job with a longer period than the sweep's runs up to this much early, so that it keeps its period although sweeps jitter."""


class SweepFailed(TocsinError):
    """Raised when at least one part of a job has failed; the others have run. The message names the failed parts."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """The outcome of a run. failed: the names of the parts that failed."""

    counts: Counts
    failed: tuple[str, ...] = ()


def ends_within_sweep(job: str) -> bool:
    """Return True if each run of the job has ended, or is cancelled, before the next sweep."""
    return RUN_FOR.get(job, SWEEP_PERIOD) < SWEEP_PERIOD


def runs_between(took: float) -> list[float]:
    """Return the times of `SOON` at which a job runs again after a run of `took` seconds.

    Each run ends before the next one begins, if it takes as long.
    """
    waits: list[float] = []
    for wait in SOON:
        if wait >= (waits[-1] if waits else 0.0) + took:
            waits.append(wait)
    return waits


type UnderWay = Callable[[str, Counts], bool]
"""Returns True if the counts of a job show unfinished work, so that it must run again within seconds."""


class Jobs(NamedTuple):
    """The jobs of a process.

    parts: the named parts of each job. apart: jobs with a timer function of their own, which the sweep leaves out. under_way: decides
    whether a job runs again before the next sweep. watch: gets the rows of the ticks as each sweep reads them, before its jobs run.
    """

    parts: Mapping[str, Sequence[tuple[str, Job]]]
    apart: Collection[str] = ()
    under_way: UnderWay = lambda job, counts: False
    watch: Callable[[Sequence[Row]], None] = lambda ticks: None


class Timers:
    """Runs the jobs. One per process."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        jobs: Jobs,
        stretch: Callable[[], float] = lambda: 1.0,
        forms: StoredForms | None = None,
        wakes: Wakes | None = None,
    ) -> None:
        """stretch: returns the factor on intervals of work that can wait, 1 or more. forms: the number of the stored forms; nothing runs
        while it is a newer version's. wakes: those of the account, if they are on."""
        self._wakes = wakes
        self._under_run: dict[str, asyncio.Task[JobRun]] = {}
        """The jobs that run in this process now."""
        self._jobs, self._apart, self._under_way, self._watch = jobs
        self._stretch, self._forms = stretch, forms or StoredForms(storage.tables, clock)
        self._tables, self._queues, self._clock = storage.tables, storage.queues, clock

    async def run_once(self, job: str) -> Counts:
        """Run every part of `job` and return the counts by part. Raise `SweepFailed` after all have run if one failed."""
        if await self._forms.is_newer():
            return {}
        if job == TICKED:
            await self._note_begin()
        run = await self._run(job)
        await self._store({job: run})
        if run.failed:
            raise SweepFailed(f"{job}: {', '.join(run.failed)} failed")
        return run.counts

    async def catch_up(self) -> bool:
        """Dispatch at once if nobody has done so for a while, which is so after an outage. Return True if this was necessary.

        The next sweep may be a minute away, and the messages of shards that are due before it have never been sent. Until then, further
        runs are planned as a sweep plans them, so that a backlog drains without a pause. Several instances that start together may do this
        at once, as sweeps may.
        """
        if await self._forms.is_newer():
            return False
        try:
            if not await self._is_overdue():
                return False
            began, now = self._clock.monotonic(), self._clock.now()
            run = await self._run(TICKED)
            await self._store({TICKED: run})
            if self._goes_on(TICKED, run):
                await self._plan([TICKED], now, self._clock.monotonic() - began)
        except StorageError as error:
            log.debug("The sweep at the start failed; the next one is near: %s", error, extra={"action": "ticks_unread"})
        return True

    async def _is_overdue(self) -> bool:
        """Return True if nobody has dispatched for so long that a process that starts does it. Raises `StorageError`."""
        if self._wakes is not None:
            return self._clock.now() - await self._wakes.looked() >= LOOKED_OLD
        row = await self._tables.get(SWEEPS, PK_TICKS, TICKED)
        # Without a tick, the first process may have ended before its first sweep.
        return row is None or self._clock.now() - int(row.props.get("at", 0)) >= SILENCE

    async def sweep(self, *, past_due: bool = False) -> dict[str, Counts]:
        """Run all jobs that are due, side by side, and plan further runs of those with unfinished work. Return the counts by job.

        While a slow job still runs, the quick ones run again each minute, because the timer does not overlap itself. Raises `SweepFailed`
        after all have run if one failed. past_due: the host makes up for a tick that it has missed, perhaps right before or after another
        sweep: jobs that have just run are left out.
        """
        await self._note_begin()
        return await self._sweep(past_due=past_due)

    async def _note_begin(self) -> None:
        """Note that the timer begins a sweep. Its start counts, and not its end: a sweep may take minutes."""
        try:
            await self._tables.write(SWEEPS, PK_TICKS, (Upsert(SWEEP_ROW, {"began": self._clock.now()}),))
        except StorageError as error:
            # Then somebody else asks for a sweep, which does no harm.
            log.debug("The start of a sweep could not be noted: %s", error, extra={"action": "sweep_start_unnoted"})

    async def _sweep(self, *, past_due: bool = False, asked: bool = False) -> dict[str, Counts]:
        """Do what `sweep` does. asked: by a message, and not by the timer."""
        running: dict[str, asyncio.Task[JobRun]] = {}
        started, watched = self._clock.now(), False
        watched_after = WATCHED_AFTER_MESSAGE if asked else WATCHED_AFTER
        ended: dict[str, JobRun] = {}
        loop = asyncio.get_running_loop()
        try:
            due, just_run = await self._due(past_due=past_due)
            # The ticks show the number. If they cannot be read, the last look counts: another attempt would hold up the jobs.
            if self._forms.newer:
                return {}
            if left_out := [job for job in just_run if ends_within_sweep(job)]:
                # Their runs before the next sweep are those of this one.
                await self._plan(left_out, started, 0.0)
                if self._wakes is not None:
                    watched = True
                    await self._watch_timer(started, watched_after)
            while due:
                began, at = loop.time(), self._clock.now()
                running |= {job: asyncio.create_task(self._run(job)) for job in due if job not in running}
                left, first = DECIDED_WITHIN, False
                while running and left > 0:
                    runs = await self._collect(running, left, first=first)
                    for job, run in runs.items():
                        ended[job] = JobRun(run.counts, (*(ended[job].failed if job in ended else ()), *run.failed))
                    more = [job for job, run in runs.items() if self._goes_on(job, run)]
                    await self._plan(more, at, loop.time() - began)
                    if more and not watched and self._wakes is not None:
                        watched = True
                        await self._watch_timer(started, watched_after)
                    left, first = began + SWEEP_PERIOD - loop.time(), True
                due = list(filter(ends_within_sweep, self._jobs)) if running else []
                if due and not asked:
                    # The timer does not overlap itself: it is not silent while a slow job keeps it from its next tick.
                    await self._note_begin()
        finally:
            for task in running.values():
                task.cancel()
        if failed := [f"{job}: {', '.join(run.failed)} failed" for job, run in ended.items() if run.failed]:
            raise SweepFailed("; ".join(failed))
        return {job: run.counts for job, run in ended.items()}

    async def run_soon(self, text: str) -> None:
        """Carry out a message of `sweep`. A failed job is logged, and not repeated: another run follows soon."""
        try:
            wanted = orjson.loads(text)
            asked = int(wanted["sweep"]) if "sweep" in wanted else None
            watch = asked is None and "watch" in wanted
            jobs, at = ([str(job) for job in wanted["jobs"]], int(wanted["at"])) if asked is None and not watch else ([], 0)
        except (ValueError, KeyError, TypeError):
            log.warning("A message in %s is not one of the sweep: %.100r", QUEUE_SWEEPS, text, extra={"action": "sweep_message_bad"})
            return
        if asked is not None:
            await self._sweep_asked(asked)
            return
        if watch:
            if self._wakes is not None:
                await self._wakes.ticks.check()
            return
        if await self._forms.is_newer():
            # The sweeps of newer processes plan runs of their own.
            return
        if self._clock.now() > at + SOON_LATEST:
            log.debug("A run of %s comes too late", ", ".join(jobs), extra={"action": "sweep_left_out"})
            return
        if running := {job: asyncio.create_task(self._run(job)) for job in jobs if job in self._jobs}:
            try:
                await self._collect(running, None)
            finally:
                for task in running.values():
                    task.cancel()

    async def _collect(self, running: dict[str, asyncio.Task[JobRun]], within: float | None, *, first: bool = False) -> dict[str, JobRun]:
        """Wait for the running jobs, at most `within` seconds if given, and store the ends of those that have ended in one transaction.

        first: wait for one of them only. Returns the runs that have ended; they are no longer in `running`.
        """
        await asyncio.wait(running.values(), timeout=within, return_when=asyncio.FIRST_COMPLETED if first else asyncio.ALL_COMPLETED)
        found = {job: task.result() for job, task in running.items() if task.done()}
        for job in found:
            del running[job]
        if found:
            try:
                await self._store(found)
            except StorageError as error:
                # The jobs have run; only `readyz` shows an age that is too great.
                log.warning("The ends of %s could not be stored: %s", ", ".join(found), error, extra={"action": "ticks_unstored"})
        return found

    async def _due(self, *, past_due: bool = False) -> tuple[list[str], list[str]]:
        """Return the jobs that are due: those of the sweep's period, and others whose last run is long enough ago. And those that are left
        out because they have just run, if this sweep is `past_due`.

        While storage refuses requests, the others wait for up to `MAX_STRETCH` periods.
        """
        slow = [job for job in self._jobs if PERIODS.get(job, 0.0) > SWEEP_PERIOD]
        ticks: Mapping[str, Millis] = {}
        if slow:
            try:
                page = await self._tables.query(RowQuery(SWEEPS, PK_TICKS))
                self._forms.watch(page.rows)
                self._watch(page.rows)
                ticks = {row.rk: int(row.props["at"]) for row in page.rows if "at" in row.props}
            except StorageError as error:
                # The other jobs log that storage does not answer, and one of several accounts may still answer them.
                log.debug("The ticks could not be read: %s", error, extra={"action": "ticks_unread"})
                return [job for job in self._swept() if job not in slow], []
        now, factor = self._clock.now(), 1000 * min(self._stretch(), MAX_STRETCH)
        due = [job for job in self._swept() if job not in slow or not 0 <= now - ticks.get(job, 0) < factor * PERIODS[job] - _HOURLY_SLACK]
        just_run = [job for job in due if past_due and 0 <= now - ticks.get(job, 0) < JUST_RUN]
        return [job for job in due if job not in just_run], just_run

    def _swept(self) -> list[str]:
        return [job for job in self._jobs if job not in self._apart]

    def _goes_on(self, job: str, run: JobRun) -> bool:
        return ends_within_sweep(job) and (bool(run.failed) or self._under_way(job, run.counts))

    async def _plan(self, jobs: Sequence[str], began: Millis, took: float) -> None:
        """Send the messages for the runs before the next sweep. Where the queue refuses them, the next sweep is soon enough.

        began: time of the sweep. took: seconds that the jobs took.
        """
        waits = runs_between(took)
        if not jobs or not waits:
            return
        texts = [orjson.dumps({"jobs": jobs, "at": began + round(1000 * wait)}).decode() for wait in waits]
        sent = (self._queues.send(QUEUE_SWEEPS, text, visible_in=wait - took) for text, wait in zip(texts, waits, strict=True))
        for error in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(error, StorageError):
                extra = {"action": "sweep_unplanned"}
                log.warning("%s cannot run again before the next sweep: %s", ", ".join(jobs), error, extra=extra)
                return
            if error is not None:
                raise error

    async def _sweep_asked(self, at: Millis) -> None:
        """Sweep in place of a timer that has stopped. at: time at which the sweep was asked for; a minute later there is another."""
        if self._clock.now() - at >= ASKED_EVERY:
            return
        log.warning("The timer is silent; a message makes the sweep", extra={"action": "sweep_by_message"})
        try:
            row = await self._tables.get(SWEEPS, PK_TICKS, SWEEP_ROW)
            if row is not None:
                await self._tables.write(SWEEPS, PK_TICKS, (Merge(SWEEP_ROW, {"answered": self._clock.now()}, row.etag),))
            await self._sweep(asked=True)
        except (SweepFailed, StorageError) as error:
            # Each failed part has its own line. The host must not repeat the message: the next one is a minute away.
            log.warning("The sweep by a message failed: %s", error, extra={"action": "sweep_by_message_failed"})

    async def _watch_timer(self, started: Millis, after: float) -> None:
        """Send the message that finds out if the timer has stopped after this sweep, because there is work that cannot wait for a wake."""
        text = orjson.dumps({"watch": started + round(1000 * after)}).decode()
        try:
            await self._queues.send(QUEUE_SWEEPS, text, visible_in=max(0.0, after - (self._clock.now() - started) / 1000))
        except StorageError as error:
            log.debug("The timer is not watched for a minute: %s", error, extra={"action": "timer_unwatched"})

    async def _run(self, job: str) -> JobRun:
        """Run a job, or share the outcome if it runs in this process already: a process that starts looks, while its host makes up for a
        missed tick."""
        task = self._under_run.get(job)
        if task is None or task.done():
            task = self._under_run[job] = asyncio.create_task(self._run_parts(job))
        return await task

    async def _run_parts(self, job: str) -> JobRun:
        parts = self._jobs[job]
        found = await asyncio.gather(*(self._part(job, name, part, RUN_FOR.get(job)) for name, part in parts))
        counts = {name: done for (name, _), done in zip(parts, found, strict=True) if done is not None}
        return JobRun(counts, tuple(name for name, _ in parts if name not in counts))

    async def _store(self, runs: Mapping[str, JobRun]) -> None:
        now = self._clock.now()
        own = self._forms.own
        ticks: dict[str, Props] = {
            job: {"at": now, "failed": len(run.failed), TICK_FORMS: own} for job, run in runs.items() if job != BULK_JOBS
        }
        if not ticks:
            return
        await self._tables.write(SWEEPS, PK_TICKS, tuple(Upsert(job, props) for job, props in ticks.items()))

    async def _part(self, job: str, name: str, part: Job, limit: float | None) -> dict[str, int] | None:
        """Return the counts of a part, or None if it failed or did not end in time."""
        bound = asyncio.timeout(limit)
        try:
            async with bound:
                return dict(await part(self._clock.now()))
        except Exception:
            if bound.expired():
                extra = {"action": "sweep_cut_off", "timer": job, "job": name}
                log.warning("%s of %s did not end within %s s; the next run goes on with it", name, job, limit, extra=extra)
            else:
                extra = {"action": "sweep_failed", "timer": job, "job": name}
                log.exception("%s of %s failed", name, job, extra=extra)
            return None
