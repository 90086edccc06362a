"""The emulated world as values: virtual machines, events, faults, and what happened. `rules` moves it, `asking` answers from it.

Times are milliseconds since 1970 (`Millis`), as are spans. Nothing here knows of HTTP or of a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...core.clock import Millis
from .scenario import FaultSpec, ImdsSpec, StepSpec, VmSpec

type Ended = Literal["completed", "cancelled", "vanished"]
"""How an event ended."""

type Kind = Literal[
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
    """One line of the emulator's log. `number` counts from 1 without gaps."""

    number: int
    at: Millis
    kind: Kind
    vm: str = ""
    event: str = ""
    """The name that the scenario gave the event."""
    event_id: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Vm:
    """One virtual machine: what the scenario says of it, and the state of its Scheduled Events service."""

    spec: VmSpec
    incarnation: int
    on_at: Millis | None = None
    """Since when the service is on, or will be; None: off, until the first request."""
    asked_at: Millis | None = None
    """The last request for scheduled events."""
    window: tuple[Millis, ...] = ()
    """When the last requests were let in, for the rate."""
    requests: int = 0
    read: int | None = None
    """The incarnation that was read last."""

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True, slots=True)
class Shown:
    """What documents show of an event. A change of this, and of nothing else, gives a document a new incarnation."""

    id: str
    type: str
    resources: tuple[str, ...]
    status: str
    not_before: Millis
    """Whole seconds, for documents tell no more."""
    description: str
    source: str
    duration: int
    """Seconds, as advertised; -1: unknown."""
    raw: Mapping[str, Any] = field(default_factory=dict)
    """Members put over the event's own."""
    omit: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One event and its part in a job. Events of one job start together: when all are approved, or at NotBefore."""

    name: str
    scope: str
    job: str
    shown: Shown
    scheduled_at: Millis
    delay: Millis
    """From its approval, or NotBefore, to its start."""
    others_at: Millis | None
    """When tenants of the host whom the scenario does not list have approved; None: never."""
    impact: Millis
    settles: Millis
    """From its start to its end."""
    hidden_from: frozenset[str] = frozenset()
    approved_at: Millis | None = None
    approved_by: str = ""
    started_at: Millis | None = None
    ended_at: Millis | None = None
    outcome: Ended | None = None

    @property
    def started(self) -> bool:
        return self.started_at is not None


@dataclass(frozen=True, slots=True)
class Impact:
    """A time in which the machines of an event are not there."""

    event: Event
    vms: tuple[str, ...]
    ends: Millis


@dataclass(frozen=True, slots=True)
class ImdsFault:
    """A fault in force. `left`: requests it still takes; None: no end by count."""

    spec: FaultSpec
    ends: Millis | None
    left: int | None


@dataclass(frozen=True, slots=True)
class Planned:
    """A step that is yet to come."""

    at: Millis
    step: StepSpec


@dataclass(frozen=True, slots=True)
class World:
    """All there is. `now` never steps back."""

    imds: ImdsSpec
    speed: float
    seed: str
    """Event ids are made from it: another seed, other ids."""
    began: Millis
    now: Millis
    vms: Mapping[str, Vm]
    events: tuple[Event, ...] = ()
    """Listed ones, in the order in which they came."""
    ended: tuple[Event, ...] = ()
    impacts: tuple[Impact, ...] = ()
    faults: tuple[ImdsFault, ...] = ()
    planned: tuple[Planned, ...] = ()
    made: int = 0
    """Events made so far."""
    happened: int = 0
    log: tuple[Happening, ...] = ()
    """What happened and was not taken yet; see `rules.drain`."""

    def span(self, millis: Millis) -> Millis:
        """How long a span of the scenario takes here."""
        return round(millis / self.speed)
