"""The doors of leases: routes of api.md, "Leases", for servers that speak HTTP and for those who look."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from pydantic import Field

from ..web.auth import bound_to
from ..web.etag import matches_none
from ..web.fields.params import Paging
from ..web.fields.types import Name, NodeName
from ..web.paging.pages import after, page
from ..web.problem import not_found
from ..web.routes import Answer, Call, Routes
from .model import BeatAnswer, BeatIn, ClaimAnswer, ClaimIn, LeaseList, LeaseOut, ReleaseIn, RoutesOut, ServerLeaseList
from .service.http_servers import HttpServers
from .service.views import LeaseViews

_FLEET = {"fleet": Name}
_INCARNATION = "0b2f7a52-3c1d-4a5e-9f60-7d8e9fa0b1c2"
_BEAT = {"incarnation": _INCARNATION, "seq": 17}
_CLAIM = {"node": "s7", "incarnation": _INCARNATION, "partitions": [6, 7]}
_RELEASE = {"node": "s7", "incarnation": _INCARNATION, "epoch": 10}


class App(Protocol):
    """What these doors need of the application."""

    @property
    def beats(self) -> HttpServers:
        """What servers that speak HTTP ask for."""

    @property
    def views(self) -> LeaseViews:
        """What there is to see."""


class LeaseQuery(Paging):
    """How leases are listed."""

    by: Annotated[str, Field(pattern="^server$", description="`server`: by server instead of by partition.")] | None = None


def register(routes: Routes) -> None:
    """Add the routes of leases."""
    _servers(routes)
    _views(routes)


def _partition(call: Call[App, Any, Any]) -> int:
    number = int(call.params["partition"])
    if number < 0:
        raise not_found("partition: they are counted from 0")
    return number


def _servers(routes: Routes) -> None:
    @routes.route(
        "POST",
        "v1/fleets/{fleet}/nodes/{node}/beat",
        name="leases_beat",
        scope=("fleets", "agent"),
        params={"fleet": Name, "node": NodeName},
        body=BeatIn,
        answers={200: BeatAnswer, 409: ("fenced", "stale-seq", "name-in-use", "too-many-servers", "changed-meanwhile")},
        summary="A server's beat; seq 1 registers it",
        description="The same seq again is answered from what is stored: validity counts from the SEND of its first try. "
        "name-in-use comes with Retry-After.",
        tag="leases",
        examples={"first": {**_BEAT, "seq": 1, "fault_domain": "rack-3"}, "later": _BEAT},
    )
    async def beat(call: Call[App, BeatIn]) -> Answer:
        fleet, node = call.params["fleet"], call.params["node"]
        bound_to(call.key, fleet, node)
        return Answer(200, await call.app.beats.beat(call.tenant, fleet, node, call.body))

    @routes.route(
        "POST",
        "v1/fleets/{fleet}/leases/claim",
        name="leases_claim",
        scope=("fleets", "agent"),
        params=_FLEET,
        body=ClaimIn,
        answers={200: ClaimAnswer, 409: ("fenced", "changed-meanwhile")},
        summary="Claim partitions",
        description="What the server has already counts as claimed, so a claim whose answer was lost is simply sent again.",
        tag="leases",
        examples={"two": _CLAIM},
    )
    async def claim(call: Call[App, ClaimIn]) -> Answer:
        fleet, body = call.params["fleet"], call.body
        bound_to(call.key, fleet, body.node)
        incarnation, generation = str(body.incarnation), body.generation
        return Answer(200, await call.app.beats.claim(call.tenant, fleet, body.node, incarnation, body.partitions, generation))

    @routes.route(
        "POST",
        "v1/fleets/{fleet}/leases/{partition:int}/release",
        name="leases_release",
        scope=("fleets", "agent"),
        params=_FLEET,
        body=ReleaseIn,
        answers={204: None, 409: ("stale-epoch", "fenced", "changed-meanwhile")},
        summary="Give a partition back; stop acting on it first",
        description="Whoever has begun to release an epoch never acts under it again, whatever the answer. Safe to repeat.",
        tag="leases",
        examples={"one": _RELEASE},
    )
    async def release(call: Call[App, ReleaseIn]) -> Answer:
        bound_to(call.key, call.params["fleet"], call.body.node)
        await call.app.beats.release(call.tenant, call.params["fleet"], _partition(call), call.body)
        return Answer(204)


def _views(routes: Routes) -> None:
    @routes.route(
        "GET",
        "v1/fleets/{fleet}/leases",
        name="leases_list",
        scope="fleets",
        params=_FLEET,
        query=LeaseQuery,
        answers={200: LeaseList | ServerLeaseList},
        summary="Who has which partition, by partition or by server",
        tag="leases",
    )
    async def list_(call: Call[App, None, LeaseQuery]) -> Answer:
        fleet, limit = call.params["fleet"], call.query.limit
        if call.query.by is not None:
            kind = f"leases:server:{fleet}"
            return page(kind, *await call.app.views.by_server(call.tenant, fleet, limit, after(call, kind, str, "")))
        kind = f"leases:{fleet}"
        return page(kind, *await call.app.views.leases(call.tenant, fleet, limit, after(call, kind, int, -1)))

    @routes.route(
        "GET",
        "v1/fleets/{fleet}/leases/{partition:int}",
        name="leases_get",
        scope="fleets",
        params=_FLEET,
        answers={200: LeaseOut},
        summary="Who has a partition",
        tag="leases",
    )
    async def get(call: Call[App]) -> Answer:
        return Answer(200, await call.app.views.lease(call.tenant, call.params["fleet"], _partition(call)))

    @routes.route(
        "GET",
        "v1/fleets/{fleet}/routes",
        name="leases_routes",
        tagged=True,
        scope="fleets",
        params=_FLEET,
        answers={200: RoutesOut, 304: None},
        summary="Where to find whom: the owner of each partition",
        description="At most two seconds old. With If-None-Match: 304 while nothing has changed.",
        tag="leases",
    )
    async def get_routes(call: Call[App]) -> Answer:
        found = await call.app.views.routes(call.tenant, call.params["fleet"])
        headers = {"cache-control": "private, max-age=1"}
        if matches_none(call.headers, found.etag):
            return Answer(304, None, headers, etag=found.etag)
        return Answer(200, found.body, headers, etag=found.etag)
