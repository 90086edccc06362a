"""Decides about a fleet's maintenance, from the rows that were read. Pure. See docs/explain/maintenance.md.

    receive   applies an agent's report: stores it, merges its events, and answers
    sweep     does what is due without a report
    finish    applies the result of an approval
    approve, hold, rehearsal    do what operators ask for

`now` is the storage service's own time, from the answer that brought the view. Every write is conditional on the ETags of that view, so
that only one of two concurrent decisions counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple
from zlib import crc32

from ..checkpoints.turns import PendingImpact
from ..core.clock import Millis
from .azure_names import folded, same_name
from .decisions import approvals as approval_rules
from .decisions import caller_probes, domain_guard, reservations
from .decisions.approvals import ApprovalOutcome, Leased, OtherApprover
from .decisions.caller_probes import ProbeReport
from .decisions.merging import has_departed, merge, settle_event, with_gone
from .decisions.monitors import elect, monitor_alarm
from .latency import ProbePhase
from .rows import LOSES_DISK, MAX_NODES, MAX_OPEN, AlarmsRow, EventRow, FleetEvents, GuardRow, MonitorsRow, NodeEntry, NodeRow
from .rule_settings import MaintenanceSettings
from .timings import (
    APPROVAL_TURN,
    BASELINE_WAIT,
    BUSY_INTERVAL,
    IDLE_INTERVAL,
    KEEP_EVENTS,
    REFUSED_INTERVAL,
    SHARED_INTERVAL_NODES,
    WAITING_ENDS,
    WAITING_INTERVAL,
)

type AgentReportRefusal = Literal["stale-seq", "too-many-nodes", "too-many-events"]

_ASKS_NOTHING: Final = frozenset({"FOREIGN", "APPROVED", "STARTED", "DONE"})
_UNDER_WAY: Final = frozenset({"PREPARING", "PREPARED", "PREPARE_FAILED", "STARTED", "RESTORING", "RESTORE_FAILED"})


class NodeCommand(NamedTuple):
    """A command to an agent."""

    id: str
    event_id: str
    do: Literal["prepare", "restore"]


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """The answer to an agent's report.

    holds: reasons by event id. permissions: the events that the node asks to prepare for, with the reason of a refusal, '' for permission.
    probes: the events for which the agent runs the caller probe, with the phases in which it counts. others: the events that the agents of
    other nodes approve for all. turn: milliseconds from the SEND of the report for which the agent may approve the events that are left.
    """

    next_report: Millis
    approvals: tuple[Leased, ...] = ()
    holds: Mapping[str, str] = field(default_factory=dict)
    orders: tuple[NodeCommand, ...] = ()
    rehearsals: tuple[EventRow, ...] = ()
    monitors: MonitorsRow = field(default_factory=MonitorsRow)
    permissions: Mapping[str, str] = field(default_factory=dict)
    probes: Mapping[str, ProbePhase] = field(default_factory=dict)
    others: Mapping[str, OtherApprover] = field(default_factory=dict)
    turn: Millis = APPROVAL_TURN


@dataclass(frozen=True, slots=True)
class AcceptedAgentReport:
    """The outcome of a report: the rows after it (the same objects where they do not change), and the answer."""

    node: NodeRow
    events: Mapping[str, EventRow]
    monitors: MonitorsRow
    answer: AgentAnswer
    guard: GuardRow


def needs_all_nodes(view: FleetEvents, report: NodeRow, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true if a decision on this report needs the rows of all nodes.

    Mostly false: it does not while no event is open, nor for a report that repeats what a node that asks for nothing has reported.
    """
    if any(caller_probes.may_be_probed(event, settings, now) for event in view.events.values()):
        return True
    if repeats_quietly(view, report):
        return False
    if any(event.open for event in view.events.values()) or any(entry.listed for entry in report.entries):
        return True
    before = view.nodes.get(report.node)
    return (before is None and not view.monitors.secondary) or any(
        (event := view.events.get(entry.event_id)) is not None and event.phases.get(report.node, ("", 0))[0] != entry.phase
        for entry in report.entries
    )


def scopes_to_ask(view: FleetEvents, reports: Iterable[NodeRow], settings: MaintenanceSettings) -> dict[str, str]:
    """Return the events about which other fleets of the tenant are asked before these reports are decided, each with its scope.

    They name VMs without an agent of this fleet, and may be approved soon.
    """
    found = {
        event.event_id: event.scope
        for event in view.events.values()
        if event.status == "scheduled" and view.strangers(event) and _may_be_approved(event, view, settings)
    }
    for node in reports:
        vms = {other.vm.casefold() for other in view.of_scope(node.scope)} | {node.vm.casefold()}
        for entry in node.entries:
            if entry.phase == "PREPARED" and not folded(entry.resources) <= vms:
                found[entry.event_id] = node.scope
    return found


def _may_be_approved(event: EventRow, view: FleetEvents, settings: MaintenanceSettings) -> bool:
    prepared = any((entry := node.entry(event.event_id)) is not None and entry.phase == "PREPARED" for node in view.named(event))
    return prepared or event.due is not None or _is_early(event, settings)


def asks_for_something(report: NodeRow) -> bool:
    """Return true if the answer must say whether the node may prepare or approve, or else concerns an event that lasts on the node."""
    return any(entry.phase not in _ASKS_NOTHING for entry in report.entries)


def _may_be_relayed(event: EventRow) -> bool:
    """Return true if any agent's report may bring the event's approval about: it is granted, or its nodes may be silent."""
    return event.due is not None or (event.source == "User" and event.status == "scheduled" and event.grant is None)


def repeats_quietly(view: FleetEvents, report: NodeRow) -> bool:
    """Return true if a report only shows that its agent still lives: it changes no event, and nothing is decided for the node."""
    before = view.nodes.get(report.node)
    if before is None or asks_for_something(report) or any(_may_be_relayed(event) for event in view.events.values()):
        return False
    if before.entries != report.entries or before.disabled != report.disabled:
        return False
    for entry in report.entries:
        event = view.events.get(entry.event_id)
        if event is None or event.open != entry.listed:
            return False
        if not event.open and event.phases.get(report.node, ("", 0))[0] != entry.phase:
            return False
    return True


def nodes_to_drain(view: FleetEvents, report: NodeRow, settings: MaintenanceSettings) -> set[str]:
    """Return the nodes with partitions that matter for the answer: the reporting one, and those of an event that it may get to approve."""
    granted = {event.event_id for event in view.events.values() if event.grant is not None}
    found = {
        report.node
        for entry in report.entries
        if entry.phase == "PREPARED" or (entry.phase == "WAITING" and (_is_early(entry, settings) or entry.event_id in granted))
    }
    for entry in report.entries:
        event = view.events.get(entry.event_id)
        if event is not None and entry.listed and (event.due is not None or _is_early(event, settings) or len(event.resources) > 1):
            found |= {node.node for node in view.named(event) if (its := node.entry(event.event_id)) and its.phase == "PREPARED"}
    return found


def _is_early(event: EventRow | NodeEntry, settings: MaintenanceSettings) -> bool:
    return settings.approves_early(event.type, event.source, event.duration)


def receive(
    view: FleetEvents,
    report: NodeRow,
    settings: MaintenanceSettings,
    held: Mapping[str, int],
    whole: bool,
    now: Millis,
    most_nodes: int = MAX_NODES,
    probed: ProbeReport | None = None,
    size: int = 0,
) -> AcceptedAgentReport | AgentReportRefusal:
    """Apply an agent's report.

    held: number of partitions that nodes still have. whole: the view has all nodes. most_nodes: nodes that the fleet may have after a new
    one reports. probed: the agent's results of the caller probe. size: nodes of the fleet, as far as known; a whole view shows it. A
    repeated report (the same seq) is answered again, but stored once.
    """
    before = view.nodes.get(report.node)
    if before is not None and report.seq < before.seq:
        return "stale-seq"
    if before is None and len(view.nodes) >= most_nodes:
        return "too-many-nodes"
    node = _updated_node(before, report, now)
    nodes = {**view.nodes, node.node: node}
    events = dict(view.events)
    is_open = sum(event.open for event in events.values())
    # Its own events first: where there is no room, events of other nodes are left out.
    for entry in sorted(node.entries, key=lambda each: each.phase == "FOREIGN"):
        known = events.get(entry.event_id)
        merged = _with_own_approval(merge(known, entry, node, now), entry, before, now)
        if merged is None or merged is known:
            continue
        is_open += merged.open and (known is None or not known.open)
        if is_open > MAX_OPEN:
            if entry.phase != "FOREIGN":
                return "too-many-events"
            is_open -= 1
            continue
        events[entry.event_id] = merged
    events |= with_gone(events, before, node, now)
    events |= caller_probes.with_report(events, before, node, report.caught_up, probed, settings, now)
    after = FleetEvents(nodes, events, view.monitors, view.alarms, view.guard, view.others)
    if whole:
        after = _settle(after, settings, now)
    permissions = reservations.permissions(node, after, settings, now) if whole else {}
    node = replace(node, leaving=must_leave(node, after, settings, now))
    approvals: list[Leased] = []
    leases = held.get(node.node, 0)
    changed = dict(after.events)
    for event in after.events.values():
        kept, leased = approval_rules.lease_approval(event, node, after, held, settings, now) if whole else (event, None)
        changed[event.event_id] = kept
        approvals += [leased] if leased is not None else []
    holds = _holds(node, after, settings, held, frozenset(each.event_id for each in approvals), now)
    monitors = after.monitors
    others: dict[str, OtherApprover] = {}
    turn = APPROVAL_TURN
    for entry in node.entries:
        ready = changed.get(entry.event_id)
        if entry.phase == "PREPARED" and ready is not None and _clears_event(ready, holds):
            changed[ready.event_id] = ready = replace(ready, cleared=now)
            monitors = replace(monitors, decisions=monitors.decisions + 1)
        if ready is not None and _asks_to_approve(entry, ready, node) and entry.event_id not in holds:
            leased_here = any(each.event_id == entry.event_id for each in approvals)
            other = approval_rules.other_approver(ready, node.node, now) if entry.asks_turn and not leased_here else None
            if other is not None:
                others[entry.event_id] = other
            else:
                changed[ready.event_id] = ready = approval_rules.with_turn(ready, node.node, now)
                turn = min(turn, approval_rules.turn_left(ready, node.node, now))
        same_scope = ready is not None and entry.listed and same_name(ready.scope, node.scope)
        if whole and ready is not None and same_scope and approval_rules.may_agree(ready, after, held, settings, now):
            changed[ready.event_id] = replace(ready, agreed=now)
            monitors = replace(monitors, decisions=monitors.decisions + 1)
    urgent = reservations.is_urgent((after.events[event_id] for event_id, why in permissions.items() if why), settings, now)
    probes = caller_probes.order_for(node, after, settings, now) if whole else {}
    answer = AgentAnswer(
        REFUSED_INTERVAL if urgent else BUSY_INTERVAL if probes else next_report(node, after, settings, now, max(size, len(nodes))),
        tuple(approvals),
        holds,
        _commands(node, after, settings, leases, now),
        tuple(_rehearsal_for(each, node, settings, now) for each in changed.values() if caller_probes.rehearses(each, node, settings, now)),
        monitors,
        permissions,
        probes,
        others,
        turn,
    )
    return AcceptedAgentReport(node, changed, monitors, answer, after.guard)


def _asks_to_approve(entry: NodeEntry, event: EventRow, node: NodeRow) -> bool:
    """Return true if an agent may approve an event by itself when its answer allows it."""
    if event.status != "scheduled" or event.rehearsal:
        return False
    return entry.phase == "PREPARED" or (entry.asks_turn and same_name(event.scope, node.scope))


def _with_own_approval(event: EventRow | None, entry: NodeEntry, before: NodeRow | None, now: Millis) -> EventRow | None:
    """Return the event, marked as approved if the agent did that by itself after preparing, because it could not reach the app."""
    prepared = before is not None and (known := before.entry(entry.event_id)) is not None and known.phase == "PREPARED"
    if event is None or event.cleared or not event.open or not prepared or entry.phase != "APPROVED":
        return event
    return replace(event, cleared=now)


def _clears_event(event: EventRow, holds: Mapping[str, str]) -> bool:
    """Return true if an answer with these holds is the first to let an agent approve the event by itself."""
    return event.status == "scheduled" and not event.rehearsal and not event.cleared and event.event_id not in holds


def _rehearsal_for(event: EventRow, node: NodeRow, settings: MaintenanceSettings, now: Millis) -> EventRow:
    """Return a rehearsal as a node sees it: at its time, unless the node's first report after the announcement leaves too little notice."""
    entry, planned = node.entry(event.event_id), event.not_before
    if planned is None:
        return event
    soonest = now + _least_notice(event.type, planned - event.seen, settings)
    return replace(event, not_before=max(planned, soonest) if entry is None else entry.not_before or planned)


def _least_notice(kind: str, notice: Millis, settings: MaintenanceSettings) -> Millis:
    """Return the notice of a rehearsal that each node has in any case: all of it, or the time to move its partitions and to prepare."""
    return min(notice, settings.lead_of(kind) + settings.hand_off)


def sweep(view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> FleetEvents:
    """Return the fleet after everything that is due without a report: ends, expiries, approvals and alarms."""
    after = _settle(view, settings, now)
    after = replace(
        after, nodes={name: node for name, node in after.nodes.items() if not has_departed(node, after, settings.catch_up, now)}
    )
    found = {each for each in (monitor_alarm(after),) if each} | {
        f"domains-down {at}".strip() for at in domain_guard.units_over_quorum(after, settings, now)
    }
    nodes = {name: replace(node, leaving=must_leave(node, after, settings, now)) for name, node in after.nodes.items()}
    return replace(after, nodes=nodes, alarms=replace(view.alarms, alarms=tuple(sorted(found))))


def _settle(view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> FleetEvents:
    events = {event_id: settle_event(event, view, now) for event_id, event in view.events.items()}
    events = {event_id: approval_rules.with_agreement(event, view, settings, now) for event_id, event in events.items()}
    view = replace(view, events=events)
    view = replace(view, guard=reservations.reserve(view, settings, now))
    events = {event_id: _with_alarms(event, reservations.alarms(event, view, settings)) for event_id, event in events.items()}
    view = replace(view, events=events)
    if (event := approval_rules.early_candidate(view, settings, now)) is not None:
        events = {**events, event.event_id: approval_rules.grant(event, approval_rules.BY_FLEET, "the guard agrees", now)}
        view = replace(view, monitors=replace(view.monitors, decisions=view.monitors.decisions + 1))
    view = replace(view, events=events)
    for event in approval_rules.unattended(view, settings, now):
        events = {**events, event.event_id: approval_rules.grant(event, approval_rules.BY_FLEET, "its nodes are silent", now)}
    view = replace(view, events=events)
    return replace(view, monitors=elect(view, now))


def _with_alarms(event: EventRow, more: set[str]) -> EventRow:
    return replace(event, alarms=tuple(sorted({*event.alarms, *more}))) if more else event


def _updated_node(before: NodeRow | None, report: NodeRow, now: Millis) -> NodeRow:
    """Return the node's row after a report, with the fields that reports do not carry."""
    if before is None:
        return replace(report, at=now, caught_up=True)
    if report.seq == before.seq:
        return replace(before, at=max(now, before.at))
    back = before.disabled and not report.disabled
    restored = now if back else before.restored
    # A node that does not report it counts as caught up when the time for it is over.
    caught_up = report.caught_up if back else before.caught_up or report.caught_up
    return replace(report, at=now, restored=restored, caught_up=caught_up, leaving=before.leaving)


def next_report(node: NodeRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis, size: int) -> Millis:
    """Return the longest time until the agent's next report. Idle agents are spread by their names, and those that wait share a rate."""
    busy = any(entry.phase != "DONE" for entry in node.entries)
    invited = any(event.rehearsal and event.open and node.node in event.nodes for event in view.events.values())
    monitors = (view.monitors.primary, view.monitors.secondary)
    if busy and not invited and node.node not in monitors and _only_waits(node, view, settings, now):
        return min(WAITING_INTERVAL, max(BUSY_INTERVAL, BUSY_INTERVAL * size // SHARED_INTERVAL_NODES))
    if busy or invited:
        return BUSY_INTERVAL
    if any(node.node in event.gone for event in view.events.values() if event.open):
        # Its second report may be what ends an event that only silent agents list.
        return WAITING_INTERVAL
    return IDLE_INTERVAL - IDLE_INTERVAL // 10 + crc32(node.node.encode()) % (IDLE_INTERVAL // 5)


def _only_waits(node: NodeRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true if nothing but its own document can change what the node does soon. Its agent reports such a change at once."""
    for entry in node.entries:
        event = view.events.get(entry.event_id)
        if entry.phase in ("FOREIGN", "DONE", "STARTED"):
            continue
        if entry.phase != "WAITING" or entry.asks_turn or event is None or event.rehearsal or event.due is not None:
            return False
        if _impact_time(event, now) - settings.lead_of(event.type) - settings.hand_off - WAITING_ENDS <= now:
            return False
    return True


def _holds(
    node: NodeRow, view: FleetEvents, settings: MaintenanceSettings, held: Mapping[str, int], leased: frozenset[str], now: Millis
) -> dict[str, str]:
    """Return why the node's agent should not approve by itself, by event id. It may approve an event that is not in the result.

    held: number of partitions by node. leased: the events whose approval the agent gets with this answer: it takes no turn of another.
    """
    found: dict[str, str] = {}
    for entry in node.entries:
        event = view.events.get(entry.event_id)
        if event is None or event.rehearsal or event.status != "scheduled" or not entry.listed or entry.phase == "FOREIGN":
            continue
        if entry.phase != "PREPARED":
            if event.hold is not None:
                found[event.event_id] = approval_rules.withhold_reason(event, view, settings, now) or "held"
            continue
        why = approval_rules.withhold_reason(event, view, settings, now) or approval_rules.joint_reason(event, node)
        if why is None and (leases := held.get(node.node, 0)):
            why = approval_rules.drain_text(node, leases)
        if why is None and len(event.resources) > 1:
            # The approval counts for the other nodes, too.
            why = approval_rules.undrained_reason(event, view, held, settings, now)
        if why is None and event.event_id not in leased:
            other = approval_rules.other_approver(event, node.node, now)
            why = None if other is None else f"{other.node} {'has approved' if other.approved else 'approves'} it for all"
        if why is not None:
            found[event.event_id] = why
    return found


def _commands(node: NodeRow, view: FleetEvents, settings: MaintenanceSettings, leases: int, now: Millis) -> tuple[NodeCommand, ...]:
    """Return the node's commands: prepare, where an event is approved before its time; restore again, where a restore failed and Azure
    reports the event as over."""
    found: list[NodeCommand] = []
    for entry in node.entries:
        event = view.events.get(entry.event_id)
        if event is None or event.rehearsal:
            continue
        if entry.phase == "RESTORE_FAILED" and event.azure:
            # The agent need not wait for its back-off, because no impact is to come.
            found.append(NodeCommand(f"{event.event_id}.restore", event.event_id, "restore"))
        approval = event.due if event.status == "scheduled" else None
        if approval is None or event.hold is not None or entry.phase != "WAITING" or entry.asks_turn:
            continue
        if approval.by == approval_rules.BY_FLEET and not settings.approves_early(event.type, event.source, event.duration):
            # It was given because the node was silent. Now that its agent is back, its rules decide whether it prepares.
            continue
        if leases and (approval.by == approval_rules.BY_FLEET or now < approval.at + settings.hand_off):
            # Leases leave before the node prepares; their drain began with the grant. Leases that cannot leave do not stop an operator's
            # grant.
            continue
        # Another fault domain may have gone down since.
        if approval.by != approval_rules.BY_FLEET or domain_guard.block_reason(event, view, settings, now, begin=True) is None:
            found.append(NodeCommand(f"{approval.id}.prepare", event.event_id, "prepare"))
    return tuple(found)


def must_leave(node: NodeRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true if leases must leave the node: from shortly before it prepares until it is back in service."""
    if node.disabled:
        return True
    for entry in node.entries:
        event = view.events.get(entry.event_id)
        if entry.phase in _UNDER_WAY or (entry.phase == "APPROVED" and not domain_guard.is_unaffected(node, entry, event)):
            return True
        waits = entry.phase == "WAITING" and not (entry.asks_turn and event is not None and event.hold is None)
        if waits and event is not None and event.open:
            at = entry.not_before if event.rehearsal and entry.not_before is not None else _impact_time(event, now)
            if event.due is not None or now >= at - settings.lead_of(event.type) - settings.hand_off:
                return True
    return False


def _impact_time(event: EventRow, now: Millis) -> Millis:
    """Return the time at which Azure may proceed by itself; `now` if NotBefore cannot be read."""
    return event.not_before if event.not_before is not None else now


def pending(view: FleetEvents, now: Millis) -> dict[str, PendingImpact]:
    """Return the next impact of each node. Nodes without one are left out."""
    found: dict[str, PendingImpact] = {}
    for event in view.events.values():
        if not event.open or event.rehearsal:
            continue
        at = _impact_time(event, now) if event.status == "scheduled" else now
        for node in view.named(event):
            entry = node.entry(event.event_id)
            if entry is not None and domain_guard.is_unaffected(node, entry, event):
                continue
            known = found.get(node.node)
            loses = event.type in LOSES_DISK or (known is not None and known.loses_disk)
            found[node.node] = PendingImpact(min(at, known.at) if known is not None else at, loses)
    return found


# -- operators


def approve(event: EventRow, by: str, reason: str, now: Millis) -> EventRow | None:
    """Return the event with its approval granted; None when it has started, or is over."""
    return approval_rules.grant(event, by, reason, now) if event.status == "scheduled" and not event.rehearsal else None


def hold(event: EventRow, by: str, reason: str, now: Millis) -> EventRow | Literal["already-started", "already-approved"]:
    """Return the event held, or why it cannot be."""
    if event.status != "scheduled" or event.rehearsal:
        return "already-started"
    if event.by_agent is not None or (event.grant is not None and event.grant.state == "posted"):
        return "already-approved"
    return approval_rules.hold(event, by, reason, now)


def finish(
    view: FleetEvents, approval: str, node: str, outcome: ApprovalOutcome, http_status: int, now: Millis
) -> EventRow | Literal["lease-lost"] | None:
    """Return the event after an agent reported the result of its POST; None when there is no such approval."""
    event = view.events.get(approval.rpartition(".")[0])
    if event is None or event.grant is None:
        return None
    if event.grant.id != approval:
        return "lease-lost"
    return approval_rules.apply_result(event, node, outcome, http_status, now) or "lease-lost"


def rehearsal(event_id: str, view: FleetEvents, nodes: tuple[str, ...], kind: str, notice: Millis, duration: int, now: Millis) -> EventRow:
    """Return a synthetic event for some nodes, marked as a rehearsal: no agent POSTs its approval."""
    vms = tuple(view.nodes[name].vm for name in nodes)
    scope = view.nodes[nodes[0]].scope
    return EventRow(event_id, scope, kind, "scheduled", now, now + notice, "User", duration, vms, rehearsal=True, nodes=nodes)


def rehearses_by(event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> Millis:
    """Return the time by which a new rehearsal's impact begins on its nodes: at its NotBefore, unless that is before their next reports.

    Agents cannot be called. An idle one hears of the rehearsal by its next report.
    """
    reports = [now, *(view.nodes[name].at + BASELINE_WAIT for name in event.nodes)]
    # With a caller probe, another agent must hear of the rehearsal first, and bring its results.
    baseline = BASELINE_WAIT if settings.probe is not None else 0
    planned = event.not_before if event.not_before is not None else now
    return max(planned, max(reports) + baseline + _least_notice(event.type, planned - now, settings))


def may_rehearse(node: NodeRow, now: Millis) -> bool:
    """Return true unless a node's agent has missed its reports. An idle agent reports every 5 minutes."""
    return now - node.at <= BASELINE_WAIT


def may_forget(node: NodeRow, view: FleetEvents, now: Millis) -> bool:
    """Return true if a person may remove a node: its agent has fallen silent."""
    return not domain_guard.is_live(node, view, now)


def is_forgettable(event: EventRow, now: Millis) -> bool:
    """Return true if the ledger need not keep an event any longer."""
    return not event.open and now - event.ended > KEEP_EVENTS


def unpublished(kept: EventRow | AlarmsRow) -> list[str]:
    """Return the notices that are not published yet: `scheduled` and the other states, `+alarm`, and `-alarm` once the alarm is over."""
    now = [f"+{alarm}" for alarm in kept.alarms]
    if isinstance(kept, EventRow):
        now.append(kept.status)
    over = [f"-{each[1:]}" for each in kept.told if each.startswith("+") and each not in now]
    return [each for each in now if each not in kept.told] + over


def mark_published(kept: EventRow | AlarmsRow, done: list[str]) -> tuple[str, ...]:
    """Return the published notices after those in `done`."""
    over = {f"+{each[1:]}" for each in done if each.startswith("-")}
    return tuple(sorted((set(kept.told) | {each for each in done if not each.startswith("-")}) - over))
