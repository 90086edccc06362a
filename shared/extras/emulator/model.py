"""The emulated world as values: virtual machines, events, faults and the log. `rules` changes it, `metadata_service` answers from it.

Times are milliseconds since 1970 (`Millis`); durations are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...core.clock import Millis
from .scenario import FaultSpec, ImdsSpec, StepSpec, VmSpec

type ImdsOutcome = Literal["completed", "cancelled", "vanished"]
"""The outcome of an event."""

type HappeningKind = Literal[
    "approved",
    "cancelled",
    "changed",
    "cleared",
    "completed",
    "failing",
    "hidden",
    "impact-began",
    "impact-ended",
    "off",
    "on",
    "read",
    "refused",
    "reset",
    "scheduled",
    "shown",
    "skipped",
    "started",
    "step-refused",
    "vanished",
]


@dataclass(frozen=True, slots=True)
class Happening:
    """A line of the emulator's log. `number` counts from 1 without gaps."""

    number: int
    at: Millis
    kind: HappeningKind
    vm: str = ""
    event: str = ""
    """The name that the scenario gave the event."""
    event_id: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Vm:
    """A virtual machine: its part of the scenario, and the state of its Scheduled Events service."""

    spec: VmSpec
    incarnation: int
    on_at: Millis | None = None
    """Time from which the service is on; None while it is off, until the first request."""
    asked_at: Millis | None = None
    """Time of the last request for Scheduled Events."""
    window: tuple[Millis, ...] = ()
    """Times of the last accepted requests, for the rate limit."""
    requests: int = 0
    read: int | None = None
    """The incarnation that the machine read last."""

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True, slots=True)
class ListedEvent:
    """An event as documents list it. Only a change of this gives a document a new incarnation."""

    id: str
    type: str
    resources: tuple[str, ...]
    status: str
    not_before: Millis
    """Whole seconds, because documents show no milliseconds."""
    description: str
    source: str
    duration: int
    """Seconds, as advertised; -1: unknown."""
    raw: Mapping[str, Any] = field(default_factory=dict)
    """Members that replace or extend the event's own."""
    omit: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImdsEvent:
    """An event and its part in a job. Events of one job start together: when all are approved, or at NotBefore."""

    name: str
    scope: str
    job: str
    shown: ListedEvent
    scheduled_at: Millis
    delay: Millis
    """Time from its approval, or from NotBefore, to its start."""
    others_at: Millis | None
    """Time at which the host's tenants outside the scenario have approved; None for never."""
    impact: Millis
    settles: Millis
    """Time from its start to its end."""
    hidden_from: frozenset[str] = frozenset()
    approved_at: Millis | None = None
    approved_by: str = ""
    started_at: Millis | None = None
    ended_at: Millis | None = None
    outcome: ImdsOutcome | None = None

    @property
    def started(self) -> bool:
        return self.started_at is not None


@dataclass(frozen=True, slots=True)
class Impact:
    """A period in which the machines of an event are away."""

    event: ImdsEvent
    vms: tuple[str, ...]
    ends: Millis


@dataclass(frozen=True, slots=True)
class ImdsFault:
    """A fault in force. `left`: number of requests that it still affects; None without a limit."""

    spec: FaultSpec
    ends: Millis | None
    left: int | None


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step of the scenario whose time has not come."""

    at: Millis
    step: StepSpec


@dataclass(frozen=True, slots=True)
class World:
    """The whole state of the emulator. `now` never steps back."""

    imds: ImdsSpec
    speed: float
    seed: str
    """Event ids are derived from it: another seed gives other ids."""
    began: Millis
    now: Millis
    vms: Mapping[str, Vm]
    events: tuple[ImdsEvent, ...] = ()
    """Listed events, oldest first."""
    ended: tuple[ImdsEvent, ...] = ()
    impacts: tuple[Impact, ...] = ()
    faults: tuple[ImdsFault, ...] = ()
    planned: tuple[PlannedStep, ...] = ()
    made: int = 0
    """Number of events created so far."""
    happened: int = 0
    log: tuple[Happening, ...] = ()
    """Lines that were not taken yet; see `rules.take_log`."""

    def span(self, millis: Millis) -> Millis:
        """Return a duration of the scenario divided by the speed."""
        return round(millis / self.speed)
