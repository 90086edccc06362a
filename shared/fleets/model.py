"""Wire models of fleets and their nodes. Unknown fields are refused everywhere; durations are milliseconds inside."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from ..checkpoints.model import ReplicaOut
from ..durations import Duration
from ..leases.control.model import IntentOut
from ..leases.resize.model import ResizingOut
from ..leases.rows import MAX_PARTITIONS, ServerState
from ..leases.stamps import PROFILES, Profile, unsafe
from ..maintenance.model import NodeMaintenance
from ..tenants.model import Maybe, Name, Stamp, Strict

DRAIN = 10_000
"""How long a hand-off may take unless the fleet says otherwise, or two thirds of validity where that is less."""
DAY = 86_400_000

ProfileName = Literal["economy", "default", "fast", "seed"]
EventType = Literal["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"]
AlarmKind = Literal["stale", "dead", "maintenance"]
KINDS: tuple[AlarmKind, ...] = ("stale", "dead", "maintenance")
Span = Annotated[Duration, Field(ge=0, le=7 * DAY)]


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


class TurnTimeout(Strict):
    """How long a checkpoint may take."""

    initial: Span = 600_000
    min: Annotated[Duration, Field(ge=60_000, le=7 * DAY)] = 60_000
    max: Annotated[Duration, Field(ge=60_000, le=7 * DAY)] = 3_600_000

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.min <= self.initial <= self.max:
            raise ValueError("min <= initial <= max does not hold")
        return self


class FleetCheckpoints(Strict):
    """How turns to take a checkpoint are given."""

    timeout: TurnTimeout = Field(default_factory=TurnTimeout)
    drift: float = Field(0.3, ge=0, le=0.9, description="How much faster or slower than true time a replica's clock may run.")
    silence: Annotated[Duration, Field(ge=1000, le=DAY, description="A replica silent for so long is down.")] = 60_000
    max_lag: int | None = Field(None, ge=0, description="A secondary further behind gets no turn; null: any may.")
    interval: Maybe[Annotated[Duration, Field(ge=0, le=7 * DAY)]] = Field(
        default=None, description="Least time from one turn's grant to the next; without it they follow one another."
    )


def _is_false(value: object) -> bool:
    return not value


class Quorum(Strict):
    """What must stay up while nodes are prepared for maintenance."""

    per: Literal["location", "scope", "fleet"] = Field("location", description="What fault domains are counted within.")
    domains_down: int = Field(1, ge=1, le=100, description="Fault domains that may be down at once.")


class MaintenanceRule(Strict):
    """What is done about events that fit. Fields left out fit any."""

    type: Maybe[EventType] = None
    source: Maybe[Literal["Platform", "User"]] = None
    max_seconds: Maybe[Annotated[int, Field(ge=0, le=86_400)]] = Field(default=None, description="Only for impacts at most this long.")
    action: Literal["approve", "prepare", "hold", "ignore"]


class FleetMaintenance(Strict):
    """How Azure's Scheduled Events are met."""

    lead: Span = Field(30_000, description="How long before NotBefore a node prepares.")
    leads: dict[EventType, Span] = Field(default_factory=dict, description="The same by type of event.")
    require_central: bool = Field(False, description="A node that cannot reach Tocsin does not approve by itself what it prepared for.")
    transport: Literal["relay", "arm"] = Field(
        "relay", description="How approvals reach Azure: by way of a node's agent, or of Azure Resource Manager."
    )
    catch_up: Span = Field(
        600_000, description="How long a node that was put back counts as down, unless it says before that it is in step."
    )
    quorum: Quorum = Field(default_factory=Quorum)
    early: bool = Field(
        False, exclude_if=_is_false, description="Events are approved before their time, one fault domain after the other."
    )
    rules: list[MaintenanceRule] = Field(default_factory=list, max_length=50)


class Notify(Strict):
    """Where alarms go."""

    channel: Name
    kinds: list[AlarmKind] = Field(default_factory=lambda: list(KINDS), max_length=len(KINDS))

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
        return self.limits.drain if self.limits.drain is not None else min(DRAIN, round(self.seconds().validity * 2000 / 3))

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
