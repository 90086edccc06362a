"""The doors of BigBen's API: `/api/bigben/...`, each a few lines over the service."""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import urlsplit

from ...core.clock import Clock
from ...core.errors import Problem
from ...core.settings import Settings
from ...tenants.store import TenantDirectory
from ...web.callers import BOOTSTRAP, KeyRecord
from ...web.fields.types import NAME
from ...web.parsing import elements, load_json
from ...web.problem import invalid, not_found
from ...web.routes import Answer, Call, Routes
from .crons import Crons
from .model import MAX_EVENTS, CronDescription, CronIn, CronQuery, EventQuery, EventRequest, EventResponse, Processor, StatusOut
from .processors import Processors
from .service import BigBen

MAX_BODY = 16 * 1024 * 1024
_TAG = "bigben"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class App(Protocol):
    """What these doors need of the application."""

    @property
    def settings(self) -> Settings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def directory(self) -> TenantDirectory: ...
    @property
    def bigben(self) -> BigBen: ...
    @property
    def crons(self) -> Crons: ...
    @property
    def processors(self) -> Processors: ...


def guest(app: App, url: str) -> KeyRecord | None:
    """Who a call without a key is: on loopback, with `TOCSIN_BIGBEN_OPEN`, an admin, as everybody was at BigBen."""
    return BOOTSTRAP if app.settings.bigben_open and urlsplit(url).hostname in _LOOPBACK else None


def register(routes: Routes) -> None:
    """Add the routes."""
    _events(routes)
    _tenants(routes)
    _crons(routes)


async def _may(call: Call[App, Any, Any], tenant: str) -> bool:
    """Whether the tenant is there and the caller's to act for."""
    mine = call.key.tenant == tenant or "admin" in call.key.scopes
    return mine and NAME.fullmatch(tenant) is not None and await call.app.directory.tenant(tenant) is not None


async def _check(call: Call[App, Any, Any], tenant: str) -> None:
    if not await _may(call, tenant):
        raise not_found("tenant")


def _events(routes: Routes) -> None:
    @routes.route(
        "POST",
        "bigben/events/schedule",
        name="bigben_schedule",
        scope="events",
        names_tenant=True,
        guest=guest,
        summary="Schedule and remove events, as BigBen took them",
        description="200 when all are taken, 206 when some are rejected, 400 when all are.",
        body=bytes,
        shape=list[EventRequest],
        max_body=MAX_BODY,
        answers={200: list[EventResponse], 206: list[EventResponse], 400: list[EventResponse]},
        tag=_TAG,
    )
    async def bigben_schedule(call: Call[App, bytes]) -> Answer:
        async def known(tenant: str) -> bool:
            return await _may(call, tenant)

        replies = await call.app.bigben.schedule(_requests(call.body), known)
        rejected = sum(reply.get("eventStatus") == "REJECTED" for reply in replies)
        return Answer(400 if rejected == len(replies) else 206 if rejected else 200, replies)

    @routes.route(
        "GET",
        "bigben/events/find",
        name="bigben_find",
        scope="events",
        names_tenant=True,
        guest=guest,
        query=EventQuery,
        summary="How an event stands",
        answers={200: EventResponse, 404: "not-found"},
        tag=_TAG,
    )
    async def bigben_find(call: Call[App, None, EventQuery]) -> Answer:
        await _check(call, call.query.tenant)
        return _found(await call.app.bigben.find(call.query.tenant, call.query.id))

    @routes.route(
        "POST",
        "bigben/events/dryrun",
        name="bigben_dryrun",
        scope="events",
        names_tenant=True,
        guest=guest,
        query=EventQuery,
        summary="Deliver a copy of an event now; the event itself stays as it is",
        answers={200: EventResponse, 404: "not-found", 429: "too-many-requests"},
        tag=_TAG,
    )
    async def bigben_dryrun(call: Call[App, None, EventQuery]) -> Answer:
        await _check(call, call.query.tenant)
        return _found(await call.app.bigben.dry_run(call.query.tenant, call.query.id))


def _found(reply: dict[str, Any] | None) -> Answer:
    if reply is None:
        raise not_found("event")
    return Answer(200, reply)


def _requests(raw: bytes) -> list[bytes]:
    """The requests as they were sent."""
    try:
        found = list(elements(raw.decode()))
    except (ValueError, IndexError, RecursionError):
        load_json(raw)
        raise invalid("", "the body is not an array of events") from None
    if not found:
        raise invalid("", "the array holds no event")
    if len(found) > MAX_EVENTS:
        raise Problem(413, "content-too-large", f"more than {MAX_EVENTS:,} events; send several calls")
    # An element that is not JSON spoils the array, as it did at BigBen.
    load_json(raw)
    return found


def _tenants(routes: Routes) -> None:
    @routes.route(
        "POST",
        "bigben/events/tenant/register",
        name="bigben_register",
        scope="admin",
        guest=guest,
        summary="Register a tenant, or change where its events go",
        body=Processor,
        answers={200: dict[str, Processor], 409: ("changed-meanwhile", "events-left")},
        tag=_TAG,
    )
    async def bigben_register(call: Call[App, Processor]) -> Answer:
        await call.app.processors.register(call.body)
        return Answer(200, await call.app.processors.all())

    @routes.route(
        "GET",
        "bigben/events/tenants",
        name="bigben_tenants",
        scope="events",
        names_tenant=True,
        guest=guest,
        summary="The registered tenants: all for an admin, else the key's own",
        answers={200: dict[str, Processor]},
        tag=_TAG,
    )
    async def bigben_tenants(call: Call[App]) -> Answer:
        every = "admin" in call.key.scopes
        return Answer(200, await (call.app.processors.all() if every else call.app.processors.of([call.key.tenant])))


def _crons(routes: Routes) -> None:
    @routes.route(
        "POST",
        "bigben/cron",
        name="bigben_cron",
        scope="events",
        names_tenant=True,
        guest=guest,
        summary="Create or replace a cron; times are UTC, as they were at BigBen",
        body=CronIn,
        answers={200: StatusOut, 404: "not-found", 409: "made-elsewhere", 429: "too-many-requests"},
        tag=_TAG,
    )
    async def bigben_cron(call: Call[App, CronIn]) -> Answer:
        await _check(call, call.body.tenant)
        await call.app.crons.put(call.body)
        return Answer(200, StatusOut())

    @routes.route(
        "GET",
        "bigben/cron/{tenant}/{id}",
        name="bigben_cron_get",
        scope="events",
        names_tenant=True,
        guest=guest,
        query=CronQuery,
        summary="A cron, once per type it was created with; `?describe=true` adds the expression in words",
        answers={200: list[CronDescription], 404: "not-found"},
        tag=_TAG,
    )
    async def bigben_cron_get(call: Call[App, None, CronQuery]) -> Answer:
        tenant, name = call.params["tenant"], call.params["id"]
        await _check(call, tenant)
        return Answer(200, await call.app.crons.get(tenant, name, describe=call.query.describe))

    @routes.route(
        "DELETE",
        "bigben/cron/{tenant}/{id}/{type?}",
        name="bigben_cron_delete",
        scope="events",
        names_tenant=True,
        guest=guest,
        summary="Remove a cron: of one type, or without a type, or with `*`, of all",
        answers={200: StatusOut, 404: "not-found"},
        tag=_TAG,
    )
    async def bigben_cron_delete(call: Call[App]) -> Answer:
        tenant, name, kind = call.params["tenant"], call.params["id"], call.params.get("type") or "*"
        await _check(call, tenant)
        await call.app.crons.delete(tenant, name, kind)
        return Answer(200, StatusOut())
