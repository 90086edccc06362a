"""Requests and answers of BigBen's clients. Field names are BigBen's. Unknown fields are ignored: its clients echo answers back."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...web.fields.params import Flag, Query
from ...web.fields.types import Maybe

type Mode = Literal["UPSERT", "REMOVE"]
type DeliveryOption = Literal["FULL_EVENT", "PAYLOAD_ONLY"]
type EventStatus = Literal["ACCEPTED", "UPDATED", "DELETED", "REJECTED", "UN_PROCESSED", "TRIGGERED", "PROCESSED", "ERROR"]
type CronType = Literal["UNIX", "CRON4J", "QUARTZ", "SPRING"]

MAX_EVENTS = 10_000
"""Largest number of events in one call."""
MAX_OF_ONE_ID = 100
"""Largest number of requests for one id in one call: they run one after the other, so more would outlast the call."""


class Lenient(BaseModel):
    """Base of requests; unknown fields are ignored."""

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
    """The reason why an event was refused."""

    code: int
    message: str


class EventResponse(BaseModel):
    """The result of a request, or the state of an event.

    Without `eventStatus`, the event does not exist. An event that was past when it was sent has no `eventId` in its result.
    """

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
    """The target of a tenant's events: BigBen's `ProcessorConfig`."""

    tenant: str | None = None
    type: Literal["HTTP", "MESSAGING", "CUSTOM_CLASS"] | None = None
    props: dict[str, Any] | None = Field(None, repr=False, description="HTTP: `url`, `headers`. MESSAGING: `topic`, `bootstrap.servers`.")


class CronIn(Lenient):
    """A cron to create or replace. BigBen's tracing fields are ignored: every firing is an event with its own history."""

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
    """A cron, with an English description if requested."""

    cron: Cron
    description: Maybe[str] = None


class StatusOut(BaseModel):
    """The answer of a successful call."""

    status: Literal["OK"] = "OK"


class BigBenEventQuery(Query):
    """The query that selects an event."""

    id: str = Field(min_length=1)
    tenant: str = Field(min_length=1)


class CronQuery(Query):
    """The query of a cron. describe: add an English description of the expression."""

    describe: Flag = False
