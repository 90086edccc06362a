"""The observations that the agent applies: documents, results of its own effects, answers of the app, and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from .model import ElectedMonitors, EventsDocument, LeasedApproval, ScheduledEvent
from .policy import FleetPolicy


@dataclass(frozen=True, slots=True)
class StartUp:
    """The process begins with the journal's state. found: result of reading the state file. marker: the agent's mark of a disabled node was
    there."""

    boot_id: str
    found: Literal["kept", "none", "corrupt"] = "kept"
    marker: bool = False


@dataclass(frozen=True, slots=True)
class DocumentRead:
    """A poll brought a document. clock_error: seconds by which this machine's clock is ahead of the service's, negative if it is behind; 0
    while it may be right, None if unknown."""

    document: EventsDocument
    clock_error: float | None = None


@dataclass(frozen=True, slots=True)
class PollFailed:
    """A poll brought no valid document: no connection, an error status, or unreadable content."""

    reason: str


@dataclass(frozen=True, slots=True)
class HookEnded:
    """The end of a hook; exactly one for each RunHook, also for a stopped one. ok: it succeeded. detail: exit status, timeout or last
    output."""

    run: int
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalPosted:
    """The result of a POST; exactly one for each Approve, with its `grant`.

    accepted: 200. busy: timeout, no connection, 410, 429 or 5xx; the POST may have been applied. refused: any other status.
    """

    event_id: str
    outcome: Literal["accepted", "busy", "refused"]
    http_status: int = 0
    grant: str = ""


@dataclass(frozen=True, slots=True)
class AppCommand:
    """A command of the app to this node."""

    id: str
    event_id: str
    do: Literal["prepare", "restore"]


@dataclass(frozen=True, slots=True)
class AppAnswer:
    """The app's answer to a report.

    told: the ids that this report asked to approve (those of `step.asked_events(state)` for which it had room). until: steady time at which
    the agent's turn to approve them ends, from the SEND of the report. grants, holds: replace those known before, and so do permitted and
    refused: the answers about events that the node waits to prepare for. approves, approved: the events that the agents of other nodes
    approve for all, and have approved, by node. rehearsals: may come once or in each answer. policy: None if the app does not send it.
    """

    told: frozenset[str] = frozenset()
    grants: tuple[LeasedApproval, ...] = ()
    holds: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[AppCommand, ...] = ()
    rehearsals: tuple[ScheduledEvent, ...] = ()
    monitors: ElectedMonitors | None = None
    policy: FleetPolicy | None = None
    permitted: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    until: float = inf
    approves: Mapping[str, str] = field(default_factory=dict)
    approved: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AppUnreachable:
    """A report could not be delivered. refused: the app answered 401, 403 or 404, which a person must mend: a key, a fleet or an address is
    wrong."""

    reason: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """About a second has passed. Ticks must be regular, because gaps between them count as impact."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The process was asked to end (SIGTERM)."""


type Observation = StartUp | DocumentRead | PollFailed | HookEnded | ApprovalPosted | AppAnswer | AppUnreachable | Tick | StopRequested
