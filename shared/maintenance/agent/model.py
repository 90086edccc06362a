"""The agent's state, as plain values. `observations` and `effects` are beside it.

    step(NodeState, Observation, Now, AgentSettings) -> (NodeState, effects)        (decisions/step.py)

The new state is saved before the first effect is carried out. The outcome of each effect is the next observation, and the state after it is
saved again. So after a crash between any two effects, the saved state shows what was under way. Wall times are milliseconds (`Millis`),
because NotBefore is the node's wall time. Ages, back-offs and leases are seconds of the steady clock. Fields under a `volatile` heading are
not saved: they start at their defaults with each process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple

from .policy import EventSource, FleetPolicy

if TYPE_CHECKING:
    from ...core.clock import Millis

type ScheduledEventStatus = Literal["Scheduled", "Started", "Unknown"]
type HookKind = Literal["prepare", "emergency", "restore", "verify", "caught_up"]
type EventOutcome = Literal["completed", "cancelled", "completed or cancelled"]

EVENT_TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")
"""The event types that Azure documents. Any other type counts as one with an impact."""


class Now(NamedTuple):
    """One moment on both clocks of the node: wall (milliseconds) and steady (seconds)."""

    wall: Millis
    steady: float


# -- documents


@dataclass(frozen=True, slots=True)
class ScheduledEvent:
    """One scheduled event, as a document describes it, or the app for a rehearsal.

    event_id: case-folded; the key of the event. raw_id: the id as received, for the POST. status: Unknown when it is neither Scheduled nor
    Started. not_before: None when empty or unreadable. duration: seconds of impact; 0 for none, -1 for unknown. resources: names of VMs.
    """

    event_id: str
    raw_id: str
    type: str
    status: ScheduledEventStatus
    not_before: Millis | None = None
    source: EventSource = "Platform"
    duration: int = -1
    resources: tuple[str, ...] = ()
    description: str = ""
    rehearsal: bool = False


@dataclass(frozen=True, slots=True)
class EventsDocument:
    """A valid document. incarnation: None when it has none that can be compared.

    problems: the parts that could not be read. While there are any, no event counts as gone, because an unreadable part may be that event.
    """

    incarnation: int | None
    events: tuple[ScheduledEvent, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnreadableDocument:
    """An answer without a valid document, and the reason."""

    reason: str


# -- state


class EventPhase(StrEnum):
    """The phase of this node for an event. docs/explain/maintenance.md has the state diagram."""

    FOREIGN = "FOREIGN"
    WAITING = "WAITING"
    PREPARING = "PREPARING"
    PREPARED = "PREPARED"
    PREPARE_FAILED = "PREPARE_FAILED"
    APPROVED = "APPROVED"
    STARTED = "STARTED"
    RESTORING = "RESTORING"
    RESTORE_FAILED = "RESTORE_FAILED"
    DONE = "DONE"


@dataclass(frozen=True, slots=True)
class EventRecord:
    """The agent's record of one event.

    event: as last seen. listed: true if the last valid document lists it on this node (a rehearsal: if it runs). prepared_boot: the boot id
    under which prepare succeeded; after another boot that no longer counts. approve_intent: time at which a POST was first decided on,
    saved before it is sent. reason: explains the phase in reports. observed_ms: impact, measured as gaps between ticks. notes: warnings
    that were given, each once.
    """

    event: ScheduledEvent
    phase: EventPhase
    seen_at: Millis
    listed: bool = True
    prepared_at: Millis | None = None
    prepared_boot: str = ""
    approve_intent: Millis | None = None
    approved_at: Millis | None = None
    started_at: Millis | None = None
    done_at: Millis | None = None
    outcome: EventOutcome | None = None
    reason: str = ""
    observed_ms: int = 0
    notes: frozenset[str] = frozenset()
    # volatile
    at_once: bool = False
    """The rules approve the event without preparation. Reports of it as WAITING ask for the turn to do so."""
    tries: int = 0
    """Attempts of the prepare hook."""
    retry_at: float = 0.0
    """Steady: earliest time of the next attempt to prepare."""
    hurry: bool = False
    """The fleet asked to prepare now."""
    hook_wanted: HookKind | None = None
    """A hook that must still run in STARTED: emergency, or prepare after a reboot."""
    unsure: bool = False
    """The agent has restarted, and no document has shown the event since."""
    posts: int = 0
    refusals: int = 0
    posting: bool = False
    look_first: bool = False
    """A POST failed: the document is polled before the next POST."""
    post_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Restore:
    """The node is being restored: the next step, the number of failed attempts, the earliest time (steady) of the next, and the steady time
    at which it began."""

    step: Literal["restore", "verify"] = "restore"
    failures: int = 0
    retry_at: float = 0.0
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class HookRun:
    """The hook that runs now; there is never more than one. stopping: it was asked to stop."""

    number: int
    kind: HookKind
    event_id: str
    since: float
    stopping: bool = False
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class LeasedApproval:
    """An approval that the app leased to this agent. until: steady, exclusive, counted from the SEND of the report whose answer brought
    it."""

    id: str
    event_id: str
    until: float
    expires: Millis


@dataclass(frozen=True, slots=True)
class ElectedMonitors:
    """The agents that act for the whole fleet."""

    primary: str | None
    secondary: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class AppState:
    """The last answers of the app; only `holds` is saved. away: the last call failed; None before the first has ended. away_since: steady,
    time of the first failure in a row.

    refusal: the answer by which the app refuses this agent, '' for none; it stays while the app is away, until a report is taken.
    heard: events that a report asked to approve and that the answer left to this agent, until `heard_until` (steady, exclusive). others:
    events that the agents of other nodes approve for all, by node. permitted, refused: with the guard `prepare`, the events for which the
    last answer lets the node prepare, and does not yet, with the reasons.
    """

    away: bool | None = None
    away_since: float = 0.0
    refusal: str = ""
    heard: frozenset[str] = frozenset()
    heard_until: float = inf
    others: Mapping[str, str] = field(default_factory=dict)
    holds: Mapping[str, str] = field(default_factory=dict)
    grants: Mapping[str, LeasedApproval] = field(default_factory=dict)
    monitors: ElectedMonitors | None = None
    permitted: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeState:
    """The whole state of the agent.

    disabled: THE AGENT took the node out of service, or began to; saved before the hook that does it. policy: the fleet's settings, as
    last received; None before the first. in_step: since the node was restored, its hook has reported that it caught up. restores: seconds
    that the last ones took.
    """

    boot_id: str = ""
    disabled: bool = False
    events: Mapping[str, EventRecord] = field(default_factory=dict)
    policy: FleetPolicy | None = None
    in_step: bool = False
    restores: tuple[float, ...] = ()
    # volatile
    rebooted: bool = False
    """The machine has booted since the state was saved, and no document has come yet."""
    since: float = 0.0
    """Steady: start of the process."""
    looked: bool = False
    """A poll has ended since then, successful or not."""
    incarnation: int | None = None
    """Incarnation of the last valid document since the start; for reports and people."""
    document: EventsDocument | None = None
    """The document of the last poll, if it was whole. An equal one is not applied again."""
    restore: Restore | None = None
    asks: int = 0
    """Number of checks that found the node not yet caught up."""
    ask_at: float = 0.0
    """Steady: earliest time of the next check."""
    run: HookRun | None = None
    runs: int = 0
    app: AppState = field(default_factory=AppState)
    sighted: bool = False
    """The last poll brought a document without unreadable parts. Only then is anything approved or restored."""
    good_at: float | None = None
    """Steady: time of the last poll with a valid document."""
    complaint: str = ""
    """The problem of the last poll, so that it is logged once."""
    commands: frozenset[str] = frozenset()
    """Ids of the app's commands that are known."""
    clock_wrong: bool = False
    """The warning about this machine's clock was given."""
    ticked: Now | None = None
    stopping: bool = False
