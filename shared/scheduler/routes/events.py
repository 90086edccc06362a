"""Routes of events and dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from ...core.clock import Millis
from ...core.errors import Problem
from ...core.event_loop import LoopTurns
from ...core.label_text import parse_labels
from ...delivery.channels.answer_heads import AnswerHead
from ...storage.ports import Row
from ...web.paging import decode_cursor, encode_cursor
from ...web.problem import invalid, not_found
from ...web.routes import Answer, Call, RouteGroup
from ..changes.fanouts import FanoutOut, FanoutReport
from ..changes.table import CANCEL, FIRE, MOVE, REDRIVE, Verb
from ..changes.verbs import ChangeRequest, dead_letters, members_of
from ..facets.finding import ROW_KINDS, label_digest
from ..ingest.admission import Admitted
from ..keys import PLACES
from ..model import (
    MAX_BATCH_BYTES,
    MAX_EVENT_BYTES,
    BatchIn,
    BatchOut,
    DeadQuery,
    EventId,
    EventIn,
    EventList,
    EventOut,
    EventPatch,
    EventQuery,
    RedriveIn,
    RedriveOut,
    SizesOut,
    StatsOut,
)
from ..properties.receipts import Received
from ..queries.event_filter import EventFilter, event_filter
from ..queries.lookup import LABEL_PHASE, START, ListPosition
from ..queries.views import held_filter
from ..rows import etag_of_row
from ..service import Scheduler
from ..shard.queued_ids import Queued

_NDJSON = "application/x-ndjson"
LINE_COST = 64
"""Bytes that a line of a batch's answer counts for, in addition to its own, in the turns of the event loop."""
_EXAMPLES = {
    "in five seconds": {"delay": "PT5S", "payload": {"hello": "world"}},
    "at an instant": {"id": "order-17:time-out", "due": "2030-01-01T10:21:55.250Z", "payload": {"order": 17}},
}


events = RouteGroup[Scheduler]("events", scope="events", params={"id": EventId})
dead = RouteGroup[Scheduler]("dead letters", scope="events")


@events.post(
    "v1/events",
    answers={
        201: EventOut | FanoutOut,
        200: EventOut | FanoutOut,
        202: EventOut,
        409: ("id-conflict", "already-final", "already-firing", "changed-meanwhile"),
        503: "call-expired",
        413: "payload-too-large",
        429: "too-many-requests",
    },
    max_body=MAX_EVENT_BYTES,
    opaque="payload",
    examples=_EXAMPLES,
    tagged=True,
)
async def events_create(call: Call[Scheduler, EventIn]) -> Answer:
    """Schedule an event, or one for each of several channels.

    200 with the stored event if there is one with this id and content. If that one has ended without a delivery, the header
    `tocsin-conflict` has its state, and `on_conflict` decides.

    With `collapse`: 200 with the stored event, and no change, if a call that was received later has changed it. Of calls that two processes
    received within the error of their clocks, the one that is stored later counts. A call that has waited for 10 s is 503.
    """
    if call.body.channels is not None:
        return await _fan_out(call)
    if call.body.collapse is not None:
        made: Admitted | Queued = await call.service.collapsing.post(call.tenant, call.body, call.member, call.arrival)
    else:
        made = await call.service.ingest.one(call.tenant, call.body, call.member)
    if isinstance(made, Admitted) and made.ended:
        [made] = await call.service.ended_ids.answered(call.tenant, [made], call.body.on_conflict)
    shown = made.shown if isinstance(made, Queued) else await call.service.event_views.one(made.row)
    return Answer(_status(made), shown, _headers(made.id, "" if isinstance(made, Queued) else made.ended), etag=made.etag)


def _headers(event_id: str, ended: str) -> dict[str, str]:
    headers = {"location": f"/api/v1/events/{event_id}"}
    return headers | {"tocsin-conflict": ended} if ended else headers


async def _fan_out(call: Call[Scheduler, EventIn]) -> Answer:
    fanouts = call.service.fanouts
    made = await fanouts.post(call.tenant, call.body, call.member, call.arrival)
    made = await call.service.ended_ids.answered(call.tenant, made, call.body.on_conflict)
    shown = await fanouts.admitted(made)
    status = 201 if any(each.new for each in made) else 200
    ended = next((each.ended for each in made if each.ended), "")
    return Answer(status, shown.body, _headers(shown.body["id"], ended), etag=shown.etag)


@events.post(
    "v1/events/batch",
    answers={200: BatchOut, 429: "too-many-requests"},
    media=("application/json", _NDJSON),
    shape=BatchIn,
    max_body=MAX_BATCH_BYTES,
    examples={"two reminders": [{"id": f"order-{n}-reminder", "delay": "PT2H", "payload": {"order": n}} for n in (17, 18)]},
)
async def events_batch(call: Call[Scheduler, bytes]) -> Answer:
    """Schedule several events; each one is accepted or rejected for itself.

    A batch that is not finished after 90 s is answered all the same: events that were not stored have the problem `batch-unfinished`.
    `Retry-After` tells when refused lines may be sent again.
    A batch has at most 16 MiB, and less where the instances are small: `GET /limits` shows it. The Functions host answers 500 without a
    body to a larger one.
    """
    ingest = call.service.ingest
    results = await ingest.batch(call.tenant, call.body, lines=call.media == _NDJSON, until=ingest.ends(call.arrival))
    accepted = sum(not isinstance(result, Problem) for result in results)
    pause = max((int(result.headers.get("retry-after", 0)) for result in results if isinstance(result, Problem)), default=0)
    lines, turns = list[bytes](), LoopTurns()
    # Each result is freed when it is written: to free ten thousand wrong ones at once would take longer than a step may.
    results.reverse()
    while results:
        lines.append(orjson.dumps(_line(len(lines), results.pop())))
        if turns.is_over(LINE_COST + len(lines[-1])):
            await asyncio.sleep(0)
    headers = {"retry-after": str(pause)} if pause else {}
    counts = b'{"accepted":%d,"rejected":%d,"results":[' % (accepted, len(lines) - accepted)
    return Answer(200, b"".join((counts, b",".join(lines), b"]}\n")), headers)


async def _shown(call: Call[Scheduler, Any, Any], status: int, row: Row, answers: Mapping[Millis, AnswerHead] = {}) -> Answer:
    return Answer(status, await call.service.event_views.one(row, answers), etag=etag_of_row(row))


def _status(made: Admitted | Queued) -> int:
    if isinstance(made, Queued):
        return 202
    return 201 if made.new else 200


def _line(index: int, result: Admitted | Queued | Problem) -> dict[str, Any]:
    if isinstance(result, Problem):
        return {"index": index, "status": result.status, "problem": result.body()}
    line = {"index": index, "status": _status(result), "id": result.id}
    return line | ({"ended": result.ended} if isinstance(result, Admitted) and result.ended else {})


@events.get("v1/events/{id}", answers={200: EventOut | FanoutOut}, tagged=True)
async def events_get(call: Call[Scheduler]) -> Answer:
    """Return an event, or a fan-out with all of its events."""
    lookup, event_id = call.service.lookup, call.params["id"]
    row = await lookup.event(call.tenant, event_id)
    if row is not None:
        return await _shown(call, 200, row, await lookup.answers(row))
    waiting = lookup.queued(call.tenant, event_id)
    if waiting is not None:
        return Answer(200, waiting.shown, etag=waiting.etag)
    members = await call.service.fanouts.members(call.tenant, event_id)
    if members is None:
        raise not_found("event")
    shown = await call.service.fanouts.shown(event_id, members)
    return Answer(200, shown.body, etag=shown.etag)


@events.patch(
    "v1/events/{id}",
    answers={
        200: EventOut | FanoutReport,
        409: ("already-firing", "already-final", "changed-meanwhile", "still-queued"),
        413: "payload-too-large",
        503: "call-expired",
    },
    max_body=MAX_EVENT_BYTES,
    opaque="payload",
    examples={"an hour later": {"due": "2026-11-21T11:21:55Z"}, "without an end": {"expires": None}},
    if_match=True,
    tagged=True,
)
async def events_patch(call: Call[Scheduler, EventPatch]) -> Answer:
    """Change or reschedule an event that is not being delivered; by the id of a fan-out, all of its events.

    409 `changed-meanwhile`: the same members were changed by a call that was received later, or another call changed the channel, the
    payload or the target meanwhile, which must fit together. Of calls that two processes received within the error of their clocks, the one
    that is stored later counts. Without `If-Match`, a call that has waited for 10 s is 503.
    """
    seen = await call.service.lookup.named(call.tenant, call.params["id"])
    if seen is None:
        raise call.service.changes.absent(call.tenant, call.params["id"])
    return await _carried_out(call, MOVE, seen)


async def _carried_out(call: Call[Scheduler, Any], verb: Verb, seen: Row | None = None) -> Answer:
    """Carry a verb out on the event of the call's id; if there is none, on the fan-out of this id. seen: the event as it was just read."""
    scheduler, event_id = call.service, call.params["id"]
    request = ChangeRequest(call.tenant, seen=seen, patch=call.body, body=call.member)
    members = verb.members if request.patch is None else members_of(request.patch)
    if members is not None:
        request = request._replace(headers=call.headers, by=Received(call.arrival, members))
    try:
        row = await verb.one(scheduler.changes, request, event_id)
        if verb.status == 204:
            return Answer(204)
        if row is None and (row := await scheduler.lookup.event(call.tenant, event_id)) is None:
            raise not_found("event")
        return await _shown(call, verb.status, row)
    except Problem as refused:
        if refused.status != 404:
            raise
    report = await scheduler.fanouts.carry_out(verb, request, event_id)
    return Answer(200 if verb.status == 204 else verb.status, report.body, etag=report.etag)


@events.delete("v1/events/{id}", answers={204: None, 200: FanoutReport, 409: ("already-firing", "already-final")}, if_match=True)
async def events_delete(call: Call[Scheduler]) -> Answer:
    """Cancel an event, or all events of a fan-out: after the answer, no delivery of them starts.

    By the id of a fan-out, the answer reports each of its events: one that is being delivered is not cancelled.
    """
    return await _carried_out(call, CANCEL)


@events.post(
    "v1/events/{id}/fire",
    answers={
        202: EventOut | FanoutReport,
        409: ("already-firing", "already-final", "changed-meanwhile", "still-queued"),
        503: "call-expired",
    },
    if_match=True,
    tagged=True,
)
async def events_fire(call: Call[Scheduler]) -> Answer:
    """Deliver an event now, or all events of a fan-out."""
    return await _carried_out(call, FIRE)


@events.post("v1/events/{id}/redrive", answers={202: EventOut | FanoutReport, 409: ("not-dead", "still-queued")}, tagged=True)
async def events_redrive(call: Call[Scheduler]) -> Answer:
    """Deliver a dead event again, or all dead events of a fan-out."""
    return await _carried_out(call, REDRIVE)


@dead.post(
    "v1/dead-letters/redrive",
    answers={202: RedriveOut},
    examples={"all": {}, "of an outage": {"channel": "orders", "from": "2026-11-21T10:00:00Z", "to": "2026-11-21T12:00:00Z"}},
)
async def dead_letters_redrive(call: Call[Scheduler, RedriveIn]) -> Answer:
    """Deliver all dead events that match again; `{}` matches all of them."""
    chosen = dead_letters(call.body.from_, call.body.to, call.body.channel)
    return Answer(202, {"redriven": await call.service.changes.redrive_all(call.tenant, chosen)})


@events.get("v1/events", answers={200: EventList, 429: "too-many-requests"})
async def events_list(call: Call[Scheduler, None, EventQuery]) -> Answer:
    """List events by time, state, channel, labels, beginning of the id, last error, and whether they are held.

    Unfinished shards come first, then finished ones. A page may be short, even empty, while `next` is not null. An event that ends between
    two pages may be shown again: compare ids.
    """
    asked = call.query
    labels = parse_labels(asked.label) if asked.label is not None else ()
    chosen = event_filter(asked.from_, asked.to, asked.channel, asked.state, labels, asked.id_prefix, asked.error)
    if asked.held:
        scheduler = call.service
        chosen = held_filter(chosen, asked.state, await scheduler.directory.channels.blocks(call.tenant), scheduler.clock.now())
    return await _page(call, "events", chosen, asked.limit, asked.cursor)


@dead.get("v1/dead-letters", answers={200: EventList, 429: "too-many-requests"})
async def dead_letters_list(call: Call[Scheduler, None, DeadQuery]) -> Answer:
    """List events that could not be delivered."""
    asked = call.query
    return await _page(call, "dead-letters", dead_letters(asked.from_, asked.to, asked.channel), asked.limit, asked.cursor)


@events.get("v1/limits", answers={200: SizesOut})
async def limits(call: Call[Scheduler]) -> Answer:
    """Return the sizes that are accepted: read them before you send a batch of more than 1,000,000 bytes."""
    return Answer(200, await call.service.ingest.sizes(call.tenant))


@events.get("v1/stats", answers={200: StatsOut})
async def stats(call: Call[Scheduler]) -> Answer:
    """Return the number of the tenant's events by state."""
    return Answer(200, await call.service.stats.of(call.tenant, call.service.clock.now()))


async def _page(call: Call[Scheduler, Any, Any], kind: str, chosen: EventFilter, limit: int, cursor: str | None) -> Answer:
    start = _place(decode_cursor(kind, cursor, list), chosen) if cursor is not None else START
    async with call.service.lists.turn(call.tenant):
        rows, following = await call.service.lookup.events(call.tenant, chosen, limit, start)
        shown = await call.service.event_views.all(rows)
    answer: dict[str, Any] = {"items": shown, "next": encode_cursor(kind, list(following)) if following is not None else None}
    if following is not None and len(rows) < limit:
        answer["incomplete"] = True
    return Answer(200, answer)


def _place(found: list[Any], chosen: EventFilter) -> ListPosition:
    digests = {label_digest(name, value) for name, value in chosen.labels}
    match found:
        case [str(phase), int(number), str(key), str(row)] if (
            0 <= number < 16 * len(PLACES)
            and (phase not in ROW_KINDS or phase == chosen.state)
            and (phase != LABEL_PHASE or key.partition(":")[0] in digests)
        ):
            return ListPosition(phase, number, key, row)
        case _:
            raise invalid("?cursor", "not a cursor of this list")
