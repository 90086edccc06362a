"""What the agent knows, what it observes, and what it does about it: plain values.

    step(NodeState, Observation, Now, Settings) -> (NodeState, effects)        (rules.py)

Whoever carries effects out saves the new state before the first of them; what comes of each is the next observation, and the state after it
is saved again. So a crash between any two of them is found in the saved state. Wall times are milliseconds (`Millis`), as NotBefore is wall
time of the node; ages, back-offs and leases are steady seconds. Fields under a `volatile` heading are not saved: they begin anew with
the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, NamedTuple

from .policy import FleetPolicy

if TYPE_CHECKING:
    from ...core.clock import Millis

type ScheduledEventStatus = Literal["Scheduled", "Started", "Unknown"]
type EventSource = Literal["Platform", "User"]
type Action = Literal["approve", "prepare", "hold", "ignore"]
type HookKind = Literal["prepare", "emergency", "restore", "verify", "caught_up"]
type EventOutcome = Literal["completed", "cancelled", "completed or cancelled"]

EVENT_TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")
"""The types the documentation names; any other is taken as an impact."""


class Now(NamedTuple):
    """One moment on both clocks: the node's wall clock and its steady one."""

    wall: Millis
    steady: float


# -- documents


@dataclass(frozen=True, slots=True)
class ScheduledEvent:
    """One scheduled event as a document, or the app for a rehearsal, describes it.

    event_id: case folded, what everything is keyed by. raw_id: as it came, for the POST. status: Unknown when it is neither Scheduled nor
    Started. not_before: None when empty or unreadable. duration: seconds of impact; 0 none, -1 unknown. resources: names of VMs.
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
    """A document that can be believed. incarnation: None when it has none that can be compared.

    problems: what could not be read in it. While there are any, no event is taken as gone: the unreadable one may be it.
    """

    incarnation: int | None
    events: tuple[ScheduledEvent, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnreadableDocument:
    """An answer that says nothing about events, and why."""

    reason: str


# -- state


class EventPhase(StrEnum):
    """Where this node stands with an event. docs/maintenance.md draws it."""

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
    """What is kept of one event.

    event: as last seen. listed: whether the last believed document lists it on this node (a rehearsal: whether it runs). prepared_boot: the
    boot id under which prepare succeeded; of another boot it no longer counts. approve_intent: when a POST was first decided on, saved
    before it is sent. reason: why it stands where it stands, for reports. observed_ms: impact measured as gaps between ticks. notes:
    warnings given once.
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
    tries: int = 0
    """Attempts of the prepare hook."""
    retry_at: float = 0.0
    """Steady: not before this is prepare tried again."""
    hurry: bool = False
    """The fleet asked to prepare now."""
    hook_wanted: HookKind | None = None
    """A hook that STARTED still owes: emergency, or prepare after a reboot."""
    unsure: bool = False
    """The agent has started anew and no document has told yet how this event stands."""
    posts: int = 0
    refusals: int = 0
    posting: bool = False
    look_first: bool = False
    """A POST failed: a new look comes before the next."""
    post_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Restore:
    """The node is being put back: which step is next, how many attempts failed, and when (steady) the next may begin."""

    step: Literal["restore", "verify"] = "restore"
    failures: int = 0
    retry_at: float = 0.0


@dataclass(frozen=True, slots=True)
class HookRun:
    """The one hook that runs; never two at once. stopping: it was told to stop."""

    number: int
    kind: HookKind
    event_id: str
    since: float
    stopping: bool = False
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class LeasedApproval:
    """An approval that the app leased to this agent. until: steady, exclusive, counted from the SEND of the report that brought it."""

    id: str
    event_id: str
    until: float
    expires: Millis


@dataclass(frozen=True, slots=True)
class ElectedMonitors:
    """Who watches for the whole fleet."""

    primary: str | None
    secondary: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class AppState:
    """What the app last said; only `holds` is saved. away: the last call failed; None while none has ended. away_since: steady, of the
    first of those that failed.

    heard: events that the app has answered to a report of as PREPARED, without a hold.
    """

    away: bool | None = None
    away_since: float = 0.0
    heard: frozenset[str] = frozenset()
    holds: Mapping[str, str] = field(default_factory=dict)
    grants: Mapping[str, LeasedApproval] = field(default_factory=dict)
    monitors: ElectedMonitors | None = None


@dataclass(frozen=True, slots=True)
class NodeState:
    """All the agent knows. disabled: WE took the node out of service, or began to; saved before the hook that does it. policy: what the
    fleet asks for, as last heard; None before it was ever heard. in_step: its hook has said since it was put back that it caught up."""

    boot_id: str = ""
    disabled: bool = False
    events: Mapping[str, EventRecord] = field(default_factory=dict)
    policy: FleetPolicy | None = None
    in_step: bool = False
    # volatile
    rebooted: bool = False
    """The machine booted since the state was saved, and no document has come yet."""
    since: float = 0.0
    """Steady: when the process began."""
    looked: bool = False
    """A look has ended since then, well or not."""
    incarnation: int | None = None
    """Of the last document believed since the start; only compared for being different."""
    restore: Restore | None = None
    asks: int = 0
    """How often the node was found to have more to catch up on."""
    ask_at: float = 0.0
    """Steady: not before this is it asked again."""
    run: HookRun | None = None
    runs: int = 0
    app: AppState = field(default_factory=AppState)
    sighted: bool = False
    """The last look brought a document that could be read as a whole: only then is anything approved or put back."""
    good_at: float | None = None
    """Steady: when a look last brought one to be believed."""
    complaint: str = ""
    """What was wrong with the last look, so that it is told once."""
    commands: frozenset[str] = frozenset()
    """Of the app, those known."""
    ticked: Now | None = None
    stopping: bool = False


# -- observations


@dataclass(frozen=True, slots=True)
class StartUp:
    """The process begins, with what the journal brought. found: of the state file. marker: OUR mark of a disabled node was there."""

    boot_id: str
    found: Literal["kept", "none", "corrupt"] = "kept"
    marker: bool = False


@dataclass(frozen=True, slots=True)
class DocumentRead:
    """A look ended with a document."""

    document: EventsDocument


@dataclass(frozen=True, slots=True)
class PollFailed:
    """A look ended with nothing to believe: unreachable, an error status, or nonsense."""

    reason: str


@dataclass(frozen=True, slots=True)
class HookEnded:
    """Exactly one for each RunHook, also for a stopped one. ok: it did its work. detail: for people: exit status, time-out, last output."""

    run: int
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalPosted:
    """Exactly one for each Approve, whose `grant` it repeats.

    accepted: 200. busy: time-out, no connection, 410, 429, 5xx; it may have been applied. refused: any other status.
    """

    event_id: str
    outcome: Literal["accepted", "busy", "refused"]
    http_status: int = 0
    grant: str = ""


@dataclass(frozen=True, slots=True)
class AppCommand:
    """What the app asks of this node."""

    id: str
    event_id: str
    do: Literal["prepare", "restore"]


@dataclass(frozen=True, slots=True)
class AppAnswer:
    """The app's answer to a report.

    told: the ids that this report showed as PREPARED (of `rules.prepared(state)` those that it had room for). grants, holds:
    replace those known. rehearsals: may come once or in each answer. policy: None where the app does not say.
    """

    told: frozenset[str] = frozenset()
    grants: tuple[LeasedApproval, ...] = ()
    holds: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[AppCommand, ...] = ()
    rehearsals: tuple[ScheduledEvent, ...] = ()
    monitors: ElectedMonitors | None = None
    policy: FleetPolicy | None = None


@dataclass(frozen=True, slots=True)
class AppUnreachable:
    """A report could not be delivered."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A second or so went by; steady and unblocked, for gaps between ticks are taken as impact."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The process was told to end (SIGTERM)."""


type Observation = StartUp | DocumentRead | PollFailed | HookEnded | ApprovalPosted | AppAnswer | AppUnreachable | Tick | StopRequested


# -- effects


@dataclass(frozen=True, slots=True)
class RunHook:
    """Run a configured hook in the background, once, for at most `deadline` seconds; HookEnded(run) tells how it went.

    record: of the event that it is for, as saved; None when a restore has no event (the state file was lost).
    """

    run: int
    kind: HookKind
    record: EventRecord | None
    attempt: int
    deadline: float


@dataclass(frozen=True, slots=True)
class StopHook:
    """Stop a running hook; its HookEnded still comes."""

    run: int


@dataclass(frozen=True, slots=True)
class Approve:
    """POST the approval of `raw_id`; Posted(event_id, ..., grant) tells how it went. grant: the app's id, where it leased this approval."""

    event_id: str
    raw_id: str
    attempt: int
    grant: str = ""


@dataclass(frozen=True, slots=True)
class PollNow:
    """GET the document now, not only when the next poll is due."""


@dataclass(frozen=True, slots=True)
class SendReport:
    """What is reported has changed: tell the app now."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """Tell the app how a leased approval went."""

    approval_id: str
    outcome: Literal["posted", "gone", "refused", "unreachable"]
    http_status: int = 0


@dataclass(frozen=True, slots=True)
class WriteLog:
    """A line for operators. level: warning means that a person should look. action: a stable name; docs/maintenance.md lists them."""

    level: Literal["info", "warning"]
    action: str
    text: str
    event_id: str = ""
    fields: Mapping[str, str | int] = field(default_factory=dict)


type AgentEffect = RunHook | StopHook | Approve | PollNow | SendReport | SendResult | WriteLog
