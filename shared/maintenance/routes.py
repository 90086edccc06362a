"""Routes of maintenance: for agents, for people, and for Event Grid."""

from __future__ import annotations

import re
import uuid
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from ..web.auth import bound_to
from ..web.fields.params import Paging
from ..web.fields.types import Name, NodeName
from ..web.paging import after, page
from ..web.problem import invalid
from ..web.routes import Answer, Call, RouteGroup
from .model import (
    AgentReportAnswer,
    AgentReportIn,
    ApprovalId,
    DecidedOut,
    DeliveredOut,
    Id,
    MaintenanceEventList,
    MaintenanceEventOut,
    ReasonIn,
    RehearsedOut,
    RehearseIn,
    ResultIn,
    StoryOut,
)
from .rows import REHEARSAL
from .service import eventgrid
from .service.service import MaintenanceService

_EVENT_ID = "602d9444-d2cd-49c7-8624-8643e7171297"
_VALIDATION = [
    {
        "id": "2d1781af-3a4c-4d7c-bd0c-e34b19da4e66",
        "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent",
        "eventTime": "2026-11-21T10:21:55.000Z",
        "data": {"validationCode": "512d38b6-c7b8-40c8-89fe-f46f9e9622b6"},
    }
]
_ORIGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
MAX_REPORT = 1024 * 1024
"""Largest report, in bytes."""
_ENTRY = {
    "event_id": _EVENT_ID,
    "type": "Freeze",
    "status": "Scheduled",
    "not_before": "2026-11-21T10:21:55.000Z",
    "source": "Platform",
    "duration_s": 9,
    "resources": ["vm_1"],
    "phase": "WAITING",
}
_REPORT = {
    "node": "n1",
    "seq": 17,
    "vm": "vm_1",
    "scope": "cassandra-set",
    "location": "westeurope",
    "fault_domain": "0",
    "boot_id": "5c2b1f7e-1d0c-4a5e-9f60-7d8e9fa0b1c2",
    "incarnation": 3,
    "disabled": False,
    "events": [_ENTRY],
}


def _as_list(body: Any) -> Any:
    return [body] if isinstance(body, dict) else body


EventGridDelivery = Annotated[
    list[Any],
    Field(max_length=eventgrid.MOST),
    BeforeValidator(_as_list),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {}, "maxItems": eventgrid.MOST}, {"type": "object"}]}),
]
"""Event Grid's array of events. One event by itself is accepted, too."""

maintenance = RouteGroup[MaintenanceService](
    "maintenance", scope="fleets", params={"fleet": Name, "event_id": Id, "approval": ApprovalId, "node": NodeName}
)
AGENTS = ("fleets", "agent")


@maintenance.post(
    "v1/fleets/{fleet}/maintenance/reports",
    scope=AGENTS,
    max_body=MAX_REPORT,
    answers={200: AgentReportAnswer, 409: ("stale-seq", "too-many-nodes", "too-many-events", "changed-meanwhile")},
    examples={"waiting": _REPORT, "idle": {**_REPORT, "events": []}},
)
async def maintenance_report(call: Call[MaintenanceService, AgentReportIn]) -> Answer:
    """Record a report of a node's agent: all events that it sees, and their phases.

    seq grows with each report; a repeated seq is answered from the current state. lease_ms counts from the moment the report was SENT. The
    agent may approve an event that its node has PREPARED and that is not on hold.
    """
    fleet = call.params["fleet"]
    bound_to(call.key, fleet, call.body.node)
    return Answer(200, await call.service.report(call.tenant, fleet, call.body))


@maintenance.post(
    "v1/fleets/{fleet}/maintenance/approvals/{approval}/result",
    scope=AGENTS,
    answers={204: None, 409: ("lease-lost", "changed-meanwhile")},
    examples={"posted": {"node": "n1", "outcome": "posted", "http_status": 200}},
)
async def maintenance_result(call: Call[MaintenanceService, ResultIn]) -> Answer:
    """Record the outcome of an approval that the node sent to Azure under its lease."""
    fleet = call.params["fleet"]
    bound_to(call.key, fleet, call.body.node)
    await call.service.result(call.tenant, fleet, call.params["approval"].lower(), call.body)
    return Answer(204)


@maintenance.get("v1/fleets/{fleet}/maintenance/events", answers={200: MaintenanceEventList})
async def maintenance_events(call: Call[MaintenanceService, None, Paging]) -> Answer:
    """List Scheduled Events: open ones first, then the latest of the ledger."""
    kind = f"maintenance:{call.params['fleet']}"
    found = await call.service.events(call.tenant, call.params["fleet"], call.query.limit, after(call, kind, int, 0))
    return page(kind, *found)


@maintenance.get("v1/fleets/{fleet}/maintenance/events/{event_id}", answers={200: MaintenanceEventOut})
async def maintenance_event(call: Call[MaintenanceService]) -> Answer:
    """Return a Scheduled Event with the phase of each node."""
    return Answer(200, await call.service.event(call.tenant, call.params["fleet"], call.params["event_id"].lower()))


class StoryPaging(Paging):
    """Paging, and the node."""

    node: Annotated[NodeName | None, Field(description="Only steps of this node.")] = None


@maintenance.get("v1/fleets/{fleet}/maintenance/events/{event_id}/story", answers={200: StoryOut})
async def maintenance_story(call: Call[MaintenanceService, None, StoryPaging]) -> Answer:
    """List the steps of an event on all its nodes, and the app's decisions, in order of time."""
    fleet, event_id, query = call.params["fleet"], call.params["event_id"].lower(), call.query
    kind = f"maintenance-story:{fleet}:{event_id}:{query.node or ''}"
    return page(kind, *await call.service.story(call.tenant, fleet, event_id, query.limit, after(call, kind, str, ""), query.node))


@maintenance.post(
    "v1/fleets/{fleet}/maintenance/events/{event_id}/approve",
    answers={202: DecidedOut, 409: ("already-started", "changed-meanwhile")},
    examples={"why": {"reason": "there is no traffic at night"}},
)
async def maintenance_approve(call: Call[MaintenanceService, ReasonIn | None]) -> Answer:
    """Approve an event before its NotBefore, once its nodes are prepared; this lifts a hold."""
    fleet, event_id = call.params["fleet"], call.params["event_id"].lower()
    return Answer(202, await call.service.approve(call.tenant, fleet, event_id, call.key.prefix, _reason(call)))


@maintenance.post(
    "v1/fleets/{fleet}/maintenance/events/{event_id}/hold",
    answers={202: DecidedOut, 409: ("already-started", "already-approved", "changed-meanwhile")},
    examples={"why": {"reason": "a repair is under way"}},
)
async def maintenance_hold(call: Call[MaintenanceService, ReasonIn | None]) -> Answer:
    """Hold an event: it is not approved. Azure starts it at NotBefore nevertheless."""
    fleet, event_id = call.params["fleet"], call.params["event_id"].lower()
    return Answer(202, await call.service.hold(call.tenant, fleet, event_id, call.key.prefix, _reason(call)))


def _reason(call: Call[MaintenanceService, ReasonIn | None]) -> str:
    return call.body.reason if call.body else ""


@maintenance.post(
    "v1/fleets/{fleet}/maintenance/rehearse",
    answers={202: RehearsedOut, 409: ("too-many-events", "changed-meanwhile")},
    examples={"one node": {"nodes": ["n1"], "type": "Freeze", "notice": "PT5M", "duration_s": 9}},
)
async def maintenance_rehearse(call: Call[MaintenanceService, RehearseIn]) -> Answer:
    """Run the hooks of nodes as for a Scheduled Event, without Azure."""
    event_id = f"{REHEARSAL}{uuid.uuid4()}"
    return Answer(202, await call.service.rehearse(call.tenant, call.params["fleet"], event_id, call.body))


@maintenance.post(
    "v1/fleets/{fleet}/maintenance/nodes/{node}/forget",
    answers={204: None, 409: ("agent-live", "changed-meanwhile")},
)
async def maintenance_forget(call: Call[MaintenanceService]) -> Answer:
    """Forget a node whose VM is lost: its fault domain no longer counts as down.

    The node's agent must be silent. If it reports again, the node is back.
    """
    await call.service.forget(call.tenant, call.params["fleet"], call.params["node"])
    return Answer(204)


@maintenance.post(
    "v1/fleets/{fleet}/maintenance/eventgrid",
    max_body=MAX_REPORT,
    answers={200: DeliveredOut, 409: ("changed-meanwhile",)},
    examples={"the validation of a subscription": _VALIDATION},
    record="none",
)
async def maintenance_eventgrid(call: Call[MaintenanceService, EventGridDelivery]) -> Answer:
    """Take deliveries of Event Grid: an additional source of the same events.

    The body has the Event Grid schema or that of CloudEvents: an array, or one event by itself. The validation of a subscription is
    answered. Notifications that concern no event of a VM are accepted and ignored.
    """
    code = eventgrid.validation_code(call.body)
    if code is not None:
        return Answer(200, {"validationResponse": code})
    await call.service.delivered(call.tenant, call.params["fleet"], call.body)
    return Answer(200, {})


@maintenance.options("v1/fleets/{fleet}/maintenance/eventgrid", answers={200: None}, record="none")
async def maintenance_eventgrid_allow(call: Call[MaintenanceService]) -> Answer:
    """Allow Event Grid to deliver with the CloudEvents schema.

    Answers the validation of CloudEvents webhooks: the header WebHook-Request-Origin comes back as WebHook-Allowed-Origin.
    """
    origin = call.headers.get("webhook-request-origin", "")
    if not _ORIGIN.fullmatch(origin):
        raise invalid("", "the header WebHook-Request-Origin names the sender, such as eventgrid.azure.net")
    # Without deliveries: the fleet must exist.
    await call.service.delivered(call.tenant, call.params["fleet"], [])
    return Answer(200, headers={"webhook-allowed-origin": origin, "webhook-allowed-rate": "*"})
