"""The action of a job on one event, or on several of a shard."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...core.clock import Millis
from ...core.durations import MAX_DURATION
from ...core.errors import OutcomeUnknown, Problem, Rejected
from ...engine.async_runner import AsyncRunner
from ...engine.queries import load_rows
from ...storage.names import EVENTS
from ...storage.ports import Props, Row, RowQuery
from ...web.etag import etag_of
from ..changes.verbs import Changes
from ..facets.copies import ORIGIN
from ..keys import MIRRORED, Address, place_of
from ..overlap import KEY, OVERLAP, asked_props, has_line
from ..protocol.changing import WINDOW, cancel_together, find
from ..queries.event_filter import EventFilter
from ..receipts import RECEIVED
from ..rules import asked_due, may_change
from .model import MOST_UNFINISHED
from .rows import BulkJob

MARK: Final = "job"
"""Property of an event: the last jobs that have moved it, the latest first, so that a job which is continued after a crash does not move it
twice, also if another job has moved it meanwhile. Former versions know the last one only."""
AT_ONCE: Final = 16
"""Requests about events that a process makes side by side, for all jobs together."""
FIRE_IN: Millis = 4_000
"""An event that a job fires is due after this time, so that the fired events share shards."""
TRIES: Final = 3
CHANGED: Final = "changed"
_GONE: Final = frozenset({"not-found"})
_CANCEL: Final = ("flag", "next", ORIGIN, KEY, OVERLAP, RECEIVED)
"""Properties of an event that its cancel depends on, besides those of every filter."""
_CHANGED: Final = frozenset({"precondition-failed", "already-final", "not-dead"})


class Result(NamedTuple):
    """The result for one event. outcome: done, skipped or failed. reason: '' for done."""

    id: str
    outcome: str
    reason: str = ""


class Acting:
    """Carries out the actions. One per process."""

    def __init__(self, runner: AsyncRunner, changes: Changes) -> None:
        self._runner, self._tables, self._clock, self._changes = runner, runner.tables, runner.clock, changes
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def act(self, tenant: str, job_id: str, job: BulkJob, chosen: EventFilter, addresses: Sequence[Address]) -> list[Result]:
        """Carry out the job's action on at most 100 events of one shard. Raises `StorageError`; repeat the call then."""
        if job.action == "redrive":
            async with self._at_once:
                return await self._redrive(tenant, chosen, addresses)
        done = set[Address]()
        if job.action == "cancel" and addresses:
            async with self._at_once:
                done = await self._cancel(job_id, chosen, addresses)

        async def act(address: Address) -> Result:
            async with self._at_once:
                return await self.one(tenant, job_id, job, chosen, address)

        single = await asyncio.gather(*(act(each) for each in addresses if each not in done))
        return [Result(each.text, "done") for each in addresses if each in done] + single

    async def one(self, tenant: str, job_id: str, job: BulkJob, chosen: EventFilter, address: Address) -> Result:
        """Cancel, move or fire an event, if it still matches. Raises `StorageError` if storage does not answer: then repeat it."""
        for left in reversed(range(TRIES)):
            row = await self._runner.run(find(address))
            if row is None:
                return Result(address.text, "skipped", "not-found")
            event_id = str(row.props["id"])
            if _is_done(row.props, job_id):
                # Perhaps by a process that has ended since; a moved one is no more here.
                self._changes.notes.ended(row)
                return Result(event_id, "done")
            if not chosen.shows(row.props):
                return Result(event_id, "skipped", CHANGED)
            try:
                await self._change(tenant, job_id, job, event_id, row)
                return Result(event_id, "done")
            except Problem as problem:
                if problem.code in _CHANGED and left:
                    # Its row has changed since it was read. It may still match.
                    continue
                if problem.code in _CHANGED | _GONE:
                    return Result(event_id, "skipped", CHANGED)
                return Result(event_id, "skipped" if problem.code == "already-firing" else "failed", problem.code)
            except OutcomeUnknown:
                if not left:
                    raise
            except Rejected:
                return Result(event_id, "failed", "refused-by-storage")
        raise AssertionError

    async def _change(self, tenant: str, job_id: str, job: BulkJob, event_id: str, row: Row) -> None:
        seen = {"if-match": etag_of(row.pk, row.rk, row.etag)}
        if job.action == "cancel":
            await self._changes.cancel(tenant, event_id, seen, nonce=_nonce(job_id))
            return
        change: Props = {MARK: ",".join([job_id, *_marks(row.props)][:MOST_UNFINISHED])}
        if job.action == "fire":
            change |= {**dict.fromkeys(WINDOW, 0), **asked_props(row.props)}
            due = self._clock.now() + FIRE_IN
        else:
            due = job.due + int(row.props.get("shift", 0)) if job.due else int(row.props["due"]) + job.by
            if "flex" in row.props:
                # It keeps its place in its window.
                change |= {name: row.props[name] for name in WINDOW}
            if asked_due(row.props, due) > self._clock.now() + MAX_DURATION:
                raise Problem(422, "due-too-late", "the due time is more than 3660 days ahead")
        await self._changes.move(tenant, event_id, max(due, 0), change, seen, row, self._changes.received("due"))

    async def _cancel(self, job_id: str, chosen: EventFilter, addresses: Sequence[Address]) -> set[Address]:
        """Cancel those events of a shard that can be cancelled in one transaction; return their addresses. The others are left for `one`.

        Raises `StorageError` if storage does not answer: then repeat it.
        """
        shard = addresses[0].shard
        if place_of(shard) == MIRRORED:
            return set()
        wanted = {address.row: address for address in addresses}
        select = (*chosen.properties, *_CANCEL)
        rows = await load_rows(self._tables, RowQuery(EVENTS, shard, min(wanted), max(wanted) + "\0", select=select))
        found = [row for row in rows if row.rk in wanted and chosen.shows(row.props) and _is_plain(row.props)]
        receipt = self._changes.received().noted()
        if len(found) < 2 or not await self._runner.run(cancel_together(found, self._clock.now(), _nonce(job_id), receipt)):
            return set()
        for row in found:
            self._changes.notes.ended(row, "cancelled")
        return {wanted[row.rk] for row in found}

    async def _redrive(self, tenant: str, chosen: EventFilter, addresses: Sequence[Address]) -> list[Result]:
        """Redrive those dead events of a shard that still match. Raises `StorageError`: then repeat it."""
        results: list[Result] = []
        rows: list[Row] = []
        for address in addresses:
            row = await self._tables.get(EVENTS, address.shard, address.row)
            if row is None:
                results.append(Result(address.text, "skipped", "not-found"))
            elif not chosen.shows(row.props):
                results.append(Result(str(row.props["id"]), "skipped", CHANGED))
            else:
                rows.append(row)
        done = await self._changes.redrive_found(tenant, rows) if rows else set[str]()
        ids = [str(row.props["id"]) for row in rows]
        return results + [Result(each, "done") if each in done else Result(each, "skipped", CHANGED) for each in ids]


def _is_plain(props: Props) -> bool:
    """Return True for an event whose cancel changes its own row alone."""
    return may_change(props) == "yes" and not has_line(props)


def _nonce(job_id: str) -> str:
    return f"job:{job_id}"


def _is_done(props: dict[str, Any], job_id: str) -> bool:
    """Return True if the job has changed the event before."""
    return job_id in _marks(props) or (props["state"] == "cancelled" and props.get("by") == _nonce(job_id))


def _marks(props: Mapping[str, Any]) -> list[str]:
    """Return the last jobs that have moved the event."""
    return str(props[MARK]).split(",") if props.get(MARK) else []
