"""Wire models of leases over HTTP: beats, claims, releases, and the views. Durations are milliseconds."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, StringConstraints, model_validator

from ..web.fields.error_texts import TEXT, Shaped
from ..web.fields.types import Maybe, NodeName, Stamp, Strict
from .rows import MAX_PARTITIONS, ServerState
from .rules import Refusal
from .service.control.model import IntentOut

MAX_SEQ = 2**53 - 1
MAX_CLAIMS = 99
"""Partitions in one claim: one transaction holds them and the server's own row."""

Incarnation = Annotated[UUID, Field(description="Of this run of the server: a new one each time it starts, and after each `fenced`.")]
Domain = Annotated[str, StringConstraints(max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$"), Shaped(TEXT.format(64))]


class BeatIn(Strict):
    """A server's sign of life. What is left out stays as it was told before."""

    incarnation: Incarnation
    seq: int = Field(ge=1, le=MAX_SEQ, description="Counts the beats of an incarnation; 1 registers it.")
    fault_domain: Domain | None = None
    capacity: int | None = Field(None, ge=0, le=MAX_PARTITIONS, description="Partitions it can have; 0: no bound of its own.")
    load: float | None = Field(None, ge=0, allow_inf_nan=False, description="Any measure that is alike on all servers.")


class BeatAnswer(Strict):
    """What the server is to know. Its validity counts from its SEND of the first try of this `seq`."""

    seq: int
    validity_ms: int = Field(description="For so long it may act on what it has, from that moment on.")
    beat_ms: int = Field(description="How often it is to beat.")
    state: Literal["live", "draining"]
    held: dict[int, int] = Field(description="What it has: partition to epoch. It has nothing else, but what it claimed since.")
    assign: list[int] = Field(description="What it is to claim.")
    release: list[int] = Field(description="What it is to hand off.")
    generation: int = Field(description="What it has was claimed under this one; it changes only when nothing is left to release.")
    partitions: int = Field(description="Under this generation: keys map to partitions by their hash modulo this.")
    exit: Maybe[bool] = Field(default=None, description="Its process is to end.")


class ClaimIn(Strict):
    """Partitions that a server wants."""

    node: NodeName
    incarnation: Incarnation
    partitions: list[Annotated[int, Field(ge=0, lt=MAX_PARTITIONS)]] = Field(min_length=1, max_length=MAX_CLAIMS)
    generation: int = Field(1, ge=1, le=2**31, description="By which the server maps keys: that of the beat's answer that it follows.")

    @model_validator(mode="after")
    def _once(self) -> ClaimIn:
        if len(set(self.partitions)) != len(self.partitions):
            raise ValueError("a partition is named twice")
        return self


class ClaimedOut(Strict):
    """A partition that the server has now. The epoch is its fencing token."""

    partition: int
    epoch: int


class RefusedOut(Strict):
    """A partition that it did not get."""

    partition: int
    reason: Refusal


class ClaimAnswer(Strict):
    """What became of a claim, partition by partition."""

    claimed: list[ClaimedOut]
    refused: list[RefusedOut]


class ReleaseIn(Strict):
    """A partition that a server no longer acts on."""

    node: NodeName
    incarnation: Incarnation
    epoch: int = Field(ge=0, le=2**63 - 1)


LeaseState = Literal["owned", "released", "unowned", "offline"]


class LeaseOut(Strict):
    """Who has a partition. `unowned`: nobody has had it yet, or its server is dead."""

    partition: int
    state: LeaseState
    owner: str | None
    epoch: int
    since: Stamp | None = Field(description="When it was last claimed or released.")
    beat_age_ms: int | None = Field(description="How long ago its owner's row was written, by the storage service's own time.")
    intents: list[IntentOut] = Field(description="What operators want of it.")


class LeaseList(Strict):
    """A page of partitions."""

    items: list[LeaseOut]
    next: str | None


class ServerLeases(Strict):
    """What a server has."""

    server: str
    state: ServerState
    beat_age_ms: int
    partitions: list[int]


class ServerLeaseList(Strict):
    """A page of servers."""

    items: list[ServerLeases]
    next: str | None


class RoutesOut(Strict):
    """Where to find whom: the owner of each partition, for clients of the fleet."""

    generation: int
    owners: dict[str, list[int]]
    unowned: list[int]
    taking: str | None = Field(description="The node that takes its checkpoint now; better not asked.")
