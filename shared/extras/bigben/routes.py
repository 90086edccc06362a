"""Routes of BigBen's API: `/api/bigben/...`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from ...app.parts import PartService
from ...tenants.store import TenantDirectory
from ...web.auth import BOOTSTRAP, KeyRecord
from ...web.bodies import element_spans
from ...web.fields.types import NAME
from ...web.json_spans import Span
from ...web.problem import invalid, not_found
from ...web.routes import Answer, Call, RouteGroup
from .crons import Crons, describe
from .model import MAX_EVENTS, BigBenEventQuery, CronDescription, CronIn, CronQuery, EventRequest, EventResponse, Processor, StatusOut
from .processors import CHANNEL, Processors
from .service import BigBen

MAX_BODY = 16 * 1024 * 1024
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class BigBenServices(PartService):
    """The services behind the routes of BigBen's API."""

    events: BigBen
    crons: Crons
    processors: Processors
    directory: TenantDirectory
    is_open: bool
    """True if calls on loopback need no key (`TOCSIN_BIGBEN_OPEN`)."""
    instance: str
    """The name of this process; '' if it is not known."""


def guest(services: BigBenServices, url: str, headers: Mapping[str, str]) -> KeyRecord | None:
    """Return the caller of a request without a key: an admin if the API is open and the call comes on loopback, as at BigBen.

    A page of another site that a browser on this machine shows is no such caller: browsers name it in `Origin` or `Sec-Fetch-Site`.
    """
    of_a_page = "origin" in headers or headers.get("sec-fetch-site", "none").strip().lower() not in ("same-origin", "none")
    return BOOTSTRAP if services.is_open and not of_a_page and urlsplit(url).hostname in _LOOPBACK else None


_EVENT = {"id": "order-17", "eventTime": "2030-01-01T10:21:55.250Z", "tenant": "demo", "payload": '{"order": 17}'}
_CRON = {"id": "nightly", "expression": "30 2 * * *", "type": "UNIX", "tenant": "demo"}

bigben = RouteGroup[BigBenServices]("bigben", scope="events", names_tenant=True, guest=guest)
operators = RouteGroup[BigBenServices]("bigben", scope="admin", guest=guest)
probes = RouteGroup[None]("bigben", standalone=True)


async def _may_act_for(call: Call[BigBenServices, Any, Any], tenant: str) -> bool:
    """Return True if the tenant exists and the caller may act for it."""
    allowed = call.key.tenant == tenant or "admin" in call.key.scopes
    return allowed and NAME.fullmatch(tenant) is not None and await call.service.directory.tenant(tenant) is not None


async def _check(call: Call[BigBenServices, Any, Any], tenant: str) -> None:
    if not await _may_act_for(call, tenant):
        raise not_found("tenant")


@probes.get("bigben/ping", answers={200: StatusOut})
async def bigben_ping(call: Call[None]) -> Answer:
    """Answer as long as the process runs, as BigBen does; `/api/readyz` also checks storage and timers."""
    return Answer(200, StatusOut())


@operators.get("bigben/events/cluster", answers={200: dict[str, Literal["Master", "Slave"]]})
async def bigben_cluster(call: Call[BigBenServices]) -> Answer:
    """Name the instance that answers, as `Master`: no instance directs others, so each does all of a master's work."""
    return Answer(200, {call.service.instance or "this instance": "Master"})


@bigben.post(
    "bigben/events/schedule",
    answers={200: list[EventResponse], 206: list[EventResponse], 400: list[EventResponse]},
    shape=list[EventRequest],
    examples={"one": [_EVENT], "remove it": [{"id": "order-17", "tenant": "demo", "mode": "REMOVE"}]},
    max_body=MAX_BODY,
)
async def bigben_schedule(call: Call[BigBenServices, bytes]) -> Answer:
    """Schedule and remove events as BigBen does.

    The answer is 200 if all events are accepted, 206 if some are rejected, and 400 if all are.
    """

    async def known(tenant: str) -> bool:
        return await _may_act_for(call, tenant)

    replies = await call.service.events.schedule(call.body, await _requests(call.body), known, call.arrival)
    rejected = sum(reply.get("eventStatus") == "REJECTED" for reply in replies)
    return Answer(400 if rejected == len(replies) else 206 if rejected else 200, replies)


@bigben.get("bigben/events/find", answers={200: EventResponse, 404: "not-found"})
async def bigben_find(call: Call[BigBenServices, None, BigBenEventQuery]) -> Answer:
    """Return the state of an event."""
    await _check(call, call.query.tenant)
    return _found(await call.service.events.find(call.query.tenant, call.query.id))


def _tenant(name: str | None) -> Mapping[str, str]:
    """Return the parameter of a path for a tenant; none for a name that no tenant can have."""
    return {"tenant": name} if name is not None and NAME.fullmatch(name) else {}


@bigben.post(
    "bigben/events/dryrun",
    answers={200: EventResponse, 404: "not-found", 429: "too-many-requests"},
    about=("", lambda call: _tenant(call.query.tenant)),
)
async def bigben_dryrun(call: Call[BigBenServices, None, BigBenEventQuery]) -> Answer:
    """Deliver a copy of an event now; the event itself does not change."""
    await _check(call, call.query.tenant)
    return _found(await call.service.events.dry_run(call.query.tenant, call.query.id))


def _found(reply: dict[str, Any] | None) -> Answer:
    if reply is None:
        raise not_found("event")
    return Answer(200, reply)


async def _requests(raw: bytes) -> list[Span]:
    """Return the places of the requests in the body."""
    found = await element_spans(raw, MAX_EVENTS, by_line=False)
    if not found:
        raise invalid("", "must hold at least one event")
    return found


def _channel_of(call: Call[BigBenServices, Processor]) -> Mapping[str, str]:
    """Return the channel that a registration sets, as a path's parameters; none for a name that no tenant can have."""
    found = _tenant(call.body.tenant)
    return {**found, "name": CHANNEL} if found else {}


@operators.post(
    "bigben/events/tenant/register",
    answers={200: dict[str, Processor], 409: ("changed-meanwhile", "events-left")},
    examples={"http": {"tenant": "demo", "type": "HTTP", "props": {"url": "https://hooks.example.com/tocsin"}}},
    about=("channels_get", _channel_of),
)
async def bigben_register(call: Call[BigBenServices, Processor]) -> Answer:
    """Register a tenant, or change the target of its events."""
    await call.service.processors.register(call.body)
    return Answer(200, await call.service.processors.all())


@bigben.get("bigben/events/tenants", answers={200: dict[str, Processor]})
async def bigben_tenants(call: Call[BigBenServices]) -> Answer:
    """List the registered tenants: all of them for an admin, otherwise the key's own with scheme, host and port of its URL."""
    processors = call.service.processors
    return Answer(200, await (processors.all() if "admin" in call.key.scopes else processors.of([call.key.tenant], whole=False)))


@bigben.post(
    "bigben/cron",
    answers={200: StatusOut, 404: "not-found", 409: "made-elsewhere", 429: "too-many-requests"},
    examples={"each night": _CRON},
    about=("", lambda call: _tenant(call.body.tenant)),
)
async def bigben_cron(call: Call[BigBenServices, CronIn]) -> Answer:
    """Create or replace a cron; its times are UTC, as at BigBen."""
    await _check(call, call.body.tenant)
    await call.service.crons.put(call.body)
    return Answer(200, StatusOut())


@bigben.post("bigben/cron/describe", answers={200: CronDescription}, examples={"each night": _CRON}, changes_nothing=True)
async def bigben_cron_describe(call: Call[BigBenServices, CronIn]) -> Answer:
    """Describe a cron in English without storing it. BigBen reads the cron from the body of a GET, which HTTP gives no meaning."""
    return Answer(200, describe(call.body))


@bigben.get("bigben/cron/{tenant}/{id}", answers={200: list[CronDescription], 404: "not-found"})
async def bigben_cron_get(call: Call[BigBenServices, None, CronQuery]) -> Answer:
    """Return a cron, once for each type it was created with; `?describe=true` adds the expression in English."""
    tenant, name = call.params["tenant"], call.params["id"]
    await _check(call, tenant)
    return Answer(200, await call.service.crons.get(tenant, name, describe=call.query.describe))


@bigben.delete("bigben/cron/{tenant}/{id}/{type?}", answers={200: StatusOut, 404: "not-found"})
async def bigben_cron_delete(call: Call[BigBenServices]) -> Answer:
    """Delete a cron of one type; without a type, or with `*`, of all types."""
    tenant, name, kind = call.params["tenant"], call.params["id"], call.params.get("type") or "*"
    await _check(call, tenant)
    await call.service.crons.delete(tenant, name, kind)
    return Answer(200, StatusOut())
