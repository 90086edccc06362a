"""Routes of leases: for servers that speak HTTP, and views of the partitions."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ..web.auth import bound_to
from ..web.etag import matches_none
from ..web.fields.params import Paging
from ..web.fields.types import Name, NodeName
from ..web.paging import after, page
from ..web.problem import not_found
from ..web.routes import Answer, Call, RouteGroup
from .model import BeatAnswer, BeatIn, ClaimAnswer, ClaimIn, LeaseList, LeaseOut, ReleaseIn, RoutesOut, ServerLeaseList
from .service.http_servers import HttpServers
from .service.views import LeaseViews

_INCARNATION = "0b2f7a52-3c1d-4a5e-9f60-7d8e9fa0b1c2"
_BEAT = {"incarnation": _INCARNATION, "seq": 17}
_CLAIM = {"node": "s7", "incarnation": _INCARNATION, "partitions": [6, 7]}
_RELEASE = {"node": "s7", "incarnation": _INCARNATION, "epoch": 10}

servers = RouteGroup[HttpServers]("leases", scope=("fleets", "agent"), params={"fleet": Name, "node": NodeName})
views = RouteGroup[LeaseViews]("leases", scope="fleets", params={"fleet": Name})


class LeaseQuery(Paging):
    """The options of a list of leases."""

    by: Annotated[str, Field(pattern="^server$", description="`server`: list by server instead of by partition.")] | None = None


def _partition(call: Call[Any, Any, Any]) -> int:
    number = int(call.params["partition"])
    if number < 0:
        raise not_found(f"partition {number}; partitions are counted from 0")
    return number


@servers.post(
    "v1/fleets/{fleet}/nodes/{node}/beat",
    answers={200: BeatAnswer, 409: ("fenced", "stale-seq", "name-in-use", "too-many-servers", "changed-meanwhile")},
    examples={"first": {**_BEAT, "seq": 1, "fault_domain": "rack-3"}, "later": _BEAT},
)
async def leases_beat(call: Call[HttpServers, BeatIn]) -> Answer:
    """Record a server's heartbeat.

    seq 1 registers the server. A repeated seq gets the stored answer again: validity counts from the moment the first attempt was SENT.
    name-in-use comes with Retry-After.
    """
    fleet, node = call.params["fleet"], call.params["node"]
    bound_to(call.key, fleet, node)
    return Answer(200, await call.service.beat(call.tenant, fleet, node, call.body))


@servers.post("v1/fleets/{fleet}/leases/claim", answers={200: ClaimAnswer, 409: ("fenced", "changed-meanwhile")}, examples={"two": _CLAIM})
async def leases_claim(call: Call[HttpServers, ClaimIn]) -> Answer:
    """Claim partitions.

    Partitions that the server already owns count as claimed. If an answer is lost, send the same claim again.
    """
    fleet, body = call.params["fleet"], call.body
    bound_to(call.key, fleet, body.node)
    incarnation, generation = str(body.incarnation), body.generation
    return Answer(200, await call.service.claim(call.tenant, fleet, body.node, incarnation, body.partitions, generation))


@servers.post(
    "v1/fleets/{fleet}/leases/{partition:int}/release",
    answers={204: None, 409: ("stale-epoch", "fenced", "changed-meanwhile")},
    examples={"one": _RELEASE},
)
async def leases_release(call: Call[HttpServers, ReleaseIn]) -> Answer:
    """Release a partition; stop acting on it first.

    A server that has begun to release an epoch must never act under it again, whatever the answer is. The call is safe to repeat.
    """
    bound_to(call.key, call.params["fleet"], call.body.node)
    await call.service.release(call.tenant, call.params["fleet"], _partition(call), call.body)
    return Answer(204)


@views.get("v1/fleets/{fleet}/leases", answers={200: LeaseList | ServerLeaseList})
async def leases_list(call: Call[LeaseViews, None, LeaseQuery]) -> Answer:
    """List the owner of each partition, by partition or by server."""
    fleet, limit = call.params["fleet"], call.query.limit
    if call.query.by is not None:
        kind = f"leases:server:{fleet}"
        return page(kind, *await call.service.by_server(call.tenant, fleet, limit, after(call, kind, str, "")))
    kind = f"leases:{fleet}"
    return page(kind, *await call.service.leases(call.tenant, fleet, limit, after(call, kind, int, -1)))


@views.get("v1/fleets/{fleet}/leases/{partition:int}", answers={200: LeaseOut})
async def leases_get(call: Call[LeaseViews]) -> Answer:
    """Return the owner of a partition."""
    return Answer(200, await call.service.lease(call.tenant, call.params["fleet"], _partition(call)))


@views.get("v1/fleets/{fleet}/routes", answers={200: RoutesOut, 304: None}, tagged=True)
async def leases_routes(call: Call[LeaseViews]) -> Answer:
    """Return the routing table: the owner and address of each partition.

    The answer is at most two seconds old. With If-None-Match, the answer is 304 while nothing has changed.
    """
    found = await call.service.routes(call.tenant, call.params["fleet"])
    headers = {"cache-control": "private, max-age=1"}
    if matches_none(call.headers, found.etag):
        return Answer(304, None, headers, etag=found.etag)
    return Answer(200, found.body, headers, etag=found.etag)
