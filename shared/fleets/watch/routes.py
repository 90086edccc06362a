"""The route of `leases/stale`, and its wire models."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ...core.clock import to_text
from ...leases.model import IntentOut
from ...leases.service.control.model import intent_out
from ...web.fields.params import Paging
from ...web.fields.types import Name, Stamp, Strict
from ...web.paging import after, encode_cursor
from ...web.routes import Answer, Call, RouteGroup
from .alarms import Kind
from .service import FleetWatch


class StaleOut(Strict):
    """A partition that has been without an owner for longer than a takeover needs, or whose row is missing."""

    partition: int
    reason: Literal["owner silent", "owner gone", "unowned", "missing"]
    owner: str | None = Field(description="The last owner.")
    age_ms: int | None = Field(description="Time without an owner, by the storage service's clock. Null for a missing row.")


class ServersOut(Strict):
    """The number of servers. Drained and prohibited servers do not count."""

    live: int
    needed: int = Field(description="minimum + spare")
    used: bool = Field(description="A server has registered at least once. A fleet for turns or maintenance alone raises no alarm.")
    silent: list[str] = Field(description="Servers that should have been fenced by now.")
    late: list[str] = Field(description="Servers with late heartbeats, if they are half of all: storage may be throttled.")


class AlarmOut(Strict):
    """An alarm of the fleet."""

    alarm: Kind
    since: Stamp
    count: int
    subjects: list[str] = Field(description="The first subjects. `count` includes the others.")


class StaleList(Strict):
    """The faults of a fleet. Only `items` is paged."""

    items: list[StaleOut]
    next: str | None
    servers: ServersOut
    forgotten: list[IntentOut] = Field(description="Manual controls that are older than a day and have no expiry.")
    alarms: list[AlarmOut]


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
