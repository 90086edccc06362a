"""Approvals: one for an event, given to Azure once, by an agent that the app trusts with it for a few seconds. Pure.

granted -> posted     an agent POSTed it, or Azure Resource Manager took it
        -> closed     the event started, ended, or was gone when the agent looked
        -> expired    NotBefore came first, or it failed too often: Azure goes on by itself
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from ..core.clock import Millis
from .domain_guard import blocked, live, order, too_wide
from .rows import ApprovalRow, EventHold, EventRow, FleetEvents, NodeRow
from .terms import GRANT_LEASE, GRANT_TRIES, MaintenanceTerms

BY_FLEET: Final = "fleet"
_READY: Final = frozenset({"PREPARED", "APPROVED", "STARTED"})
_UNDATED: Final[Millis] = 900_000
"""An event without a readable NotBefore: what Azure gives at most."""
_STEP: Final[Millis] = 1_000
"""Moments are read in whole seconds: an agent may have been given its lease so much later than it says."""

type ApprovalOutcome = Literal["posted", "gone", "refused", "unreachable"]


class Leased(NamedTuple):
    """An approval that an agent has to itself. lease: milliseconds from the SEND of its report."""

    id: str
    event_id: str
    lease: Millis
    expires: Millis


def grant(event: EventRow, by: str, reason: str, now: Millis) -> EventRow:
    """The event with an approval, once: what was granted before stands, but that a person's word takes the place of the fleet's. A hold is
    lifted."""
    if event.due is not None and event.due.by == BY_FLEET != by:
        return replace(event, hold=None, grant=replace(event.due, by=by, reason=reason))
    if event.approval is not None:
        return event if event.hold is None else replace(event, hold=None)
    number = 1 if event.grant is None else int(event.grant.id.rpartition(".")[2]) + 1
    expires = max(now, event.not_before if event.not_before is not None else now + _UNDATED)
    return replace(event, hold=None, grant=ApprovalRow(f"{event.event_id}.{number}", by, reason, now, expires))


def hold(event: EventRow, by: str, reason: str, now: Millis) -> EventRow:
    """The event held: no approval is given out any more. One that an agent is just about to POST may still go out."""
    if event.hold is not None:
        return replace(event, hold=replace(event.hold, by=by, reason=reason))
    kept = event.grant if event.due is None else replace(event.due, state="closed", node="")
    return replace(event, hold=EventHold(f"{event.event_id}.hold", by, reason, now), grant=kept)


def waits_for(event: EventRow, view: FleetEvents, now: Millis, *, hung: bool = False) -> str | None:
    """Which named node has not prepared; None when all have. Nodes without an agent of this fleet are not waited for; hung: nor are those
    whose agent is silent."""
    for node in view.named(event):
        entry = node.entry(event.event_id)
        if (entry is None or entry.phase not in _READY) and not (hung and not live(node, view, now)):
            state = "has not reported it" if entry is None else f"is {entry.phase.lower().replace('_', ' ')}"
            return f"{node.node} {state if live(node, view, now) else 'is silent'}"
    return None


def not_yet(event: EventRow, view: FleetEvents, terms: MaintenanceTerms, now: Millis) -> str | None:
    """Why an approval is not given out now; None when it is. What a person granted does not ask the guard: it was their decision."""
    if event.hold is not None:
        return f"held by {event.hold.by}: {event.hold.reason}" if event.hold.reason else f"held by {event.hold.by}"
    by_hand = event.grant is not None and event.grant.by != BY_FLEET
    # For a machine that hangs nobody else can say anything: by way of Azure's manager a person may go on without it.
    if found := waits_for(event, view, now, hung=by_hand and terms.transport == "arm"):
        return found
    return None if by_hand else blocked(event, view, terms, now)


def staying(event: EventRow, view: FleetEvents, held: Mapping[str, int], terms: MaintenanceTerms, now: Millis) -> str | None:
    """Which prepared node still has partitions, for Azure is not to go on before they have left. What a person granted waits for that as
    long as a hand-off takes. held: partitions by node."""
    given = event.due
    if given is not None and given.by != BY_FLEET and now >= given.at + terms.hand_off:
        return None
    for node in view.named(event):
        entry = node.entry(event.event_id)
        if entry is not None and entry.phase == "PREPARED" and (count := held.get(node.node, 0)):
            return must_leave(node, count)
    return None


def must_leave(node: NodeRow, count: int) -> str:
    """Why an approval waits for a node with so many partitions."""
    return f"{count} partition{'s' if count > 1 else ''} must leave {node.node} first"


def lease(
    event: EventRow, node: NodeRow, view: FleetEvents, held: Mapping[str, int], terms: MaintenanceTerms, now: Millis
) -> tuple[EventRow, Leased | None]:
    """Give the approval to the agent that just reported, if it is its turn. held: partitions by node."""
    given = event.due
    entry = node.entry(event.event_id)
    if given is None or now >= given.expires or terms.transport != "relay" or event.rehearsal:
        return event, None
    if entry is None or not entry.listed or entry.status != "Scheduled" or node.scope != event.scope or event.status != "scheduled":
        return event, None
    if not_yet(event, view, terms, now) is not None or staying(event, view, held, terms, now) is not None:
        return event, None
    if given.node not in ("", node.node) and now < given.until:
        return event, None
    first = view.nodes.get(view.monitors.primary)
    if first is not None and first.node != node.node and not given.epoch and now < given.at + GRANT_LEASE:
        seen = first.entry(event.event_id)
        if live(first, view, now) and seen is not None and seen.listed:
            # The primary acts for the whole fleet, unless it takes too long.
            return event, None
    again = given.node == node.node and now < given.until
    made = replace(given, node=node.node, until=now + GRANT_LEASE + _STEP, epoch=given.epoch + (not again))
    return replace(event, grant=made), Leased(given.id, event.event_id, GRANT_LEASE, given.expires)


def result(event: EventRow, node: str, outcome: ApprovalOutcome, http_status: int) -> EventRow | None:
    """The event after an agent's word of how its POST went; None when the approval was not its own any more."""
    given = event.grant
    if given is None:
        return None
    if given.state == "posted" and given.node == node and outcome == "posted":
        return event
    if given.state != "granted" or given.node != node:
        return None
    if outcome == "posted":
        return replace(event, grant=replace(given, state="posted", until=0, http_status=http_status))
    if outcome == "gone":
        return replace(event, grant=replace(given, state="closed", node="", until=0))
    tries = given.tries + (outcome == "refused")
    spent = tries >= GRANT_TRIES
    made = replace(given, state="expired" if spent else "granted", node="", until=0, tries=tries, http_status=http_status)
    return replace(event, grant=made)


def early(view: FleetEvents, terms: MaintenanceTerms, now: Millis) -> EventRow | None:
    """The next event that the fleet itself approves before its time; None when there is none, or the guard says to wait."""
    for event in sorted(candidates(view.events.values()), key=order):
        waiting = [node for node in view.named(event) if (entry := node.entry(event.event_id)) and entry.phase in ("WAITING", "PREPARED")]
        if waiting and all(live(node, view, now) for node in view.named(event)) and not too_wide(event, view, terms):
            # In their order: a later one does not pass by. What takes too much down is left to Azure, and nobody waits for it.
            return event if blocked(event, view, terms, now, begin=True) is None else None
    return None


def candidates(events: Iterable[EventRow]) -> list[EventRow]:
    """Events that may be approved early."""
    return [each for each in events if each.status == "scheduled" and each.grant is None and each.hold is None and not each.rehearsal]
