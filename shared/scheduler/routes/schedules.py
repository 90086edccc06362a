"""Routes of recurring schedules."""

from __future__ import annotations

from typing import Any

from ...core.clock import to_text
from ...web.fields.params import DryRun, Paging
from ...web.paging import decode_cursor, encode_cursor
from ...web.problem import invalid
from ...web.routes import Answer, Call, RouteGroup
from ..changes.fanouts import FanoutOut
from ..model import EventOut
from ..recurring.definition import PARTITIONS
from ..recurring.model import (
    BackfillIn,
    BackfillOut,
    DeleteQuery,
    PreviewOut,
    PreviewQuery,
    RuleIn,
    ScheduleId,
    ScheduleIn,
    ScheduleList,
    ScheduleOut,
    TriggerIn,
)
from ..recurring.service import StoredSchedule, all_shown
from ..recurring.store import SchedulePosition
from ..service import Scheduler

MAX_SCHEDULE_BYTES = 512 * 1024
_LIST = "schedules"
_EXAMPLES = {
    "workdays at half past two": {"cron": "30 2 * * MON-FRI", "timezone": "Europe/Berlin", "payload": {"job": "report"}},
    "every ten minutes": {"every": "PT10M", "jitter": "PT30S", "catch_up": {"policy": "none"}, "payload": {"job": "poll"}},
}


schedules = RouteGroup[Scheduler]("schedules", scope="events", params={"id": ScheduleId})


@schedules.put(
    "v1/schedules/{id}",
    answers={
        201: ScheduleOut,
        200: ScheduleOut,
        409: ("changed-meanwhile", "made-elsewhere"),
        413: "payload-too-large",
        429: "too-many-requests",
    },
    max_body=MAX_SCHEDULE_BYTES,
    opaque="payload",
    examples=_EXAMPLES,
    if_match=True,
    creates=True,
    tagged=True,
)
async def schedules_put(call: Call[Scheduler, ScheduleIn, DryRun]) -> Answer:
    """Create a recurring schedule or replace its content.

    The same content again changes nothing. The occurrence that is about to fire follows the change: it is cancelled and created again.
    """
    found, new = await call.service.recurring.put(call.tenant, call.params["id"], call.raw, call.headers, dry_run=call.query.dry_run)
    return Answer(201 if new else 200, found.shown, {"location": call.path} if new else None, etag=None if found.planned else found.etag)


@schedules.get("v1/schedules/{id}", answers={200: ScheduleOut}, tagged=True)
async def schedules_get(call: Call[Scheduler]) -> Answer:
    """Return a recurring schedule."""
    found = await call.service.recurring.get(call.tenant, call.params["id"])
    shown = found.shown
    if found.definition.spec.overlap == "skip" and (skipped := await call.service.lines.skipped(call.tenant, found.definition.id)).number:
        shown["skipped"] = {"count": skipped.number, "last": to_text(skipped.last)}
    return Answer(200, shown, etag=found.etag)


@schedules.delete("v1/schedules/{id}", answers={204: None, 409: "changed-meanwhile"}, if_match=True)
async def schedules_delete(call: Call[Scheduler, None, DeleteQuery]) -> Answer:
    """Delete a recurring schedule: after the answer, no later occurrence is delivered.

    An occurrence that is already due and has become an event stays, and so does a delivery in progress. Those that a late sweep is just
    storing are cancelled, unless `overdue` is `keep`.
    """
    keep = call.query.overdue == "keep"
    await call.service.recurring.delete(call.tenant, call.params["id"], call.headers, keep_overdue=keep)
    await call.service.lines.forget_skips(call.tenant, call.params["id"])
    return Answer(204)


@schedules.post("v1/schedules/{id}/pause", answers={200: ScheduleOut, 409: "changed-meanwhile"}, if_match=True, tagged=True)
async def schedules_pause(call: Call[Scheduler]) -> Answer:
    """Pause a schedule: after the answer, no later occurrence is delivered.

    An occurrence that is already due and has become an event stays, and so does a delivery in progress.
    """
    return _shown(await call.service.recurring.pause(call.tenant, call.params["id"], call.headers))


@schedules.post("v1/schedules/{id}/resume", answers={200: ScheduleOut, 409: "changed-meanwhile"}, if_match=True, tagged=True)
async def schedules_resume(call: Call[Scheduler]) -> Answer:
    """Resume a schedule; the occurrences missed during the pause never fire.

    It continues with the first occurrence that is still in the future.
    """
    return _shown(await call.service.recurring.resume(call.tenant, call.params["id"], call.headers))


@schedules.post(
    "v1/schedules/{id}/trigger",
    answers={202: EventOut | FanoutOut, 409: "id-conflict", 429: "too-many-requests"},
    examples={"after a repair": {"id": "after-repair"}},
    tagged=True,
)
async def schedules_trigger(call: Call[Scheduler, TriggerIn | None]) -> Answer:
    """Fire a schedule once now, in addition to its occurrences.

    After a failure, repeat the call with the same `id`.
    """
    name = call.body.id if call.body is not None else None
    made, *others = await call.service.recurring.trigger(call.tenant, call.params["id"], name)
    if others:
        shown = await call.service.fanouts.admitted([made, *others])
        return Answer(202, shown.body, {"location": f"/api/v1/events/{shown.body['id']}"}, etag=shown.etag)
    event = await call.service.event_views.one(made.row)
    return Answer(202, event, {"location": f"/api/v1/events/{made.id}"}, etag=made.etag)


@schedules.post(
    "v1/schedules/{id}/backfill",
    answers={202: BackfillOut, 429: "too-many-requests"},
    examples={"a lost day": {"from": "2026-11-20T00:00:00Z", "to": "2026-11-21T00:00:00Z", "id": "lost-day", "spread": "PT10M"}},
)
async def schedules_backfill(call: Call[Scheduler, BackfillIn]) -> Answer:
    """Create an event for each occurrence in a range of the past, whether it fired then or not.

    At most 1,000 occurrences a call. After a failure, repeat the call with the same `id`.
    """
    name, created, existing = await call.service.recurring.backfill(call.tenant, call.params["id"], call.body)
    return Answer(202, BackfillOut(id=name, created=created, existing=existing))


@schedules.get("v1/schedules", answers={200: ScheduleList})
async def schedules_list(call: Call[Scheduler, None, Paging]) -> Answer:
    """List the tenant's recurring schedules.

    They have no order. A page may be short, even empty, while `next` is not null.
    """
    start = SchedulePosition(0, "") if call.query.cursor is None else _place(decode_cursor(_LIST, call.query.cursor, list))
    found, following = await call.service.recurring.list(call.tenant, call.query.limit, start)
    items = await all_shown(found)
    return Answer(200, {"items": items, "next": None if following is None else encode_cursor(_LIST, list(following))})


@schedules.get("v1/schedules/{id}/preview", answers={200: PreviewOut})
async def schedules_preview(call: Call[Scheduler, None, PreviewQuery]) -> Answer:
    """Return the next occurrences of a schedule, without jitter."""
    return Answer(200, await call.service.recurring.preview(call.tenant, call.params["id"], call.query.n))


@schedules.post(
    "v1/schedules/preview",
    answers={200: PreviewOut},
    examples={
        "workdays at half past two": {"cron": "30 2 * * MON-FRI", "timezone": "Europe/Berlin"},
        "the last weekday of each month": {"cron": "0 18 LW * *", "timezone": "Europe/Berlin"},
        "every ten minutes": {"every": "PT10M"},
    },
    changes_nothing=True,
)
async def schedules_preview_rule(call: Call[Scheduler, RuleIn, PreviewQuery]) -> Answer:
    """Return the first occurrences of a schedule that is not stored, without jitter.

    The rule has the fields of a schedule without its payload. Channels are not looked up.
    """
    return Answer(200, await call.service.recurring.preview_rule(call.tenant, call.body, call.query.n))


def _shown(found: StoredSchedule) -> Answer:
    return Answer(200, found.shown, etag=found.etag)


def _place(found: list[Any]) -> SchedulePosition:
    match found:
        case [int(number), str(after)] if 0 <= number < len(PARTITIONS):
            return SchedulePosition(number, after)
        case _:
            raise invalid("?cursor", "is not a cursor of this list; leave it out to start from the beginning")
