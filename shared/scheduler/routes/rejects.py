"""Routes of rejects."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from ...web.fields.error_texts import Shaped
from ...web.fields.params import Moment, NotBeforeFrom, Paging
from ...web.fields.types import Maybe, Stamp, Strict
from ...web.paging import decode_cursor, encode_cursor
from ...web.routes import Answer, Call, RouteGroup
from ..ingest.rejects import Rejects
from ..model import ProblemLine

RejectId = Annotated[str, StringConstraints(pattern=r"^[0-9]{15}-[0-9a-v]{16}$"), Shaped("the id of a reject")]

rejected = RouteGroup[Rejects]("rejects", scope="events", params={"id": RejectId}, tenant_optional=True)


class RejectOut(Strict):
    """A message from a queue that could not be accepted."""

    id: str
    tenant: Maybe[str] = Field(None, description="Absent if the message belongs to no tenant: it has no key, or not a tenant's key.")
    at: Stamp = Field(description="Time at which the message arrived.")
    origin: str = Field(description="The way it arrived.", examples=["queue"])
    source: str = Field(description="The message's id at its origin, and the position of the event in the message.")
    problem: ProblemLine
    message: str = Field(description="The message, or the event alone, without its key; the first 8192 characters.")
    cut: bool = Field(description="True if the message was longer.")
    kept_until: Stamp


class RejectList(Strict):
    """A page of rejects, oldest first."""

    items: list[RejectOut]
    next: str | None


class RejectQuery(Paging):
    """A range of arrival times: `from` inclusive, `to` exclusive."""

    from_: Moment | None = Field(None, alias="from")
    to: Annotated[Moment, NotBeforeFrom] | None = None


@rejected.get("v1/rejects", answers={200: RejectList})
async def rejects_list(call: Call[Rejects, None, RejectQuery]) -> Answer:
    """List messages from queues that could not be accepted.

    A message with a key of the tenant belongs to the tenant, whatever else is wrong with it. The bootstrap admin key without `tenant` sees
    the messages that belong to no tenant.
    """
    asked = call.query
    after = decode_cursor("rejects", asked.cursor, str) if asked.cursor is not None else ""
    items, more = await call.service.list(call.tenant, asked.from_, asked.to, asked.limit, after)
    return Answer(200, {"items": items, "next": encode_cursor("rejects", more) if more is not None else None})


@rejected.delete("v1/rejects/{id}", answers={204: None}, if_match=True)
async def rejects_delete(call: Call[Rejects]) -> Answer:
    """Delete a reject that has been dealt with."""
    await call.service.delete(call.tenant, call.params["id"], call.headers)
    return Answer(204)
