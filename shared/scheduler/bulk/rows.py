"""The rows of bulk jobs, in table `TocsinSweeps`.

    jobs:{tenant}     j:{id}             the job: what it does, how far it is, its report
    jobs:{tenant}     s:{id}:{number}    events that it has counted: a shard, and the numbers of its rows; removed at the end
    open-jobs         {tenant}:{id}      a job that is not removed yet; `due`: when it is to be looked at
    tick              open_jobs          `open`: there are rows in `open-jobs`

A job and its counted events share a partition: what a page has counted and the position of the next page are one transaction. Each write of
a process that works on a job is on the job row's ETag, so of two processes one stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from ...core.clock import Millis, to_text
from ...core.durations import format_duration
from ...engine.row_codec import RowCodec
from ...storage.ports import Props, Row
from ..changes.table import VERBS
from ..keys import Address, event_row
from ..queries.event_filter import EventFilter, event_filter
from ..rows import shown_state

PK_OPEN: Final = "open-jobs"
OPEN_ROW: Final = "open_jobs"
"""Row beside the ticks. Without it no tenant has ever had a job."""
CONFIRM_WITHIN: Millis = 3_600_000
"""Time after which a job that was not confirmed expires."""
KEEP_JOBS: Millis = 7 * 86_400_000
"""Time for which the report of an ended job is kept."""
UNFINISHED: Final = frozenset({"counting", "counted", "running"})
MOST_SAMPLES: Final = 10
MOST_FAILURES: Final = 20


def jobs_partition(tenant: str) -> str:
    """Return the partition of a tenant's jobs. No tenant's name has a colon."""
    return f"jobs:{tenant}"


def job_key(job_id: str) -> str:
    return f"j:{job_id}"


def counted_key(job_id: str, number: int) -> str:
    return f"s:{job_id}:{number:08d}"


def open_key(tenant: str, job_id: str) -> str:
    return f"{tenant}:{job_id}"


@dataclass(frozen=True, slots=True)
class BulkJob:
    """A job as stored. Times in milliseconds, 0 for none."""

    action: str
    chosen: str
    """The filter as JSON."""
    created: Millis
    due: Millis = 0
    by: Millis = 0
    """Milliseconds by which events are moved; negative: earlier."""
    state: str = "counting"
    started: Millis = 0
    ended: Millis = 0
    count: int = 0
    more: bool = False
    sample: str = "[]"
    confirmation: str = ""
    cursor: str = ""
    """While counting: the position of the next page in the list of events."""
    numbers: int = 0
    """Rows with counted events."""
    at: int = 0
    """While running: the number of the row with the next events, and how many events of that row are done."""
    offset: int = 0
    done: int = 0
    skipped: int = 0
    failed: int = 0
    reasons: str = "{}"
    failures: str = "[]"
    lease: Millis = 0
    """Until then, a process works on the job."""


CODEC: Final = RowCodec(BulkJob)


def filter_of(job: BulkJob) -> EventFilter:
    """Return the filter of a job."""
    given = orjson.loads(job.chosen)
    states = VERBS[job.action].acts_on
    state = given["state"] or (states[0] if len(states) == 1 else None)
    labels = tuple(sorted(given["labels"].items()))
    chosen = event_filter(given["from"], given["to"], given["channel"], state, labels, given["id_prefix"], given["error"])
    return chosen if state is not None else replace(chosen, wanted=lambda props: shown_state(props) in states)


def counted_props(shard: str, rows: Iterable[str]) -> Props:
    """Return the properties of a row with counted events of a shard."""
    return {"shard": shard, "rows": ",".join(str(int(row[1:])) for row in rows)}


def addresses_of(row: Row) -> Sequence[Address]:
    """Return the counted events of a row."""
    return [Address(str(row.props["shard"]), event_row(int(number))) for number in str(row.props["rows"]).split(",")]


def shown(job_id: str, job: BulkJob) -> dict[str, Any]:
    """Return the job as the API shows it."""
    given = orjson.loads(job.chosen)
    chosen = {name: value for name, value in given.items() if value not in (None, {})}
    chosen |= {name: to_text(given[name]) for name in ("from", "to") if given[name] is not None}
    answer: dict[str, Any] = {"id": job_id, "action": job.action, "filter": chosen, "state": job.state, "count": job.count}
    if job.due:
        answer["due"] = to_text(job.due)
    if job.by:
        answer["later" if job.by > 0 else "earlier"] = format_duration(abs(job.by))
    if job.state == "counted":
        answer["confirmation"] = job.confirmation
    answer |= {"sample": orjson.loads(job.sample), "created": to_text(job.created)}
    answer |= {name: to_text(at) for name, at in (("started", job.started), ("ended", job.ended)) if at}
    answer |= {"done": job.done, "skipped": job.skipped, "failed": job.failed}
    answer |= {"reasons": orjson.loads(job.reasons), "failures": orjson.loads(job.failures)}
    if job.more:
        answer["more"] = True
    return answer
