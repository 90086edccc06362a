"""Wire models of channels, one for each type: the settings as callers give them, and stored channels as answers show them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args

from pydantic import Field, StringConstraints, TypeAdapter, model_validator

from ...core.clock import Millis
from ...web.fields.error_texts import Shaped
from ...web.fields.types import Duration, Maybe, Stamp, Strict
from ..entra.grants import Audience

KAFKA_SERVERS: Final = r"^[A-Za-z0-9_\[][A-Za-z0-9._:\[\]-]*:[0-9]{1,5}(?:,[A-Za-z0-9_\[][A-Za-z0-9._:\[\]-]*:[0-9]{1,5}){0,7}$"
"""One to eight `host:port`, separated by commas."""
KAFKA_TOPIC: Final = r"^[A-Za-z0-9._-]{1,249}$"
"""Characters that Kafka allows in a topic's name."""
LEAST_TIMEOUT: Millis = 100
LONGEST_TIMEOUT: Millis = 60_000
"""Bounds of the longest time that an attempt may take."""
MAX_PAYLOAD = 256 * 1024
"""Largest payload, in bytes of JSON."""
MAX_SMALL_PAYLOAD = 40 * 1024
"""The same where the CloudEvent around the payload must fit a queue message."""
MAX_BUS_PAYLOAD = 240 * 1024
"""The same for a Service Bus channel: with its properties it fits a message of the tiers Basic and Standard, which holds 256 KB."""


class ChannelLimits(Strict):
    """The limits of a channel's receiver, over all instances. Null means no limit of its own; its tenant's limits always apply."""

    deliveries_per_second: float | None = Field(None, gt=0, le=1_000_000)
    concurrency: int | None = Field(None, ge=1, le=10_000, description="Deliveries in flight.")


class KeyLimits(Strict):
    """The limits of the events with one ordering key, over all instances. Events without a key are not concerned."""

    concurrency: Maybe[Annotated[int, Field(ge=1, le=100)]] = Field(None, description="Deliveries in flight.")
    deliveries_per_second: Maybe[Annotated[float, Field(ge=0.001, le=1000)]] = None
    ordered: bool = Field(False, description="One at a time, in the order of due times.")
    failed_blocks: bool = Field(True, description="If ordered: while an event waits for a retry, those behind it wait too.")

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.ordered and self.concurrency not in (None, 1):
            raise ValueError("ordered means one delivery at a time; leave concurrency out")
        if not self.ordered and self.concurrency is None and self.deliveries_per_second is None:
            raise ValueError("give at least one of concurrency, deliveries_per_second and ordered")
        return self


class _Limited(Strict):
    max_payload: ClassVar[int] = MAX_PAYLOAD
    """Largest payload that a channel of this type delivers, in bytes of JSON."""
    limits: Maybe[ChannelLimits] = None
    per_key: Maybe[KeyLimits] = Field(None, description="Limits of the events with the same `ordering_key`.")


MASK = "***"
"""Stands for a secret value in an answer; a client that sends it back keeps the stored value."""
_SERVICE_QUEUES = ("tocsin-", "azure-webjobs-")
"""The beginnings of the names of the service's own queues."""


KeptAnswers = Literal["failed", "all", "none"]


MAX_SILENCE: Millis = 24 * 3_600_000
"""Longest silence of a receiver with long work, in milliseconds."""
MAX_WORK: Millis = 7 * 86_400_000
"""Longest work of a receiver, in milliseconds."""


class LongWork(Strict):
    """Lets a receiver answer 202 with `Tocsin-Complete: later`, and complete or fail the event later."""

    within: Annotated[Duration, Field(ge=10_000, le=MAX_SILENCE)] = Field(
        15 * 60_000, description="Silence for this long after the answer, or after the last heartbeat, is a failed attempt."
    )
    at_most: Annotated[Duration, Field(ge=10_000, le=MAX_WORK)] = Field(
        12 * 3_600_000, description="Heartbeats extend the time to this long after the answer, and no further."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.within > self.at_most:
            raise ValueError("within must not be longer than at_most")
        return self


GONE: Final = 410
FINAL: Final = frozenset((400, 405, 406, GONE, 413, 414, 415, 422, 501))
"""Statuses after which an event is not tried again: they speak of the request, and the next one would be the same.

Hosts, gateways and slots in front of a receiver also answer 401, 403, 404 and redirects while they start, stop or change, so these are
retried.
"""
FinalStatuses = Annotated[list[Annotated[int, Field(ge=300, le=599)]], Field(max_length=100)]
_FINAL_STATUSES = (
    "Answers after which an event is not tried again, besides 410; an empty list means that only 410 ends it. Left out: "
    + ", ".join(map(str, sorted(FINAL)))
    + "."
)


class HttpChannel(_Limited):
    """A channel that sends signed CloudEvents by POST."""

    type: Literal["http"]
    url: Annotated[str, StringConstraints(min_length=1, max_length=2048)]
    headers: dict[str, str] = Field(default_factory=dict, max_length=32, repr=False)
    timeout: Annotated[Duration, Field(ge=LEAST_TIMEOUT, le=LONGEST_TIMEOUT)] = 15_000
    answers: KeptAnswers = Field(
        "failed", description="The attempts whose answer's head (content type, up to 4 KiB of the body) is kept with the attempt."
    )
    answer_headers: bool = Field(False, description="Keep the answer's header fields too.")
    final_statuses: Maybe[FinalStatuses] = Field(None, description=_FINAL_STATUSES)
    client_certificate: Maybe[
        Annotated[
            str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$"), Shaped("a name: 1 to 40 of a-z, 0-9, and - inside")
        ]
    ] = Field(None, description="Name of a client certificate that the operator has listed for the tenant; https only.")
    long_work: Maybe[LongWork] = Field(None, description="Left out: a 202 is a delivery like any other 2xx.")
    entra_audience: Maybe[Audience] = Field(
        None,
        description="Each delivery carries a token of Entra for this audience. Its tenant's `entra_audiences` must list it with the host.",
    )


class FleetChannel(_Limited):
    """A channel that sends signed CloudEvents by POST to the server that owns the partition of the event's `ordering_key`."""

    type: Literal["fleet"]
    fleet: Annotated[
        str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$"), Shaped("a name: 1 to 40 of a-z, 0-9, and - inside")
    ] = Field(description="A fleet of the channel's tenant. Its servers publish their endpoints with their heartbeats.")
    path: Annotated[
        str,
        StringConstraints(pattern=r"^/(?:[A-Za-z0-9\-._~!$&'()*+,=:@/]|%[0-9A-Fa-f]{2})*$", max_length=512),
        Shaped("a path such as /events, without ? and #"),
    ] = Field("/", description="Path of the deliveries at each server.")
    headers: dict[str, str] = Field(default_factory=dict, max_length=32, repr=False)
    timeout: Annotated[Duration, Field(ge=LEAST_TIMEOUT, le=LONGEST_TIMEOUT)] = 15_000
    answers: KeptAnswers = Field(
        "failed", description="The attempts whose answer's head (content type, up to 4 KiB of the body) is kept with the attempt."
    )
    answer_headers: bool = Field(False, description="Keep the answer's header fields too.")
    final_statuses: Maybe[FinalStatuses] = Field(None, description=_FINAL_STATUSES)


class QueueChannel(_Limited):
    """A channel that sends CloudEvents as JSON messages to an Azure Storage queue, in the app's account or in `account`."""

    max_payload: ClassVar[int] = MAX_SMALL_PAYLOAD
    type: Literal["queue"]
    queue: Annotated[
        str,
        StringConstraints(pattern=r"^[a-z0-9](?:-?[a-z0-9]){2,62}$"),
        Shaped("a queue's name: 3 to 63 of a-z, 0-9 and single inner hyphens"),
    ]
    account: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{3,24}$"), Shaped("an account's name: 3 to 24 of a-z, 0-9")] | None = None

    @model_validator(mode="after")
    def _not_ours(self) -> QueueChannel:
        if self.account is None and self.queue.startswith(_SERVICE_QUEUES):
            raise ValueError("queues whose names start with tocsin- or azure-webjobs- belong to the service; choose another queue")
        return self


def is_service_queue(spec: QueueChannel, own_accounts: frozenset[str] | None) -> bool:
    """Return True if the channel names, by its `account`, a queue of the service in one of the service's own accounts.

    own_accounts: their names; None if they are not known, and then every account counts. Not checked by the model, because the
    service may get another account, and stored channels must stay readable.
    """
    if spec.account is None or not spec.queue.startswith(_SERVICE_QUEUES):
        return False
    return own_accounts is None or spec.account in own_accounts


class EventGridChannel(_Limited):
    """A channel that publishes CloudEvents to an Event Grid topic with the app's identity."""

    type: Literal["eventgrid"]
    endpoint: Annotated[str, StringConstraints(min_length=1, max_length=2048)]


class KafkaChannel(_Limited):
    """A channel that sends CloudEvents to a Kafka topic: in an Event Hubs namespace, or at brokers on the egress allow-list."""

    type: Literal["kafka"]
    servers: Annotated[
        str,
        StringConstraints(pattern=KAFKA_SERVERS, max_length=1024),
        Shaped("one to eight host:port, separated by commas, at most 1,024 characters"),
    ] = Field(examples=["name.servicebus.windows.net:9093"])
    topic: Annotated[str, StringConstraints(pattern=KAFKA_TOPIC), Shaped("a topic's name: 1 to 249 of A-Z a-z 0-9 . _ -")]
    key: (
        Annotated[
            str,
            StringConstraints(pattern=r"^(?:/[^\x00-\x1f\x7f]*)+$", max_length=200),
            Shaped("a JSON pointer like /order/id of at most 200 characters"),
        ]
        | None
    ) = Field(
        None, description="JSON pointer to the message's key in the payload (same key, same partition). Null: the key is the event's id."
    )
    tls: bool = True
    username: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    password: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = Field(None, repr=False)

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password must be given together")
        return self


class ServiceBusChannel(_Limited):
    """A channel that sends messages to a queue or topic of Azure Service Bus, with the app's identity or an access key."""

    max_payload: ClassVar[int] = MAX_BUS_PAYLOAD
    type: Literal["servicebus"]
    namespace: Annotated[
        str,
        StringConstraints(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?$", max_length=255),
        Shaped("the name of a host, such as orders.servicebus.windows.net"),
    ] = Field(examples=["orders.servicebus.windows.net"])
    entity: Annotated[
        str,
        StringConstraints(pattern=r"^[A-Za-z0-9_](?:[A-Za-z0-9._/-]{0,258}[A-Za-z0-9_])?$"),
        Shaped("the name of a queue or topic: 1 to 260 of A-Z a-z 0-9 . _ - /"),
    ] = Field(description="Name of the queue or topic.")
    subject: Maybe[
        Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,128}$"), Shaped("1 to 128 characters without control characters")]
    ] = Field(None, description="The messages' subject (label).")
    sessions: bool = Field(
        False, description="Set the session id, as queues with sessions require it: the event's `ordering_key`, else its id."
    )
    time_to_live: Maybe[Annotated[Duration, Field(ge=1000)]] = Field(
        None, description="Service Bus removes a message that nobody has received by then. Null: as the queue or topic says."
    )
    key_name: Maybe[
        Annotated[
            str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,256}$"), Shaped("the name of an access key: 1 to 256 of A-Z a-z 0-9 . _ -")
        ]
    ] = Field(None, description="`SharedAccessKeyName` of a connection string. Null: the app's identity.")
    key: Maybe[Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,256}$"), Shaped("1 to 256 printable characters of ASCII")]] = (
        Field(None, repr=False, description="`SharedAccessKey` of a connection string.")
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.key_name is None) != (self.key is None):
            raise ValueError("key_name and key must be given together")
        if any(part in ("", ".", "..") for part in self.entity.split("/")):
            raise ValueError("the parts of entity between slashes must be names")
        return self


ChannelSpec = HttpChannel | FleetChannel | QueueChannel | EventGridChannel | KafkaChannel | ServiceBusChannel
"""The settings of a channel of any type. A new type is added here, to `ChannelOut`, and in `validation` and `open_senders`."""
Channel = Annotated[ChannelSpec, Field(discriminator="type")]
CHANNEL_TYPES: tuple[str, ...] = tuple(get_args(each.model_fields["type"].annotation)[0] for each in get_args(ChannelSpec))
"""The names of the channel types, as in `type`."""


class FlowOut(Strict):
    """The circuit breaker of a channel, shared by all instances. The other fields exist only while the breaker is not closed."""

    breaker: Literal["closed", "open", "half-open"]
    since: Maybe[Stamp] = Field(default=None, description="Time at which the breaker opened.")
    until: Maybe[Stamp] = Field(
        default=None, description="Open: time at which a probe may start. Half-open: time at which the probe is abandoned."
    )
    failures: Maybe[int] = Field(default=None, description="Failures that opened the breaker, and failed probes since then.")
    error: Maybe[str] = Field(default=None, description="The last failure.")


class _ChannelState(Strict):
    name: str
    created: Stamp
    paused: bool
    reason: Maybe[str] = None
    """The reason of the pause."""
    paused_at: Maybe[Stamp] = None
    flow: FlowOut
    rotated_at: Maybe[Stamp] = None
    previous_until: Maybe[Stamp] = None
    """The time until which deliveries are also signed with the previous secret."""
    secret: Maybe[str] = Field(
        default=None, repr=False, description="The webhook secret; only the answer that creates the channel shows it."
    )


class HttpChannelOut(HttpChannel, _ChannelState):
    """An http channel as stored. The values of its headers are secrets and are shown as `***`."""


class FleetChannelOut(FleetChannel, _ChannelState):
    """A fleet channel as stored. The values of its headers are secrets and are shown as `***`."""


class QueueChannelOut(QueueChannel, _ChannelState):
    """A queue channel as stored."""


class EventGridChannelOut(EventGridChannel, _ChannelState):
    """An Event Grid channel as stored."""


class KafkaChannelOut(KafkaChannel, _ChannelState):
    """A kafka channel as stored. Its password is shown as `***`."""


class ServiceBusChannelOut(ServiceBusChannel, _ChannelState):
    """A Service Bus channel as stored. Its key is shown as `***`."""


ChannelOut = Annotated[
    HttpChannelOut | FleetChannelOut | QueueChannelOut | EventGridChannelOut | KafkaChannelOut | ServiceBusChannelOut,
    Field(discriminator="type"),
]
CHANNEL_OUT: TypeAdapter[Any] = TypeAdapter(ChannelOut)


class ChannelList(Strict):
    """A page of channels."""

    items: list[ChannelOut]
    next: str | None
