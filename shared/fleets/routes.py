"""The doors of fleets and of their nodes: routes of api.md, "Fleets"."""

from __future__ import annotations

from typing import Protocol

from ..web.fields.params import Paging
from ..web.fields.types import Name, NodeName
from ..web.paging.pages import after, page
from ..web.routes import Answer, Call, Routes
from .directory import FleetDirectory
from .model import FleetIn, FleetList, FleetOut, NodeList, NodeOut
from .nodes import NodeViews

_FLEET = {"fleet": Name}
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


class App(Protocol):
    """What these doors need of the application."""

    @property
    def fleets(self) -> FleetDirectory:
        """The tenants' fleets."""

    @property
    def nodes(self) -> NodeViews:
        """Views of nodes."""


def register(routes: Routes) -> None:
    """Add the routes of fleets and nodes."""
    _fleets(routes)
    _nodes(routes)


def _fleets(routes: Routes) -> None:
    @routes.route(
        "PUT",
        "v1/fleets/{fleet}",
        name="fleets_put",
        tagged=True,
        scope="fleets",
        params=_FLEET,
        body=FleetIn,
        if_match=True,
        answers={201: FleetOut, 200: FleetOut, 409: ("servers-live", "too-many-fleets", "changed-meanwhile")},
        summary="Create a fleet, or change it while it runs",
        description="What is left out gets its default. The partition count changes by a resize only, the profile only while no server "
        "lives. Partitions whose rows are missing get them again.",
        tag="fleets",
        examples=_EXAMPLES,
    )
    async def put(call: Call[App, FleetIn]) -> Answer:
        out, etag, new = await call.app.fleets.put(call.tenant, call.params["fleet"], call.body, call.headers)
        return Answer(201 if new else 200, out, {"location": call.path} if new else None, etag=etag)

    @routes.route(
        "GET",
        "v1/fleets/{fleet}",
        name="fleets_get",
        tagged=True,
        scope="fleets",
        params=_FLEET,
        answers={200: FleetOut},
        summary="One fleet",
        tag="fleets",
    )
    async def get(call: Call[App]) -> Answer:
        out, etag = await call.app.fleets.get(call.tenant, call.params["fleet"])
        return Answer(200, out, etag=etag)

    @routes.route(
        "DELETE",
        "v1/fleets/{fleet}",
        name="fleets_delete",
        scope="fleets",
        params=_FLEET,
        if_match=True,
        answers={204: None, 409: ("servers-live", "changed-meanwhile")},
        summary="End a fleet",
        description="Only while no server of it lives. One made anew under the same name goes on with higher epochs.",
        tag="fleets",
    )
    async def delete(call: Call[App]) -> Answer:
        await call.app.fleets.delete(call.tenant, call.params["fleet"], call.headers)
        return Answer(204)

    @routes.route(
        "GET",
        "v1/fleets",
        name="fleets_list",
        scope="fleets",
        query=Paging,
        answers={200: FleetList},
        summary="Fleets by name",
        tag="fleets",
    )
    async def list_(call: Call[App, None, Paging]) -> Answer:
        return page("fleets", *await call.app.fleets.page(call.tenant, call.query.limit, after(call, "fleets", str, "")))


def _nodes(routes: Routes) -> None:
    @routes.route(
        "GET",
        "v1/fleets/{fleet}/nodes",
        name="nodes_list",
        scope="fleets",
        params=_FLEET,
        query=Paging,
        answers={200: NodeList},
        summary="Nodes by name, with their beats and partitions",
        tag="fleets",
    )
    async def list_(call: Call[App, None, Paging]) -> Answer:
        kind = f"nodes:{call.params['fleet']}"
        return page(kind, *await call.app.nodes.nodes(call.tenant, call.params["fleet"], call.query.limit, after(call, kind, str, "")))

    @routes.route(
        "GET",
        "v1/fleets/{fleet}/nodes/{node}",
        name="nodes_get",
        scope="fleets",
        params={"fleet": Name, "node": NodeName},
        answers={200: NodeOut},
        summary="All that is known of a node",
        tag="fleets",
    )
    async def get(call: Call[App]) -> Answer:
        return Answer(200, await call.app.nodes.node(call.tenant, call.params["fleet"], call.params["node"]))
