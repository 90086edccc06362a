"""What becomes of a fleet's maintenance: pure decisions over what was read of it. See docs/maintenance.md.

    receive   an agent's report: what is stored of it, what its events come to, and the answer
    sweep     the same without a report
    finish    how an approval went
    approve, hold, rehearse    what people ask for

`now` is the storage service's own time, as the answer said that brought the view. Every write rests on the ETags of that view, so that
of two decisions at once one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple
from zlib import crc32

from ..checkpoints.turns import PendingImpact
from ..core.clock import Millis
from . import approvals as granting
from . import domain_guard
from .approvals import ApprovalOutcome, Leased
from .merging import departed, merge, settled
from .monitors import elected, lacking
from .rows import LOSES_DISK, MAX_NODES, MAX_OPEN, AlarmsRow, EventRow, FleetEvents, MonitorsRow, NodeRow
from .terms import IDLE, NEAR, MaintenanceTerms

type AgentReportRefusal = Literal["stale-seq", "too-many-nodes", "too-many-events"]

KEEP: Final[Millis] = 90 * 86_400_000
"""How long the ledger keeps an event that is over."""
_GOING: Final = frozenset({"PREPARING", "PREPARED", "PREPARE_FAILED", "STARTED", "RESTORING", "RESTORE_FAILED"})


class NodeCommand(NamedTuple):
    """What an agent is asked to do."""

    id: str
    event_id: str
    do: Literal["prepare", "restore"]


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """What an agent is told. holds: event id to reason."""

    next_report: Millis
    approvals: tuple[Leased, ...] = ()
    holds: Mapping[str, str] = field(default_factory=dict)
    orders: tuple[NodeCommand, ...] = ()
    rehearsals: tuple[EventRow, ...] = ()
    monitors: MonitorsRow = field(default_factory=MonitorsRow)


@dataclass(frozen=True, slots=True)
class AcceptedAgentReport:
    """A report's outcome: rows as they are then (the same objects where they do not change), and the answer."""

    node: NodeRow
    events: Mapping[str, EventRow]
    monitors: MonitorsRow
    answer: AgentAnswer


def wants_all(view: FleetEvents, told: NodeRow) -> bool:
    """Whether a decision on this report needs what the other nodes reported: not while nothing goes on, and that is most of the time."""
    if any(event.open for event in view.events.values()) or any(entry.listed for entry in told.entries):
        return True
    before = view.nodes.get(told.node)
    return (before is None and not view.monitors.secondary) or any(
        (event := view.events.get(entry.event_id)) is not None and event.phases.get(told.node, ("", 0))[0] != entry.phase
        for entry in told.entries
    )


def asks_for_leases(view: FleetEvents, told: NodeRow, terms: MaintenanceTerms) -> set[str]:
    """The nodes on whose partitions an answer to this report depends: its own, and those of an event whose approval it may get."""
    granted = {event.event_id for event in view.events.values() if event.grant is not None}
    found = {
        told.node
        for entry in told.entries
        if entry.phase == "PREPARED" or (entry.phase == "WAITING" and (terms.early or entry.event_id in granted))
    }
    for entry in told.entries:
        event = view.events.get(entry.event_id)
        if event is not None and entry.listed and (event.due is not None or terms.early):
            found |= {node.node for node in view.named(event) if (its := node.entry(event.event_id)) and its.phase == "PREPARED"}
    return found


def receive(
    view: FleetEvents, told: NodeRow, terms: MaintenanceTerms, held: Mapping[str, int], whole: bool, now: Millis
) -> AcceptedAgentReport | AgentReportRefusal:
    """An agent's report. told: as it says; held: partitions that nodes still have. whole: the view has all nodes.

    A repeat (the same seq) is answered anew and stored once.
    """
    before = view.nodes.get(told.node)
    if before is not None and told.seq < before.seq:
        return "stale-seq"
    if before is None and len(view.nodes) >= MAX_NODES:
        return "too-many-nodes"
    node = _noted(before, told, now)
    nodes = {**view.nodes, node.node: node}
    events = dict(view.events)
    is_open = sum(event.open for event in events.values())
    # Its own first: of others' events those are left out that there is no room for.
    for entry in sorted(node.entries, key=lambda each: each.phase == "FOREIGN"):
        known = events.get(entry.event_id)
        merged = merge(known, entry, node, now)
        if merged is None or merged is known:
            continue
        is_open += merged.open and (known is None or not known.open)
        if is_open > MAX_OPEN:
            if entry.phase != "FOREIGN":
                return "too-many-events"
            is_open -= 1
            continue
        events[entry.event_id] = merged
    after = FleetEvents(nodes, events, view.monitors, view.alarms)
    if whole:
        after = _settle(after, terms, now)
    node = replace(node, leaving=leaving(node, after, terms, now))
    approvals: list[Leased] = []
    leases = held.get(node.node, 0)
    changed = dict(after.events)
    for event in after.events.values():
        kept, leased = granting.lease(event, node, after, held, terms, now) if whole else (event, None)
        changed[event.event_id] = kept
        approvals += [leased] if leased is not None else []
    holds = _holds(node, after, terms, leases, now)
    monitors = after.monitors
    for entry in node.entries:
        ready = changed.get(entry.event_id)
        if entry.phase == "PREPARED" and ready is not None and _clears(ready, holds):
            changed[ready.event_id] = replace(ready, cleared=now)
            monitors = replace(monitors, decisions=monitors.decisions + 1)
    answer = AgentAnswer(
        next_report(node, after, now),
        tuple(approvals),
        holds,
        _orders(node, after, terms, leases, now),
        tuple(_heard_of(each, node, now) for each in changed.values() if each.rehearsal and each.open and node.node in each.nodes),
        monitors,
    )
    return AcceptedAgentReport(node, changed, monitors, answer)


def _clears(event: EventRow, holds: Mapping[str, str]) -> bool:
    """Whether an answer with these holds is the first to let an agent approve the event by itself."""
    return event.status == "scheduled" and not event.rehearsal and not event.cleared and event.event_id not in holds


def _heard_of(event: EventRow, node: NodeRow, now: Millis) -> EventRow:
    """A rehearsal as a node is told of it: with its whole notice from when it first hears of it, which may be minutes late."""
    entry, planned = node.entry(event.event_id), event.not_before
    if planned is None:
        return event
    return replace(event, not_before=max(planned, now + planned - event.seen) if entry is None else entry.not_before or planned)


def sweep(view: FleetEvents, terms: MaintenanceTerms, now: Millis) -> FleetEvents:
    """The fleet without a report: what ended, expired, is due, or is wrong."""
    after = _settle(view, terms, now)
    after = replace(after, nodes={name: node for name, node in after.nodes.items() if not departed(node, after, terms.catch_up, now)})
    found = {each for each in (lacking(after),) if each} | {f"domains-down {at}".strip() for at in domain_guard.over(after, terms, now)}
    nodes = {name: replace(node, leaving=leaving(node, after, terms, now)) for name, node in after.nodes.items()}
    return replace(after, nodes=nodes, alarms=replace(view.alarms, alarms=tuple(sorted(found))))


def _settle(view: FleetEvents, terms: MaintenanceTerms, now: Millis) -> FleetEvents:
    events = {event_id: settled(event, view, now) for event_id, event in view.events.items()}
    view = replace(view, events=events)
    if terms.early and (event := granting.early(view, terms, now)) is not None:
        events = {**events, event.event_id: granting.grant(event, granting.BY_FLEET, "the guard agrees", now)}
        view = replace(view, monitors=replace(view.monitors, decisions=view.monitors.decisions + 1))
    view = replace(view, events=events)
    return replace(view, monitors=elected(view, now))


def _noted(before: NodeRow | None, told: NodeRow, now: Millis) -> NodeRow:
    """The node's row after a report: with what outlives a report."""
    if before is None:
        return replace(told, at=now, caught_up=True)
    if told.seq == before.seq:
        return replace(before, at=max(now, before.at))
    back = before.disabled and not told.disabled
    restored = now if back else before.restored
    # Who does not say counts as in step when the time for it is over.
    caught_up = told.caught_up if back else before.caught_up or told.caught_up
    return replace(told, at=now, restored=restored, caught_up=caught_up, leaving=before.leaving)


def next_report(node: NodeRow, view: FleetEvents, now: Millis) -> Millis:
    """When the agent should report again at the latest. Idle ones are spread by their names."""
    busy = any(entry.phase != "DONE" for entry in node.entries)
    invited = any(event.rehearsal and event.open and node.node in event.nodes for event in view.events.values())
    if busy or invited:
        return NEAR
    return IDLE - IDLE // 10 + crc32(node.node.encode()) % (IDLE // 5)


def _holds(node: NodeRow, view: FleetEvents, terms: MaintenanceTerms, leases: int, now: Millis) -> dict[str, str]:
    """Why the node's agent should not approve by itself, event by event; what is not held it may."""
    found: dict[str, str] = {}
    for entry in node.entries:
        event = view.events.get(entry.event_id)
        if event is None or event.rehearsal or event.status != "scheduled" or not entry.listed or entry.phase == "FOREIGN":
            continue
        if entry.phase != "PREPARED":
            if event.hold is not None:
                found[event.event_id] = granting.not_yet(event, view, terms, now) or "held"
            continue
        why = granting.not_yet(event, view, terms, now)
        if why is None and leases:
            why = granting.must_leave(node, leases)
        if why is None and event.due is not None and event.due.node not in ("", node.node):
            why = "the approval is with another agent"
        if why is not None:
            found[event.event_id] = why
    return found


def _orders(node: NodeRow, view: FleetEvents, terms: MaintenanceTerms, leases: int, now: Millis) -> tuple[NodeCommand, ...]:
    """Prepare, where the event is approved before its time; restore once more, where Azure says that it is over and a restore failed."""
    found: list[NodeCommand] = []
    for entry in node.entries:
        event = view.events.get(entry.event_id)
        if event is None or event.rehearsal:
            continue
        if entry.phase == "RESTORE_FAILED" and event.azure:
            # It need not wait for its back-off: nothing more is to come.
            found.append(NodeCommand(f"{event.event_id}.restore", event.event_id, "restore"))
        given = event.due if event.status == "scheduled" else None
        if given is None or event.hold is not None or entry.phase != "WAITING":
            continue
        if leases and (given.by == granting.BY_FLEET or now < given.at + terms.hand_off):
            # Leases leave before it prepares; they were told to with the grant. What cannot leave does not stop a person.
            continue
        # Another domain may have come to its own time since.
        if given.by != granting.BY_FLEET or domain_guard.blocked(event, view, terms, now, begin=True) is None:
            found.append(NodeCommand(f"{given.id}.prepare", event.event_id, "prepare"))
    return tuple(found)


def leaving(node: NodeRow, view: FleetEvents, terms: MaintenanceTerms, now: Millis) -> bool:
    """Whether leases should be elsewhere: from shortly before the node prepares until it is back in service."""
    if node.disabled:
        return True
    for entry in node.entries:
        event = view.events.get(entry.event_id)
        if entry.phase in _GOING:
            return True
        if entry.phase == "WAITING" and event is not None and event.open:
            at = entry.not_before if event.rehearsal and entry.not_before is not None else _time(event, now)
            if event.due is not None or now >= at - terms.lead_of(event.type) - terms.hand_off:
                return True
    return False


def _time(event: EventRow, now: Millis) -> Millis:
    """When Azure may go on by itself; what cannot be read is taken as now."""
    return event.not_before if event.not_before is not None else now


def pending(view: FleetEvents, now: Millis) -> dict[str, PendingImpact]:
    """The next impact that each node is to expect; nodes that expect none are not in it."""
    found: dict[str, PendingImpact] = {}
    for event in view.events.values():
        if not event.open or event.rehearsal:
            continue
        at = _time(event, now) if event.status == "scheduled" else now
        for node in view.named(event):
            entry = node.entry(event.event_id)
            if entry is not None and entry.phase == "APPROVED" and not node.disabled:
                # Its agent found that it does not hit.
                continue
            known = found.get(node.node)
            loses = event.type in LOSES_DISK or (known is not None and known.loses_disk)
            found[node.node] = PendingImpact(min(at, known.at) if known is not None else at, loses)
    return found


# -- people


def approve(event: EventRow, by: str, reason: str, now: Millis) -> EventRow | None:
    """The event with its approval granted; None when it has started, or is over."""
    return granting.grant(event, by, reason, now) if event.status == "scheduled" and not event.rehearsal else None


def hold(event: EventRow, by: str, reason: str, now: Millis) -> EventRow | Literal["already-started", "already-approved"]:
    """The event held."""
    if event.status != "scheduled" or event.rehearsal:
        return "already-started"
    if event.grant is not None and event.grant.state == "posted":
        return "already-approved"
    return granting.hold(event, by, reason, now)


def finish(
    view: FleetEvents, approval: str, node: str, outcome: ApprovalOutcome, http_status: int
) -> EventRow | Literal["lease-lost"] | None:
    """The event after an agent's word of how its POST went; None when there is no such approval."""
    event = view.events.get(approval.rpartition(".")[0])
    if event is None or event.grant is None:
        return None
    if event.grant.id != approval:
        return "lease-lost"
    return granting.result(event, node, outcome, http_status) or "lease-lost"


def rehearsal(event_id: str, view: FleetEvents, nodes: tuple[str, ...], kind: str, notice: Millis, duration: int, now: Millis) -> EventRow:
    """A synthetic event for some nodes, marked as one: no agent POSTs it."""
    vms = tuple(view.nodes[name].vm for name in nodes)
    scope = view.nodes[nodes[0]].scope
    return EventRow(event_id, scope, kind, "scheduled", now, now + notice, "User", duration, vms, rehearsal=True, nodes=nodes)


def forgettable(event: EventRow, now: Millis) -> bool:
    """Whether the ledger need not keep an event any longer."""
    return not event.open and now - event.ended > KEEP


def untold(kept: EventRow | AlarmsRow) -> list[str]:
    """What has not been published of it yet: `scheduled` and the other states, `+alarm`, and `-alarm` once it is over."""
    now = [f"+{alarm}" for alarm in kept.alarms]
    if isinstance(kept, EventRow):
        now.append(kept.status)
    over = [f"-{each[1:]}" for each in kept.told if each.startswith("+") and each not in now]
    return [each for each in now if each not in kept.told] + over


def published(kept: EventRow | AlarmsRow, done: list[str]) -> tuple[str, ...]:
    """What has been told after `done` was."""
    over = {f"+{each[1:]}" for each in done if each.startswith("-")}
    return tuple(sorted((set(kept.told) | {each for each in done if not each.startswith("-")}) - over))
