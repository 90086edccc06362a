"""Who acts for the whole fleet: two monitors in different fault domains, one of which is primary. Pure.

The primary is given approvals first. It is replaced when it falls silent, and when an event names its own node. Being primary is a lease in
the sense of docs/leases.md: whoever has lost it is refused by the epoch, not by good manners. Two monitors: the case study's advice for
centralised control.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.clock import Millis
from .domain_guard import live
from .rows import FleetEvents, MonitorsRow, NodeRow


def threatened(node: NodeRow, view: FleetEvents) -> bool:
    """Whether an event that hits is open on the node."""
    return any(
        entry.phase not in ("FOREIGN", "DONE", "APPROVED")
        and (event := view.events.get(entry.event_id)) is not None
        and not event.rehearsal
        for entry in node.entries
    )


def elected(view: FleetEvents, now: Millis) -> MonitorsRow:
    """The monitors from here on. Both stay as they are while they can."""
    before = view.monitors
    good = {name: node for name, node in view.nodes.items() if live(node, view, now)}
    if not good:
        return before

    def rank(name: str) -> tuple[bool, bool, bool, str]:
        return threatened(good[name], view), name != before.primary, name != before.secondary, name

    primary = min(good, key=rank)
    apart = [name for name in good if name != primary and good[name].domain != good[primary].domain]
    others = apart or [name for name in good if name != primary]
    secondary = min(others, key=rank) if others else ""
    if (primary, secondary) == (before.primary, before.secondary):
        return before
    if primary == before.primary:
        return replace(before, secondary=secondary)
    return replace(before, primary=primary, secondary=secondary, epoch=before.epoch + 1, since=now)


def lacking(view: FleetEvents) -> str | None:
    """What is wrong with the monitors: an alarm's name."""
    first, second = (view.nodes.get(name) for name in (view.monitors.primary, view.monitors.secondary))
    if not view.nodes:
        return None
    if first is None or second is None:
        return "single-monitor"
    return "monitors-together" if first.domain == second.domain else None
