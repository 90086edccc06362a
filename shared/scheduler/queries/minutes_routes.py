"""The doors of figures by the minute: what is planned, and what became of what was."""

from __future__ import annotations

from typing import Protocol

from ...core.clock import Millis
from ...core.durations import MAX_TIME
from ...web.problem import invalid
from ...web.routes import Answer, Call, Routes
from ..keys import MINUTE, minute_start
from ..model import HistoryOut, HistoryQuery, LoadOut, LoadQuery
from ..service import Scheduler

HOUR = 60 * MINUTE
MOST_MINUTES = 1_440
"""Minutes in one answer."""


class App(Protocol):
    """What these doors need of the application."""

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler."""


def register(routes: Routes) -> None:
    """Add `/load` and `/history`."""

    @routes.route(
        "GET",
        "v1/load",
        name="load",
        scope="events",
        query=LoadQuery,
        summary="How many open events are planned for each minute",
        description="At most 1,440 minutes. Cancelled events count until their owner meets them; events to be tried again count for the "
        "minute of the earliest next attempt of their shard.",
        answers={200: LoadOut},
        tag="events",
    )
    async def load(call: Call[App, None, LoadQuery]) -> Answer:
        scheduler = call.app.scheduler
        first = minute_start(call.query.from_ if call.query.from_ is not None else scheduler.clock.now())
        end = first + HOUR if call.query.to is None else _end(call.query.to)
        return Answer(200, {"items": await scheduler.stats.load(call.tenant, *_checked(first, end))})

    @routes.route(
        "GET",
        "v1/history",
        name="history",
        scope="events",
        query=HistoryQuery,
        summary="What became of the events planned for each minute, and how late they were",
        description="At most 1,440 minutes; those without events are left out. Finished shards are told for 7 days, those with dead events "
        "for 30.",
        answers={200: HistoryOut},
        tag="events",
    )
    async def history(call: Call[App, None, HistoryQuery]) -> Answer:
        scheduler, asked = call.app.scheduler, call.query
        end = _end(asked.to if asked.to is not None else scheduler.clock.now() + 1)
        first = minute_start(asked.from_) if asked.from_ is not None else end - HOUR
        return Answer(200, {"items": await scheduler.stats.history(call.tenant, *_checked(first, end))})


def _end(to: Millis) -> Millis:
    """The minute that is not told any more."""
    return minute_start(to + MINUTE - 1)


def _checked(first: Millis, end: Millis) -> tuple[Millis, Millis]:
    """The range; raises 422 for one that is empty or too long."""
    # The year 9999 has no minute after its last.
    end = min(MAX_TIME + 1, end)
    if end <= first:
        raise invalid("?to", "not after from")
    if end - first > MOST_MINUTES * MINUTE:
        raise invalid("?to", f"more than {MOST_MINUTES:,} minutes after from")
    return first, end
