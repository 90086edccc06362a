"""The doors of the scheduler: routes of api.md, "Scheduler", and the queue triggers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import azure.functions as func

from ..errors import Problem
from ..settings import CONNECTION
from ..storage.names import QUEUE_RETRIES, QUEUE_SHARDS
from ..web.cursor import decode_cursor, encode_cursor
from ..web.problem import invalid, not_found
from ..web.routes import Answer, Call, Routes
from .changes import dead_letters
from .ingest import Admitted
from .lookup import START, Filter, Place
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
from .rows import etag_of_row, representation, shown_state
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
        answers={201: EventOut, 200: EventOut, 409: "id-conflict", 413: "payload-too-large", 429: "too-many-requests"},
        examples=_EXAMPLES,
        tag="events",
    )
    async def events_create(call: Call[App, EventIn]) -> Answer:
        made = await call.app.scheduler.ingest.one(call.tenant, call.body, call.raw)
        location = {"location": f"/api/v1/events/{made.id}"}
        return Answer(201 if made.new else 200, made.shown, location, etag=made.etag)

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
        accepted = sum(isinstance(result, Admitted) for result in results)
        lines = [_line(index, result) for index, result in enumerate(results)]
        return Answer(200, {"accepted": accepted, "rejected": len(lines) - accepted, "results": lines})


def _line(index: int, result: Admitted | Problem) -> dict[str, Any]:
    if isinstance(result, Admitted):
        return {"index": index, "status": 201 if result.new else 200, "id": result.id}
    return {"index": index, "status": result.status, "problem": result.body()}


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
        row = await call.app.scheduler.lookup.event(call.tenant, call.params["id"])
        if row is None:
            raise not_found("event")
        return Answer(200, representation(row), etag=etag_of_row(row))

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
        answers={200: EventOut, 409: ("already-firing", "already-final"), 413: "payload-too-large"},
        if_match=True,
        tag="events",
    )
    async def events_patch(call: Call[App, EventPatch]) -> Answer:
        scheduler, event_id = call.app.scheduler, call.params["id"]
        found = await scheduler.lookup.event(call.tenant, event_id)
        if found is None:
            raise not_found("event")
        due, change = await scheduler.ingest.patch(call.tenant, call.body, call.raw, found.props)
        if due is None:
            row = await scheduler.changes.edit(call.tenant, event_id, change, call.headers)
        else:
            row = await scheduler.changes.move(call.tenant, event_id, due, change, call.headers)
        return Answer(200, representation(row), etag=etag_of_row(row))

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
        answers={202: EventOut, 409: ("already-firing", "already-final")},
        tag="events",
    )
    async def events_fire(call: Call[App]) -> Answer:
        row = await call.app.scheduler.changes.move(call.tenant, call.params["id"], None, {}, call.headers)
        return Answer(202, representation(row), etag=etag_of_row(row))

    @routes.route(
        "POST",
        "v1/events/{id}/redrive",
        name="events_redrive",
        tagged=True,
        scope="events",
        params=_ID,
        summary="Bring a dead event back",
        answers={202: EventOut, 409: "not-dead"},
        tag="events",
    )
    async def events_redrive(call: Call[App]) -> Answer:
        scheduler = call.app.scheduler
        await scheduler.changes.redrive_one(call.tenant, call.params["id"])
        row = await scheduler.lookup.event(call.tenant, call.params["id"])
        if row is None:
            raise not_found("event")
        return Answer(202, representation(row), etag=etag_of_row(row))

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
    shown = [representation(row) for row in rows]
    return Answer(200, {"items": shown, "next": encode_cursor(kind, list(following)) if following is not None else None})


def _place(found: list[Any]) -> Place:
    match found:
        case [str(phase), int(number), str(key), str(row)] if 0 <= number < 16:
            return Place(phase, number, key, row)
        case _:
            raise invalid("?cursor", "not a cursor of this list")


def triggers(get_app: Callable[[], Awaitable[App]]) -> func.Blueprint:
    """The queue functions: shards, retries, and a poison handler for each."""
    blueprint = func.Blueprint()  # type: ignore[no-untyped-call]

    def on_message(name: str, queue: str, act: Callable[[Scheduler, str], Awaitable[None]]) -> None:
        async def handler(msg: func.QueueMessage) -> None:
            text = msg.get_body().decode(errors="replace")
            try:
                await act((await get_app()).scheduler, text)
            except Exception:
                # The host logs it again and counts the failure; here it gets its name.
                logging.getLogger(__name__).exception("%s failed", name, extra={"action": "queue_function_failed", "function": name})
                raise

        handler.__name__ = handler.__qualname__ = name
        blueprint.function_name(name)(blueprint.queue_trigger(arg_name="msg", queue_name=queue, connection=CONNECTION)(handler))

    on_message("fire_shard", QUEUE_SHARDS, lambda scheduler, text: scheduler.firing.serve(text))
    on_message("fire_retry", QUEUE_RETRIES, lambda scheduler, text: scheduler.firing.serve(text, retries=True))
    on_message("fire_shard_poison", f"{QUEUE_SHARDS}-poison", lambda scheduler, text: scheduler.firing.poisoned(text, retries=False))
    on_message("fire_retry_poison", f"{QUEUE_RETRIES}-poison", lambda scheduler, text: scheduler.firing.poisoned(text, retries=True))
    return blueprint
