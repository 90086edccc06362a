"""Wire models of `leases/stale` (api.md, "Leases")."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ...leases.model import IntentOut
from ...web.fields.types import Stamp, Strict
from .alarms import Kind


class StaleOut(Strict):
    """A partition that has been without an owner for longer than a takeover needs, or whose row is missing."""

    partition: int
    reason: Literal["owner silent", "owner gone", "unowned", "missing"]
    owner: str | None = Field(description="The last owner.")
    age_ms: int | None = Field(description="Time without an owner, by the storage service's clock. Null for a missing row.")


class ServersOut(Strict):
    """The number of servers. Drained and prohibited servers do not count."""

    live: int
    needed: int = Field(description="minimum + spare")
    used: bool = Field(description="A server has registered at least once. A fleet for turns or maintenance alone raises no alarm.")
    silent: list[str] = Field(description="Servers that should have been fenced by now.")
    late: list[str] = Field(description="Servers with late heartbeats, if they are half of all: storage may be throttled.")


class AlarmOut(Strict):
    """An alarm of the fleet."""

    alarm: Kind
    since: Stamp
    count: int
    subjects: list[str] = Field(description="The first subjects. `count` includes the others.")


class StaleList(Strict):
    """The faults of a fleet. Only `items` is paged."""

    items: list[StaleOut]
    next: str | None
    servers: ServersOut
    forgotten: list[IntentOut] = Field(description="Manual controls that are older than a day and have no expiry.")
    alarms: list[AlarmOut]
