"""Bulk jobs: create, confirm, cancel, list; and the runs that count the events and change them.

A job first counts the events that match, and keeps their addresses. Once its count is confirmed, it changes those of them that still match.
It works in steps, each of which stores how far it is, so that any process continues it: the message of the next step is sent at the end of
each run, and the sweep looks at all jobs once a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, zip_longest
from typing import Any, Final

import orjson

from ...core.clock import Millis, to_text
from ...core.errors import StorageError
from ...core.ids import Ids
from ...engine.async_runner import AsyncRunner
from ...engine.effects import each_row, load_rows
from ...storage.names import BULK_JOBS, PK_TICKS, QUEUE_SWEEPS, SWEEPS
from ...storage.ports import ANY, Applied, Delete, Insert, Merge, Op, Queues, Row, RowQuery, Upsert
from ...web.problem import conflict, not_found, too_many
from ..changes.verbs import Changes
from ..keys import Address
from ..queries.lookup import INDEX, START, EventLookup, ListPosition
from ..rows import shown_state
from ..rules import asked_due
from .acting import Acting, Result
from .model import MOST_EVENTS, MOST_UNFINISHED, BulkIn
from .rows import (
    CODEC,
    CONFIRM_WITHIN,
    KEEP_JOBS,
    MOST_FAILURES,
    MOST_SAMPLES,
    OPEN_ROW,
    PK_OPEN,
    UNFINISHED,
    BulkJob,
    addresses_of,
    counted_key,
    counted_props,
    filter_of,
    job_key,
    jobs_partition,
    open_key,
    shown,
)

log = logging.getLogger(__name__)

PER_SECOND: Final = 500
"""Events that a job changes in a second at most."""
CHUNK: Final = 100
"""Events of a step: after each, its results are stored."""
COUNT_PAGE: Final = 1000
RUN_FOR: Final = 20.0
"""Seconds that one run may take; the next one continues."""
MOST_KEPT: Final = 200
"""Jobs of a tenant that are kept. A further one removes the oldest that have ended."""
REMOVED_AT_ONCE: Final = 5
JOBS_AT_ONCE: Final = 8
"""Jobs that a process carries on side by side; further ones take turns with them."""
TURN: Final = 5.0
"""Seconds of a job's turn."""
COUNT_AT_ONCE: Final = 2.0
"""Seconds that a request to create a job counts before it answers."""
LEASE: Millis = 30_000
"""Time after the last step of a process after which another one continues the job."""
HELD_FOR_CONFIRMATION: Millis = 60_000
"""Time for which a job that waits for its confirmation keeps its place among those that have not ended."""
STORED_WITHIN: Millis = 600_000
"""Time within which the request that stores a job has arrived, whatever became of its answer."""
CONFLICTS: Final = 50


class BulkJobs:
    """Bulk jobs. One per process."""

    def __init__(self, runner: AsyncRunner, queues: Queues, lookup: EventLookup, changes: Changes, ids: Ids) -> None:
        self._tables, self._clock, self._queues, self._lookup, self._ids = runner.tables, runner.clock, queues, lookup, ids
        self._acting = Acting(changes)
        self._idle = False

    # -- requests

    async def create(self, tenant: str, asked: BulkIn) -> dict[str, Any]:
        """Store a job, and count for up to `COUNT_AT_ONCE` seconds.

        If the tenant has `MOST_UNFINISHED` jobs, it takes the place of the oldest that has waited `HELD_FOR_CONFIRMATION` for its
        confirmation: nobody may know of such a job, because the answer that named it was lost. Raises 429 if there is none.
        """
        rows = await self._rows(tenant)
        unfinished = [row for row in rows if row.props["state"] in UNFINISHED]
        if len(unfinished) >= MOST_UNFINISHED and not await self._make_room(tenant, unfinished):
            raise too_many(60, f"the tenant has {MOST_UNFINISHED} bulk jobs that have not ended; cancel one, or wait", "bulk_jobs")
        ended = sorted((row for row in rows if row.props["state"] not in UNFINISHED), key=lambda row: int(row.props["created"]))
        # Each call removes more jobs than it makes, so a tenant that makes many keeps no more than these.
        for row in ended[: max(0, len(rows) - MOST_KEPT)][:REMOVED_AT_ONCE]:
            await self._forget(tenant, row)
        job_id = self._ids.name()
        given = asked.filter
        chosen = orjson.dumps({name.rstrip("_"): getattr(given, name) for name in type(given).model_fields}).decode()
        by = (asked.later or 0) - (asked.earlier or 0)
        job = BulkJob(asked.action, chosen, self._clock.now(), due=asked.due or 0, by=by)
        await self._wake(tenant, job_id)
        await self._tables.write(SWEEPS, PK_TICKS, (Upsert(OPEN_ROW, {"open": True}),))
        await self._tables.write(SWEEPS, jobs_partition(tenant), (Insert(job_key(job_id), CODEC.encode(job)),))
        # Once more: a run that did not see the job yet may have removed its open row.
        await self._wake(tenant, job_id)
        await self._step(tenant, job_id, self._clock.monotonic() + COUNT_AT_ONCE)
        row = await self._row(tenant, job_id)
        if row.props["state"] == "counting":
            await self._call()
        return shown(job_id, CODEC.decode(row.props))

    async def _make_room(self, tenant: str, unfinished: Sequence[Row]) -> bool:
        """Cancel the oldest job that nobody has confirmed in time; return False if there is none."""
        latest = self._clock.now() - HELD_FOR_CONFIRMATION
        waiting = [row for row in unfinished if row.props["state"] == "counted" and int(row.props["created"]) <= latest]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda row: int(row.props["created"]))
        job = CODEC.decode(oldest.props)
        return bool(await self._merge(oldest, job, replace(job, state="cancelled", ended=self._clock.now())))

    async def get(self, tenant: str, job_id: str) -> dict[str, Any]:
        """Return a job. Raises 404."""
        return shown(job_id, CODEC.decode((await self._row(tenant, job_id)).props))

    async def any(self, tenant: str) -> bool:
        """Return True if the tenant has a job. Raises `StorageError`."""
        return bool((await self._tables.query(RowQuery(SWEEPS, jobs_partition(tenant), select=("state",), limit=1))).rows)

    async def page(self, tenant: str, limit: int, after: str) -> tuple[Sequence[dict[str, Any]], str | None]:
        """Return the tenant's jobs after the id `after`, and the id to continue after."""
        rows = [row for row in await self._rows(tenant) if row.rk > job_key(after)]
        items = [shown(row.rk[2:], CODEC.decode(row.props)) for row in rows[:limit]]
        return items, rows[limit - 1].rk[2:] if len(rows) > limit else None

    async def confirm(self, tenant: str, job_id: str, confirmation: str) -> dict[str, Any]:
        """Start a job whose count is confirmed. Raises 404, 409; a repetition changes nothing."""
        for _ in range(CONFLICTS):
            row = await self._row(tenant, job_id)
            job = CODEC.decode(row.props)
            if job.confirmation != confirmation or not confirmation:
                raise conflict("not-confirmed", "this is not the confirmation of the job's count; read the job again")
            if job.state in ("running", "done"):
                return shown(job_id, job)
            if job.state != "counted" or self._clock.now() >= job.created + CONFIRM_WITHIN:
                raise conflict("job-ended", "the job is cancelled, or its count is older than an hour; create another one")
            started = replace(job, state="running", started=self._clock.now())
            await self._wake(tenant, job_id)
            if await self._merge(row, job, started):
                # Once more: a run that still saw the job as counted may have put it off meanwhile.
                await self._wake(tenant, job_id)
                await self._call()
                return shown(job_id, started)
        raise conflict("changed-meanwhile", "other calls changed the job several times meanwhile; repeat the request")

    async def cancel(self, tenant: str, job_id: str) -> dict[str, Any]:
        """Stop a job; what it has changed stays changed. Raises 404; a job that has ended stays as it is."""
        for _ in range(CONFLICTS):
            row = await self._row(tenant, job_id)
            job = CODEC.decode(row.props)
            if job.state not in UNFINISHED:
                return shown(job_id, job)
            ended = replace(job, state="cancelled", ended=self._clock.now())
            if await self._merge(row, job, ended):
                # The open row stays: the next run removes the counted events.
                return shown(job_id, ended)
        raise conflict("changed-meanwhile", "the job makes progress all the time; repeat the request")

    async def _rows(self, tenant: str) -> list[Row]:
        return await load_rows(self._tables, RowQuery(SWEEPS, jobs_partition(tenant), "j:", "j;"))

    async def _row(self, tenant: str, job_id: str) -> Row:
        row = await self._tables.get(SWEEPS, jobs_partition(tenant), job_key(job_id))
        if row is None:
            raise not_found("job")
        return row

    async def _merge(self, row: Row, before: BulkJob, after: BulkJob, *more: Op) -> str:
        """Store a changed job, with other operations; return its ETag, '' if another process has changed it."""
        old, new = CODEC.encode(before), CODEC.encode(after)
        change = {name: value for name, value in new.items() if old.get(name) != value}
        answer = await self._tables.write(SWEEPS, row.pk, (Merge(row.rk, change, row.etag), *more))
        return answer.etags[0] if isinstance(answer, Applied) else ""

    async def _wake(self, tenant: str, job_id: str) -> None:
        """Let the next run look at the job."""
        await self._tables.write(SWEEPS, PK_OPEN, (Upsert(open_key(tenant, job_id), {"due": 0}),))

    async def _call(self) -> None:
        """Have the next step made at once. Without the message, the sweep does it within a minute."""
        text = orjson.dumps({"jobs": [BULK_JOBS], "at": self._clock.now()}).decode()
        try:
            await self._queues.send(QUEUE_SWEEPS, text)
        except StorageError as error:
            log.debug("A bulk job waits for the sweep: %s", error, extra={"action": "bulk_job_waits"})

    # -- runs

    def watch(self, ticks: Sequence[Row]) -> None:
        """Look at the rows of the timers' ticks as the sweep has read them: without a job, its run costs nothing."""
        marker = next((row for row in ticks if row.rk == OPEN_ROW), None)
        self._idle = marker is None or not marker.props["open"]

    async def run_once(self, now: Millis) -> Counter[str]:
        """Carry all jobs on for up to `RUN_FOR` seconds; return counts. Raises `StorageError`; the next run continues."""
        counts: Counter[str] = Counter()
        if self._idle:
            self._idle = False
            return counts
        marker = await self._tables.get(SWEEPS, PK_TICKS, OPEN_ROW)
        rows = await load_rows(self._tables, RowQuery(SWEEPS, PK_OPEN, "", "~"))
        if not rows and marker is not None and marker.props["open"]:
            # On its ETag: a job that was created meanwhile keeps it.
            await self._tables.write(SWEEPS, PK_TICKS, (Merge(OPEN_ROW, {"open": False}, marker.etag),))
        until = self._clock.monotonic() + RUN_FOR
        waiting = deque(self._in_turn([row.rk for row in rows if int(row.props["due"]) <= now]))
        counts["jobs"] = len(waiting)

        async def work() -> None:
            # At least one turn, so that a run gets on however slow storage is.
            while waiting:
                tenant, _, job_id = waiting.popleft().partition(":")
                if await self._try_step(tenant, job_id, min(until, self._clock.monotonic() + TURN)):
                    waiting.append(f"{tenant}:{job_id}")
                if self._clock.monotonic() >= until:
                    return

        await asyncio.gather(*(work() for _ in range(min(JOBS_AT_ONCE, len(waiting)))))
        counts["unfinished"] = len(waiting)
        if waiting:
            await self._call()
        return counts

    def _in_turn(self, keys: Sequence[str]) -> list[str]:
        """Return the open jobs, those of all tenants in turn, beginning with any tenant."""
        queues: dict[str, list[str]] = {}
        for key in keys:
            queues.setdefault(key.partition(":")[0], []).append(key)
        tenants = list(queues)
        first = int(self._ids.chance() * len(tenants))
        turns = zip_longest(*(queues[tenant] for tenant in tenants[first:] + tenants[:first]))
        return [key for turn in turns for key in turn if key is not None]

    async def _try_step(self, tenant: str, job_id: str, until: float) -> bool:
        try:
            return await self._step(tenant, job_id, until)
        except StorageError as error:
            # Other jobs must not wait for it; the sweep continues it.
            extra = {"action": "bulk_job_waits", "tenant": tenant, "job": job_id}
            log.info("Bulk job %s waits, because storage does not answer: %s", job_id, error, extra=extra)
            return False

    async def _step(self, tenant: str, job_id: str, until: float) -> bool:
        """Carry a job on; return True if the next step is to follow at once."""
        row = await self._tables.get(SWEEPS, jobs_partition(tenant), job_key(job_id))
        now = self._clock.now()
        if row is None:
            await self._close(tenant, job_id, now)
            return False
        job = CODEC.decode(row.props)
        if job.state not in ("counting", "running"):
            await self._rest(tenant, job_id, row, job, now)
            return False
        if job.lease > now:
            return False
        taken = replace(job, lease=now + LEASE)
        if not (etag := await self._merge(row, job, taken)):
            return False
        work = self._count if job.state == "counting" else self._change
        return await work(tenant, job_id, replace_etag(row, etag), taken, until)

    async def _close(self, tenant: str, job_id: str, now: Millis) -> None:
        """Remove the open row of a job that is not there, at the second look: the request that stores the job may still be under way."""
        found = await self._tables.get(SWEEPS, PK_OPEN, open_key(tenant, job_id))
        if found is not None and int(found.props["due"]) <= now:
            op = Delete(found.rk, found.etag) if found.props["due"] else Merge(found.rk, {"due": now + STORED_WITHIN}, found.etag)
            await self._tables.write(SWEEPS, PK_OPEN, (op,))

    async def _rest(self, tenant: str, job_id: str, row: Row, job: BulkJob, now: Millis) -> None:
        """Do what is left for a job that waits for its confirmation, or has ended: remove counted events, and at last the job."""
        if job.state == "counted":
            at = job.created + CONFIRM_WITHIN
            if now < at:
                await self._tables.write(SWEEPS, PK_OPEN, (Upsert(open_key(tenant, job_id), {"due": at}),))
            else:
                await self._merge(row, job, replace(job, state="expired", ended=now))
            return
        if now < (at := job.ended + KEEP_JOBS):
            await self._remove_counted(row.pk, job_id)
            await self._tables.write(SWEEPS, PK_OPEN, (Upsert(open_key(tenant, job_id), {"due": at}),))
            return
        await self._forget(tenant, row)

    async def _remove_counted(self, partition: str, job_id: str) -> None:
        """Remove the counted events of a job that has ended."""
        first = counted_key(job_id, 0).rpartition(":")[0]
        while rows := (
            await self._tables.query(RowQuery(SWEEPS, partition, first=f"{first}:", end=f"{first};", select=("shard",), limit=99))
        ).rows:
            answer = await self._tables.write(SWEEPS, partition, tuple(Delete(each.rk, each.etag) for each in rows))
            if not isinstance(answer, Applied):
                return

    async def _counted(self, partition: str, job_id: str) -> set[Address]:
        """Return the events that the job has counted."""
        first = counted_key(job_id, 0).rpartition(":")[0]
        counted = each_row(self._tables, RowQuery(SWEEPS, partition, first=f"{first}:", end=f"{first};"))
        return {address async for each in counted for address in addresses_of(each)}

    async def _forget(self, tenant: str, row: Row) -> None:
        """Remove a job that has ended, with everything that belongs to it."""
        job_id = row.rk.partition(":")[2]
        await self._remove_counted(row.pk, job_id)
        await self._tables.write(SWEEPS, row.pk, (Delete(row.rk, ANY),))
        await self._tables.write(SWEEPS, PK_OPEN, (Delete(open_key(tenant, job_id), ANY),))

    async def _count(self, tenant: str, job_id: str, row: Row, job: BulkJob, until: float) -> bool:
        """Count the events that match, page by page, and keep their addresses; return True if it is to be continued."""
        chosen = filter_of(job)
        before: set[Address] | None = None
        while True:
            start = ListPosition(*orjson.loads(job.cursor)) if job.cursor else START
            found, following = await self._lookup.matching(tenant, chosen, COUNT_PAGE, start)
            if found and job.numbers and start.phase != INDEX:
                # A shard that finishes between two pages comes again, among the finished ones.
                before = before if before is not None else await self._counted(row.pk, job_id)
                found = [each for each in found if Address(each.pk, each.rk) not in before]
            found = found[: MOST_EVENTS - job.count]
            kept: list[Op] = []
            for shard, some in groupby(found, lambda each: each.pk):
                rows = [each.rk for each in some]
                kept.append(Insert(counted_key(job_id, job.numbers + len(kept)), counted_props(shard, rows)))
            sample = orjson.loads(job.sample)
            sample += [_sample(each) for each in await self._lookup.whole(found[: MOST_SAMPLES - len(sample)])]
            count = job.count + len(found)
            grown = replace(job, count=count, numbers=job.numbers + len(kept), sample=orjson.dumps(sample).decode())
            if following is None or count >= MOST_EVENTS:
                confirmation = f"{count}-{self._ids.name()[:8]}"
                grown = replace(grown, state="counted", confirmation=confirmation, cursor="", lease=0, more=following is not None)
            else:
                over = self._clock.monotonic() >= until
                grown = replace(grown, cursor=orjson.dumps(list(following)).decode(), lease=0 if over else self._clock.now() + LEASE)
            if not (etag := await self._merge(row, job, grown, *kept)):
                return False
            row, job = replace_etag(row, etag), grown
            if job.state == "counted" or not job.lease:
                return job.state == "counting"

    async def _change(self, tenant: str, job_id: str, row: Row, job: BulkJob, until: float) -> bool:
        """Change the counted events, step by step; return True if it is to be continued."""
        chosen = filter_of(job)
        while job.at < job.numbers:
            counted = await self._tables.get(SWEEPS, row.pk, counted_key(job_id, job.at))
            addresses = addresses_of(counted) if counted is not None else []
            some = addresses[job.offset : job.offset + CHUNK]
            began = self._clock.monotonic()
            results = await self._acting.act(tenant, job_id, job, chosen, some)
            offset = job.offset + len(some)
            over = self._clock.monotonic() >= until
            after = _with_results(replace(job, offset=offset, lease=0 if over else self._clock.now() + LEASE), results)
            if offset >= len(addresses):
                after = replace(after, at=job.at + 1, offset=0)
            if not (etag := await self._merge(row, job, after)):
                # Another process has it, or it was cancelled.
                return False
            row, job = replace_etag(row, etag), after
            if over:
                return True
            await self._clock.sleep(max(0.0, len(some) / PER_SECOND - (self._clock.monotonic() - began)))
        ended = replace(job, state="done", ended=self._clock.now(), lease=0)
        if await self._merge(row, job, ended):
            extra = {"action": "bulk_job_done", "tenant": tenant, "job": job_id}
            log.info("Bulk job %s has changed %d events; %d failed", job_id, ended.done, ended.failed, extra=extra)
        return True


def replace_etag(row: Row, etag: str) -> Row:
    """Return a row under the ETag of its last write."""
    return Row(row.pk, row.rk, row.props, etag, row.timestamp, row.read_at)


def _sample(row: Row) -> Mapping[str, Any]:
    props = row.props
    due = to_text(asked_due(props, int(props["due"])))
    return {"id": props["id"], "state": shown_state(props), "due": due, "channel": props["channel"]}


def _with_results(job: BulkJob, results: Sequence[Result]) -> BulkJob:
    """Return the job with the results of a step in its report."""
    outcomes = Counter(result.outcome for result in results)
    reasons = Counter(orjson.loads(job.reasons))
    reasons.update(result.reason for result in results if result.reason)
    failures = orjson.loads(job.failures)
    failures += [{"id": result.id, "reason": result.reason} for result in results if result.outcome == "failed"]
    return replace(
        job,
        done=job.done + outcomes["done"],
        skipped=job.skipped + outcomes["skipped"],
        failed=job.failed + outcomes["failed"],
        reasons=orjson.dumps(dict(reasons)).decode(),
        failures=orjson.dumps(failures[:MOST_FAILURES]).decode(),
    )
