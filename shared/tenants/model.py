"""Models of bodies and answers: tenants, keys and channels. Unknown fields are refused."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ..core.durations import Duration
from ..delivery.channels.outputs import ChannelOut
from ..web.fields.types import Maybe, Name, NodeName, Note, Stamp, Strict

Durability = Literal["fast", "standard", "mirrored"]
"""The place where an event is stored before it is acknowledged: the ingest queue, the table, or the tables of two accounts."""

Scope = Literal["events", "fleets", "agent", "admin"]


class Retry(Strict):
    """The retries of failed deliveries: exponential with full jitter."""

    attempts: int = Field(8, ge=1, le=100, description="Attempts in all, the first included.")
    first: Annotated[Duration, Field(ge=1, le=86_400_000, description="Longest pause before attempt 2; it doubles with each attempt.")] = (
        5_000
    )
    max: Annotated[Duration, Field(ge=1, le=7 * 86_400_000, description="Longest pause between attempts.")] = 3_600_000
    within: Annotated[Duration, Field(ge=1, le=7 * 86_400_000, description="Time after the due time in which attempts may start.")] = (
        86_400_000
    )


MOST_SCHEDULES = 10_000
"""Most recurring schedules of a tenant without its own limit."""


MOST_PARTITIONS = 20_000
"""Most partitions of all fleets of a tenant without its own limit."""


class Limits(Strict):
    """The limits of a tenant. Null: only the limits of the product apply."""

    events_per_second: float | None = Field(None, gt=0, le=1_000_000)
    open_events: int | None = Field(None, ge=0)
    schedules: Maybe[Annotated[int, Field(ge=0, le=1_000_000)]] = Field(
        None, description=f"Most recurring schedules; by default {MOST_SCHEDULES:,}."
    )
    partitions: Maybe[Annotated[int, Field(ge=0, le=1_000_000)]] = Field(
        None, description=f"Most partitions of all its fleets together; by default {MOST_PARTITIONS:,}."
    )
    payload_bytes: int | None = Field(None, ge=1, le=262_144)
    deliveries_per_second: float | None = Field(None, gt=0, le=1_000_000)
    concurrency: int | None = Field(None, ge=1, le=10_000)


class Tenant(Strict):
    """A tenant's settings, as sent with PUT."""

    durability: Durability | None = Field(
        None, description="Durability of events that name none, and the least durability; null: standard."
    )
    retry: Retry = Field(default_factory=Retry)
    limits: Limits = Field(default_factory=Limits)


class KeyIn(Strict):
    """A key to create. Scope `agent` needs a fleet and a node, and excludes `fleets` and `admin`."""

    scopes: list[Scope] = Field(min_length=1, max_length=4, examples=[["events"]])
    fleet: Name | None = None
    node: NodeName | None = None
    note: Note | None = None

    @model_validator(mode="after")
    def _bound(self) -> Self:
        if len(set(self.scopes)) != len(self.scopes):
            raise ValueError("names a scope twice; name each once")
        if "agent" in self.scopes:
            if self.fleet is None or self.node is None:
                raise ValueError('has the scope agent, which needs fleet and node, such as "fleet": "web", "node": "vm-1"')
            if {"fleets", "admin"} & set(self.scopes):
                raise ValueError("combines the scope agent, which belongs to one node, with fleets or admin; create two keys")
        elif self.fleet is not None or self.node is not None:
            raise ValueError("has fleet or node without the scope agent; remove them or add the scope")
        return self


class KeyOut(Strict):
    """A key in a list, with its prefix only."""

    prefix: str
    scopes: list[Scope]
    fleet: Maybe[str] = None
    node: Maybe[str] = None
    note: Maybe[str] = None
    created: Stamp


class KeyMade(KeyOut):
    """A new key. Only this answer shows `key`."""

    key: str = Field(repr=False)


class KeyList(Strict):
    """A page of keys."""

    items: list[KeyOut]
    next: str | None


class TenantOut(Tenant):
    """A tenant as stored."""

    name: str
    created: Stamp


class TenantList(Strict):
    """A page of tenants."""

    items: list[TenantOut]
    next: str | None


class ChannelList(Strict):
    """A page of channels."""

    items: list[ChannelOut]
    next: str | None


class SecretOut(Strict):
    """A new webhook secret; only this answer shows it. Until `previous_until`, deliveries are also signed with the previous one."""

    secret: str = Field(repr=False)
    previous_until: Maybe[Stamp] = None


class PauseIn(Strict):
    """The reason of a pause."""

    reason: Note | None = None
