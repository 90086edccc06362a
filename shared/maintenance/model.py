"""Wire models of maintenance: agents' reports, approvals, events and what people ask for. Durations are in the unit their name says."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from ..core.durations import Duration, Time
from ..web.fields.error_texts import TEXT, Shaped
from ..web.fields.types import Maybe, NodeName, Note, Stamp, Strict
from .approvals import ApprovalOutcome
from .rows import GrantState, LedgerSource, LedgerStatus, NodePhaseName

MAX_SEQ = 2**53 - 1
MAX_REPORTED = 500
"""Events in one report."""
MAX_NAMED = 1000
"""VMs that one event names."""

Id = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9_.:-]{0,126}[A-Za-z0-9])?$", to_lower=True),
    Shaped("1 to 128 of letters, digits and inner . _ : -; case does not count"),
]
ApprovalId = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9_.:-]{0,146}[A-Za-z0-9])?$", to_lower=True),
    Shaped("an event's id, a dot and a number"),
]
Text64 = Annotated[str, StringConstraints(max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$"), Shaped(TEXT.format(64))]
Text128 = Annotated[str, StringConstraints(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*$"), Shaped(TEXT.format(128))]
Text300 = Annotated[str, StringConstraints(max_length=300, pattern=r"^[^\x00-\x1f\x7f]*$"), Shaped(TEXT.format(300))]
Vm = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]*$"), Shaped(TEXT.format(128))]


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _capital(value: Any) -> Any:
    return value.capitalize() if isinstance(value, str) else value


PhaseIn = Annotated[NodePhaseName, BeforeValidator(_upper)]


class EntryIn(Strict):
    """What an agent says of one event."""

    event_id: Id
    type: Text64
    status: Annotated[Literal["Scheduled", "Started", "Unknown"], BeforeValidator(_capital)]
    not_before: Time | None = None
    source: Annotated[LedgerSource, BeforeValidator(_capital)] = "Platform"
    duration_s: int = Field(-1, ge=-1, le=31_536_000, description="Seconds of impact; 0: none, -1: not known.")
    resources: list[Vm] = Field(default_factory=list, max_length=MAX_NAMED)
    phase: PhaseIn = Field(description="Where the node stands with it.")
    reason: Text300 | None = None
    observed_ms: int | None = Field(None, ge=0, le=MAX_SEQ, description="Impact that the agent measured.")
    outcome: Literal["completed", "cancelled", "completed or cancelled"] | None = Field(None, description="How it ended, once it is DONE.")


class AgentReportIn(Strict):
    """What an agent says of its node, all of it each time."""

    node: NodeName
    seq: int = Field(ge=1, le=MAX_SEQ, description="Grows with each report, over restarts too.")
    vm: Vm = Field(description="The node's name as the metadata service says it (`compute.name`): what events name.")
    scope: Text300 = Field(description="Availability set or placement group: VMs whose documents are the same.")
    location: Text64 = ""
    fault_domain: Text64 = ""
    boot_id: Text64 = ""
    incarnation: int | None = Field(None, description="Of the document, on this VM; null before the first.")
    disabled: bool = Field(description="The agent has taken the node out of service.")
    events: list[EntryIn] = Field(max_length=MAX_REPORTED)
    caught_up: bool | None = Field(None, description="It is in step with the others, also since it was put back; else only time says so.")
    resource_id: Text300 | None = Field(None, description="The VM's Azure resource id, for the transport `arm`.")


class LeasedOut(Strict):
    """An approval that the agent is to POST, and that it has to itself for so long from the SEND of its report."""

    id: str
    event_id: str
    lease_ms: int
    expires: Stamp


class HeldEventOut(Strict):
    """An event that the agent should not approve by itself yet."""

    event_id: str
    reason: str


class OrderOut(Strict):
    """What the agent is asked to do."""

    id: str
    event_id: str
    do: Literal["prepare", "restore"]


class RehearsalOut(Strict):
    """A synthetic event for the agent's hooks. It is never POSTed."""

    event_id: str
    type: str
    status: Literal["Scheduled", "Started"]
    not_before: Stamp | None
    source: LedgerSource
    duration_s: int
    resources: list[str]


class MonitorsOut(Strict):
    """Who acts for the whole fleet, and who stands by. The epoch counts changes of the primary."""

    primary: str | None
    secondary: str | None
    epoch: int


class RuleOut(Strict):
    """What is done about events that fit. Fields left out fit any."""

    action: Literal["approve", "prepare", "hold", "ignore"]
    type: Maybe[str] = None
    source: Maybe[LedgerSource] = None
    max_seconds: Maybe[int] = Field(default=None, description="Only for impacts known to last at most this long.")


class AgentSettingsOut(Strict):
    """What the fleet's definition asks of its agents: they keep it over restarts, and go by it when the app is away."""

    lead_ms: int = Field(description="How long before NotBefore a node prepares, where its agent's own file does not say.")
    leads_ms: dict[str, int] = Field(description="The same by type of event.")
    require_central: bool = Field(description="Without the app's word nothing prepared is approved; also where the file alone says so.")
    rules: list[RuleOut] = Field(description="The first that fits decides; of it and of the file's the stricter counts.")


class AgentReportAnswer(Strict):
    """What the agent is to know. An event that it has PREPARED and that is not in `hold` may be approved."""

    next_report_ms: int
    approvals: list[LeasedOut]
    hold: list[HeldEventOut]
    commands: list[OrderOut]
    rehearsals: list[RehearsalOut]
    monitors: MonitorsOut
    settings: AgentSettingsOut


class ResultIn(Strict):
    """How an agent's POST of a leased approval went."""

    node: NodeName
    outcome: ApprovalOutcome
    http_status: int | None = Field(None, ge=0, le=999)


class NodePhase(Strict):
    """Where a node stands with an event."""

    phase: NodePhaseName
    reported: Stamp
    reason: Maybe[str] = None


class ApprovalOut(Strict):
    """An approval, or a hold."""

    id: str
    state: GrantState | Literal["held"]
    by: str
    reason: str
    at: Stamp
    expires: Maybe[Stamp] = None
    node: Maybe[str] = Field(default=None, description="Whose agent has it, or had it last.")


class ImpactOut(Strict):
    """What was told of an impact beside what came of it."""

    notice_ms: int | None = Field(description="From the first report to NotBefore.")
    advertised_ms: int | None = Field(description="Null: not known.")
    observed_ms: dict[str, int] = Field(description="As nodes measured it; those that noticed nothing are left out.")
    lasted_ms: int | None = Field(description="From Started to its end; null while it is open, or never seen started.")


class MaintenanceEventOut(Strict):
    """A scheduled event, as the agents' reports come to it."""

    event_id: str
    type: str
    status: LedgerStatus
    scope: str
    source: LedgerSource
    not_before: Stamp | None
    duration_s: int
    resources: list[str]
    first_seen: Stamp
    started: Maybe[Stamp] = None
    ended: Maybe[Stamp] = None
    rehearsal: bool
    nodes: dict[str, NodePhase]
    approval: ApprovalOut | None
    alarms: list[str]
    impact: ImpactOut


class MaintenanceEventList(Strict):
    """A page of events, open ones first, then the latest."""

    items: list[MaintenanceEventOut]
    next: str | None


class ReasonIn(Strict):
    """Why."""

    reason: Note = ""


class DecidedOut(Strict):
    """What was decided."""

    id: str
    state: Literal["granted", "held"]


class RehearseIn(Strict):
    """A rehearsal: the nodes' hooks are run as for an event, without Azure."""

    nodes: list[NodeName] = Field(min_length=1, max_length=MAX_NAMED)
    type: Literal["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"]
    notice: Annotated[Duration, Field(ge=0, le=3_600_000, description="From now to its NotBefore.")] = 300_000
    duration_s: int = Field(9, ge=0, le=3600)


class RehearsedOut(Strict):
    """The synthetic event's id."""

    event_id: str


class DeliveredOut(Strict):
    """The answer to Event Grid."""

    validationResponse: Maybe[str] = Field(default=None, description="Of a subscription that is to be validated: its code.")


class NodeMaintenance(Strict):
    """What a node's agent told last."""

    vm: str
    scope: str
    location: str
    fault_domain: str
    reported: Stamp
    disabled: bool
    leaving: bool = Field(description="Leases are to be elsewhere for now.")
    monitor: Literal["primary", "secondary"] | None
    events: dict[str, NodePhase]
