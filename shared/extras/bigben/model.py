"""What BigBen's clients send and get. Field names are theirs; unknown fields are passed over, as BigBen's clients echo answers back."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...web.fields.params import Flag, Query
from ...web.fields.types import Maybe

type Mode = Literal["UPSERT", "REMOVE"]
type DeliveryOption = Literal["FULL_EVENT", "PAYLOAD_ONLY"]
type EventStatus = Literal["ACCEPTED", "UPDATED", "DELETED", "REJECTED", "TRIGGERED", "PROCESSED", "ERROR"]
type CronType = Literal["UNIX", "CRON4J", "QUARTZ", "SPRING"]

MAX_EVENTS = 10_000
"""Events in one call."""


class Lenient(BaseModel):
    """Base of what comes in."""

    model_config = ConfigDict(extra="ignore")


class EventRequest(Lenient):
    """One event to schedule or remove."""

    id: str | None = None
    eventTime: str | None = Field(None, description="ISO 8601 with an offset.")
    tenant: str | None = None
    payload: Any = None
    mode: Mode = "UPSERT"
    deliveryOption: DeliveryOption | None = "FULL_EVENT"


class Error(BaseModel):
    """Why an event was not taken."""

    code: int
    message: str


class EventResponse(BaseModel):
    """What became of a request, or how an event stands. Without `eventStatus`: there is no such event."""

    id: Maybe[str] = None
    eventTime: Maybe[str] = None
    tenant: Maybe[str] = None
    payload: Maybe[Any] = None
    mode: Mode = "UPSERT"
    deliveryOption: DeliveryOption = "FULL_EVENT"
    eventId: Maybe[str] = None
    triggeredAt: Maybe[str] = None
    eventStatus: Maybe[EventStatus] = None
    error: Maybe[Error] = None


class Processor(Lenient):
    """Where a tenant's events go: BigBen's `ProcessorConfig`."""

    tenant: str | None = None
    type: Literal["HTTP", "MESSAGING", "CUSTOM_CLASS"] | None = None
    props: dict[str, Any] | None = Field(
        None, repr=False, description="HTTP: `url`, `headers`. MESSAGING: `topic`, `bootstrap.servers`."
    )


class CronIn(Lenient):
    """A cron to be created or replaced. BigBen's tracing fields are passed over: every firing is an event with its history."""

    id: str
    expression: str
    type: CronType
    tenant: str


class Cron(BaseModel):
    """A cron as stored."""

    id: str
    expression: str
    type: CronType
    tenant: str
    lastExecutionTime: Maybe[str] = None
    lastUpdated: Maybe[str] = None


class CronDescription(BaseModel):
    """A cron, and in words if asked for."""

    cron: Cron
    description: Maybe[str] = None


class StatusOut(BaseModel):
    """Done."""

    status: Literal["OK"] = "OK"


class EventQuery(Query):
    """Names one event."""

    id: str = Field(min_length=1)
    tenant: str = Field(min_length=1)


class CronQuery(Query):
    """Whether to describe the expression in words."""

    describe: Flag = False
