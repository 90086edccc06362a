"""Routes of the audit trail (scope admin)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ..web.fields.error_texts import Shaped
from ..web.fields.params import Moment, NotBeforeFrom, Paging
from ..web.fields.types import Maybe, Name, Stamp, Strict
from ..web.paging.pages import after, page
from ..web.routes import Answer, Call, RouteGroup
from .audit import AuditRecords, parse_position

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
