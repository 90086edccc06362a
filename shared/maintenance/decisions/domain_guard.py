"""The domain guard: limits how many fault domains are down at once, by delaying early approvals. Pure.

Azure proceeds at NotBefore whatever is decided here. The guard orders the work before that time, and warns.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from ...core.clock import Millis
from ..rows import EventRow, FleetEvents, NodeEntry, NodeRow
from ..rule_settings import MaintenanceSettings
from ..timings import BUSY_SILENCE, IDLE_SILENCE

_BEGUN: Final = frozenset({"PREPARING", "PREPARED"})
_STRUCK: Final = frozenset({"STARTED", "RESTORING", "RESTORE_FAILED"})


def is_live(node: NodeRow, view: FleetEvents, now: Millis) -> bool:
    """Return true if the node's agent reports as often as it should: every few seconds while an event is open in its scope."""
    silence = now - node.at
    if silence <= BUSY_SILENCE:
        return True
    since = view.first_seen(node.scope)
    near = since is not None and now - since > BUSY_SILENCE
    return not near and silence <= IDLE_SILENCE and not any(each.listed for each in node.entries)


def quorum_unit(node: NodeRow, settings: MaintenanceSettings) -> str:
    """Return the quorum unit of a node, in lower case: fault domains are counted within it."""
    return {"location": node.location, "scope": node.scope, "fleet": ""}[settings.per].casefold()


def approval_order(event: EventRow) -> tuple[int, Millis, str]:
    """Return the sort key of events.

    Events that were approved, or may be approved at this moment, come first, by that time; the others follow by NotBefore. Ids break ties.
    """
    if event.approval is not None:
        return (0, event.approval.at, event.event_id)
    if at := event.agreed or event.cleared:
        return (0, at, event.event_id)
    return (1, event.not_before if event.not_before is not None else event.seen, event.event_id)


def domains(event: EventRow, view: FleetEvents, settings: MaintenanceSettings) -> list[tuple[str, set[str]]]:
    """Return the fault domains that an event names, by quorum unit."""
    found: dict[str, set[str]] = {}
    for node in view.named(event):
        found.setdefault(quorum_unit(node, settings), set()).add(node.domain)
    return sorted(found.items())


def too_wide_reason(event: EventRow, view: FleetEvents, settings: MaintenanceSettings) -> str | None:
    """Return why the guard never agrees to an event; None when it may agree."""
    for _, mine in domains(event, view, settings):
        if len(mine) > settings.domains_down:
            return f"it takes {len(mine)} fault domains down at once: {', '.join(sorted(mine))}"
    return None


def block_reason(event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis, *, begin: bool = False) -> str | None:
    """Return why the nodes of an event should not go down now; None when they may.

    begin: none of these nodes has begun, so nodes that have begun go first, even for a later event.
    """
    if wide := too_wide_reason(event, view, settings):
        return wide
    passed_over = _too_wide_events(view, settings) if settings.guard == "prepare" else frozenset[str]()
    for at, mine in domains(event, view, settings):
        others: dict[str, str] = {}
        for node in view.nodes.values():
            if (
                quorum_unit(node, settings) == at
                and node.domain not in mine
                and node.domain not in others
                and (why := down_reason(node, view, settings, now, None if begin else event, passed_over))
            ):
                others[node.domain] = f"{node.node} of fault domain {node.domain or '(none)'} {why}"
        if len(mine) + len(others) > settings.domains_down:
            return others[min(others)]
    return None


def _too_wide_events(view: FleetEvents, settings: MaintenanceSettings) -> frozenset[str]:
    """Return the open events to which the guard never agrees: no other event waits for nodes that prepare for them."""
    return frozenset(
        event.event_id for event in view.events.values() if event.open and not event.rehearsal and too_wide_reason(event, view, settings)
    )


def is_unaffected(node: NodeRow, entry: NodeEntry, event: EventRow | None) -> bool:
    """Return true if the node's agent approved an event without preparing, because its rules say that the event has no impact.

    A node without a prepare hook prepares without going out of service. Azure takes it down all the same.
    """
    return entry.phase == "APPROVED" and not node.disabled and (event is None or not event.is_under_way)


def down_reason(
    node: NodeRow,
    view: FleetEvents,
    settings: MaintenanceSettings,
    now: Millis,
    ahead_of: EventRow | None = None,
    passed_over: Set[str] = frozenset(),
) -> str | None:
    """Return why a node counts as down; None when it serves.

    ahead_of: preparations for events after this one do not count. passed_over: nor do those for events with these ids.
    """
    for entry in node.entries:
        event = view.events.get(entry.event_id)
        if entry.phase in _STRUCK or (entry.phase == "APPROVED" and not is_unaffected(node, entry, event)):
            return f"is {entry.phase.lower().replace('_', ' ')}"
        later = ahead_of is not None and event is not None and approval_order(event) > approval_order(ahead_of)
        later = later or entry.event_id in passed_over
        granted = event is not None and event.open and event.approval is not None
        if (entry.phase in _BEGUN and not later) or (granted and entry.phase == "WAITING" and event is not ahead_of):
            return f"is {entry.phase.lower()}"
    if node.disabled and not any(entry.phase in _BEGUN for entry in node.entries):
        return "is out of service"
    if not node.caught_up and now < node.restored + settings.catch_up:
        return "is catching up"
    return None


def units_over_quorum(view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> list[str]:
    """Return the quorum units in which more fault domains are down than allowed, for whatever reason."""
    found: dict[str, set[str]] = {}
    for node in view.nodes.values():
        if down_reason(node, view, settings, now):
            found.setdefault(quorum_unit(node, settings), set()).add(node.domain)
    return sorted(at for at, domains in found.items() if len(domains) > settings.domains_down)
