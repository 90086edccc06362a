"""Wire models of fleets and their nodes. Unknown fields are refused. Durations are milliseconds inside the app."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import Discriminator, Field, Tag, model_validator

from ..checkpoints.model import ReplicaOut
from ..checkpoints.settings import DAY, FleetCheckpoints
from ..leases.fleet_alarms import NotificationKind
from ..leases.model import IntentOut
from ..leases.profiles import PROFILES, Profile, unsafe_reason
from ..leases.rows import MAX_PARTITIONS, ServerState
from ..leases.service.resize import ResizingOut
from ..maintenance.model import NodeMaintenance
from ..maintenance.settings import FleetMaintenance
from ..web.fields.types import Duration, Maybe, Name, Stamp, Strict

DEFAULT_DRAIN = 10_000
"""Milliseconds for a hand-off if the fleet does not set it. Two thirds of the validity, if that is less."""

ProfileName = Literal["economy", "default", "fast", "seed"]

NOTIFICATION_KINDS: tuple[NotificationKind, ...] = get_args(NotificationKind)


class ProfileIn(Strict):
    """The heartbeat interval (H), the validity of a heartbeat for its sender (V), and the silence after which others take over (T)."""

    beat: Annotated[Duration, Field(ge=100, le=3_600_000)]
    validity: Annotated[Duration, Field(ge=100, le=DAY)]
    takeover: Annotated[Duration, Field(ge=100, le=DAY)]

    def seconds(self) -> Profile:
        """Return the profile in seconds."""
        return Profile(self.beat / 1000, self.validity / 1000, self.takeover / 1000)


def _kind(profile: object) -> str:
    return "name" if isinstance(profile, str) else "durations"


# The discriminator selects one branch, so that only its errors are reported.
ProfileOf = Annotated[Annotated[ProfileName, Tag("name")] | Annotated[ProfileIn, Tag("durations")], Discriminator(_kind)]


class FleetLimits(Strict):
    """Limits of moves."""

    max_per_server: int | None = Field(
        None, ge=1, le=MAX_PARTITIONS, description="Partitions that one server may own. null: partitions / minimum, rounded up."
    )
    claims_per_cycle: int = Field(8, ge=1, le=98, description="Partitions that a server with the library claims in one heartbeat.")
    moves_per_minute: int = Field(32, ge=0, le=MAX_PARTITIONS, description="Moves per minute that only balance.")
    drain: Annotated[Duration, Field(ge=0, le=DAY)] | None = Field(
        None, description="Maximum duration of a hand-off. null: PT10S, or two thirds of the validity if that is less."
    )


class FleetServers(Strict):
    """The number of servers that a fleet should have."""

    minimum: int = Field(1, ge=1, le=MAX_PARTITIONS, description="Servers that the fleet needs.")
    spare: int = Field(0, ge=0, le=MAX_PARTITIONS, description="Additional servers. Fewer than minimum + spare raise an alarm.")


class Notify(Strict):
    """The channel for alarms."""

    channel: Name
    kinds: list[NotificationKind] = Field(default_factory=lambda: list(NOTIFICATION_KINDS), max_length=len(NOTIFICATION_KINDS))

    @model_validator(mode="after")
    def _once(self) -> Self:
        if len(set(self.kinds)) != len(self.kinds):
            raise ValueError("a kind is repeated")
        return self


class FleetIn(Strict):
    """The definition of a fleet. All fields except `partitions` are optional."""

    partitions: int = Field(ge=1, le=MAX_PARTITIONS)
    profile: ProfileOf = "default"
    limits: FleetLimits = Field(default_factory=FleetLimits)
    servers: FleetServers = Field(default_factory=FleetServers)
    checkpoints: FleetCheckpoints = Field(default_factory=FleetCheckpoints)
    maintenance: FleetMaintenance = Field(default_factory=FleetMaintenance)
    notify: Notify | None = None

    def seconds(self) -> Profile:
        """Return H, V and T in seconds."""
        return PROFILES[self.profile] if isinstance(self.profile, str) else self.profile.seconds()

    def drain(self) -> int:
        """Return the maximum duration of a hand-off in milliseconds."""
        return self.limits.drain if self.limits.drain is not None else min(DEFAULT_DRAIN, round(self.seconds().validity * 2000 / 3))

    def fault(self) -> tuple[str, str] | None:
        """Return the path and text of the safety condition that fails; None if all hold."""
        found = unsafe_reason(self.seconds(), self.drain() / 1000, name=self.profile if isinstance(self.profile, str) else "")
        return ("/limits/drain" if found.startswith("drain") else "/profile", f"unsafe: {found} (seconds)") if found else None


class FleetOut(FleetIn):
    """A stored fleet."""

    name: str
    generation: int = Field(description="Generation of the partition count. A resize increments it.")
    resizing: Maybe[ResizingOut] = Field(default=None, description="Progress of a resize that is under way.")
    created: Stamp


class FleetList(Strict):
    """A page of fleets."""

    items: list[FleetOut]
    next: str | None


class BeatOut(Strict):
    """The last heartbeat of a node."""

    seq: int
    age_ms: int = Field(description="Age by the storage service's clock.")
    state: ServerState
    incarnation: str
    fault_domain: str
    capacity: int = Field(description="Partitions that the server can own. 0: no limit of its own.")
    endpoint: Maybe[str] = Field(None, description="Address at which the server takes deliveries of fleet channels.")
    load: float
    scans: bool = Field(description="true: the server runs the library and can scan the others. false: it speaks HTTP.")


class NodeOut(Strict):
    """A node. `turn` and `maintenance` are null if there is none."""

    node: str
    beat: BeatOut | None
    partitions: dict[int, int] = Field(description="Partitions of the node with their epochs.")
    assign: list[int] = Field(description="Partitions that the node must claim.")
    release: list[int] = Field(description="Partitions that the node must release.")
    loads: dict[int, float] = Field({}, description="Smoothed loads of the node's partitions, as far as it publishes them.")
    intents: list[IntentOut] = Field(description="Manual controls on the node.")
    turn: ReplicaOut | None = Field(None, description="The node as a replica.")
    maintenance: NodeMaintenance | None = Field(None, description="The last report of the node's agent.")


class NodeList(Strict):
    """A page of nodes."""

    items: list[NodeOut]
    next: str | None
