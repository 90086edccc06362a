"""Wire models of fleets and their nodes. Unknown fields are refused everywhere; durations are milliseconds inside."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from ..checkpoints.model import ReplicaOut
from ..checkpoints.settings import DAY, FleetCheckpoints
from ..core.durations import Duration
from ..leases.profiles import PROFILES, Profile, unsafe
from ..leases.rows import MAX_PARTITIONS, ServerState
from ..leases.service.control.model import IntentOut
from ..leases.service.resize.model import ResizingOut
from ..maintenance.model import NodeMaintenance
from ..maintenance.settings import FleetMaintenance
from ..web.fields.types import Maybe, Name, Stamp, Strict

DEFAULT_DRAIN = 10_000
"""How long a hand-off may take unless the fleet says otherwise, or two thirds of validity where that is less."""

ProfileName = Literal["economy", "default", "fast", "seed"]

NotificationKind = Literal["stale", "dead", "maintenance"]
NOTIFICATION_KINDS: tuple[NotificationKind, ...] = ("stale", "dead", "maintenance")


class ProfileIn(Strict):
    """How often servers beat (H), how long a beat is valid for its sender (V), after how much silence others take over (T)."""

    beat: Annotated[Duration, Field(ge=100, le=3_600_000)]
    validity: Annotated[Duration, Field(ge=100, le=DAY)]
    takeover: Annotated[Duration, Field(ge=100, le=DAY)]

    def seconds(self) -> Profile:
        """The same for the rules."""
        return Profile(self.beat / 1000, self.validity / 1000, self.takeover / 1000)


def _kind(profile: object) -> str:
    return "name" if isinstance(profile, str) else "durations"


# Told apart first, so that only the branch that was meant says what is wrong.
ProfileOf = Annotated[Annotated[ProfileName, Tag("name")] | Annotated[ProfileIn, Tag("durations")], Discriminator(_kind)]


class FleetLimits(Strict):
    """Bounds of what moves at once."""

    max_per_server: int | None = Field(
        None, ge=1, le=MAX_PARTITIONS, description="Partitions one server may have; null: partitions / minimum, rounded up."
    )
    claims_per_cycle: int = Field(8, ge=1, le=98, description="Partitions a server of the library claims in one beat.")
    moves_per_minute: int = Field(32, ge=0, le=MAX_PARTITIONS, description="Moves that only balance.")
    drain: Annotated[Duration, Field(ge=0, le=DAY)] | None = Field(
        None, description="How long a hand-off may take; null: PT10S, or two thirds of validity where that is less."
    )


class FleetServers(Strict):
    """How many servers there should be."""

    minimum: int = Field(1, ge=1, le=MAX_PARTITIONS, description="Servers the fleet cannot do without.")
    spare: int = Field(0, ge=0, le=MAX_PARTITIONS, description="Servers there should be beside: fewer raise an alarm.")




class Notify(Strict):
    """Where alarms go."""

    channel: Name
    kinds: list[NotificationKind] = Field(default_factory=lambda: list(NOTIFICATION_KINDS), max_length=len(NOTIFICATION_KINDS))

    @model_validator(mode="after")
    def _once(self) -> Self:
        if len(set(self.kinds)) != len(self.kinds):
            raise ValueError("a kind is named twice")
        return self


class FleetIn(Strict):
    """A fleet, as PUT. All fields but `partitions` are optional."""

    partitions: int = Field(ge=1, le=MAX_PARTITIONS)
    profile: ProfileOf = "default"
    limits: FleetLimits = Field(default_factory=FleetLimits)
    servers: FleetServers = Field(default_factory=FleetServers)
    checkpoints: FleetCheckpoints = Field(default_factory=FleetCheckpoints)
    maintenance: FleetMaintenance = Field(default_factory=FleetMaintenance)
    notify: Notify | None = None

    def seconds(self) -> Profile:
        """H, V and T in seconds."""
        return PROFILES[self.profile] if isinstance(self.profile, str) else self.profile.seconds()

    def drain(self) -> int:
        """How long a hand-off may take, in milliseconds."""
        return self.limits.drain if self.limits.drain is not None else min(DEFAULT_DRAIN, round(self.seconds().validity * 2000 / 3))

    def fault(self) -> tuple[str, str] | None:
        """The inequality of safety that fails, and where; None when all hold."""
        found = unsafe(self.seconds(), self.drain() / 1000, name=self.profile if isinstance(self.profile, str) else "")
        return ("/limits/drain" if found.startswith("drain") else "/profile", f"unsafe: {found} (seconds)") if found else None


class FleetOut(FleetIn):
    """A fleet as stored."""

    name: str
    generation: int = Field(description="Of the partition count: a resize raises it.")
    resizing: Maybe[ResizingOut] = Field(default=None, description="While a resize is under way.")
    created: Stamp


class FleetList(Strict):
    """A page of fleets."""

    items: list[FleetOut]
    next: str | None


class BeatOut(Strict):
    """A node's last beat."""

    seq: int
    age_ms: int = Field(description="By the storage service's own time.")
    state: ServerState
    incarnation: str
    fault_domain: str
    capacity: int = Field(description="Partitions it can have; 0: no bound of its own.")
    load: float
    scans: bool = Field(description="It runs the library and looks at the others; false: it speaks HTTP.")


class NodeOut(Strict):
    """All that is known of a node. `turn` and `maintenance` are null while there is none."""

    node: str
    beat: BeatOut | None
    partitions: dict[int, int] = Field(description="What it has: partition to epoch.")
    assign: list[int] = Field(description="What it is to claim.")
    release: list[int] = Field(description="What it is to hand off.")
    intents: list[IntentOut] = Field(description="What operators want of it.")
    turn: ReplicaOut | None = Field(None, description="What it is as a replica.")
    maintenance: NodeMaintenance | None = Field(None, description="What its agent told last.")


class NodeList(Strict):
    """A page of nodes."""

    items: list[NodeOut]
    next: str | None
