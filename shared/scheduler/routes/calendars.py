"""Routes of calendars: named lists of dates on which schedules that name them do not occur."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import Field

from ...web.fields.params import DryRun, Paging
from ...web.fields.types import Name, Strict
from ...web.paging import after, page
from ...web.routes import Answer, Call, RouteGroup
from ..recurring.calendars import MAX_CALENDAR_DATES, Calendar, tag_of
from ..recurring.timing import Day, day_text
from ..service import Scheduler

calendars = RouteGroup[Scheduler]("schedules", scope="events", params={"name": Name})


class CalendarIn(Strict):
    """The dates of a calendar."""

    dates: list[Day] = Field(max_length=MAX_CALENDAR_DATES)


class CalendarOut(CalendarIn):
    """A calendar as stored, its dates in order."""

    name: str


class CalendarList(Strict):
    """A page of calendars."""

    items: list[CalendarOut]
    next: str | None


@calendars.put(
    "v1/calendars/{name}",
    answers={201: CalendarOut, 200: CalendarOut, 409: ("too-many-calendars", "changed-meanwhile")},
    examples={"holidays": {"dates": ["2026-12-25", "2026-12-26", "2027-01-01"]}},
    if_match=True,
    tagged=True,
)
async def calendars_put(call: Call[Scheduler, CalendarIn, DryRun]) -> Answer:
    """Create a calendar or replace its dates.

    After the answer, every schedule that names it follows it. If the call fails with 503 or without an answer, repeat it.
    """
    changes, name = call.service.recurring.calendars, call.params["name"]
    stored, tag, new = await changes.put(call.tenant, name, call.body.dates, call.headers, dry_run=call.query.dry_run)
    return Answer(201 if new else 200, _shown(stored), {"location": call.path} if new else None, etag=tag or None)


@calendars.get("v1/calendars/{name}", answers={200: CalendarOut}, tagged=True)
async def calendars_get(call: Call[Scheduler]) -> Answer:
    """Return a calendar."""
    found = await call.service.recurring.calendars.get(call.tenant, call.params["name"])
    return Answer(200, _shown(found), etag=tag_of(found))


@calendars.delete("v1/calendars/{name}", answers={204: None, 409: ("calendar-in-use", "changed-meanwhile")}, if_match=True)
async def calendars_delete(call: Call[Scheduler]) -> Answer:
    """Delete a calendar that no schedule names."""
    await call.service.recurring.calendars.delete(call.tenant, call.params["name"], call.headers)
    return Answer(204)


@calendars.get("v1/calendars", answers={200: CalendarList})
async def calendars_list(call: Call[Scheduler, None, Paging]) -> Answer:
    """List calendars by name."""
    start, limit = after(call, "calendars", str, ""), call.query.limit
    found = [each for each in await call.service.recurring.calendars.all(call.tenant) if each.name > start]
    shown = []
    for each in found[:limit]:
        shown.append(_shown(each))
        await asyncio.sleep(0)
    return page("calendars", shown, found[limit - 1].name if len(found) > limit else None)


def _shown(calendar: Calendar) -> dict[str, Any]:
    """Return the representation of a calendar. The stored days are dates: they are not checked again."""
    return {"name": calendar.name, "dates": list(map(day_text, calendar.days))}
