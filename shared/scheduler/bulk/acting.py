"""Carries out the verb of a job on one event, or on several of a shard."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...core.errors import OutcomeUnknown, Problem, Rejected
from ...storage.ports import Props, Row
from ..changes.table import CHANGED, GONE, VERBS, JobTimes
from ..changes.verbs import ChangeRequest, Changes
from ..keys import Address
from ..protocol.changing import find
from ..queries.event_filter import EventFilter
from ..rows import etag_of_row
from .model import MOST_UNFINISHED
from .rows import BulkJob

MARK: Final = "job"
"""Property of an event: the last jobs that have moved it, the latest first, so that a job which is continued after a crash does not move it
twice, also if another job has moved it meanwhile. Former versions know the last one only."""
AT_ONCE: Final = 16
"""Requests about events that a process makes side by side, for all jobs together."""
TRIES: Final = 3
_CHANGED: Final = frozenset({"precondition-failed", "already-final", "not-dead"})


class Result(NamedTuple):
    """The result for one event. outcome: done, skipped or failed. reason: '' for done."""

    id: str
    outcome: str
    reason: str = ""


class Acting:
    """Carries out the actions. One per process."""

    def __init__(self, changes: Changes) -> None:
        self._changes, self._runner, self._clock = changes, changes.runner, changes.runner.clock
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def act(self, tenant: str, job_id: str, job: BulkJob, chosen: EventFilter, addresses: Sequence[Address]) -> list[Result]:
        """Carry out the job's action on at most 100 events of one shard. Raises `StorageError`; repeat the call then."""
        verb, settled = VERBS[job.action], dict[Address, str]()
        if verb.together is not None and addresses:
            async with self._at_once:
                settled = await verb.together(self._changes, ChangeRequest(tenant, nonce=_nonce(job_id)), chosen, addresses)
        single = await asyncio.gather(*(self.one(tenant, job_id, job, chosen, each) for each in addresses if each not in settled))
        return [Result(each.text, "skipped" if reason else "done", reason) for each, reason in settled.items()] + single

    async def one(self, tenant: str, job_id: str, job: BulkJob, chosen: EventFilter, address: Address) -> Result:
        """Carry the job's verb out on an event, if it still matches. Raises `StorageError` if storage does not answer: then repeat it."""
        async with self._at_once:
            for left in reversed(range(TRIES)):
                row = await self._runner.run(find(address))
                if row is None:
                    return Result(address.text, "skipped", GONE)
                event_id = str(row.props["id"])
                if _is_done(row.props, job_id):
                    # Perhaps by a process that has ended since; a moved one is no more here.
                    self._changes.notes.ended(row)
                    return Result(event_id, "done")
                if not chosen.shows(row.props):
                    return Result(event_id, "skipped", CHANGED)
                try:
                    await self._change(tenant, job_id, job, row)
                    return Result(event_id, "done")
                except Problem as problem:
                    if problem.code in _CHANGED and left:
                        # Its row has changed since it was read. It may still match.
                        continue
                    if problem.code in _CHANGED or problem.code == GONE:
                        return Result(event_id, "skipped", CHANGED)
                    return Result(event_id, "skipped" if problem.code == "already-firing" else "failed", problem.code)
                except OutcomeUnknown:
                    if not left:
                        raise
                except Rejected:
                    return Result(event_id, "failed", "refused-by-storage")
        raise AssertionError

    async def _change(self, tenant: str, job_id: str, job: BulkJob, row: Row) -> None:
        """Carry the job's verb out on an event as it was just read."""
        verb, event_id = VERBS[job.action], str(row.props["id"])
        moved = verb.due(row.props, JobTimes(now=self._clock.now(), due=job.due, by=job.by)) if verb.due is not None else None
        request = ChangeRequest(tenant, {"if-match": etag_of_row(row)}, self._changes.received(verb.members), row, _nonce(job_id))
        if moved is None:
            await verb.one(self._changes, request, event_id)
        else:
            marked: Props = {MARK: ",".join([job_id, *_marks(row.props)][:MOST_UNFINISHED])}
            await self._changes.put(request, event_id, max(moved[0], 0), marked | moved[1])


def _nonce(job_id: str) -> str:
    return f"job:{job_id}"


def _is_done(props: dict[str, Any], job_id: str) -> bool:
    """Return True if the job has changed the event before."""
    return job_id in _marks(props) or (props["state"] == "cancelled" and props.get("by") == _nonce(job_id))


def _marks(props: Mapping[str, Any]) -> list[str]:
    """Return the last jobs that have moved the event."""
    return str(props[MARK]).split(",") if props.get(MARK) else []
