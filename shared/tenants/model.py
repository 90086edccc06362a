"""Wire models of tenants, their keys and channels. Unknown fields are refused everywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, StringConstraints, WithJsonSchema, model_validator

from ..clock import to_text
from ..durations import Duration
from ..kafka.names import SERVERS, TOPIC
from ..web.words import TEXT, Shaped

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$"), Shaped("1 to 40 of a-z, 0-9 and inner hyphens")]
"""Tenant and channel names: 1 to 40 of a-z, 0-9 and inner hyphens, so that they fit keys, paths and header values."""

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
"""The same, for `fullmatch`."""

NodeName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$"),
    Shaped("1 to 64 of A-Z a-z 0-9 and inner . _ -"),
]
"""Names of nodes: what machines are called."""

Note = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$"), Shaped(TEXT.format(200))]
"""A line a person wrote."""

Durability = Literal["fast", "standard", "mirrored"]
"""How safe an event is before it is acknowledged: in the ingest queue, in the table, in the tables of two accounts."""

Scope = Literal["events", "fleets", "agent", "admin"]


def _is_none(value: object) -> bool:
    return value is None


_T = TypeVar("_T")
Maybe = Annotated[_T | None, Field(exclude_if=_is_none)]
"""A field that is left out of the JSON when it has no value: `status: Maybe[int] = None`."""


Stamp = Annotated[
    int,
    PlainSerializer(to_text, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-21T10:21:55.250Z"]}),
]
"""A time that only goes out: milliseconds inside, RFC 3339 outside."""


class Strict(BaseModel):
    """Base of everything that comes in or goes out."""

    model_config = ConfigDict(extra="forbid", validate_default=False, ser_json_inf_nan="null")


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


class ChannelLimits(Strict):
    """What a channel's receiver can take, over all instances. Null means no limit of its own: its tenant's count anyway."""

    deliveries_per_second: float | None = Field(None, gt=0, le=1_000_000)
    concurrency: int | None = Field(None, ge=1, le=10_000, description="Deliveries in flight.")


class _Limited(Strict):
    limits: Maybe[ChannelLimits] = None


class HttpChannel(_Limited):
    """Signed CloudEvents by POST."""

    type: Literal["http"]
    url: Annotated[str, StringConstraints(min_length=8, max_length=2048)]
    headers: dict[str, str] = Field(default_factory=dict, max_length=32, repr=False)
    timeout: Annotated[Duration, Field(ge=100, le=60_000)] = 15_000


class QueueChannel(_Limited):
    """CloudEvents as JSON messages into an Azure Storage queue: of the app's account, or of the one named."""

    type: Literal["queue"]
    queue: Annotated[
        str,
        StringConstraints(pattern=r"^[a-z0-9](?:-?[a-z0-9]){2,62}$"),
        Shaped("a queue's name: 3 to 63 of a-z, 0-9 and single inner hyphens"),
    ]
    account: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{3,24}$"), Shaped("an account's name: 3 to 24 of a-z, 0-9")] | None = None

    @model_validator(mode="after")
    def _not_ours(self) -> QueueChannel:
        if self.account is None and self.queue.startswith(("tocsin-", "azure-webjobs-")):
            raise ValueError("queues whose names start with tocsin- or azure-webjobs- belong to the service itself")
        return self


class EventGridChannel(_Limited):
    """CloudEvents into an Event Grid topic, by the app's identity."""

    type: Literal["eventgrid"]
    endpoint: Annotated[str, StringConstraints(min_length=8, max_length=2048)]


class KafkaChannel(_Limited):
    """CloudEvents into a Kafka topic: of an Event Hubs namespace, by the app's identity, or of brokers on the egress allow-list."""

    type: Literal["kafka"]
    servers: Annotated[
        str,
        StringConstraints(pattern=SERVERS, max_length=1024),
        Shaped("one to eight host:port, separated by commas, at most 1,024 characters"),
    ] = Field(examples=["name.servicebus.windows.net:9093"])
    topic: Annotated[str, StringConstraints(pattern=TOPIC), Shaped("a topic's name: 1 to 249 of A-Z a-z 0-9 . _ -")]
    key: (
        Annotated[
            str,
            StringConstraints(pattern=r"^(?:/[^\x00-\x1f\x7f]*)+$", max_length=200),
            Shaped("a JSON pointer like /order/id of at most 200 characters"),
        ]
        | None
    ) = Field(
        None, description="JSON pointer to what in the payload is the message's key (same key, same partition); null: the event's id."
    )
    tls: bool = True
    username: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    password: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = Field(None, repr=False)

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password come together")
        return self


Channel = Annotated[HttpChannel | QueueChannel | EventGridChannel | KafkaChannel, Field(discriminator="type")]


@dataclass(slots=True, frozen=True)
class KeyRecord:
    """A key as the store knows it; never the key itself. `tenant` is '' for the bootstrap admin key."""

    tenant: str
    prefix: str
    scopes: frozenset[str]
    fleet: str | None = None
    node: str | None = None


ANONYMOUS = KeyRecord("", "", frozenset())
"""Who calls where no key is asked for."""

BOOTSTRAP = KeyRecord("", "bootstrap", frozenset({"admin"}))
"""The holder of the key in the settings."""


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
