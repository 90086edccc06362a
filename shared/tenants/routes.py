"""Routes of tenants, keys, channels and the audit trail (scope admin)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Literal, cast

from pydantic import Field, StringConstraints

from ..delivery.channels.model import Channel, ChannelList, ChannelOut
from ..web.fields.error_texts import Shaped
from ..web.fields.params import DryRun, Flag, Moment, NotBeforeFrom, Paging
from ..web.fields.types import Maybe, Name, Stamp, Strict
from ..web.paging import after, page
from ..web.routes import Answer, Call, RouteGroup
from .audit import AuditRecords, parse_position
from .model import KeyIn, KeyList, KeyMade, OwnKeyOut, PauseIn, RotateIn, Scope, SecretOut, Tenant, TenantList, TenantOut
from .store import TenantDirectory


class TenantQuery(DryRun):
    """The options of creating a tenant."""

    inherit: Flag = Field(False, description="The new tenant takes over the events that a deleted tenant of this name left.")


Prefix = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$"), Shaped("the prefix of a key")]

_SECRET = {"cache-control": "no-store"}


@dataclass(frozen=True, slots=True)
class TenantServices:
    """The services behind the routes of tenants."""

    directory: TenantDirectory
    resumed: Callable[[str], Awaitable[None]]
    """Called with a tenant when one of its channels accepts deliveries again."""


tenants = RouteGroup[TenantServices]("tenants", scope="admin", params={"tenant": Name, "prefix": Prefix})
channels = RouteGroup[TenantServices]("channels", scope="admin", params={"tenant": Name, "name": Name})
own_key = RouteGroup[None]("tenants", scope=("events", "fleets"), names_tenant=True)


@own_key.get("v1/key", answers={200: OwnKeyOut})
async def key_get(call: Call[None]) -> Answer:
    """Return what the key of this call permits: its tenant and its scopes."""
    key = call.key
    scopes = sorted(key.scopes)
    return Answer(200, OwnKeyOut(prefix=key.prefix, tenant=key.tenant or None, scopes=cast("list[Scope]", scopes)), _SECRET)


@tenants.put(
    "v1/tenants/{tenant}",
    answers={201: TenantOut, 200: TenantOut, 409: ("changed-meanwhile", "events-left", "servers-live")},
    examples={"limits": {"limits": {"events_per_second": 100}}},
    if_match=True,
    tagged=True,
)
async def tenants_put(call: Call[TenantServices, Tenant, TenantQuery]) -> Answer:
    """Create a tenant or replace its settings.

    If events of a deleted tenant of this name are still kept, the name can be used again only with `inherit`.
    """
    options = {"inherit": call.query.inherit, "dry_run": call.query.dry_run}
    out, etag, new = await call.service.directory.put(call.params["tenant"], call.body, call.headers, **options)
    return Answer(201 if new else 200, out, {"location": call.path} if new else None, etag=etag or None)


@tenants.get("v1/tenants/{tenant}", answers={200: TenantOut}, tagged=True)
async def tenants_get(call: Call[TenantServices]) -> Answer:
    """Return a tenant."""
    out, etag = await call.service.directory.get(call.params["tenant"])
    return Answer(200, out, etag=etag)


@tenants.delete("v1/tenants/{tenant}", answers={204: None, 409: ("servers-live", "changed-meanwhile")}, if_match=True)
async def tenants_delete(call: Call[TenantServices]) -> Answer:
    """Delete a tenant, its keys, its channels and its fleets.

    The keys stop working at once. Open events become dead letters, because their channels are gone. The name stays in use until the last
    event is removed. A tenant cannot be deleted while a server of one of its fleets lives.
    """
    await call.service.directory.delete(call.params["tenant"], call.headers)
    return Answer(204)


@tenants.get("v1/tenants", answers={200: TenantList})
async def tenants_list(call: Call[TenantServices, None, Paging]) -> Answer:
    """List tenants by name."""
    return page("tenants", *await call.service.directory.list(call.query.limit, after(call, "tenants", str, "")))


@tenants.post(
    "v1/tenants/{tenant}/keys",
    answers={201: KeyMade, 409: "changed-meanwhile"},
    examples={"events": {"scopes": ["events"]}, "agent": {"scopes": ["agent"], "fleet": "web", "node": "vm-1"}},
)
async def keys_create(call: Call[TenantServices, KeyIn]) -> Answer:
    """Create a key; the answer is the only place that shows it."""
    made = await call.service.directory.keys.issue(call.params["tenant"], call.body)
    return Answer(201, made, {"location": f"{call.path}/{made.prefix}", **_SECRET})


@tenants.get("v1/tenants/{tenant}/keys", answers={200: KeyList})
async def keys_list(call: Call[TenantServices, None, Paging]) -> Answer:
    """List keys by prefix, without the keys themselves."""
    tenant = call.params["tenant"]
    kind = f"keys:{tenant}"
    return page(kind, *await call.service.directory.keys.list(tenant, call.query.limit, after(call, kind, str, "")))


@tenants.delete("v1/tenants/{tenant}/keys/{prefix}", answers={204: None}, if_match=True)
async def keys_delete(call: Call[TenantServices]) -> Answer:
    """Revoke a key.

    All instances refuse it within 5 seconds.
    """
    await call.service.directory.keys.revoke(call.params["tenant"], call.params["prefix"], call.headers)
    return Answer(204)


@channels.put(
    "v1/tenants/{tenant}/channels/{name}",
    answers={201: ChannelOut, 200: ChannelOut, 409: "changed-meanwhile"},
    examples={
        "http": {"type": "http", "url": "https://hooks.example.com/tocsin"},
        "fleet": {"type": "fleet", "fleet": "search", "path": "/events"},
        "queue": {"type": "queue", "queue": "alarms"},
    },
    if_match=True,
    tagged=True,
)
async def channels_put(call: Call[TenantServices, Channel, DryRun]) -> Answer:
    """Create or replace a channel.

    Only the answer that creates an http or fleet channel shows its webhook secret. A header value of *** keeps the stored value, if the
    scheme, host and port of the URL stay. Changed settings close the circuit breaker, and events that it held are delivered at once.
    """
    directory, tenant, name = call.service.directory, call.params["tenant"], call.params["name"]
    before = None if call.query.dry_run else await directory.target_now(tenant, name)
    out, etag, new = await directory.channels.put(tenant, name, call.body, call.headers, dry_run=call.query.dry_run)
    if before is not None and before.breaker.state != "closed" and out.flow.breaker == "closed":
        # The failures belong to the old settings: events that the breaker held need not wait any longer.
        await call.service.resumed(tenant)
    return Answer(201 if new else 200, out, {"location": call.path, **_SECRET} if new else _SECRET, etag=etag or None)


@channels.get("v1/tenants/{tenant}/channels/{name}", answers={200: ChannelOut}, tagged=True)
async def channels_get(call: Call[TenantServices]) -> Answer:
    """Return a channel."""
    out, etag, hidden = await call.service.directory.channels.get_with_masked(call.params["tenant"], call.params["name"])
    return Answer(200, out, etag=etag, hidden=hidden)


@channels.get("v1/tenants/{tenant}/channels", answers={200: ChannelList})
async def channels_list(call: Call[TenantServices, None, Paging]) -> Answer:
    """List channels by name."""
    tenant = call.params["tenant"]
    kind = f"channels:{tenant}"
    return page(kind, *await call.service.directory.channels.list(tenant, call.query.limit, after(call, kind, str, "")))


@channels.delete("v1/tenants/{tenant}/channels/{name}", answers={204: None, 409: "changed-meanwhile"}, if_match=True)
async def channels_delete(call: Call[TenantServices]) -> Answer:
    """Delete a channel."""
    await call.service.directory.channels.delete(call.params["tenant"], call.params["name"], call.headers)
    return Answer(204)


@channels.post(
    "v1/tenants/{tenant}/channels/{name}/secret/rotate",
    answers={200: SecretOut, 409: ("not-signed", "changed-meanwhile")},
    examples={"with an id": {"id": "2026-11"}},
)
async def channels_rotate(call: Call[TenantServices, RotateIn | None]) -> Answer:
    """Create a new webhook secret; the previous one stays valid for 24 hours.

    After a failure, repeat the call with the same `id`: another rotation would end the secret that the receiver has.
    """
    rotation = (call.body.id if call.body else None) or ""
    out = await call.service.directory.channels.rotate(call.params["tenant"], call.params["name"], rotation)
    return Answer(200, out, dict(_SECRET))


@channels.post(
    "v1/tenants/{tenant}/channels/{name}/pause",
    answers={200: ChannelOut, 409: "changed-meanwhile"},
    examples={"why": {"reason": "the receiver is being moved"}},
    tagged=True,
)
async def channels_pause(call: Call[TenantServices, PauseIn | None]) -> Answer:
    """Pause all deliveries to a channel.

    The pause takes effect on all instances within a second. The channel's events stay as they are and can be cancelled; they are delivered
    after the channel is resumed.
    """
    reason = (call.body.reason if call.body else None) or ""
    out, etag = await call.service.directory.channels.pause(call.params["tenant"], call.params["name"], True, reason)
    return Answer(200, out, etag=etag)


@channels.post("v1/tenants/{tenant}/channels/{name}/resume", answers={200: ChannelOut, 409: "changed-meanwhile"}, tagged=True)
async def channels_resume(call: Call[TenantServices]) -> Answer:
    """Resume deliveries to a channel.

    This ends a pause, whether an operator or an answer of 410 caused it, and closes the circuit breaker. Events that are due are delivered
    at once.
    """
    out, etag = await call.service.directory.channels.pause(call.params["tenant"], call.params["name"], False)
    await call.service.resumed(call.params["tenant"])
    return Answer(200, out, etag=etag)


audit = RouteGroup[AuditRecords]("operations", scope="admin")


Filter = Annotated[str, StringConstraints(min_length=1, max_length=64), Shaped("1 to 64 characters")]


class AuditQuery(Paging):
    """Filters of the audit trail: `from` inclusive, `to` exclusive."""

    from_: Moment | None = Field(None, alias="from")
    to: Annotated[Moment, NotBeforeFrom] | None = None
    tenant: Name | None = None
    by: Filter | None = Field(None, description="The prefix of a key, or `bootstrap`.")
    action: Filter | None = Field(None, description="Such as `channels_put`.")


class ChangeOut(Strict):
    """A field that a call changed."""

    field: str
    before: Maybe[str] = Field(None, description="JSON, at most 300 characters, around the difference. Missing if the field is new.")
    after: Maybe[str] = Field(None, description="The same; missing if the field is gone.")


class AuditOut(Strict):
    """The record of an administrative call."""

    at: Stamp
    by: str = Field(description="The prefix of the key, or `bootstrap`.")
    tenant: str | None
    action: str = Field(description="The operation's name in this document.")
    path: str
    outcome: Literal["done", "refused", "unknown"] = Field(description="unknown: its end was not recorded; it may have changed something.")
    status: int | None
    changes: list[ChangeOut]


class AuditList(Strict):
    """A page of records, the newest first."""

    items: list[AuditOut]
    next: str | None


@audit.get("v1/audit", answers={200: AuditList})
async def audit_list(call: Call[AuditRecords, None, AuditQuery]) -> Answer:
    """List administrative calls, the newest first.

    Every call of an operator that may change something has a record: who, what, the changed fields, and how it ended. They are kept for a
    year. Secrets and payloads are not recorded.
    """
    query = call.query
    kind = f"audit:{query.from_}:{query.to}:{query.tenant}:{query.by}:{query.action}"
    where = {name: value for name, value in (("tenant", query.tenant), ("by", query.by), ("action", query.action)) if value is not None}
    items, more = await call.service.list(
        query.limit, parse_position(after(call, kind, str, "")), first=query.from_, end=query.to, where=where
    )
    return page(kind, items, more.text if more is not None else None)
