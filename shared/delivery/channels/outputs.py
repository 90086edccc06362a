"""Wire models of stored channels, one per channel type."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from ...web.fields.types import Maybe, Stamp, Strict
from .model import EventGridChannel, FleetChannel, HttpChannel, KafkaChannel, QueueChannel, ServiceBusChannel


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
