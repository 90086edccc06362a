"""Heartbeat monitors: an event is delivered if nobody calls for some time. Each call puts the event off, as `collapse` does."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import Field

from ...core.clock import Millis, to_text
from ...core.durations import MAX_DURATION, format_duration
from ...core.errors import Problem
from ...storage.ports import Row
from ...web.fields.types import Duration, Maybe, Name, Stamp, Strict
from ...web.problem import conflict, not_found
from ...web.routes import Answer, Call, RouteGroup
from ..changes.verbs import ChangeRequest
from ..model import EventIn
from ..properties.receipts import Received
from ..rules import is_over
from ..service import Scheduler

PREFIX: Final = "heartbeat:"
"""The id of the event is this and the monitor's name."""
LEAST_WITHIN: Final = 10_000
"""A shorter time would be mostly that in which a waiting event is claimed and can no longer be put off."""
MOST_WITHIN: Final = 366 * 86_400_000
MAX_BODY: Final = 16 * 1024
ENDED: Final = "The monitor was ended after this call was received. Repeat the call to begin it anew."

type HeartbeatState = Literal["alive", "silent"]


class HeartbeatIn(Strict):
    """A call of a monitor."""

    within: Annotated[Duration, Field(ge=LEAST_WITHIN, le=MOST_WITHIN, description="The next call must come within this time.")]
    channel: Name = Field("default", description="Channel of the event that is delivered otherwise.")
    payload: Any = Field(None, description="Any JSON. It is delivered as sent, as the member `payload` of the event's payload.")


class HeartbeatOut(Strict):
    """A monitor."""

    name: str
    state: HeartbeatState = Field(description="silent: no call came in time. The event is being delivered, or has been.")
    due: Stamp = Field(description="The event's due time: when the next call must have come.")
    channel: str
    event: Maybe[str] = Field(None, description="The id of the event: `GET /events/{id}` shows its attempts.")


heartbeats = RouteGroup[Scheduler]("events", scope="events", params={"name": Name})


@heartbeats.post(
    "v1/heartbeats/{name}",
    answers={
        201: HeartbeatOut,
        200: HeartbeatOut,
        409: ("already-firing", "changed-meanwhile"),
        413: "payload-too-large",
        429: "too-many-requests",
        503: "call-expired",
    },
    max_body=MAX_BODY,
    opaque="payload",
    examples={"a nightly backup": {"within": "P1DT1H", "channel": "ops"}},
)
async def heartbeats_call(call: Call[Scheduler, HeartbeatIn]) -> Answer:
    """Say that a job is alive; an event is delivered if the next call does not come within a time.

    201 for the first call and for the first one after an alarm. 409 with `Retry-After` while the alarm begins: repeat the call.
    A call changes nothing if one that was received later has.
    """
    name, asked = call.params["name"], call.body
    last = call.service.clock.now()
    told = {"heartbeat": name, "within": format_duration(asked.within), "last": to_text(last)}
    body = orjson.dumps(told if call.member is None else {**told, "payload": orjson.Fragment(call.member)})
    longest = format_duration(MAX_DURATION)
    event = EventIn.model_validate(
        {
            "id": PREFIX + name,
            "delay": told["within"],
            "payload": None,
            "channel": asked.channel,
            "collapse": longest,
            "durability": "standard",
            # An alarm stays one, whatever the tenant's settings say of its own events.
            "expires": None,
        }
    )
    made = await call.service.collapsing.post(call.tenant, event, body, call.arrival)
    if made.row.props["state"] == "cancelled":
        raise conflict("changed-meanwhile", ENDED)
    return Answer(201 if made.new else 200, _shown(name, made.row, last))


@heartbeats.get("v1/heartbeats/{name}", answers={200: HeartbeatOut})
async def heartbeats_get(call: Call[Scheduler]) -> Answer:
    """Return a monitor, as long as its event is kept."""
    name = call.params["name"]
    row = await call.service.lookup.event(call.tenant, PREFIX + name)
    if row is None or row.props["state"] == "cancelled":
        raise not_found("heartbeat")
    return Answer(200, _shown(name, row, call.service.clock.now()))


@heartbeats.delete("v1/heartbeats/{name}", answers={204: None, 409: ("already-firing", "already-final")}, if_match=True)
async def heartbeats_delete(call: Call[Scheduler]) -> Answer:
    """End a monitor: no event is delivered until the next call begins it anew."""
    try:
        request = ChangeRequest(call.tenant, call.headers, Received(call.arrival))
        await call.service.changes.cancel(request, PREFIX + call.params["name"])
    except Problem as refusal:
        raise not_found("heartbeat") if refusal.status == 404 else refusal from None
    return Answer(204)


def _shown(name: str, row: Row, now: Millis) -> HeartbeatOut:
    due = int(row.props["due"])
    silent = is_over(row.props) or due <= now
    channel = str(row.props["channel"])
    return HeartbeatOut(name=name, state="silent" if silent else "alive", due=due, channel=channel, event=PREFIX + name)
