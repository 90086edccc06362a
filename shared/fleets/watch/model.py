"""Wire models of what is wrong with a fleet (api.md, "Leases")."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ...leases.service.control.model import IntentOut
from ...web.fields.types import Stamp, Strict
from .rules import Kind


class StaleOut(Strict):
    """A partition that has been without a server for longer than a take-over needs, or whose row is missing."""

    partition: int
    reason: Literal["owner silent", "owner gone", "unowned", "missing"]
    owner: str | None = Field(description="Who had it last.")
    age_ms: int | None = Field(description="For how long, by the storage service's own time; null for a row that is missing.")


class ServersOut(Strict):
    """How many servers there are. Drained and prohibited ones do not count."""

    live: int
    needed: int = Field(description="minimum + spare")
    used: bool = Field(description="A server has been here. What is there for turns or maintenance alone misses none: no alarm.")
    silent: list[str] = Field(description="They should have been fenced by now.")
    late: list[str] = Field(description="Their beats are late, and these are half of all servers: storage may be throttled.")


class AlarmOut(Strict):
    """Something that has lasted for too long."""

    alarm: Kind
    since: Stamp
    count: int
    subjects: list[str] = Field(description="The first of them.")


class StaleList(Strict):
    """What is wrong with a fleet. Pages are of `items` alone."""

    items: list[StaleOut]
    next: str | None
    servers: ServersOut
    forgotten: list[IntentOut] = Field(description="What operators said long ago, and never expires.")
    alarms: list[AlarmOut]
