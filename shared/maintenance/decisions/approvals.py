"""Decides about approvals: one per event, sent to Azure once, by an agent that holds a lease of some seconds on it. Pure.

granted -> posted     an agent POSTed it, or Azure Resource Manager accepted it
        -> closed     the event started, ended, or was gone when the agent looked
        -> expired    NotBefore came first, or it failed too often: Azure proceeds by itself
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from ...core.clock import Millis
from ..azure_names import same_name
from ..rows import ApprovalRow, ApprovalTurn, EventHold, EventRow, FleetEvents, NodeRow, OtherNode
from ..rule_settings import MaintenanceSettings
from ..timings import APPROVAL_TURN, GRANT_LEASE, GRANT_TRIES
from .domain_guard import approval_order, block_reason, is_live, too_wide_reason

BY_FLEET: Final = "fleet"
_READY: Final = frozenset({"PREPARED", "APPROVED", "STARTED"})
_UNDATED_NOTICE: Final[Millis] = 900_000
"""Notice that is assumed for an event without a readable NotBefore: the longest that Azure gives."""
_CLOCK_STEP: Final[Millis] = 1_000
"""Resolution of stored times: an agent may have received its lease this much later than the row says."""

type ApprovalOutcome = Literal["posted", "gone", "refused", "unreachable"]


class OtherApprover(NamedTuple):
    """The node whose agent approves an event for all, or (`approved`) has approved it."""

    node: str
    approved: bool


class Leased(NamedTuple):
    """An approval leased to one agent. lease: milliseconds from the SEND of its report."""

    id: str
    event_id: str
    lease: Millis
    expires: Millis


def grant(event: EventRow, by: str, reason: str, now: Millis) -> EventRow:
    """Return the event with its one approval granted, and without a hold.

    An approval that was granted before stays, except that an operator's grant replaces that of the fleet.
    """
    if event.due is not None and event.due.by == BY_FLEET != by:
        return replace(event, hold=None, grant=replace(event.due, by=by, reason=reason))
    if event.approval is not None:
        return event if event.hold is None else replace(event, hold=None)
    number = 1 if event.grant is None else int(event.grant.id.rpartition(".")[2]) + 1
    expires = max(now, event.not_before if event.not_before is not None else now + _UNDATED_NOTICE)
    return replace(event, hold=None, grant=ApprovalRow(f"{event.event_id}.{number}", by, reason, now, expires))


def hold(event: EventRow, by: str, reason: str, now: Millis) -> EventRow:
    """Return the event held: no approval is given out any more. An approval that an agent is about to POST may still go out."""
    if event.hold is not None:
        return replace(event, hold=replace(event.hold, by=by, reason=reason))
    kept = event.grant if event.due is None else replace(event.due, state="closed", node="")
    return replace(event, hold=EventHold(f"{event.event_id}.hold", by, reason, now), grant=kept)


def unprepared_reason(event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> str | None:
    """Return which named node has not prepared; None when all have.

    VMs without an agent of this fleet are left to `strangers_reason`. Once a person has approved the event, nodes with a silent agent are
    not waited for.
    """
    for node in view.named(event):
        entry = node.entry(event.event_id)
        ready = entry is not None and (entry.phase in _READY or entry.asks_turn)
        if not ready and not _is_passed_over(node, event, view, settings, now):
            state = "has not reported it" if entry is None else f"is {entry.phase.lower().replace('_', ' ')}"
            return f"{node.node} {state if is_live(node, view, now) else 'is silent'}"
    return None


def _is_passed_over(node: NodeRow, event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true if an approval does not wait for a node that has not prepared, because its agent is silent.

    Live agents report a user's event as soon as they see it, so a person who approves one does not wait for a node that has not.
    """
    if is_silent(node, event, settings, now):
        return True
    by_hand = event.grant is not None and event.grant.by != BY_FLEET
    return by_hand and (not is_live(node, view, now) or (event.source == "User" and node.entry(event.event_id) is None))


def is_silent(node: NodeRow, event: EventRow, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true if a user's event does not wait for a node: its agent has not reported for too long since the event was first seen."""
    return event.source == "User" and now - max(node.at, event.seen) > settings.silence


def is_unattended(event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true if a user's event names nodes of this fleet, and the agents of all of them are silent and have not approved it."""
    named = view.named(event)
    return bool(named) and all(
        is_silent(node, event, settings, now) and ((entry := node.entry(event.event_id)) is None or entry.phase != "APPROVED")
        for node in named
    )


def withhold_reason(event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> str | None:
    """Return why an approval is not given out now; None when it may be.

    An operator's grant does not wait for VMs of other fleets, nor does a user's event whose nodes are all silent.
    """
    if found := own_reason(event, view, settings, now):
        return found
    by_hand = event.grant is not None and event.grant.by != BY_FLEET
    return None if by_hand or is_unattended(event, view, settings, now) else strangers_reason(event, view, settings)


def strangers_reason(event: EventRow, view: FleetEvents, settings: MaintenanceSettings) -> str | None:
    """Return which VM without an agent of this fleet keeps the event from being approved; None when none does.

    Another fleet of the tenant must agree for its own VMs. Those that nobody knows may be unprepared.
    """
    known = view.others.get(event.event_id, {})
    for vm in view.strangers(event):
        other = known.get(vm.casefold())
        if other is not None and not other.agreed:
            return f"{vm} of fleet {other.fleet} is not ready"
        if other is None and settings.strangers == "hold":
            return f"{vm} has no agent, so nobody knows whether it is prepared"
    return None


def known_elsewhere(events: Mapping[str, EventRow | None], scope: str) -> dict[str, OtherNode]:
    """Return what other fleets of a tenant know of the VMs that an event names, by folded name. events: their rows of the event, by fleet.

    A VM may still be known to a fleet that it has left, so all that know it must agree. A fleet that an operator holds does not.
    """
    found: dict[str, OtherNode] = {}
    for fleet, event in events.items():
        if event is None or event.status != "scheduled" or not same_name(event.scope, scope):
            continue
        agreed = bool(event.agreed) and event.hold is None
        for vm in event.own:
            if vm not in found or found[vm].agreed:
                found[vm] = OtherNode(fleet, agreed)
    return found


def with_agreement(event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> EventRow:
    """Return the event with its nodes of this fleet where it names others too, and without an agreement that no longer holds.

    The guard's agreement stays: an agent of another fleet may be about to approve the event.
    """
    if not event.open:
        return event
    own = tuple(sorted({node.vm.casefold() for node in view.named(event)})) if view.strangers(event) else ()
    event = event if own == event.own else replace(event, own=own)
    if event.agreed and (event.hold is not None or unprepared_reason(event, view, settings, now) is not None):
        return replace(event, agreed=0)
    return event


def may_agree(event: EventRow, view: FleetEvents, held: Mapping[str, int], settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true if this fleet begins to let agents of other fleets approve an event for its nodes. held: partitions by node."""
    if event.agreed or not event.own or event.status != "scheduled":
        return False
    by_hand = event.grant is not None and event.grant.by != BY_FLEET
    if not by_hand and not settings.approves(event.type, event.source, event.duration):
        return False
    return own_reason(event, view, settings, now) is None and undrained_reason(event, view, held, settings, now) is None


def own_reason(event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> str | None:
    """Return why this fleet does not agree to an approval now; None when it does. VMs of other fleets are not asked for.

    The domain guard does not apply to an operator's grant, nor to a user's event whose nodes are all silent: they may be down already.
    """
    if event.hold is not None:
        return f"held by {event.hold.by}: {event.hold.reason}" if event.hold.reason else f"held by {event.hold.by}"
    by_hand = event.grant is not None and event.grant.by != BY_FLEET
    if found := unprepared_reason(event, view, settings, now):
        return found
    if by_hand:
        return None
    if event.not_before is None:
        return "its NotBefore cannot be read: approve it by hand, or let it start by itself"
    return None if is_unattended(event, view, settings, now) else block_reason(event, view, settings, now)


def standing_turn(event: EventRow, now: Millis) -> ApprovalTurn | None:
    """Return the turn to approve an event; None when no agent has one.

    A turn ends by time, because an agent that has one may be lost, or its own file may keep it from approving.
    """
    return event.turn if event.turn is not None and now - event.turn.at < APPROVAL_TURN + _CLOCK_STEP else None


def with_turn(event: EventRow, node: str, now: Millis) -> EventRow:
    """Return the event with the turn of a node's agent, which is allowed to approve it by the answer to its report."""
    return event if standing_turn(event, now) is not None else replace(event, turn=ApprovalTurn(node, now))


def other_approver(event: EventRow, node: str, now: Millis) -> OtherApprover | None:
    """Return the node whose agent approves an event in place of this node's; None when this one may. Azure wants one approval."""
    if event.by_agent is not None and event.by_agent.node != node:
        return OtherApprover(event.by_agent.node, True)
    approval = event.approval
    if approval is not None and approval.state == "posted" and approval.node != node:
        return OtherApprover(approval.node or "the app", True)
    if approval is not None and approval.node not in ("", node) and now < approval.until:
        return OtherApprover(approval.node, False)
    turn = standing_turn(event, now)
    return None if turn is None or turn.node == node else OtherApprover(turn.node, False)


def turn_left(event: EventRow, node: str, now: Millis) -> Millis:
    """Return the time for which a node's agent may still approve an event by itself; all of it when it has no turn of its own."""
    turn = standing_turn(event, now)
    return APPROVAL_TURN if turn is None or turn.node != node else max(0, turn.at + APPROVAL_TURN - now)


def joint_reason(event: EventRow, node: NodeRow) -> str | None:
    """Return why the agent of a prepared node cannot approve an event for the other nodes that it names; None when it may."""
    if len(event.resources) < 2 or same_name(event.scope, node.scope):
        return None
    # The app knows the nodes of the event's own scope only, so this node's companions may not be prepared.
    return "the event is reported in two scopes"


def undrained_reason(event: EventRow, view: FleetEvents, held: Mapping[str, int], settings: MaintenanceSettings, now: Millis) -> str | None:
    """Return which prepared node still has partitions; None when none has. They must leave before Azure proceeds.

    An operator's grant waits for that only as long as a hand-off takes. held: number of partitions by node.
    """
    approval = event.due
    if approval is not None and approval.by != BY_FLEET and now >= approval.at + settings.hand_off:
        return None
    for node in view.named(event):
        entry = node.entry(event.event_id)
        if entry is not None and entry.phase == "PREPARED" and (count := held.get(node.node, 0)):
            return drain_text(node, count)
    return None


def drain_text(node: NodeRow, count: int) -> str:
    """Return the reason for which an approval waits for a node with `count` partitions."""
    return f"{count} partition{'s' if count > 1 else ''} must leave {node.node} first"


def lease_approval(
    event: EventRow, node: NodeRow, view: FleetEvents, held: Mapping[str, int], settings: MaintenanceSettings, now: Millis
) -> tuple[EventRow, Leased | None]:
    """Lease the approval to the agent that just reported, if it may have it. held: number of partitions by node."""
    approval = event.due
    entry = node.entry(event.event_id)
    if approval is None or now >= approval.expires or settings.transport != "relay" or event.rehearsal:
        return event, None
    if entry is None or not entry.listed or entry.status != "Scheduled" or event.status != "scheduled":
        return event, None
    if not same_name(node.scope, event.scope):
        return event, None
    if withhold_reason(event, view, settings, now) is not None or undrained_reason(event, view, held, settings, now) is not None:
        return event, None
    if approval.node not in ("", node.node) and now < approval.until:
        return event, None
    turn = standing_turn(event, now)
    if event.by_agent is not None or (turn is not None and turn.node != node.node):
        # Azure has the approval, or an agent that may send it by itself is doing so.
        return event, None
    first = view.nodes.get(view.monitors.primary)
    waits = turn is None and not approval.epoch and now < approval.at + GRANT_LEASE
    if first is not None and first.node != node.node and waits:
        seen = first.entry(event.event_id)
        if is_live(first, view, now) and seen is not None and seen.listed:
            # The primary monitor acts for the whole fleet, unless it takes too long.
            return event, None
    again = approval.node == node.node and now < approval.until
    made = replace(approval, node=node.node, until=now + GRANT_LEASE + _CLOCK_STEP, epoch=approval.epoch + (not again))
    return replace(event, grant=made), Leased(approval.id, event.event_id, GRANT_LEASE, approval.expires)


def apply_result(event: EventRow, node: str, outcome: ApprovalOutcome, http_status: int, now: Millis) -> EventRow | None:
    """Return the event after an agent reported the result of its POST; None when the agent no longer had the approval."""
    approval = event.grant
    if approval is None:
        return None
    if approval.state == "posted" and approval.node == node and outcome == "posted":
        return event
    if approval.state != "granted" or approval.node != node:
        return None
    if outcome == "posted":
        return replace(event, grant=replace(approval, state="posted", until=0, http_status=http_status))
    if outcome == "gone":
        return replace(event, grant=replace(approval, state="closed", node="", until=0))
    tries = approval.tries + (outcome == "refused")
    spent = tries >= GRANT_TRIES
    made = replace(approval, state="expired" if spent else "granted", node="", until=0, tries=tries, http_status=http_status)
    return replace(event, grant=replace(made, failing=approval.failing or now))


def early_candidate(view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> EventRow | None:
    """Return the next event that the fleet itself approves before its time; None when there is none, or the guard requires to wait."""
    found = candidates(view.events.values(), settings)
    if settings.guard == "prepare":
        # Nodes prepare at once for an event that the fleet approves.
        found = [event for event in found if event.event_id in view.guard.reserved]
    for event in sorted(found, key=approval_order):
        waiting = [node for node in view.named(event) if (entry := node.entry(event.event_id)) and entry.phase in ("WAITING", "PREPARED")]
        if (
            waiting
            and all_live(event, view, now)
            and not too_wide_reason(event, view, settings)
            and not strangers_reason(event, view, settings)
        ):
            # In their order: a later event does not overtake. An event that takes too much down is left to Azure and delays no other.
            return event if block_reason(event, view, settings, now, begin=True) is None else None
    return None


def all_live(event: EventRow, view: FleetEvents, now: Millis) -> bool:
    """Return true if the agents of all nodes that an event names report."""
    return all(is_live(node, view, now) for node in view.named(event))


def unattended(view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> list[EventRow]:
    """Return the users' events that the fleet itself approves, because no agent of a named node can."""
    return [
        event
        for event in ungranted(view.events.values())
        if settings.approves(event.type, event.source, event.duration) and is_unattended(event, view, settings, now)
    ]


def candidates(events: Iterable[EventRow], settings: MaintenanceSettings) -> list[EventRow]:
    """Return the events that may be approved early."""
    return [each for each in ungranted(events) if settings.approves_early(each.type, each.source, each.duration)]


def ungranted(events: Iterable[EventRow]) -> list[EventRow]:
    """Return the events that the fleet may approve. One without a readable NotBefore waits for a person, or for its start."""
    open_events = [each for each in events if each.status == "scheduled" and each.grant is None and each.hold is None]
    return [each for each in open_events if not each.rehearsal and each.not_before is not None]
