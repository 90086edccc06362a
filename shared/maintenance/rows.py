"""The stored rows of a fleet's maintenance: all in one partition of `TocsinMaintenance`, so that one transaction spans them.

    alarms              what is wrong with the fleet's watch over itself, and what was told of it
    event:{event_id}    one scheduled event: what the agents' reports come to, what was decided, how it ended; `fresh` until a day after
    monitors            who acts for the whole fleet, who stands by
    node:{node}         what a node's agent reported last

In key order nodes come last: most reports need what is before them alone. `:maintenance` is a partition of its own: an index row for each
fleet that has agents, with its alarms as the last inspection found them (`figures`). Moments are the storage service's own time, in
milliseconds, as its `Date` header says it: in steps of a second. NotBefore is Azure's wall time, which the storage service's is compared
with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Literal

import orjson

from ..core.clock import Millis
from ..storage.ports import MAX_STRING_UNITS, Props, Row

INDEX: Final = ":maintenance"
"""A partition of its own: no tenant's name is empty."""
ALARMS: Final = "alarms"
MONITORS: Final = "monitors"
EVENTS: Final = ("event:", "event;")
NODES: Final = ("node:", "node;")
"""First key, and the first key after."""

MAX_NODES: Final = 1000
MAX_OPEN: Final = 500
"""Events of one fleet that are open at a time."""
_PIECE: Final = MAX_STRING_UNITS - 1
_PIECES: Final = 8

type LedgerStatus = Literal["scheduled", "started", "completed", "cancelled", "vanished"]
type NodePhaseName = Literal[
    "FOREIGN", "WAITING", "PREPARING", "PREPARED", "PREPARE_FAILED", "APPROVED", "STARTED", "RESTORING", "RESTORE_FAILED", "DONE"
]
type LedgerSource = Literal["Platform", "User"]
type GrantState = Literal["granted", "posted", "closed", "expired"]

OPEN: Final = frozenset({"scheduled", "started"})
LOSES_DISK: Final = frozenset({"Redeploy", "Preempt", "Terminate"})
"""Types after which what was on a local disk is gone."""
REMOVES: Final = frozenset({"Preempt", "Terminate"})
"""Types after which the machine is gone, and its agent with it."""
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
    impact that it measured."""

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

    @property
    def listed(self) -> bool:
        """True while the agent's document lists the event."""
        return self.phase not in ("DONE", "RESTORING", "RESTORE_FAILED")


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node, from its agent's last report.

    vm: its name in documents; scope: what its documents are shared with. at: when the report came. entries: its events. restored: when
    it was last put back into service. caught_up: it has said since that it is in step with the others. leaving: leases were told to leave
    it. resource_id: of the VM, for approvals by way of Azure Resource Manager; '' when it does not say.
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

    def entry(self, event_id: str) -> NodeEntry | None:
        """Return the node's entry about an event; None if it has none."""
        return next((each for each in self.entries if each.event_id == event_id), None)


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """The approval of an event; at most one stands at a time.

    by: who granted it: a person's key, or `fleet`. at: when. expires: NotBefore, when Azure goes on by itself. node: whose agent has it,
    until `until`; epoch: counts leases. tries: how often Azure refused it, http_status: its last answer.
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


@dataclass(frozen=True, slots=True)
class EventHold:
    """An operator's hold: no approval of the event is given out."""

    id: str
    by: str
    reason: str
    at: Millis


@dataclass(frozen=True, slots=True)
class EventRow:
    """A scheduled event, merged from the agents' reports.

    seen: when it was first reported; started, ended: when that was first known. nodes: of a rehearsal, who takes part. phases: how each
    named node stood at the end. observed: milliseconds of impact that nodes measured. listed: an agent's document had it. azure: what
    Event Grid said of its end. cleared: when an agent was first told that it may approve it. returns: how often it came back after its end.
    differs: since when agents tell different things of it, 0 while they do not.
    alarms: what is wrong with it; told: what was published of it.
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

    @property
    def open(self) -> bool:
        """True while the event is scheduled or started."""
        return self.status in OPEN

    @property
    def approval(self) -> ApprovalRow | None:
        """The approval while it is granted or posted; else None."""
        return self.grant if self.grant is not None and self.grant.state in ("granted", "posted") else None

    @property
    def due(self) -> ApprovalRow | None:
        """The approval while it must still be sent to Azure; else None."""
        return self.grant if self.grant is not None and self.grant.state == "granted" else None


@dataclass(frozen=True, slots=True)
class MonitorsRow:
    """The agents that act for the whole fleet. The epoch counts changes of the primary.

    decisions: counts what was decided on where all nodes stand. Two such decisions of one moment both write this row, so one of them is
    made anew.
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


type MaintenanceRow = NodeRow | EventRow | MonitorsRow | AlarmsRow


class TooLarge(ValueError):
    """The content does not fit into a row."""


def props_of(kept: MaintenanceRow) -> Props:
    """Return the row's properties: the content as JSON, in pieces that fit. Raises `TooLarge`."""
    text = orjson.dumps(asdict(kept)).decode()
    # Two units for what is beyond the basic plane, so that no piece is too long.
    wide = len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
    step = _PIECE if wide == len(text) else _PIECE // 2
    pieces = [text[at : at + step] for at in range(0, len(text), step)]
    if len(pieces) > _PIECES:
        raise TooLarge(f"{len(text):,} characters in one row")
    props: Props = {f"json{number}": piece for number, piece in enumerate(pieces)}
    # Reports read the fresh events alone, without the ledger's older ones.
    return props | {"fresh": True}


def _raw(props: Props) -> dict[str, Any]:
    pieces: list[str] = []
    while (piece := props.get(f"json{len(pieces)}")) is not None:
        pieces.append(str(piece))
    found: dict[str, Any] = orjson.loads("".join(pieces))
    return found


def _known[T](kind: type[T], raw: Mapping[str, Any]) -> dict[str, Any]:
    # Fields of a later release are ignored.
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return {name: value for name, value in raw.items() if name in names}


def parse_node(row: Row) -> NodeRow:
    """The inverse of `props_of`."""
    raw = _known(NodeRow, _raw(row.props))
    raw["entries"] = tuple(NodeEntry(**{**_known(NodeEntry, each), "resources": tuple(each["resources"])}) for each in raw["entries"])
    return NodeRow(**raw)


def parse_event(row: Row) -> EventRow:
    """The inverse of `props_of`."""
    raw = _known(EventRow, _raw(row.props))
    for name in ("resources", "nodes", "alarms", "told"):
        raw[name] = tuple(raw[name])
    raw["phases"] = {node: (phase, at) for node, (phase, at) in raw["phases"].items()}
    raw["grant"] = ApprovalRow(**_known(ApprovalRow, raw["grant"])) if raw["grant"] else None
    raw["hold"] = EventHold(**_known(EventHold, raw["hold"])) if raw["hold"] else None
    return EventRow(**raw)


def parse_monitors(row: Row | None) -> MonitorsRow:
    """The inverse of `props_of`."""
    return MonitorsRow(**_known(MonitorsRow, _raw(row.props))) if row is not None else MonitorsRow()


def parse_alarms(row: Row | None) -> AlarmsRow:
    """The inverse of `props_of`."""
    raw = _raw(row.props) if row is not None else {}
    return AlarmsRow(tuple(raw.get("alarms", ())), tuple(raw.get("told", ())))


@dataclass(frozen=True, slots=True)
class FleetEvents:
    """A fleet's maintenance rows as they were read: nodes by name, events by id."""

    nodes: Mapping[str, NodeRow]
    events: Mapping[str, EventRow]
    monitors: MonitorsRow = field(default_factory=MonitorsRow)
    alarms: AlarmsRow = field(default_factory=AlarmsRow)

    def of_scope(self, scope: str) -> Iterable[NodeRow]:
        """The nodes whose documents are shared."""
        return (node for node in self.nodes.values() if node.scope == scope)

    def named(self, event: EventRow) -> list[NodeRow]:
        """The nodes that an event names: by VM name within its scope; of a rehearsal by their own."""
        if event.rehearsal:
            return [self.nodes[name] for name in event.nodes if name in self.nodes]
        vms = set(event.resources)
        return [node for node in self.of_scope(event.scope) if node.vm in vms]
