"""A small app behind a route table: enough of everything that the layer has to judge."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field

from shared.core.clock import SettableClock
from shared.core.durations import Duration, Time
from shared.core.errors import OutcomeUnknown, Problem, Rejected, Unavailable
from shared.core.settings import Settings
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES
from shared.tenants.model import KeyIn, Tenant
from shared.tenants.store import TenantDirectory, seed_local
from shared.web import openapi
from shared.web.auth import bound_to
from shared.web.etag import check_if_match, etag_of
from shared.web.fields.params import Flag, Moment, Paging, Query
from shared.web.fields.types import Name, Strict
from shared.web.local_client import LocalClient
from shared.web.problem import too_many
from shared.web.routes import Answer, Call, Content, Routes

ADMIN = "local-admin-key"
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
    """What handlers see."""

    def __init__(self, directory: TenantDirectory) -> None:
        self.directory = directory
        self.seen: list[Call[Any, Any, Any]] = []


FAILURES = {
    "unavailable": Unavailable("throttled"),
    "unknown": OutcomeUnknown("no answer"),
    "rejected": Rejected("secret-connection-string"),
    "surprise": RuntimeError("secret-connection-string"),
    "problem": Problem(409, "id-conflict", "other content", title="Id conflict"),
    "limited": too_many(1.2),
}


def make_routes() -> Routes:
    routes = Routes()

    @routes.route(
        "POST", "v1/things", name="things_create", scope="events", body=ThingIn, answers={201: ThingOut, 429: "too-many-requests"},
        summary="Make a thing", tagged=True, max_body=4096, examples={"least": {"name": "a"}},
    )  # fmt: skip
    async def create(call: Call[App, ThingIn]) -> Answer:
        call.app.seen.append(call)
        out = {"name": call.body.name, "tenant": call.tenant, "payload": call.body.payload}
        return Answer(201, out, {"location": f"{call.path}/{call.body.name}"}, etag=etag_of(call.raw))

    @routes.route(
        "GET", "v1/things/{name}", name="things_get", scope=("events", "fleets"), params={"name": Name}, answers={200: ThingOut},
        summary="One thing",
    )  # fmt: skip
    async def get(call: Call[App]) -> Answer:
        call.app.seen.append(call)
        return Answer(200, ThingOut.model_construct(name=call.params["name"], tenant=call.tenant))

    @routes.route(
        "PUT", "v1/things/{name}", name="things_put", scope="events", params={"name": Name}, body=ThingIn, body_optional=True,
        if_match=True, answers={200: ThingOut}, summary="Keep a thing",
    )  # fmt: skip
    async def put(call: Call[App, ThingIn | None]) -> Answer:
        call.app.seen.append(call)
        check_if_match(call.headers, etag_of("1"))
        return Answer(200, {"body": call.body is not None}, etag=etag_of("1"))

    @routes.route("GET", "v1/things", name="things_list", scope="events", query=Search, answers={200: list[ThingOut]}, summary="Things")
    async def list_(call: Call[App, None, Search]) -> Answer:
        call.app.seen.append(call)
        return Answer(200, {"items": [], "limit": call.query.limit, "from": call.query.from_, "deep": call.query.deep})

    @routes.route("GET", "v1/at", name="things_at", scope="events", query=WantsTime, answers={200: None}, summary="At a time")
    async def at(call: Call[App, None, WantsTime]) -> Answer:
        return Answer(200, {"at": call.query.at})

    @routes.route(
        "POST", "v1/lines", name="lines_create", scope="events", body=bytes, media=("application/x-ndjson", "application/json"),
        shape=list[ThingIn], answers={200: None}, summary="Lines",
    )  # fmt: skip
    async def lines(call: Call[App, bytes]) -> Answer:
        return Answer(200, {"bytes": len(call.body), "media": call.media})

    @routes.route(
        "POST", "v1/fleets/{fleet}/nodes/{node}/beat", name="nodes_beat", scope=("fleets", "agent"), answers={204: None}, summary="Beat",
    )  # fmt: skip
    async def beat(call: Call[App]) -> Answer:
        bound_to(call.key, call.params["fleet"], call.params["node"])
        return Answer(204)

    @routes.route("GET", "v1/leases/{partition:int}", name="leases_get", scope="fleets", answers={200: None}, summary="A lease")
    async def lease(call: Call[App]) -> Answer:
        return Answer(200, {"partition": int(call.params["partition"])})

    @routes.route("GET", "v1/metrics", name="metrics", scope="admin", answers={200: Content("text/plain")}, summary="Metrics")
    async def metrics(call: Call[App]) -> Answer:
        return Answer(200, b"up 1\n", content_type="text/plain; version=0.0.4")

    @routes.route(
        "GET", "v1/fails/{how}", name="fails", scope="events", answers={200: None, 409: "id-conflict", 429: "too-many-requests"},
        summary="Fails as told",
    )  # fmt: skip
    async def fails(call: Call[App]) -> Answer:
        raise FAILURES[call.params["how"]]

    openapi.register(routes)
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
        self.app = App(directory)

    async def client(self, **spec: Any) -> LocalClient:
        """A caller with a new key of tenant demo."""
        return self.demo.with_key((await self.app.directory.keys.issue("demo", KeyIn(**spec))).key)


@pytest.fixture
async def world() -> World:
    world = World()
    await world.start()
    return world
