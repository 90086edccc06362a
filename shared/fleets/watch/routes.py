"""The route of `leases/stale`."""

from __future__ import annotations

from ...core.clock import to_text
from ...leases.service.control.model import intent_out
from ...web.fields.params import Paging
from ...web.fields.types import Name
from ...web.paging.cursor import encode_cursor
from ...web.paging.pages import after
from ...web.routes import Answer, Call, RouteGroup
from .model import StaleList
from .service import FleetWatch

_LIST = "stale"

watch = RouteGroup[FleetWatch]("leases", scope="fleets", params={"fleet": Name})


@watch.get("v1/fleets/{fleet}/leases/stale", answers={200: StaleList})
async def leases_stale(call: Call[FleetWatch, None, Paging]) -> Answer:
    """List the faults of a fleet: partitions without an owner, missing rows, missing servers, forgotten manual controls.

    The faults are looked up now, by the same rules that raise alarms.
    """
    start = after(call, _LIST, int, -1)
    found, watched = await call.service.stale(call.tenant, call.params["fleet"])
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
    servers = {"live": found.live, "needed": found.needed, "used": found.used, "silent": list(found.silent), "late": list(found.late)}
    body = {
        "items": items,
        "next": encode_cursor(_LIST, shown[-1].partition) if len(beyond) > len(shown) else None,
        "servers": servers,
        "forgotten": [intent_out(intent) for intent in found.forgotten],
        "alarms": alarms,
    }
    return Answer(200, body)
