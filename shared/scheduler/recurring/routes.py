"""The doors of recurring schedules: routes of api.md, "Scheduler"."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

from ...web.fields.params import Paging
from ...web.paging.cursor import decode_cursor, encode_cursor
from ...web.problem import invalid
from ...web.routes import Answer, Call, Routes
from ..model import EventOut
from ..queries.held import Showing
from .definition import PARTITIONS
from .model import PreviewOut, PreviewQuery, ScheduleId, ScheduleIn, ScheduleList, ScheduleOut
from .service import Recurring, Schedule
from .store import Place

MAX_SCHEDULE_BYTES = 512 * 1024
_ID = {"id": ScheduleId}
_LIST = "schedules"
_EXAMPLES = {
    "workdays at half past two": {"cron": "30 2 * * MON-FRI", "timezone": "Europe/Berlin", "payload": {"job": "report"}},
    "every ten minutes": {"every": "PT10M", "jitter": "PT30S", "catch_up": {"policy": "none"}, "payload": {"job": "poll"}},
}


class Scheduler(Protocol):
    """The scheduler, as far as these doors need it."""

    @property
    def recurring(self) -> Recurring:
        """Recurring schedules."""

    @property
    def showing(self) -> Showing:
        """Representations of events."""


class App(Protocol):
    """What these doors need of the application."""

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler."""


def register(routes: Routes) -> None:
    """Add the routes of recurring schedules."""
    _single(routes)
    _switches(routes)
    _looks(routes)


def _single(routes: Routes) -> None:
    @routes.route(
        "PUT",
        "v1/schedules/{id}",
        name="schedules_put",
        tagged=True,
        scope="events",
        params=_ID,
        summary="Create a recurring schedule or replace its content",
        description="The same content again changes nothing. What is about to fire follows: it is cancelled and made anew.",
        body=ScheduleIn,
        max_body=MAX_SCHEDULE_BYTES,
        answers={
            201: ScheduleOut,
            200: ScheduleOut,
            409: ("changed-meanwhile", "made-elsewhere"),
            413: "payload-too-large",
            429: "too-many-requests",
        },
        if_match=True,
        examples=_EXAMPLES,
        tag="schedules",
    )
    async def schedules_put(call: Call[App, ScheduleIn]) -> Answer:
        found, new = await call.app.scheduler.recurring.put(call.tenant, call.params["id"], call.raw, call.headers)
        return Answer(201 if new else 200, found.shown, {"location": call.path} if new else None, etag=found.etag)

    @routes.route(
        "GET",
        "v1/schedules/{id}",
        name="schedules_get",
        tagged=True,
        scope="events",
        params=_ID,
        summary="One recurring schedule",
        answers={200: ScheduleOut},
        tag="schedules",
    )
    async def schedules_get(call: Call[App]) -> Answer:
        return _shown(await call.app.scheduler.recurring.get(call.tenant, call.params["id"]))

    @routes.route(
        "DELETE",
        "v1/schedules/{id}",
        name="schedules_delete",
        scope="events",
        params=_ID,
        summary="Remove a recurring schedule: once this has answered, no occurrence that is still to come is delivered",
        description="What is due already and has become an event is not taken back, nor is what is being delivered.",
        answers={204: None, 409: "changed-meanwhile"},
        if_match=True,
        tag="schedules",
    )
    async def schedules_delete(call: Call[App]) -> Answer:
        await call.app.scheduler.recurring.delete(call.tenant, call.params["id"], call.headers)
        return Answer(204)


def _switches(routes: Routes) -> None:
    def switch(verb: Literal["pause", "resume"], summary: str, description: str, act: Callable[[Call[App]], Awaitable[Schedule]]) -> None:
        @routes.route(
            "POST",
            f"v1/schedules/{{id}}/{verb}",
            name=f"schedules_{verb}",
            tagged=True,
            scope="events",
            params=_ID,
            summary=summary,
            description=description,
            answers={200: ScheduleOut, 409: "changed-meanwhile"},
            if_match=True,
            tag="schedules",
        )
        async def handler(call: Call[App]) -> Answer:
            return _shown(await act(call))

    switch(
        "pause",
        "Stop a schedule: once this has answered, no occurrence that is still to come is delivered",
        "What is due already and has become an event is not taken back, nor is what is being delivered.",
        lambda call: call.app.scheduler.recurring.pause(call.tenant, call.params["id"], call.headers),
    )
    switch(
        "resume",
        "Let a schedule go on; what would have occurred meanwhile never fires",
        "It goes on with the first occurrence that is still to come.",
        lambda call: call.app.scheduler.recurring.resume(call.tenant, call.params["id"], call.headers),
    )

    @routes.route(
        "POST",
        "v1/schedules/{id}/trigger",
        name="schedules_trigger",
        tagged=True,
        scope="events",
        params=_ID,
        summary="Fire once now, beside the schedule's occurrences",
        answers={202: EventOut, 429: "too-many-requests"},
        tag="schedules",
    )
    async def schedules_trigger(call: Call[App]) -> Answer:
        made = await call.app.scheduler.recurring.trigger(call.tenant, call.params["id"])
        shown = await call.app.scheduler.showing.one(made.row)
        return Answer(202, shown, {"location": f"/api/v1/events/{made.id}"}, etag=made.etag)


def _looks(routes: Routes) -> None:
    @routes.route(
        "GET",
        "v1/schedules",
        name="schedules_list",
        scope="events",
        query=Paging,
        summary="The tenant's recurring schedules",
        description="In no order. A page may be short, even empty, while `next` is not null.",
        answers={200: ScheduleList},
        tag="schedules",
    )
    async def schedules_list(call: Call[App, None, Paging]) -> Answer:
        start = Place(0, "") if call.query.cursor is None else _place(decode_cursor(_LIST, call.query.cursor, list))
        found, following = await call.app.scheduler.recurring.list(call.tenant, call.query.limit, start)
        items = [each.shown for each in found]
        return Answer(200, {"items": items, "next": None if following is None else encode_cursor(_LIST, list(following))})

    @routes.route(
        "GET",
        "v1/schedules/{id}/preview",
        name="schedules_preview",
        scope="events",
        params=_ID,
        query=PreviewQuery,
        summary="The next occurrences of a schedule, without jitter",
        answers={200: PreviewOut},
        tag="schedules",
    )
    async def schedules_preview(call: Call[App, None, PreviewQuery]) -> Answer:
        return Answer(200, {"items": await call.app.scheduler.recurring.preview(call.tenant, call.params["id"], call.query.n)})


def _shown(found: Schedule) -> Answer:
    return Answer(200, found.shown, etag=found.etag)


def _place(found: list[Any]) -> Place:
    match found:
        case [int(number), str(after)] if 0 <= number < len(PARTITIONS):
            return Place(number, after)
        case _:
            raise invalid("?cursor", "not a cursor of this list")
