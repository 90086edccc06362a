"""Wire models of tenants, their keys and channels. Unknown fields are refused everywhere."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ..core.durations import Duration
from ..delivery.channels.model import EventGridChannel, HttpChannel, KafkaChannel, QueueChannel
from ..web.fields.types import Maybe, Name, NodeName, Note, Stamp, Strict

Durability = Literal["fast", "standard", "mirrored"]
"""How safe an event is before it is acknowledged: in the ingest queue, in the table, in the tables of two accounts."""

Scope = Literal["events", "fleets", "agent", "admin"]


class Retry(Strict):
    """How failed deliveries are tried again: exponential with full jitter."""

    attempts: int = Field(8, ge=1, le=100, description="Deliveries tried in all, the first included.")
    first: Annotated[Duration, Field(ge=1, le=86_400_000, description="Longest pause before attempt 2; doubles from there.")] = 5_000
    max: Annotated[Duration, Field(ge=1, le=7 * 86_400_000, description="Longest pause between attempts.")] = 3_600_000
    within: Annotated[Duration, Field(ge=1, le=7 * 86_400_000, description="No attempt later than this after its due time.")] = 86_400_000


MOST_SCHEDULES = 10_000
"""Recurring schedules of a tenant that has no limit of its own."""


class Limits(Strict):
    """What a tenant may use. Null means no limit of its own beyond the product's."""

    events_per_second: float | None = Field(None, gt=0, le=1_000_000)
    open_events: int | None = Field(None, ge=0)
    schedules: Maybe[Annotated[int, Field(ge=0, le=1_000_000)]] = Field(
        None, description=f"Recurring schedules; {MOST_SCHEDULES:,} unless given."
    )
    payload_bytes: int | None = Field(None, ge=1, le=262_144)
    deliveries_per_second: float | None = Field(None, gt=0, le=1_000_000)
    concurrency: int | None = Field(None, ge=1, le=10_000)


class Tenant(Strict):
    """A tenant's settings, as PUT."""

    durability: Durability | None = Field(None, description="That of events that ask for none, and the least; null: standard.")
    retry: Retry = Field(default_factory=Retry)
    limits: Limits = Field(default_factory=Limits)


class KeyIn(Strict):
    """A key to be made. Scope `agent` needs the fleet and the node it is bound to, and goes with neither `fleets` nor `admin`."""

    scopes: list[Scope] = Field(min_length=1, max_length=4, examples=[["events"]])
    fleet: Name | None = None
    node: NodeName | None = None
    note: Note | None = None

    @model_validator(mode="after")
    def _bound(self) -> Self:
        if len(set(self.scopes)) != len(self.scopes):
            raise ValueError("a scope is named twice")
        if "agent" in self.scopes:
            if self.fleet is None or self.node is None:
                raise ValueError("scope agent needs fleet and node")
            if {"fleets", "admin"} & set(self.scopes):
                raise ValueError("scope agent is bound to one node; fleets and admin would undo that")
        elif self.fleet is not None or self.node is not None:
            raise ValueError("fleet and node are for scope agent")
        return self


class KeyOut(Strict):
    """A key as listed: by its prefix only."""

    prefix: str
    scopes: list[Scope]
    fleet: Maybe[str] = None
    node: Maybe[str] = None
    note: Maybe[str] = None
    created: Stamp


class KeyMade(KeyOut):
    """A new key. `key` is shown this once."""

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


class FlowOut(Strict):
    """How deliveries to a channel flow, as all instances see it. The fields but the first are there while the breaker is not closed."""

    breaker: Literal["closed", "open", "half-open"]
    since: Maybe[Stamp] = Field(default=None, description="When the breaker opened.")
    until: Maybe[Stamp] = Field(default=None, description="Open: when a probe may start. Half-open: when the probe is given up.")
    failures: Maybe[int] = Field(default=None, description="Failures that opened it, and failed probes since.")
    error: Maybe[str] = Field(default=None, description="The last failure.")


class _ChannelState(Strict):
    name: str
    created: Stamp
    paused: bool
    reason: Maybe[str] = None
    """Why it is paused."""
    paused_at: Maybe[Stamp] = None
    flow: FlowOut
    rotated_at: Maybe[Stamp] = None
    previous_until: Maybe[Stamp] = None
    """Until when deliveries are signed with the secret before this one too."""
    secret: Maybe[str] = Field(default=None, repr=False, description="The webhook secret, shown once: when the channel is made.")


class HttpChannelOut(HttpChannel, _ChannelState):
    """An http channel as stored. The values of its headers are secrets and come out as `***`."""


class QueueChannelOut(QueueChannel, _ChannelState):
    """A queue channel as stored."""


class EventGridChannelOut(EventGridChannel, _ChannelState):
    """An Event Grid channel as stored."""


class KafkaChannelOut(KafkaChannel, _ChannelState):
    """A kafka channel as stored. Its password comes out as `***`."""


ChannelOut = Annotated[HttpChannelOut | QueueChannelOut | EventGridChannelOut | KafkaChannelOut, Field(discriminator="type")]


class ChannelList(Strict):
    """A page of channels."""

    items: list[ChannelOut]
    next: str | None


class SecretOut(Strict):
    """A new webhook secret. It is shown this once; until `previous_until` deliveries carry a signature by the former one too."""

    secret: str = Field(repr=False)
    previous_until: Maybe[Stamp] = None


class PauseIn(Strict):
    """Why a channel is paused."""

    reason: Note | None = None
