"""Known bugs of bulk jobs, to be planted one at a time: histories that cannot find these prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shared.scheduler.bulk import acting
from shared.scheduler.bulk.acting import Acting, Result
from shared.scheduler.bulk.rows import CODEC, BulkJob
from shared.scheduler.bulk.service import BulkJobs
from shared.scheduler.keys import Address
from shared.scheduler.queries.event_filter import EventFilter
from shared.storage.names import SWEEPS
from shared.storage.ports import ANY, Applied, Merge, Op, Row
from tests.model.checking.mutants import patched

_one = Acting.one


def never_done(props: Any, job_id: str) -> bool:
    """A job that does not know what it has changed before."""
    return False


async def whatever_it_is(self: Acting, tenant: str, job_id: str, job: BulkJob, chosen: EventFilter, address: Address) -> Result:
    """A job that changes the events that it has counted, although they no longer match."""
    return await _one(self, tenant, job_id, job, EventFilter(), address)


async def without_etag(self: BulkJobs, row: Row, before: BulkJob, after: BulkJob, *more: Op) -> str:
    """Progress that is stored over that of another process, or over a cancel."""
    old, new = CODEC.encode(before), CODEC.encode(after)
    change = {name: value for name, value in new.items() if old.get(name) != value}
    answer = await self._tables.write(SWEEPS, row.pk, (Merge(row.rk, change, ANY), *more))
    return answer.etags[0] if isinstance(answer, Applied) else ""


type Place = tuple[object, str]
BULK_PLANTED: dict[str, tuple[int, list[tuple[Place, Callable[..., Any]]]]] = {
    "a job that is continued begins its step anew": (50, [((acting, "_is_done"), never_done)]),
    "events that no longer match are changed": (40, [((Acting, "one"), whatever_it_is)]),
    "progress is stored without the ETag": (45, [((BulkJobs, "_merge"), without_etag)]),
}
"""By bug: the first seed to play, shortly before one that shows the bug, and what to patch."""


@contextmanager
def bulk_planted(name: str) -> Iterator[int]:
    """Plant the bug `name` in the app; yield the first seed to play."""
    first, places = BULK_PLANTED[name]
    with patched((where, attribute, bug) for (where, attribute), bug in places):
        yield first
