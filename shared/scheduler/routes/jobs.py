"""Routes of bulk jobs."""

from __future__ import annotations

from ...web.fields.params import Paging
from ...web.paging import after, page
from ...web.routes import Answer, Call, RouteGroup
from ..bulk.model import BulkConfirmIn, BulkIn, BulkList, BulkOut, JobId
from ..bulk.service import BulkJobs

_EXAMPLES = {
    "cancel": {"action": "cancel", "filter": {"labels": {"order": "17"}}},
    "an hour later": {"action": "move", "filter": {"channel": "default", "to": "2030-01-01T00:00:00Z"}, "later": "PT1H"},
}

jobs = RouteGroup[BulkJobs]("jobs", scope="events", params={"id": JobId})


@jobs.post("v1/jobs", answers={201: BulkOut, 429: "too-many-requests"}, examples=_EXAMPLES)
async def jobs_create(call: Call[BulkJobs, BulkIn]) -> Answer:
    """Prepare a bulk job: count the events that match a filter.

    Nothing is changed until the count is confirmed. The job shows the count and a sample; a large count takes longer than this call.
    If ten jobs of the tenant have not ended, the oldest that has waited a minute for its confirmation is cancelled.
    """
    made = await call.service.create(call.tenant, call.body)
    return Answer(201, made, {"location": f"{call.path}/{made['id']}"})


@jobs.get("v1/jobs", answers={200: BulkList})
async def jobs_list(call: Call[BulkJobs, None, Paging]) -> Answer:
    """List bulk jobs, in no particular order. They are kept for 7 days after their end."""
    kind = f"jobs:{call.tenant}"
    items, more = await call.service.page(call.tenant, call.query.limit, after(call, kind, str, ""))
    return page(kind, list(items), more)


@jobs.get("v1/jobs/{id}", answers={200: BulkOut})
async def jobs_get(call: Call[BulkJobs]) -> Answer:
    """Return a bulk job: its count, its progress, and its report."""
    return Answer(200, await call.service.get(call.tenant, call.params["id"]))


@jobs.post(
    "v1/jobs/{id}/confirm",
    answers={202: BulkOut, 409: ("not-confirmed", "job-ended", "changed-meanwhile")},
    examples={"as the counted job shows it": {"confirmation": "1200-fp3ka6mz"}},
    record="always",
)
async def jobs_confirm(call: Call[BulkJobs, BulkConfirmIn]) -> Answer:
    """Start a bulk job by confirming its count.

    It changes those of the counted events that still match when it comes to them.
    """
    return Answer(202, await call.service.confirm(call.tenant, call.params["id"], call.body.confirmation))


@jobs.post("v1/jobs/{id}/cancel", answers={200: BulkOut, 409: "changed-meanwhile"}, record="always")
async def jobs_cancel(call: Call[BulkJobs]) -> Answer:
    """Stop a bulk job. What it has changed stays changed."""
    return Answer(200, await call.service.cancel(call.tenant, call.params["id"]))
