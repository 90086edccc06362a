"""Request and response models of maintenance (api.md). The suffix of a duration's name is its unit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from ..web.fields.error_texts import TEXT, Shaped
from ..web.fields.types import Duration, Maybe, NodeName, Note, Stamp, Strict, Time
from .decisions.approvals import ApprovalOutcome
from .decisions.caller_probes import MAX_PROBED, ProbeVerdict
from .latency import BUCKETS, ProbePhase
from .rows import GrantState, LedgerSource, LedgerStatus, NodePhaseName
from .rule_settings import GuardMode
from .story import MAX_REPORTED_STEPS, ReportedStep

MAX_SEQ = 2**53 - 1
MAX_REPORTED = 500
"""Largest number of events in one report."""
MAX_NAMED = 1000
"""Largest number of VMs that one event names."""
MAX_COUNT = 2**31 - 1
"""Largest count of probes."""

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
    """An agent's entry about one event."""

    event_id: Id
    type: Text64
    status: Annotated[Literal["Scheduled", "Started", "Unknown"], BeforeValidator(_capital)]
    not_before: Time | None = None
    source: Annotated[LedgerSource, BeforeValidator(_capital)] = "Platform"
    duration_s: int = Field(-1, ge=-1, le=31_536_000, description="Seconds of impact. 0: none, -1: unknown.")
    resources: list[Vm] = Field(default_factory=list, max_length=MAX_NAMED)
    phase: PhaseIn = Field(description="Phase of the node for this event.")
    at_once: bool | None = Field(
        None, description="true: the node needs no preparation, and its agent approves the event when it is its turn."
    )
    reason: Text300 | None = None
    observed_ms: int | None = Field(None, ge=0, le=MAX_SEQ, description="Impact that the agent measured.")
    outcome: Literal["completed", "cancelled", "completed or cancelled"] | None = Field(
        None, description="Outcome, once the phase is DONE."
    )


class LatenciesIn(Strict):
    """Results of a caller probe since the agent's process began."""

    buckets: dict[Annotated[int, Field(ge=0, lt=BUCKETS)], Annotated[int, Field(ge=1, le=MAX_COUNT)]] = Field(
        default_factory=dict, description="Number of answers by bucket: bucket n ends at 0.1 * 2 ** (n / 4) ms."
    )
    failures: int = Field(0, ge=0, le=MAX_COUNT)
    slow: int = Field(0, ge=0, le=MAX_COUNT, description="Answers slower than the bound on p99.")


class ProbeIn(Strict):
    """An agent's caller probe. Only for an app whose last answer had `settings.probe`."""

    state: Annotated[Text300, Field(min_length=1, description="ready, or the reason why this agent cannot run the probe.")]
    run: Text64 = Field("", description="Names the agent's process.")
    events: dict[Id, dict[ProbePhase, LatenciesIn]] = Field(default_factory=dict, max_length=MAX_PROBED)


class StepIn(Strict):
    """A step of an event on the agent's node, for the story of the event."""

    number: int = Field(ge=1, le=MAX_SEQ, description="Distinguishes the steps of a node: a step that is reported again is kept once.")
    at: Time = Field(description="Time by the node's clock.")
    event_id: Id
    action: Text64
    text: Text300
    level: Literal["info", "warning"] = "info"

    def reported(self) -> ReportedStep:
        """Return the step for the rules."""
        return ReportedStep(self.number, self.at, self.event_id, self.action, self.text, self.level == "warning")


class AgentReportIn(Strict):
    """An agent's report of its node. Each report is complete."""

    node: NodeName
    seq: int = Field(ge=1, le=MAX_SEQ, description="Number that grows with each report, also over restarts.")
    vm: Vm = Field(description="The VM's name in the metadata service (`compute.name`), by which events name it.")
    scope: Text300 = Field(description="Availability set or placement group. Its VMs share one document of events.")
    location: Text64 = ""
    fault_domain: Text64 = ""
    boot_id: Text64 = ""
    incarnation: int | None = Field(None, description="Incarnation of the last document on this VM; null before the first.")
    disabled: bool = Field(description="The agent has taken the node out of service.")
    events: list[EntryIn] = Field(max_length=MAX_REPORTED)
    caught_up: bool | None = Field(
        None, description="true: the node has caught up since it was restored. Otherwise it counts as caught up after `catch_up`."
    )
    resource_id: Text300 | None = Field(None, description="The VM's Azure resource id, for the transport `arm`.")
    lead_ms: int | None = Field(
        None, ge=0, le=MAX_COUNT, description="The longest lead that the node's own file sets. Without it, the fleet's leads count."
    )
    probe: ProbeIn | None = Field(None, description="State and results of the fleet's caller probe.")
    steps: list[StepIn] | None = Field(
        None, max_length=MAX_REPORTED_STEPS, description="Steps since the last report. Without it, changes of phases are the steps."
    )
    sent: Time | None = Field(None, description="Time of the report by the node's clock, to correct the times of steps.")


class LeasedOut(Strict):
    """An approval that the agent should POST. It is leased for `lease_ms` from the SEND of the report."""

    id: str
    event_id: str
    lease_ms: int
    expires: Stamp


class HeldEventOut(Strict):
    """An event that the agent should not approve by itself yet."""

    event_id: str
    reason: str


class OtherApproverOut(Strict):
    """An event that the agent of another node approves for all nodes that it names."""

    event_id: str
    node: str
    approved: bool = Field(description="true: it has approved the event.")


class PermissionOut(Strict):
    """Permission to prepare for an event, or its refusal."""

    state: Literal["granted", "refused"]
    reason: Maybe[str] = Field(default=None, description="Reason of the refusal.")
    reserved: Maybe[Stamp] = Field(default=None, description="Time since which the event has its reservation.")


class AskedOut(PermissionOut):
    """The answer to a node that waits to prepare for an event."""

    event_id: str


class OrderOut(Strict):
    """A command to the agent."""

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
    """The agents that act for the whole fleet. The epoch counts changes of the primary."""

    primary: str | None
    secondary: str | None
    epoch: int


class RuleOut(Strict):
    """The action for matching events. A field that is left out matches any event."""

    action: Literal["approve", "prepare", "hold", "ignore"]
    type: Maybe[str] = None
    source: Maybe[LedgerSource] = None
    max_seconds: Maybe[int] = Field(default=None, description="Matches only impacts known to last at most this, in seconds.")


class ProbeSettingsOut(Strict):
    """The fleet's caller probe, as agents run it."""

    url: Maybe[str] = None
    command: Maybe[str] = None
    every_ms: int
    timeout_ms: int
    slow_ms: Maybe[int] = Field(default=None, description="The bound on p99: slower answers are counted.")


class ProbeOrderOut(Strict):
    """The events for which the agent probes now, with the phase in which its probes count for each."""

    events: dict[str, ProbePhase]


class AgentSettingsOut(Strict):
    """The fleet's settings for its agents. They keep them over restarts, and use them while the app cannot be reached."""

    lead_ms: int = Field(description="Time before NotBefore at which a node prepares, if its agent's own file sets none.")
    leads_ms: dict[str, int] = Field(description="Lead times by type of event.")
    require_central: bool = Field(
        description="true: an agent that prepared approves an event only with the app's consent. The agent's file can require it, too."
    )
    rules: list[RuleOut] = Field(
        description="The first rule that matches decides. If the agent's file has a matching rule too, the stricter of the two counts."
    )
    catch_up_ms: int = Field(description="Time for which a restored node counts as down, unless its agent reports earlier.")
    guard: GuardMode = Field(description="prepare: an agent waits for permission before it prepares. approve: it needs none.")
    probe: Maybe[ProbeSettingsOut] = None


class AgentReportAnswer(Strict):
    """The answer to an agent's report. The agent may approve an event that it reported as PREPARED or with `at_once`, unless it is in
    `hold` or `others`."""

    next_report_ms: int
    steps: int = Field(description="Largest number of steps that the app takes in a report.")
    approvals: list[LeasedOut]
    hold: list[HeldEventOut]
    others: list[OtherApproverOut]
    turn_ms: int = Field(description="Time from the SEND of the report for which the agent may approve what this answer leaves to it.")
    permissions: list[AskedOut] = Field(description="Answers to a node that waits to prepare. Empty with the guard `approve`.")
    commands: list[OrderOut]
    rehearsals: list[RehearsalOut]
    monitors: MonitorsOut
    settings: AgentSettingsOut
    probe: Maybe[ProbeOrderOut] = None


class ResultIn(Strict):
    """The result of an agent's POST of a leased approval."""

    node: NodeName
    outcome: ApprovalOutcome
    http_status: int | None = Field(None, ge=0, le=999)


class NodePhase(Strict):
    """A node's phase for an event. UNREPORTED: the event names the node, and its agent has not reported it."""

    phase: NodePhaseName | Literal["UNREPORTED"]
    reported: Stamp
    reason: Maybe[str] = None
    permission: Maybe[PermissionOut] = Field(default=None, description="With the guard `prepare`, while the node waits to prepare.")


class ApprovalOut(Strict):
    """An approval, or a hold."""

    id: str
    state: GrantState | Literal["held"]
    by: str
    reason: str
    at: Stamp
    expires: Maybe[Stamp] = None
    node: Maybe[str] = Field(default=None, description="Node of the agent that has the approval, or had it last.")


class ImpactOut(Strict):
    """The announced impact beside the measured one."""

    notice_ms: int | None = Field(description="Time from the first report to NotBefore.")
    advertised_ms: int | None = Field(description="Announced duration; null: unknown.")
    observed_ms: dict[str, int] = Field(description="Impact as measured by nodes. Nodes without a measured impact are left out.")
    lasted_ms: int | None = Field(description="Time from its start to its end; null while it is open, or if its start was not seen.")


class LatenciesOut(Strict):
    """Callers' latency in one phase of an event."""

    probes: int
    failures: int = Field(description="Probes without a good answer in time.")
    p50_ms: float | None = Field(description="Median latency of the answers; null without answers. At most 19 % too high.")
    p99_ms: float | None = Field(description="p99 of the answers. It is above the bound only if the bound is really passed.")


class BoundOut(Strict):
    """The limits of what callers may notice of maintenance."""

    p99_ms: Maybe[int] = None
    failures: Maybe[float] = None


class CallerProbeOut(Strict):
    """The results of the caller probe for an event."""

    verdict: ProbeVerdict = Field(
        description="pending: probes go on. within: no bound is passed. not-measured: there is no result while a node caught up."
    )
    passed: list[str] = Field(description="A sentence for each bound that is passed.")
    bound: Maybe[BoundOut] = None
    phases: dict[ProbePhase, LatenciesOut] = Field(description="Results by phase. Phases without probes are left out.")
    nodes: list[str] = Field(description="Nodes with agents that probed.")


class MaintenanceEventOut(Strict):
    """A scheduled event, merged from the agents' reports."""

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
    permission: Maybe[PermissionOut] = Field(default=None, description="Permission of its nodes to prepare; only with the guard `prepare`.")
    alarms: list[str]
    impact: ImpactOut
    waits_for: Maybe[list[str]] = Field(default=None, description="The things that a rehearsal waits for before its nodes begin.")
    catch_up_ms: Maybe[dict[str, int]] = Field(
        default=None, description="Time from each node's return to service until its agent reported that it has caught up."
    )
    probe: Maybe[CallerProbeOut] = None


class MaintenanceEventList(Strict):
    """A page of events, open ones first, then the latest."""

    items: list[MaintenanceEventOut]
    next: str | None


class StoryStepOut(Strict):
    """A step of an event's story."""

    at: Stamp
    node: str | None = Field(description="The node that the step is about; null: the whole event.")
    by: Literal["agent", "app"] = Field(description="The part that reports or decides it: a node's agent or the app.")
    action: str
    text: str
    level: Literal["info", "warning"]
    clock_corrected_ms: Maybe[int] = Field(default=None, description="Time that was added, because the node's clock is wrong.")


class StoryOut(Strict):
    """A page of an event's story, in order of time."""

    items: list[StoryStepOut]
    next: str | None


class ReasonIn(Strict):
    """A reason."""

    reason: Note = ""


class DecidedOut(Strict):
    """The decision."""

    id: str
    state: Literal["granted", "held"]


class RehearseIn(Strict):
    """A rehearsal: the nodes' hooks run as for an event, without Azure."""

    nodes: list[NodeName] = Field(min_length=1, max_length=MAX_NAMED)
    type: Literal["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"]
    notice: Annotated[Duration, Field(ge=0, le=3_600_000, description="Time from now to its NotBefore.")] = 300_000
    duration_s: int = Field(9, ge=0, le=3600)


class RehearsedOut(Strict):
    """The synthetic event's id."""

    event_id: str
    begins_by: Stamp = Field(
        description="Latest time of its NotBefore: later than the notice asks for if agents may not hear of it in time."
    )


class DeliveredOut(Strict):
    """The answer to Event Grid."""

    validationResponse: Maybe[str] = Field(default=None, description="Validation code of a new subscription.")


class NodeMaintenance(Strict):
    """The last report of a node's agent."""

    vm: str
    scope: str
    location: str
    fault_domain: str
    reported: Stamp
    disabled: bool
    leaving: bool = Field(description="true: leases must leave this node for now.")
    monitor: Literal["primary", "secondary"] | None
    probe: Maybe[str] = Field(default=None, description="ready, or the reason why the agent cannot run the fleet's caller probe.")
    events: dict[str, NodePhase]
