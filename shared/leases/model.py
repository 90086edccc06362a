"""Wire models of leases over HTTP: heartbeats, claims, releases and views. Durations are milliseconds."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from ..web.fields.error_texts import TEXT, Shaped
from ..web.fields.types import Maybe, NodeName, Stamp, Strict
from .loads import MOST
from .owners import EXAMPLE, endpoint_fault
from .rows import MAX_PARTITIONS, ServerState
from .rules import MAX_HELD, Refusal

type PartitionVerb = Literal["offline", "online", "bump", "prohibit", "permit", "pin", "unpin"]
type ServerVerb = Literal["drain", "undrain", "prohibit", "permit"]
type AnyVerb = PartitionVerb | ServerVerb

MAX_SEQ = 2**53 - 1
MAX_CLAIMS = 99
"""Partitions in one claim: one transaction contains them and the server's own row."""

Incarnation = Annotated[UUID, Field(description="Id of this run of the server. Create a new one at each start and after each `fenced`.")]
Domain = Annotated[str, StringConstraints(max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$"), Shaped(TEXT.format(64))]


Loads = dict[Annotated[int, Field(ge=0, lt=MAX_PARTITIONS)], Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]]


def _endpoint(text: str) -> str:
    if text and (fault := endpoint_fault(text)):
        raise ValueError(fault)
    return text


class BeatIn(Strict):
    """A heartbeat. Fields that are left out keep their values."""

    incarnation: Incarnation
    seq: int = Field(ge=1, le=MAX_SEQ, description="Number of the heartbeat in its incarnation; 1 registers the server.")
    fault_domain: Domain | None = None
    capacity: int | None = Field(None, ge=0, le=MAX_PARTITIONS, description="Partitions that the server can own. 0: no limit of its own.")
    load: float | None = Field(None, ge=0, allow_inf_nan=False, description="A measure of load that all servers share.")
    loads: Loads | None = Field(
        None, max_length=MAX_HELD, description="Load of each partition, smoothed by the service. Partitions of other servers are ignored."
    )
    endpoint: Maybe[Annotated[str, StringConstraints(max_length=300), AfterValidator(_endpoint)]] = Field(
        None,
        description="Address at which the server takes deliveries of fleet channels: scheme, host and port. Empty: none from now on.",
        examples=[EXAMPLE],
    )
    keep: bool = Field(False, description="true: the server has stopped serving and will be back within V. Its partitions stay its own.")

    @model_validator(mode="after")
    def _has_something_to_keep(self) -> BeatIn:
        if self.keep and self.seq == 1:
            raise ValueError("keep needs a registered server: seq must be 2 or more")
        return self


class BeatAnswer(Strict):
    """The answer to a heartbeat. Its validity counts from the SEND of the first attempt with this `seq`."""

    seq: int
    validity_ms: int = Field(description="Time for which the server may act on its partitions, from that moment on.")
    beat_ms: int = Field(description="Interval between heartbeats.")
    state: Literal["live", "draining"]
    held: dict[int, int] = Field(description="All partitions of the server with their epochs, except those that it has claimed since.")
    assign: list[int] = Field(description="Partitions that the server must claim.")
    release: list[int] = Field(description="Partitions that the server must release.")
    generation: int = Field(description="Generation of the server's partitions. It changes only when nothing is left to release.")
    partitions: int = Field(description="Partition count of this generation: a key belongs to partition hash modulo this count.")
    exit: Maybe[bool] = Field(default=None, description="true: the server's process must end.")
    kept: Maybe[bool] = Field(default=None, description="true: this incarnation has ended, and its partitions wait for the next one.")


class ClaimIn(Strict):
    """A claim of partitions."""

    node: NodeName
    incarnation: Incarnation
    partitions: list[Annotated[int, Field(ge=0, lt=MAX_PARTITIONS)]] = Field(min_length=1, max_length=MAX_CLAIMS)
    generation: int = Field(1, ge=1, le=2**31, description="Generation that the server maps keys by, from the last heartbeat's answer.")

    @model_validator(mode="after")
    def _once(self) -> ClaimIn:
        if len(set(self.partitions)) != len(self.partitions):
            raise ValueError("a partition is repeated")
        return self


class ClaimedOut(Strict):
    """A partition that the server owns now. The epoch is its fencing token."""

    partition: int
    epoch: int


class RefusedOut(Strict):
    """A partition that the server did not get."""

    partition: int
    reason: Refusal


class ClaimAnswer(Strict):
    """The result of a claim for each partition."""

    claimed: list[ClaimedOut]
    refused: list[RefusedOut]


class ReleaseIn(Strict):
    """A partition that a server no longer acts on."""

    node: NodeName
    incarnation: Incarnation
    epoch: int = Field(ge=0, le=2**63 - 1)


class IntentOut(Strict):
    """A manual control in force, or one that was revoked."""

    verb: AnyVerb | Literal["maintain"]
    target: int | str = Field(description="A partition's number, or a server's name.")
    server: Maybe[str] = Field(None, description="The server of a control on a partition.")
    exit: Maybe[bool] = None
    to: Maybe[str] = Field(None, description="The server that gets a drained server's partitions.")
    note: str
    author: str = Field(description="Prefix of the key that made the request.")
    created: Stamp
    expires: Stamp | None


LeaseState = Literal["owned", "released", "unowned", "offline"]


class LeaseOut(Strict):
    """The owner of a partition. `unowned`: it has had no owner yet, or its server is dead."""

    partition: int
    state: LeaseState
    owner: str | None
    epoch: int
    since: Stamp | None = Field(description="Time of the last claim or release.")
    beat_age_ms: int | None = Field(description="Age of the owner's last heartbeat, by the storage service's clock.")
    load: float | None = Field(description="Smoothed load of the partition; null if its owner publishes none.")
    intents: list[IntentOut] = Field(description="Manual controls on the partition.")


class LeaseList(Strict):
    """A page of partitions."""

    items: list[LeaseOut]
    next: str | None


class ServerLeases(Strict):
    """The partitions of a server."""

    server: str
    state: ServerState
    beat_age_ms: int
    load: float | None = Field(description="Sum of the loads that the server publishes for these partitions; null if it publishes none.")
    partitions: list[int]


class ServerLeaseList(Strict):
    """A page of servers."""

    items: list[ServerLeases]
    next: str | None


class RoutesOut(Strict):
    """The owner of each partition, for clients of the fleet."""

    generation: int
    owners: dict[str, list[int]]
    unowned: list[int]
    taking: str | None = Field(description="The node that takes a checkpoint now. Clients should avoid it.")
