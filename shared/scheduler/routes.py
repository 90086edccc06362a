"""The doors of the scheduler: routes of api.md, "Scheduler", and the queue triggers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import UTC
from typing import Any, Protocol

import azure.functions as func

from ..core.clock import Millis, to_millis
from ..core.errors import Problem
from ..core.setting_names import CONNECTION
from ..storage.names import QUEUE_INGEST, QUEUE_RETRIES, QUEUE_SHARDS
from ..storage.ports import Message, Row
from ..web.paging.cursor import decode_cursor, encode_cursor
from ..web.problem import invalid, not_found
from ..web.routes import Answer, Call, Routes
from .changes import dead_letters
from .ingest import rejects_routes as intake
from .ingest.admission import Admitted
from .ingest.queued_ids import Queued
from .keys import PLACES
from .model import (
    MAX_BATCH_BYTES,
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
    StatsOut,
)
from .queries import minutes_routes
from .queries.lookup import START, Filter, Place
from .recurring import routes as recurring
from .rows import etag_of_row, shown_state
from .service import Scheduler

MAX_EVENT_BYTES = 512 * 1024
_NDJSON = "application/x-ndjson"
_ID = {"id": EventId}
_EXAMPLES = {
    "in five seconds": {"delay": "PT5S", "payload": {"hello": "world"}},
    "at an instant": {"id": "order-17:time-out", "due": "2030-01-01T10:21:55.250Z", "payload": {"order": 17}},
}


class App(Protocol):
    """What these doors need of the application."""

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler."""


def register(routes: Routes) -> None:
    """Add the routes of events, dead letters and figures."""
    _create(routes)
    _single(routes)
    _verbs(routes)
    _lists(routes)
    minutes_routes.register(routes)
    intake.register(routes)
    recurring.register(routes)


def _create(routes: Routes) -> None:
    @routes.route(
        "POST",
        "v1/events",
        name="events_create",
        tagged=True,
        scope="events",
        summary="Schedule an event",
        body=EventIn,
        max_body=MAX_EVENT_BYTES,
        answers={
            201: EventOut,
            200: EventOut,
            202: EventOut,
            409: "id-conflict",
            413: "payload-too-large",
            429: "too-many-requests",
        },
        examples=_EXAMPLES,
        tag="events",
    )
    async def events_create(call: Call[App, EventIn]) -> Answer:
        made = await call.app.scheduler.ingest.one(call.tenant, call.body, call.raw)
        shown = made.shown if isinstance(made, Queued) else await call.app.scheduler.showing.one(made.row)
        return Answer(_status(made), shown, {"location": f"/api/v1/events/{made.id}"}, etag=made.etag)

    @routes.route(
        "POST",
        "v1/events/batch",
        name="events_batch",
        scope="events",
        summary="Schedule many events; bad ones do not stop good ones",
        body=bytes,
        media=("application/json", _NDJSON),
        shape=BatchIn,
        max_body=MAX_BATCH_BYTES,
        answers={200: BatchOut, 429: "too-many-requests"},
        tag="events",
    )
    async def events_batch(call: Call[App, bytes]) -> Answer:
        results = await call.app.scheduler.ingest.batch(call.tenant, call.body, lines=call.media == _NDJSON)
        accepted = sum(not isinstance(result, Problem) for result in results)
        lines = [_line(index, result) for index, result in enumerate(results)]
        return Answer(200, {"accepted": accepted, "rejected": len(lines) - accepted, "results": lines})


async def _shown(call: Call[App, Any, Any], status: int, row: Row) -> Answer:
    return Answer(status, await call.app.scheduler.showing.one(row), etag=etag_of_row(row))


def _status(made: Admitted | Queued) -> int:
    if isinstance(made, Queued):
        return 202
    return 201 if made.new else 200


def _line(index: int, result: Admitted | Queued | Problem) -> dict[str, Any]:
    if isinstance(result, Problem):
        return {"index": index, "status": result.status, "problem": result.body()}
    return {"index": index, "status": _status(result), "id": result.id}


def _single(routes: Routes) -> None:
    @routes.route(
        "GET",
        "v1/events/{id}",
        name="events_get",
        tagged=True,
        scope="events",
        params=_ID,
        summary="One event",
        answers={200: EventOut},
        tag="events",
    )
    async def events_get(call: Call[App]) -> Answer:
        lookup, event_id = call.app.scheduler.lookup, call.params["id"]
        row = await lookup.event(call.tenant, event_id)
        if row is not None:
            return await _shown(call, 200, row)
        waiting = lookup.queued(call.tenant, event_id)
        if waiting is None:
            raise not_found("event")
        return Answer(200, waiting.shown, etag=waiting.etag)

    @routes.route(
        "PATCH",
        "v1/events/{id}",
        name="events_patch",
        tagged=True,
        scope="events",
        params=_ID,
        summary="Change or reschedule an event that is not being delivered",
        body=EventPatch,
        max_body=MAX_EVENT_BYTES,
        answers={200: EventOut, 409: ("already-firing", "already-final", "still-queued"), 413: "payload-too-large"},
        if_match=True,
        tag="events",
    )
    async def events_patch(call: Call[App, EventPatch]) -> Answer:
        scheduler, event_id = call.app.scheduler, call.params["id"]
        found = await scheduler.lookup.event(call.tenant, event_id)
        if found is None:
            raise scheduler.changes.absent(call.tenant, event_id)
        due, change = await scheduler.ingest.patch(call.tenant, call.body, call.raw, found.props)
        if due is None:
            row = await scheduler.changes.edit(call.tenant, event_id, change, call.headers)
        else:
            row = await scheduler.changes.move(call.tenant, event_id, due, change, call.headers)
        return await _shown(call, 200, row)

    @routes.route(
        "DELETE",
        "v1/events/{id}",
        name="events_delete",
        scope="events",
        params=_ID,
        summary="Cancel an event: once this has answered, no delivery of it starts",
        answers={204: None, 409: ("already-firing", "already-final")},
        if_match=True,
        tag="events",
    )
    async def events_delete(call: Call[App]) -> Answer:
        await call.app.scheduler.changes.cancel(call.tenant, call.params["id"], call.headers)
        return Answer(204)


def _verbs(routes: Routes) -> None:
    @routes.route(
        "POST",
        "v1/events/{id}/fire",
        name="events_fire",
        tagged=True,
        if_match=True,
        scope="events",
        params=_ID,
        summary="Deliver now",
        answers={202: EventOut, 409: ("already-firing", "already-final", "still-queued")},
        tag="events",
    )
    async def events_fire(call: Call[App]) -> Answer:
        row = await call.app.scheduler.changes.move(call.tenant, call.params["id"], None, {}, call.headers)
        return await _shown(call, 202, row)

    @routes.route(
        "POST",
        "v1/events/{id}/redrive",
        name="events_redrive",
        tagged=True,
        scope="events",
        params=_ID,
        summary="Bring a dead event back",
        answers={202: EventOut, 409: ("not-dead", "still-queued")},
        tag="events",
    )
    async def events_redrive(call: Call[App]) -> Answer:
        scheduler = call.app.scheduler
        await scheduler.changes.redrive_one(call.tenant, call.params["id"])
        row = await scheduler.lookup.event(call.tenant, call.params["id"])
        if row is None:
            raise not_found("event")
        return await _shown(call, 202, row)

    @routes.route(
        "POST",
        "v1/dead-letters/redrive",
        name="dead_letters_redrive",
        scope="events",
        summary="Bring back all dead events that match; `{}` is all of them",
        body=RedriveIn,
        answers={202: RedriveOut},
        tag="dead letters",
    )
    async def dead_letters_redrive(call: Call[App, RedriveIn]) -> Answer:
        chosen = dead_letters(call.body.from_, call.body.to, call.body.channel)
        return Answer(202, {"redriven": await call.app.scheduler.changes.redrive_all(call.tenant, chosen)})


def _lists(routes: Routes) -> None:
    @routes.route(
        "GET",
        "v1/events",
        name="events_list",
        scope="events",
        query=EventQuery,
        summary="Events by time, state and channel",
        description="Unfinished shards first, then finished ones. A page may be short, even empty, while `next` is not null.",
        answers={200: EventList},
        tag="events",
    )
    async def events_list(call: Call[App, None, EventQuery]) -> Answer:
        asked = call.query
        chosen = Filter(asked.from_, asked.to, asked.channel)
        if asked.state is not None:
            chosen = Filter(asked.from_, asked.to, asked.channel, lambda props: shown_state(props) == asked.state)
        return await _page(call, "events", chosen, asked.limit, asked.cursor)

    @routes.route(
        "GET",
        "v1/dead-letters",
        name="dead_letters_list",
        scope="events",
        query=DeadQuery,
        summary="Events that could not be delivered",
        answers={200: EventList},
        tag="dead letters",
    )
    async def dead_letters_list(call: Call[App, None, DeadQuery]) -> Answer:
        asked = call.query
        return await _page(call, "dead-letters", dead_letters(asked.from_, asked.to, asked.channel), asked.limit, asked.cursor)

    @routes.route(
        "GET", "v1/stats", name="stats", scope="events", summary="How the tenant's events stand", answers={200: StatsOut}, tag="events"
    )
    async def stats(call: Call[App]) -> Answer:
        scheduler = call.app.scheduler
        return Answer(200, await scheduler.stats.of(call.tenant, scheduler.clock.now()))


async def _page(call: Call[App, Any, Any], kind: str, chosen: Filter, limit: int, cursor: str | None) -> Answer:
    start = _place(decode_cursor(kind, cursor, list)) if cursor is not None else START
    rows, following = await call.app.scheduler.lookup.events(call.tenant, chosen, limit, start)
    shown = await call.app.scheduler.showing.all(rows)
    return Answer(200, {"items": shown, "next": encode_cursor(kind, list(following)) if following is not None else None})


def _place(found: list[Any]) -> Place:
    match found:
        case [str(phase), int(number), str(key), str(row)] if 0 <= number < 16 * len(PLACES):
            return Place(phase, number, key, row)
        case _:
            raise invalid("?cursor", "not a cursor of this list")


type Act = Callable[[Scheduler, Message], Awaitable[None]]

QUEUE_FUNCTIONS: tuple[tuple[str, str, Act], ...] = (
    ("fire_shard", QUEUE_SHARDS, lambda scheduler, message: scheduler.firing.serve(message.text)),
    ("fire_retry", QUEUE_RETRIES, lambda scheduler, message: scheduler.firing.serve(message.text, retries=True)),
    ("fire_shard_poison", f"{QUEUE_SHARDS}-poison", lambda scheduler, message: scheduler.firing.poisoned(message.text)),
    ("fire_retry_poison", f"{QUEUE_RETRIES}-poison", lambda scheduler, message: scheduler.firing.poisoned(message.text)),
    ("ingest_events", QUEUE_INGEST, lambda scheduler, message: scheduler.intake.serve(message)),
    ("ingest_events_poison", f"{QUEUE_INGEST}-poison", lambda scheduler, message: scheduler.intake.poisoned(message)),
)
"""The queue functions: name, queue, and what is done with a message. The test kit plays the host from the same table."""


def triggers(
    get_app: Callable[[], Awaitable[App]],
    connection: str = CONNECTION,
    suffix: str = "",
    serving: Callable[[], Awaitable[App]] | None = None,
) -> func.Blueprint:
    """The queue functions, bound to the queues of one account. suffix: of their names. serving: of a mirrored pair, the application of the
    side that serves: it takes events in, whichever account's queue they are in."""
    blueprint = func.Blueprint()  # type: ignore[no-untyped-call]

    def on_message(name: str, queue: str, act: Act) -> None:
        async def handler(msg: func.QueueMessage) -> None:
            try:
                scheduler = (await (serving if serving is not None and queue.startswith(QUEUE_INGEST) else get_app)()).scheduler
                await act(scheduler, _message(msg, scheduler.clock.now()))
            except Exception:
                # The host logs it again and counts the failure; here it gets its name.
                logging.getLogger(__name__).exception("%s failed", name, extra={"action": "queue_function_failed", "function": name})
                raise

        handler.__name__ = handler.__qualname__ = name
        blueprint.function_name(name)(blueprint.queue_trigger(arg_name="msg", queue_name=queue, connection=connection)(handler))

    for name, queue, act in QUEUE_FUNCTIONS:
        on_message(name + suffix, queue, act)
    return blueprint


def _message(msg: func.QueueMessage, now: Millis) -> Message:
    """A message as the host hands it over. What is not UTF-8 stays tellable."""
    sent = msg.insertion_time
    inserted = now if sent is None else to_millis(sent if sent.tzinfo is not None else sent.replace(tzinfo=UTC))
    return Message(msg.id or "", msg.pop_receipt or "", msg.get_body().decode(errors="surrogateescape"), msg.dequeue_count or 0, inserted)
