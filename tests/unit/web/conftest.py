"""A small app behind a route table: enough of everything that the layer has to judge."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field

from shared.core.clock import SettableClock, SystemClock
from shared.core.errors import OutcomeUnknown, Problem, Rejected, Unavailable
from shared.core.settings import Settings
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES
from shared.tenants.audit import AuditRecords
from shared.tenants.model import KeyIn, Tenant
from shared.tenants.store import TenantDirectory, seed_local
from shared.web import openapi
from shared.web.arrivals import Arrivals
from shared.web.auth import bound_to
from shared.web.etag import check_if_match, etag_of
from shared.web.fields.params import Flag, Moment, Paging, Query
from shared.web.fields.types import Duration, Name, Strict, Time
from shared.web.local_client import LocalClient
from shared.web.problem import too_many
from shared.web.routes import Answer, Call, Content, RouteGroup, Routes

ADMIN = "local-admin-key"
THING = {"name": "a", "payload": {"x": [1, 2.5, None, "\u00e9"]}}
DEMO = "local-demo-key"


def make_settings(**change: Any) -> Settings:
    given = {"admin_key": ADMIN, "signing_key": "local-signing-key", "local": True, "egress_allow": "localhost"}
    return Settings(**({"storage": "UseDevelopmentStorage=true"} | given | change))


class ThingIn(Strict):
    name: Name
    due: Time | None = None
    every: Duration | None = None
    count: int = Field(1, ge=1, le=10)
    ratio: float | None = None
    payload: Any = None
    labels: dict[str, str] = Field(default_factory=dict)
    parts: list[Tenant] = Field(default_factory=list, max_length=3)


class ThingOut(ThingIn):
    tenant: str


class Search(Paging):
    from_: Annotated[Moment | None, Field(alias="from")] = None
    deep: Flag = False


class WantsTime(Query):
    at: Moment


class App:
    """The request context that handlers get."""

    body_limit = 1_000_000

    def __init__(self, directory: TenantDirectory, audit: AuditRecords) -> None:
        self.directory, self.audit = directory, audit
        self.seen: list[Call[Any, Any, Any]] = []

    arrivals = Arrivals(SystemClock(), (), "test")

    async def admit_write(self) -> None:
        """Let every write in."""


FAILURES = {
    "unavailable": Unavailable("throttled"),
    "unknown": OutcomeUnknown("no answer"),
    "rejected": Rejected("secret-connection-string"),
    "surprise": RuntimeError("secret-connection-string"),
    "problem": Problem(409, "id-conflict", "other content", title="Id conflict"),
    "limited": too_many(1.2),
}


things = RouteGroup[App]("", scope="events", params={"name": Name})


@things.post("v1/things", answers={201: ThingOut, 429: "too-many-requests"}, tagged=True, max_body=4096, examples={"least": {"name": "a"}})
async def things_create(call: Call[App, ThingIn]) -> Answer:
    """Make a thing."""
    call.service.seen.append(call)
    out = {"name": call.body.name, "tenant": call.tenant, "payload": call.body.payload}
    return Answer(201, out, {"location": f"{call.path}/{call.body.name}"}, etag=etag_of(call.raw))


@things.get("v1/things/{name}", scope=("events", "fleets"), answers={200: ThingOut})
async def things_get(call: Call[App]) -> Answer:
    """One thing."""
    call.service.seen.append(call)
    return Answer(200, ThingOut.model_construct(name=call.params["name"], tenant=call.tenant))


@things.put("v1/things/{name}", if_match=True, answers={200: ThingOut})
async def things_put(call: Call[App, ThingIn | None]) -> Answer:
    """Keep a thing."""
    call.service.seen.append(call)
    check_if_match(call.headers, etag_of("1"))
    return Answer(200, {"body": call.body is not None}, etag=etag_of("1"))


@things.get("v1/things", answers={200: list[ThingOut]})
async def things_list(call: Call[App, None, Search]) -> Answer:
    """Things."""
    call.service.seen.append(call)
    return Answer(200, {"items": [], "limit": call.query.limit, "from": call.query.from_, "deep": call.query.deep})


@things.get("v1/at", answers={200: None})
async def things_at(call: Call[App, None, WantsTime]) -> Answer:
    """At a time."""
    return Answer(200, {"at": call.query.at})


@things.post("v1/lines", media=("application/x-ndjson", "application/json"), shape=list[ThingIn], answers={200: None})
async def lines_create(call: Call[App, bytes]) -> Answer:
    """Lines."""
    return Answer(200, {"bytes": len(call.body), "media": call.media})


@things.post("v1/fleets/{fleet}/nodes/{node}/beat", scope=("fleets", "agent"), answers={204: None})
async def nodes_beat(call: Call[App]) -> Answer:
    """Beat."""
    bound_to(call.key, call.params["fleet"], call.params["node"])
    return Answer(204)


@things.get("v1/leases/{partition:int}", scope="fleets", answers={200: None})
async def leases_get(call: Call[App]) -> Answer:
    """A lease."""
    return Answer(200, {"partition": int(call.params["partition"])})


@things.get("v1/metrics", scope="admin", answers={200: Content("text/plain")})
async def metrics(call: Call[App]) -> Answer:
    """Metrics."""
    return Answer(200, b"up 1\n", content_type="text/plain; version=0.0.4")


@things.get("v1/fails/{how}", answers={200: None, 409: "id-conflict", 429: "too-many-requests"})
async def fails(call: Call[App]) -> Answer:
    """Fail in the way that the path names."""
    raise FAILURES[call.params["how"]]


def make_routes() -> Routes[App]:
    routes = Routes[App]()
    routes.add(things, lambda app: app)
    routes.add(openapi.document_group(lambda: routes), lambda app: None)
    return routes


class World:
    """Table, application, clock and clients."""

    def __init__(self) -> None:
        self.clock = SettableClock()
        self.tables = MemoryTables(self.clock)
        self.settings = make_settings()
        self.routes = make_routes()
        self.app: Any = None
        self.demo = LocalClient(self.routes, self.get_app, key=DEMO)
        self.admin = self.demo.with_key(ADMIN)
        self.nobody = self.demo.with_key(None)

    async def get_app(self) -> Any:
        return self.app

    async def start(self) -> None:
        await self.tables.ensure(ALL_TABLES)
        directory = TenantDirectory(self.tables, self.clock, self.settings)
        await seed_local(directory, self.settings)
        self.app = App(directory, AuditRecords(self.tables, self.clock))

    async def client(self, **spec: Any) -> LocalClient:
        """A caller with a new key of tenant demo."""
        return self.demo.with_key((await self.app.directory.keys.issue("demo", KeyIn(**spec))).key)


@pytest.fixture
async def world() -> World:
    world = World()
    await world.start()
    return world
