"""The stored rows of a fleet's maintenance: all in one partition of `TocsinMaintenance`, so that one transaction spans them.

    alarms              the alarms of the fleet itself, and the notices that were published about them
    event:{event_id}    one scheduled event: merged reports, decisions, result; `fresh` until a day after its end
    guard               the reservations of the domain guard
    monitors            the agents that act for the whole fleet: primary and secondary
    node:{node}         the last report of a node's agent

In key order nodes come last, because most reports need only the rows before them. `:maintenance` is a partition of its own: an index row
for each fleet that has agents, with its alarms as the last inspection found them (`figures`). Times are the storage service's own time, in
milliseconds, from its `Date` header: in steps of a second. NotBefore is Azure's wall time; it is compared with the storage service's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from ..core.clock import Millis
from ..engine.json_codec import JsonCodec
from ..storage.ports import Props, Row
from .azure_names import folded
from .latency import Latencies, LatencyBound, ProbePhase

INDEX: Final = ":maintenance"
"""A partition of its own: no tenant's name is empty."""
ALARMS: Final = "alarms"
GUARD: Final = "guard"
MONITORS: Final = "monitors"
EVENTS: Final = ("event:", "event;")
NODES: Final = ("node:", "node;")
"""First key, and the first key after."""

MAX_NODES: Final = 1000
MAX_OPEN: Final = 500
"""Events of one fleet that are open at a time."""

type LedgerStatus = Literal["scheduled", "started", "completed", "cancelled", "vanished"]
type NodePhaseName = Literal[
    "FOREIGN", "WAITING", "PREPARING", "PREPARED", "PREPARE_FAILED", "APPROVED", "STARTED", "RESTORING", "RESTORE_FAILED", "DONE"
]
type LedgerSource = Literal["Platform", "User"]
type GrantState = Literal["granted", "posted", "closed", "expired"]

OPEN: Final = frozenset({"scheduled", "started"})
LOSES_DISK: Final = frozenset({"Redeploy", "Preempt", "Terminate"})
"""Types of events that erase local disks."""
REMOVES: Final = frozenset({"Preempt", "Terminate"})
"""Types of events that remove the machine and its agent."""
REHEARSAL: Final = "rehearsal-"
"""Prefix of the ids of rehearsals."""


def event_key(event_id: str) -> str:
    """Row key of an event; ids are case folded."""
    return EVENTS[0] + event_id.lower()


def node_key(node: str) -> str:
    """Row key of a node."""
    return NODES[0] + node


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """One agent's entry about one event. status: as its document lists it; DONE entries are not listed any more. observed: milliseconds of
    impact that it measured. at_once: the node needs no preparation, and its agent approves the event when it is its turn."""

    event_id: str
    type: str
    status: Literal["Scheduled", "Started"]
    phase: NodePhaseName
    not_before: Millis | None = None
    source: LedgerSource = "Platform"
    duration: int = -1
    resources: tuple[str, ...] = ()
    reason: str = ""
    observed: Millis = 0
    outcome: str = ""
    at_once: bool = False

    @property
    def asks_turn(self) -> bool:
        """True while the agent may approve the event without preparation, and has not."""
        return self.at_once and self.phase == "WAITING" and self.status == "Scheduled"

    @property
    def listed(self) -> bool:
        """True while the agent's document lists the event."""
        return self.phase not in ("DONE", "RESTORING", "RESTORE_FAILED")


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node, from its agent's last report.

    vm: its name in documents. scope: names the nodes that get the same documents. at: time of the report. entries: its events.
    restored: time of its last return to service. caught_up: it has reported since then that it is in step with the others.
    leaving: leases were asked to leave it. resource_id: of the VM, for approvals through Azure Resource Manager; '' if not reported. probe:
    `ready` if the agent can run the fleet's caller probe, else the reason why it cannot; '' if it did not say. lead: the longest of the
    leads in the node's own file; 0 if it sets none.
    """

    node: str
    vm: str
    scope: str
    seq: int
    at: Millis
    location: str = ""
    domain: str = ""
    boot_id: str = ""
    incarnation: int | None = None
    disabled: bool = False
    resource_id: str = ""
    entries: tuple[NodeEntry, ...] = ()
    restored: Millis = 0
    caught_up: bool = True
    leaving: bool = False
    probe: str = ""
    lead: Millis = 0

    def entry(self, event_id: str) -> NodeEntry | None:
        """Return the node's entry about an event; None if it has none."""
        return next((each for each in self.entries if each.event_id == event_id), None)


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """The approval of an event; at most one stands at a time.

    by: a person's key, or `fleet`. at: time of the approval. expires: NotBefore, when Azure goes on by itself. node: the node of the agent
    that has it until `until`. epoch: counts its leases. tries: number of refusals by Azure. http_status: Azure's last answer. failing: time
    since which it could not be sent to Azure; 0 while it did not fail.
    """

    id: str
    by: str
    reason: str
    at: Millis
    expires: Millis
    state: GrantState = "granted"
    node: str = ""
    until: Millis = 0
    epoch: int = 0
    tries: int = 0
    http_status: int = 0
    failing: Millis = 0


@dataclass(frozen=True, slots=True)
class EventHold:
    """An operator's hold: no approval of the event is given out."""

    id: str
    by: str
    reason: str
    at: Millis


@dataclass(frozen=True, slots=True)
class AgentApproval:
    """An approval that an agent sent to Azure by itself. at: time of the first report of it."""

    node: str
    at: Millis


@dataclass(frozen=True, slots=True)
class ApprovalTurn:
    """The turn of one node's agent to approve an event by itself, since `at`, for `APPROVAL_TURN`."""

    node: str
    at: Millis


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """One agent's results of the caller probe for an event, by phase. run: names the process, which counts from 0."""

    run: str
    phases: Mapping[ProbePhase, Latencies]


@dataclass(frozen=True, slots=True)
class EventRow:
    """A scheduled event, merged from the agents' reports.

    seen: time of the first report. started, ended: times at which these were first known. nodes: the participants of a rehearsal.
    phases: state of each named node at the end. observed: milliseconds of impact that nodes measured. listed: an agent's document had it.
    azure: the end that Event Grid reported. cleared: time at which an agent was first allowed to approve it. returns: number of times it
    came back after its end. differs: time since which agents report different things about it; 0 while they agree. alarms: its alarms.
    told: the notices that were published about it. probes: results of the caller probe by the agent's node; '' has those of processes that
    have ended. bound: the fleet's bound on them when the last one came. caught_up: milliseconds that each node needed to catch up, where
    its agent reported it. own: of an event that also names VMs without an agent of this fleet, those with one. agreed: time since which
    this fleet lets agents of other fleets approve it, because its own nodes are ready; 0 if it does not. gone: the first nodes whose
    agents stopped listing it, each with the time of the first such report. by_agent: its approval by the agent of a node that it names.
    turn: the node whose agent may approve it for a while, and no other one.
    """

    event_id: str
    scope: str
    type: str
    status: LedgerStatus
    seen: Millis
    not_before: Millis | None = None
    source: LedgerSource = "Platform"
    duration: int = -1
    resources: tuple[str, ...] = ()
    started: Millis = 0
    ended: Millis = 0
    rehearsal: bool = False
    nodes: tuple[str, ...] = ()
    phases: Mapping[str, tuple[str, Millis]] = field(default_factory=dict)
    observed: Mapping[str, Millis] = field(default_factory=dict)
    listed: bool = False
    azure: Literal["", "completed", "cancelled"] = ""
    cleared: Millis = 0
    returns: int = 0
    differs: Millis = 0
    grant: ApprovalRow | None = None
    hold: EventHold | None = None
    alarms: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    probes: Mapping[str, ProbeRun] = field(default_factory=dict)
    bound: LatencyBound | None = None
    caught_up: Mapping[str, Millis] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    agreed: Millis = 0
    gone: Mapping[str, Millis] = field(default_factory=dict)
    by_agent: AgentApproval | None = None
    turn: ApprovalTurn | None = None

    @property
    def open(self) -> bool:
        """True while the event is scheduled or started."""
        return self.status in OPEN

    @property
    def approval(self) -> ApprovalRow | None:
        """The approval while it is granted or posted; else None."""
        return self.grant if self.grant is not None and self.grant.state in ("granted", "posted") else None

    @property
    def is_under_way(self) -> bool:
        """True once an agent might approve the event for nodes that had prepared: its impact comes at any moment."""
        return bool(self.cleared or self.agreed) or (self.grant is not None and self.grant.epoch > 0)

    @property
    def due(self) -> ApprovalRow | None:
        """The approval while it must still be sent to Azure; else None."""
        return self.grant if self.grant is not None and self.grant.state == "granted" else None


@dataclass(frozen=True, slots=True)
class MonitorsRow:
    """The agents that act for the whole fleet. The epoch counts changes of the primary.

    decisions: counts the decisions that depend on the state of all nodes. Two such decisions at the same time both write this row, so one
    of them loses and is repeated.
    """

    primary: str = ""
    secondary: str = ""
    epoch: int = 0
    since: Millis = 0
    decisions: int = 0


@dataclass(frozen=True, slots=True)
class AlarmsRow:
    """The alarms of the fleet itself, and the notices that were published about them."""

    alarms: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GuardRow:
    """The reservations of the domain guard: events with nodes that may prepare, each with the time of its reservation.

    They are not in the rows of events: two decisions on reservations at the same time both write this row, so one of them loses and is
    repeated.
    """

    reserved: Mapping[str, Millis] = field(default_factory=dict)


type MaintenanceRow = NodeRow | EventRow | MonitorsRow | AlarmsRow | GuardRow


_NODE: Final = JsonCodec(NodeRow)
_EVENT: Final = JsonCodec(EventRow)
_MONITORS: Final = JsonCodec(MonitorsRow)
_ALARMS: Final = JsonCodec(AlarmsRow)
_GUARD: Final = JsonCodec(GuardRow)
_CODECS: Final[Mapping[type[MaintenanceRow], JsonCodec[Any]]] = {
    NodeRow: _NODE,
    EventRow: _EVENT,
    MonitorsRow: _MONITORS,
    AlarmsRow: _ALARMS,
    GuardRow: _GUARD,
}


def encode_row(value: MaintenanceRow) -> Props:
    """Return the row's properties. Raises `TooLarge`."""
    # Reports read the fresh events alone, without the ledger's older ones.
    return _CODECS[type(value)].encode(value) | {"fresh": True}


def parse_node(row: Row) -> NodeRow:
    """Return the node in a row."""
    return _NODE.decode(row.props)


def parse_event(row: Row) -> EventRow:
    """Return the scheduled event in a row."""
    return _EVENT.decode(row.props)


def parse_monitors(row: Row | None) -> MonitorsRow:
    """Return the monitors in a row. Without a row there are none."""
    return _MONITORS.decode(row.props) if row is not None else MonitorsRow()


def parse_alarms(row: Row | None) -> AlarmsRow:
    """Return the fleet's alarms in a row. Without a row there are none."""
    return _ALARMS.decode(row.props) if row is not None else AlarmsRow()


def parse_guard(row: Row | None) -> GuardRow:
    """Return the reservations in a row. Without a row there are none."""
    return _GUARD.decode(row.props) if row is not None else GuardRow()


class OtherNode(NamedTuple):
    """A VM with an agent of another fleet of the tenant. agreed: that fleet lets others approve the event that names it."""

    fleet: str
    agreed: bool


@dataclass(frozen=True, slots=True)
class FleetEvents:
    """A fleet's maintenance rows as they were read: nodes by name, events by id. others: what other fleets of the tenant know about VMs
    without an agent of this fleet, by event and by folded name."""

    nodes: Mapping[str, NodeRow]
    events: Mapping[str, EventRow]
    monitors: MonitorsRow = field(default_factory=MonitorsRow)
    alarms: AlarmsRow = field(default_factory=AlarmsRow)
    guard: GuardRow = field(default_factory=GuardRow)
    others: Mapping[str, Mapping[str, OtherNode]] = field(default_factory=dict)
    _scopes: dict[str, dict[str, list[NodeRow]]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The nodes by scope and VM name, both case folded; filled at the first question, as the next two."""
    _reports: dict[str, list[tuple[NodeRow, NodeEntry]]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _seen: dict[str, Millis] = field(default_factory=dict, init=False, repr=False, compare=False)

    def of_scope(self, scope: str) -> Iterable[NodeRow]:
        """The nodes whose documents are shared."""
        return (node for nodes in self._by_scope().get(scope.casefold(), {}).values() for node in nodes)

    def named(self, event: EventRow) -> list[NodeRow]:
        """The nodes that an event names: by VM name within its scope; of a rehearsal by their own."""
        if event.rehearsal:
            return [self.nodes[name] for name in event.nodes if name in self.nodes]
        vms = self._by_scope().get(event.scope.casefold(), {})
        return [node for vm in sorted(folded(event.resources)) for node in vms.get(vm, ())]

    def strangers(self, event: EventRow) -> list[str]:
        """The VMs that an event names and that have no agent of this fleet."""
        if event.rehearsal or len(event.resources) < 2:
            return []
        vms = self._by_scope().get(event.scope.casefold(), {})
        return [vm for vm in event.resources if vm.casefold() not in vms]

    def reports(self, event_id: str) -> Sequence[tuple[NodeRow, NodeEntry]]:
        """The nodes whose agents have reported an event, each with its entry."""
        if not self._reports:
            for node in self.nodes.values():
                for entry in node.entries:
                    found = self._reports.setdefault(entry.event_id, [])
                    if not found or found[-1][0] is not node:
                        found.append((node, entry))
        return self._reports.get(event_id, ())

    def first_seen(self, scope: str) -> Millis | None:
        """The time of the first report of the oldest open event of a scope, rehearsals aside; None if there is none."""
        if not self._seen:
            for event in self.events.values():
                if event.open and not event.rehearsal:
                    folded_scope = event.scope.casefold()
                    self._seen[folded_scope] = min(event.seen, self._seen.get(folded_scope, event.seen))
        return self._seen.get(scope.casefold())

    def _by_scope(self) -> dict[str, dict[str, list[NodeRow]]]:
        # A wave has an event for each of many machines: without the index each event would look at all nodes.
        if not self._scopes:
            for node in self.nodes.values():
                self._scopes.setdefault(node.scope.casefold(), {}).setdefault(node.vm.casefold(), []).append(node)
        return self._scopes
