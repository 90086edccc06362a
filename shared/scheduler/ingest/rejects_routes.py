"""The doors of rejects."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from pydantic import Field, StringConstraints

from ...web.fields.error_texts import Shaped
from ...web.fields.params import Moment, Paging
from ...web.fields.types import Maybe, Stamp, Strict
from ...web.paging.cursor import decode_cursor, encode_cursor
from ...web.routes import Answer, Call, Routes
from ..model import ProblemLine
from .rejects import Rejects

RejectId = Annotated[str, StringConstraints(pattern=r"^[0-9]{15}-[0-9a-v]{16}$"), Shaped("the id of a reject")]


class RejectOut(Strict):
    """Something that came through a queue and could not be taken in."""

    id: str
    tenant: Maybe[str] = Field(None, description="Not there when nobody can be held to it: no key in it, or none of a tenant's.")
    at: Stamp = Field(description="When it came in.")
    origin: str = Field(description="Which way it came.", examples=["queue"])
    source: str = Field(description="The message's id there, and the position of the event in it.")
    problem: ProblemLine
    message: str = Field(description="The message, or the event alone, without its key; the first 8192 characters.")
    cut: bool = Field(description="Whether the message was longer.")
    kept_until: Stamp


class RejectList(Strict):
    """A page of rejects, oldest first."""

    items: list[RejectOut]
    next: str | None


class RejectQuery(Paging):
    """Which rejects: by the time they came in, `from` inclusive, `to` exclusive."""

    from_: Moment | None = Field(None, alias="from")
    to: Moment | None = None


class Scheduler(Protocol):
    """What these doors need of the scheduler."""

    @property
    def rejects(self) -> Rejects:
        """The rejects."""


class App(Protocol):
    """What these doors need of the application."""

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler."""


def register(routes: Routes) -> None:
    """Add the routes of rejects."""

    @routes.route(
        "GET",
        "v1/rejects",
        name="rejects_list",
        scope="events",
        query=RejectQuery,
        summary="What came through a queue and could not be taken in",
        description="A message with a key of the tenant is the tenant's, whatever else is wrong with it. The bootstrap admin key sees, "
        "without `tenant`, what nobody can be held to.",
        answers={200: RejectList},
        tenant_optional=True,
        tag="rejects",
    )
    async def rejects_list(call: Call[App, None, RejectQuery]) -> Answer:
        asked = call.query
        after = decode_cursor("rejects", asked.cursor, str) if asked.cursor is not None else ""
        items, more = await call.app.scheduler.rejects.list(call.tenant, asked.from_, asked.to, asked.limit, after)
        return Answer(200, {"items": items, "next": encode_cursor("rejects", more) if more is not None else None})

    @routes.route(
        "DELETE",
        "v1/rejects/{id}",
        name="rejects_delete",
        scope="events",
        params={"id": RejectId},
        summary="Remove a reject that was dealt with",
        answers={204: None},
        if_match=True,
        tenant_optional=True,
        tag="rejects",
    )
    async def rejects_delete(call: Call[App, Any, Any]) -> Answer:
        await call.app.scheduler.rejects.delete(call.tenant, call.params["id"], call.headers)
        return Answer(204)
