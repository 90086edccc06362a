"""The door of `leases/stale`."""

from __future__ import annotations

from typing import Protocol

from ...core.clock import to_text
from ...leases.service.control.model import intent_out
from ...web.fields.params import Paging
from ...web.fields.types import Name
from ...web.paging.cursor import encode_cursor
from ...web.paging.pages import after
from ...web.routes import Answer, Call, Routes
from .model import StaleList
from .service import FleetWatch

_LIST = "stale"


class App(Protocol):
    """What this door needs of the application."""

    @property
    def watch(self) -> FleetWatch:
        """The watch."""


def register(routes: Routes) -> None:
    """Add the route."""

    @routes.route(
        "GET",
        "v1/fleets/{fleet}/leases/stale",
        name="leases_stale",
        scope="fleets",
        params={"fleet": Name},
        query=Paging,
        summary="What is wrong with a fleet: partitions without a server, missing rows, too few servers, forgotten controls",
        description="Looked up now, by the same rules that alarms follow.",
        answers={200: StaleList},
        tag="leases",
    )
    async def leases_stale(call: Call[App, None, Paging]) -> Answer:
        start = after(call, _LIST, int, -1)
        found, watched = await call.app.watch.stale(call.tenant, call.params["fleet"])
        beyond = [each for each in found.stale if each.partition > start]
        shown = beyond[: call.query.limit]
        items = [
            {
                "partition": each.partition,
                "reason": each.reason,
                "owner": each.owner or None,
                "age_ms": None if each.reason == "missing" else round(each.age * 1000),
            }
            for each in shown
        ]
        alarms = [
            {"alarm": alarm.kind, "since": to_text(alarm.since), "count": alarm.count, "subjects": list(alarm.subjects)}
            for alarm in watched.alarms.values()
            if not alarm.cleared
        ]
        body = {
            "items": items,
            "next": encode_cursor(_LIST, shown[-1].partition) if len(beyond) > len(shown) else None,
            "servers": {
                "live": found.live,
                "needed": found.needed,
                "used": found.used,
                "silent": list(found.silent),
                "late": list(found.late),
            },
            "forgotten": [intent_out(intent) for intent in found.forgotten],
            "alarms": alarms,
        }
        return Answer(200, body)
