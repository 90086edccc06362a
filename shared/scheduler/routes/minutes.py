"""Routes of figures by the minute: planned events, and outcomes."""

from __future__ import annotations

from ...core.clock import Millis
from ...core.durations import MAX_TIME
from ...web.problem import invalid
from ...web.routes import Answer, Call, RouteGroup
from ..keys import MINUTE, minute_start
from ..model import HistoryOut, HistoryQuery, LoadOut, LoadQuery
from ..service import Scheduler

HOUR = 60 * MINUTE
MOST_MINUTES = 1_440
"""Most minutes in one answer."""


minutes = RouteGroup[Scheduler]("events", scope="events")


@minutes.get("v1/load", answers={200: LoadOut})
async def load(call: Call[Scheduler, None, LoadQuery]) -> Answer:
    """Return the number of open events that are planned for each minute.

    A range holds at most 1,440 minutes. A cancelled event counts until the owner of its shard reads it. An event that will be retried
    counts for the minute of its shard's earliest next attempt.
    """
    scheduler = call.service
    first = minute_start(call.query.from_ if call.query.from_ is not None else scheduler.clock.now())
    end = first + HOUR if call.query.to is None else _end(call.query.to)
    return Answer(200, await scheduler.stats.load(call.tenant, *_checked(first, end)))


@minutes.get("v1/history", answers={200: HistoryOut})
async def history(call: Call[Scheduler, None, HistoryQuery]) -> Answer:
    """Return the outcomes and the lateness of the events that were planned for each minute.

    A range holds at most 1,440 minutes; minutes without events are left out. Finished shards are kept for 7 days, those with dead events
    for 30 days.
    """
    scheduler, asked = call.service, call.query
    end = _end(asked.to if asked.to is not None else scheduler.clock.now() + 1)
    first = minute_start(asked.from_) if asked.from_ is not None else end - HOUR
    return Answer(200, {"items": await scheduler.stats.history(call.tenant, *_checked(first, end))})


def _end(to: Millis) -> Millis:
    """Return the first minute after the range."""
    return minute_start(to + MINUTE - 1)


def _checked(first: Millis, end: Millis) -> tuple[Millis, Millis]:
    """Return the range; raise 422 for one that is empty or too long."""
    # The year 9999 has no minute after its last.
    end = min(MAX_TIME + 1, end)
    if end <= first:
        raise invalid("?to", "must be after from")
    if end - first > MOST_MINUTES * MINUTE:
        raise invalid("?to", f"must be at most {MOST_MINUTES:,} minutes after from; ask for less at a time")
    return first, end
