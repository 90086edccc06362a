"""Which fault domains may be down at once: what an early approval waits for. Pure.

Azure goes on at NotBefore whatever is decided here; the guard orders what comes before that, and warns.
"""

from __future__ import annotations

from typing import Final

from ..core.clock import Millis
from .rows import EventRow, FleetEvents, NodeRow
from .terms import IDLE_SILENCE, NEAR_SILENCE, MaintenanceTerms

_BEGUN: Final = frozenset({"PREPARING", "PREPARED"})
_STRUCK: Final = frozenset({"STARTED", "RESTORING", "RESTORE_FAILED"})


def live(node: NodeRow, view: FleetEvents, now: Millis) -> bool:
    """Whether the node's agent is heard of as often as it should be: every few seconds while an event is open in its scope."""
    silence = now - node.at
    if silence <= NEAR_SILENCE:
        return True
    near = any(
        each.open and not each.rehearsal and each.scope == node.scope and now - each.seen > NEAR_SILENCE for each in view.events.values()
    )
    return not near and silence <= IDLE_SILENCE and not any(each.listed for each in node.entries)


def unit(node: NodeRow, terms: MaintenanceTerms) -> str:
    """What fault domains are counted within."""
    return {"location": node.location, "scope": node.scope, "fleet": ""}[terms.per]


def order(event: EventRow) -> tuple[int, Millis, str]:
    """Events that were approved, or may be being approved now, come first, by when; the others by their NotBefore. Ids break ties."""
    if event.approval is not None:
        return (0, event.approval.at, event.event_id)
    if event.cleared:
        return (0, event.cleared, event.event_id)
    return (1, event.not_before if event.not_before is not None else event.seen, event.event_id)


def domains(event: EventRow, view: FleetEvents, terms: MaintenanceTerms) -> list[tuple[str, set[str]]]:
    """The fault domains of each quorum unit that an event names."""
    found: dict[str, set[str]] = {}
    for node in view.named(event):
        found.setdefault(unit(node, terms), set()).add(node.domain)
    return sorted(found.items())


def too_wide(event: EventRow, view: FleetEvents, terms: MaintenanceTerms) -> str | None:
    """Why the guard never agrees to an event, whatever else goes on; None when it may."""
    for _, mine in domains(event, view, terms):
        if len(mine) > terms.domains_down:
            return f"it takes {len(mine)} fault domains down at once: {', '.join(sorted(mine))}"
    return None


def blocked(event: EventRow, view: FleetEvents, terms: MaintenanceTerms, now: Millis, *, begin: bool = False) -> str | None:
    """Why the nodes of an event should not go down now; None when they may. begin: none of them has begun, so that whoever has, also for a
    later event, goes first."""
    if wide := too_wide(event, view, terms):
        return wide
    for at, mine in domains(event, view, terms):
        others: dict[str, str] = {}
        for node in view.nodes.values():
            if (
                unit(node, terms) == at
                and node.domain not in mine
                and node.domain not in others
                and (why := down(node, view, terms, now, None if begin else event))
            ):
                others[node.domain] = f"{node.node} of fault domain {node.domain or '(none)'} {why}"
        if len(mine) + len(others) > terms.domains_down:
            return others[min(others)]
    return None


def down(node: NodeRow, view: FleetEvents, terms: MaintenanceTerms, now: Millis, ahead_of: EventRow | None = None) -> str | None:
    """Why a node counts as down; None when it serves. ahead_of: what only this event's successors have begun does not count."""
    for entry in node.entries:
        event = view.events.get(entry.event_id)
        if entry.phase in _STRUCK or (entry.phase == "APPROVED" and node.disabled):
            return f"is {entry.phase.lower().replace('_', ' ')}"
        later = ahead_of is not None and event is not None and order(event) > order(ahead_of)
        granted = event is not None and event.open and event.approval is not None
        if (entry.phase in _BEGUN and not later) or (granted and entry.phase == "WAITING" and event is not ahead_of):
            return f"is {entry.phase.lower()}"
    if node.disabled and not any(entry.phase in _BEGUN for entry in node.entries):
        return "is out of service"
    if not node.caught_up and now < node.restored + terms.catch_up:
        return "is catching up"
    return None


def over(view: FleetEvents, terms: MaintenanceTerms, now: Millis) -> list[str]:
    """Units in which more fault domains are down than may be, whoever decided it."""
    found: dict[str, set[str]] = {}
    for node in view.nodes.values():
        if down(node, view, terms, now):
            found.setdefault(unit(node, terms), set()).add(node.domain)
    return sorted(at for at, domains in found.items() if len(domains) > terms.domains_down)
