"""Routes of fleets and of their nodes."""

from __future__ import annotations

from ..web.fields.params import DryRun, Paging
from ..web.fields.types import Name, NodeName
from ..web.paging import after, page
from ..web.routes import Answer, Call, RouteGroup
from .directory import FleetDirectory
from .model import FleetIn, FleetList, FleetOut, NodeList, NodeOut
from .nodes import NodeViews

_EXAMPLES = {
    "least": {"partitions": 16},
    "more": {
        "partitions": 1024,
        "profile": "fast",
        "limits": {"moves_per_minute": 64, "drain": "PT3S"},
        "servers": {"minimum": 64, "spare": 6},
        "maintenance": {"leads": {"Preempt": "PT0S"}, "rules": [{"type": "Freeze", "max_seconds": 0, "action": "approve"}]},
        "notify": {"channel": "ops"},
    },
    "a profile of its own": {"partitions": 16, "profile": {"beat": "PT1S", "validity": "PT3S", "takeover": "PT5S"}},
}

fleets = RouteGroup[FleetDirectory]("fleets", scope="fleets", params={"fleet": Name})
nodes = RouteGroup[NodeViews]("fleets", scope="fleets", params={"fleet": Name, "node": NodeName})


@fleets.put(
    "v1/fleets/{fleet}",
    answers={201: FleetOut, 200: FleetOut, 409: ("servers-live", "too-many-fleets", "too-many-partitions", "changed-meanwhile")},
    examples=_EXAMPLES,
    if_match=True,
    tagged=True,
)
async def fleets_put(call: Call[FleetDirectory, FleetIn, DryRun]) -> Answer:
    """Create a fleet, or change it while it runs.

    Members that are left out get their defaults. Only a resize changes the partition count. The profile can change only while the fleet has
    no live server. Partitions without a row get one again.
    """
    out, etag, new = await call.service.put(call.tenant, call.params["fleet"], call.body, call.headers, dry_run=call.query.dry_run)
    return Answer(201 if new else 200, out, {"location": call.path} if new else None, etag=etag or None)


@fleets.get("v1/fleets/{fleet}", answers={200: FleetOut}, tagged=True)
async def fleets_get(call: Call[FleetDirectory]) -> Answer:
    """Return a fleet."""
    out, etag = await call.service.get(call.tenant, call.params["fleet"])
    return Answer(200, out, etag=etag)


@fleets.delete("v1/fleets/{fleet}", answers={204: None, 409: ("servers-live", "changed-meanwhile")}, if_match=True)
async def fleets_delete(call: Call[FleetDirectory]) -> Answer:
    """Delete a fleet that has no live server.

    A fleet that is created later under the same name continues with higher epochs.
    """
    await call.service.delete(call.tenant, call.params["fleet"], call.headers)
    return Answer(204)


@fleets.get("v1/fleets", answers={200: FleetList})
async def fleets_list(call: Call[FleetDirectory, None, Paging]) -> Answer:
    """List fleets by name."""
    return page("fleets", *await call.service.page(call.tenant, call.query.limit, after(call, "fleets", str, "")))


@nodes.get("v1/fleets/{fleet}/nodes", answers={200: NodeList})
async def nodes_list(call: Call[NodeViews, None, Paging]) -> Answer:
    """List nodes by name, with their heartbeats and partitions."""
    kind = f"nodes:{call.params['fleet']}"
    return page(kind, *await call.service.nodes(call.tenant, call.params["fleet"], call.query.limit, after(call, kind, str, "")))


@nodes.get("v1/fleets/{fleet}/nodes/{node}", answers={200: NodeOut})
async def nodes_get(call: Call[NodeViews]) -> Answer:
    """Return everything that is known of a node."""
    return Answer(200, await call.service.node(call.tenant, call.params["fleet"], call.params["node"]))
