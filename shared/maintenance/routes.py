"""The doors of maintenance: routes of api.md, "Maintenance", for agents, for Event Grid, and for people."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Protocol

from pydantic import Field

from ..web.auth import bound_to
from ..web.fields.params import Paging
from ..web.fields.types import Name
from ..web.paging.pages import after, page
from ..web.routes import Answer, Call, Routes
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
)
from .rows import REHEARSAL
from .service import eventgrid
from .service.reports import MaintenanceService

_FLEET = {"fleet": Name}
_EVENT = {"fleet": Name, "event_id": Id}
_EVENT_ID = "602d9444-d2cd-49c7-8624-8643e7171297"
MAX_REPORT = 1024 * 1024
"""Bytes of one report."""
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


class App(Protocol):
    """What these doors need of the application."""

    @property
    def maintenance(self) -> MaintenanceService:
        """Maintenance of fleets."""


def register(routes: Routes) -> None:
    """Add the routes of maintenance."""
    _agents(routes)
    _people(routes)
    _eventgrid(routes)


def _agents(routes: Routes) -> None:
    @routes.route(
        "POST",
        "v1/fleets/{fleet}/maintenance/reports",
        name="maintenance_report",
        scope=("fleets", "agent"),
        params=_FLEET,
        body=AgentReportIn,
        max_body=MAX_REPORT,
        answers={200: AgentReportAnswer, 409: ("stale-seq", "too-many-nodes", "too-many-events", "changed-meanwhile")},
        summary="What a node's agent sees and does, all of it each time",
        description="seq grows with each report; the same again is answered anew. lease_ms counts from the SEND of the report. An event "
        "that the node has PREPARED and that is not in hold may be approved.",
        tag="maintenance",
        examples={"waiting": _REPORT, "idle": {**_REPORT, "events": []}},
    )
    async def report(call: Call[App, AgentReportIn]) -> Answer:
        fleet = call.params["fleet"]
        bound_to(call.key, fleet, call.body.node)
        return Answer(200, await call.app.maintenance.report(call.tenant, fleet, call.body))

    @routes.route(
        "POST",
        "v1/fleets/{fleet}/maintenance/approvals/{approval}/result",
        name="maintenance_result",
        scope=("fleets", "agent"),
        params={"fleet": Name, "approval": ApprovalId},
        body=ResultIn,
        answers={204: None, 409: ("lease-lost", "changed-meanwhile")},
        summary="How the POST of a leased approval went",
        tag="maintenance",
        examples={"posted": {"node": "n1", "outcome": "posted", "http_status": 200}},
    )
    async def result(call: Call[App, ResultIn]) -> Answer:
        fleet = call.params["fleet"]
        bound_to(call.key, fleet, call.body.node)
        await call.app.maintenance.result(call.tenant, fleet, call.params["approval"].lower(), call.body)
        return Answer(204)


def _why(call: Call[App, ReasonIn]) -> str:
    # The body may be left out.
    return call.body.reason if call.body else ""


def _people(routes: Routes) -> None:
    @routes.route(
        "GET",
        "v1/fleets/{fleet}/maintenance/events",
        name="maintenance_events",
        scope="fleets",
        params=_FLEET,
        query=Paging,
        answers={200: MaintenanceEventList},
        summary="Scheduled events: open ones first, then the latest of the ledger",
        tag="maintenance",
    )
    async def events(call: Call[App, None, Paging]) -> Answer:
        kind = f"maintenance:{call.params['fleet']}"
        found = await call.app.maintenance.events(call.tenant, call.params["fleet"], call.query.limit, after(call, kind, int, 0))
        return page(kind, *found)

    @routes.route(
        "GET",
        "v1/fleets/{fleet}/maintenance/events/{event_id}",
        name="maintenance_event",
        scope="fleets",
        params=_EVENT,
        answers={200: MaintenanceEventOut},
        summary="One scheduled event, with where its nodes stand",
        tag="maintenance",
    )
    async def event(call: Call[App]) -> Answer:
        return Answer(200, await call.app.maintenance.event(call.tenant, call.params["fleet"], call.params["event_id"].lower()))

    @routes.route(
        "POST",
        "v1/fleets/{fleet}/maintenance/events/{event_id}/approve",
        name="maintenance_approve",
        scope="fleets",
        params=_EVENT,
        body=ReasonIn,
        body_optional=True,
        answers={202: DecidedOut, 409: ("already-started", "changed-meanwhile")},
        summary="Have an event approved before its time, once its nodes have prepared; lifts a hold",
        tag="maintenance",
        examples={"why": {"reason": "nobody works at night"}},
    )
    async def approve(call: Call[App, ReasonIn]) -> Answer:
        fleet, event_id, reason = call.params["fleet"], call.params["event_id"].lower(), _why(call)
        return Answer(202, await call.app.maintenance.approve(call.tenant, fleet, event_id, call.key.prefix, reason))

    @routes.route(
        "POST",
        "v1/fleets/{fleet}/maintenance/events/{event_id}/hold",
        name="maintenance_hold",
        scope="fleets",
        params=_EVENT,
        body=ReasonIn,
        body_optional=True,
        answers={202: DecidedOut, 409: ("already-started", "already-approved", "changed-meanwhile")},
        summary="Give no approval for an event; Azure goes on at NotBefore all the same",
        tag="maintenance",
        examples={"why": {"reason": "a repair is under way"}},
    )
    async def hold(call: Call[App, ReasonIn]) -> Answer:
        fleet, event_id, reason = call.params["fleet"], call.params["event_id"].lower(), _why(call)
        return Answer(202, await call.app.maintenance.hold(call.tenant, fleet, event_id, call.key.prefix, reason))

    @routes.route(
        "POST",
        "v1/fleets/{fleet}/maintenance/rehearse",
        name="maintenance_rehearse",
        scope="fleets",
        params=_FLEET,
        body=RehearseIn,
        answers={202: RehearsedOut, 409: ("too-many-events", "changed-meanwhile")},
        summary="Run nodes' hooks as for an event, without Azure",
        tag="maintenance",
        examples={"one node": {"nodes": ["n1"], "type": "Freeze", "notice": "PT5M", "duration_s": 9}},
    )
    async def rehearse(call: Call[App, RehearseIn]) -> Answer:
        event_id = f"{REHEARSAL}{uuid.uuid4()}"
        return Answer(202, {"event_id": await call.app.maintenance.rehearse(call.tenant, call.params["fleet"], event_id, call.body)})


def _eventgrid(routes: Routes) -> None:
    @routes.route(
        "POST",
        "v1/fleets/{fleet}/maintenance/eventgrid",
        name="maintenance_eventgrid",
        scope="fleets",
        params=_FLEET,
        body=Annotated[list[Any], Field(max_length=eventgrid.MOST)],
        max_body=MAX_REPORT,
        answers={200: DeliveredOut, 409: ("changed-meanwhile",)},
        summary="Deliveries of Event Grid: the same events as an additional source",
        description="Event Grid schema. A subscription's validation is answered. What tells of no VM's event is taken and ignored.",
        tag="maintenance",
    )
    async def delivered(call: Call[App, list[Any]]) -> Answer:
        code = eventgrid.validation_code(call.body)
        if code is not None:
            return Answer(200, {"validationResponse": code})
        await call.app.maintenance.delivered(call.tenant, call.params["fleet"], call.body)
        return Answer(200, {})
