"""The doors of tenants: routes of api.md, "Tenants" (scope admin)."""

from __future__ import annotations

from typing import Annotated, Protocol

from pydantic import Field, StringConstraints

from ..delivery.channels.model import Channel
from ..web.fields.error_texts import Shaped
from ..web.fields.params import Flag, Paging, Query
from ..web.fields.types import Name
from ..web.paging.pages import after, page
from ..web.routes import Answer, Call, Routes
from .model import ChannelList, ChannelOut, KeyIn, KeyList, KeyMade, PauseIn, SecretOut, Tenant, TenantList, TenantOut
from .rules import Spec
from .store import TenantDirectory


class TenantQuery(Query):
    """How to make a tenant."""

    inherit: Flag = Field(False, description="A new tenant takes over the events that a deleted one of this name has left.")


Prefix = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$"), Shaped("the prefix of a key")]

_TENANT = {"tenant": Name}
_CHANNEL = {"tenant": Name, "name": Name}
_SECRET = {"cache-control": "no-store"}


class App(Protocol):
    """What these doors need of the application."""

    @property
    def directory(self) -> TenantDirectory:
        """Tenants, keys and channels."""

    async def resumed(self, tenant: str) -> None:
        """Called when a channel of the tenant may be delivered to again."""


def register(routes: Routes) -> None:
    """Add the routes of tenants, keys and channels."""
    _tenants(routes)
    _keys(routes)
    _channels(routes)
    _channel_verbs(routes)


def _tenants(routes: Routes) -> None:
    @routes.route(
        "PUT",
        "v1/tenants/{tenant}",
        name="tenants_put",
        tagged=True,
        scope="admin",
        params=_TENANT,
        body=Tenant,
        if_match=True,
        query=TenantQuery,
        answers={201: TenantOut, 200: TenantOut, 409: ("changed-meanwhile", "events-left", "servers-live")},
        summary="Create a tenant or replace its settings",
        description="A name whose former tenant has left events that are still kept can be taken again with `inherit` only.",
        tag="tenants",
        examples={"limits": {"limits": {"events_per_second": 100}}},
    )
    async def put(call: Call[App, Tenant, TenantQuery]) -> Answer:
        out, etag, new = await call.app.directory.put(call.params["tenant"], call.body, call.headers, inherit=call.query.inherit)
        return Answer(201 if new else 200, out, {"location": call.path} if new else None, etag=etag)

    @routes.route(
        "GET",
        "v1/tenants/{tenant}",
        name="tenants_get",
        tagged=True,
        scope="admin",
        params=_TENANT,
        answers={200: TenantOut},
        summary="One tenant",
        tag="tenants",
    )
    async def get(call: Call[App]) -> Answer:
        out, etag = await call.app.directory.get(call.params["tenant"])
        return Answer(200, out, etag=etag)

    @routes.route(
        "DELETE",
        "v1/tenants/{tenant}",
        name="tenants_delete",
        scope="admin",
        params=_TENANT,
        if_match=True,
        answers={204: None, 409: ("servers-live", "changed-meanwhile")},
        summary="Remove a tenant, its keys, its channels and its fleets",
        description="The keys stop working at once. Events that are still open end as dead letters, for their channels are gone; the name "
        "stays taken until the last event is removed. Not while a server of one of its fleets lives.",
        tag="tenants",
    )
    async def delete(call: Call[App]) -> Answer:
        await call.app.directory.delete(call.params["tenant"], call.headers)
        return Answer(204)

    @routes.route(
        "GET",
        "v1/tenants",
        name="tenants_list",
        scope="admin",
        query=Paging,
        answers={200: TenantList},
        summary="Tenants by name",
        tag="tenants",
    )
    async def list_(call: Call[App, None, Paging]) -> Answer:
        return page("tenants", *await call.app.directory.list(call.query.limit, after(call, "tenants", str, "")))


def _keys(routes: Routes) -> None:
    @routes.route(
        "POST",
        "v1/tenants/{tenant}/keys",
        name="keys_create",
        scope="admin",
        params=_TENANT,
        body=KeyIn,
        answers={201: KeyMade, 409: "changed-meanwhile"},
        summary="Make a key; it is shown this once",
        tag="tenants",
        examples={"events": {"scopes": ["events"]}, "agent": {"scopes": ["agent"], "fleet": "web", "node": "vm-1"}},
    )
    async def create(call: Call[App, KeyIn]) -> Answer:
        made = await call.app.directory.keys.issue(call.params["tenant"], call.body)
        return Answer(201, made, {"location": f"{call.path}/{made.prefix}", **_SECRET})

    @routes.route(
        "GET",
        "v1/tenants/{tenant}/keys",
        name="keys_list",
        scope="admin",
        params=_TENANT,
        query=Paging,
        answers={200: KeyList},
        summary="Keys by prefix; never the keys themselves",
        tag="tenants",
    )
    async def list_(call: Call[App, None, Paging]) -> Answer:
        tenant = call.params["tenant"]
        kind = f"keys:{tenant}"
        return page(kind, *await call.app.directory.keys.list(tenant, call.query.limit, after(call, kind, str, "")))

    @routes.route(
        "DELETE",
        "v1/tenants/{tenant}/keys/{prefix}",
        name="keys_delete",
        scope="admin",
        params={"tenant": Name, "prefix": Prefix},
        if_match=True,
        answers={204: None},
        summary="Revoke a key",
        description="It stops working within 5 seconds everywhere.",
        tag="tenants",
    )
    async def delete(call: Call[App]) -> Answer:
        await call.app.directory.keys.revoke(call.params["tenant"], call.params["prefix"], call.headers)
        return Answer(204)


def _channels(routes: Routes) -> None:
    @routes.route(
        "PUT",
        "v1/tenants/{tenant}/channels/{name}",
        name="channels_put",
        tagged=True,
        scope="admin",
        params=_CHANNEL,
        body=Channel,
        if_match=True,
        answers={201: ChannelOut, 200: ChannelOut, 409: "changed-meanwhile"},
        summary="Create or replace a channel",
        description="Making an http channel answers its webhook secret, this once. A header value of *** keeps the stored one. "
        "Other settings close the breaker, and events that waited behind it go out at once.",
        tag="channels",
        examples={"http": {"type": "http", "url": "https://hooks.example.com/tocsin"}, "queue": {"type": "queue", "queue": "alarms"}},
    )
    async def put(call: Call[App, Spec]) -> Answer:
        directory, tenant, name = call.app.directory, call.params["tenant"], call.params["name"]
        before = await directory.target_now(tenant, name)
        out, etag, new = await directory.channels.put(tenant, name, call.body, call.headers)
        if before is not None and before.breaker.state != "closed" and out.flow.breaker == "closed":
            # What was learnt of the old settings counts no more: what waited behind the breaker need not wait on.
            await call.app.resumed(tenant)
        return Answer(201 if new else 200, out, {"location": call.path, **_SECRET} if new else _SECRET, etag=etag)

    @routes.route(
        "GET",
        "v1/tenants/{tenant}/channels/{name}",
        name="channels_get",
        tagged=True,
        scope="admin",
        params=_CHANNEL,
        answers={200: ChannelOut},
        summary="One channel",
        tag="channels",
    )
    async def get(call: Call[App]) -> Answer:
        out, etag = await call.app.directory.channels.get(call.params["tenant"], call.params["name"])
        return Answer(200, out, etag=etag)

    @routes.route(
        "GET",
        "v1/tenants/{tenant}/channels",
        name="channels_list",
        scope="admin",
        params=_TENANT,
        query=Paging,
        answers={200: ChannelList},
        summary="Channels by name",
        tag="channels",
    )
    async def list_(call: Call[App, None, Paging]) -> Answer:
        tenant = call.params["tenant"]
        kind = f"channels:{tenant}"
        return page(kind, *await call.app.directory.channels.list(tenant, call.query.limit, after(call, kind, str, "")))

    @routes.route(
        "DELETE",
        "v1/tenants/{tenant}/channels/{name}",
        name="channels_delete",
        scope="admin",
        params=_CHANNEL,
        if_match=True,
        answers={204: None, 409: "changed-meanwhile"},
        summary="Remove a channel",
        tag="channels",
    )
    async def delete(call: Call[App]) -> Answer:
        await call.app.directory.channels.delete(call.params["tenant"], call.params["name"], call.headers)
        return Answer(204)


def _channel_verbs(routes: Routes) -> None:
    @routes.route(
        "POST",
        "v1/tenants/{tenant}/channels/{name}/secret/rotate",
        name="channels_rotate",
        scope="admin",
        params=_CHANNEL,
        answers={200: SecretOut, 409: ("not-signed", "changed-meanwhile")},
        summary="Make a new webhook secret; the one before it counts for 24 hours more",
        tag="channels",
    )
    async def rotate(call: Call[App]) -> Answer:
        out = await call.app.directory.channels.rotate(call.params["tenant"], call.params["name"])
        return Answer(200, out, dict(_SECRET))

    @routes.route(
        "POST",
        "v1/tenants/{tenant}/channels/{name}/pause",
        name="channels_pause",
        tagged=True,
        scope="admin",
        params=_CHANNEL,
        body=PauseIn,
        body_optional=True,
        answers={200: ChannelOut, 409: "changed-meanwhile"},
        summary="Hold all deliveries to a channel",
        description="Within a second everywhere. Its events stay as they are, and can be cancelled; they go out when it is resumed.",
        tag="channels",
        examples={"why": {"reason": "the receiver is being moved"}},
    )
    async def pause(call: Call[App, PauseIn | None]) -> Answer:
        reason = (call.body.reason if call.body else None) or ""
        out, etag = await call.app.directory.channels.pause(call.params["tenant"], call.params["name"], True, reason)
        return Answer(200, out, etag=etag)

    @routes.route(
        "POST",
        "v1/tenants/{tenant}/channels/{name}/resume",
        name="channels_resume",
        tagged=True,
        scope="admin",
        params=_CHANNEL,
        answers={200: ChannelOut, 409: "changed-meanwhile"},
        summary="Let deliveries to a channel go on",
        description="Ends a pause, a person's or one for 410, and closes the breaker. Its events that are due go out at once.",
        tag="channels",
    )
    async def resume(call: Call[App]) -> Answer:
        out, etag = await call.app.directory.channels.pause(call.params["tenant"], call.params["name"], False)
        await call.app.resumed(call.params["tenant"])
        return Answer(200, out, etag=etag)
