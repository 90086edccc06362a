"""Elects the monitors, the agents that act for the whole fleet: two in different fault domains, one of them primary. Pure.

The primary is offered approvals first. It is replaced when it falls silent, and when an event names its own node. Being primary is a lease
in the sense of docs/explain/leases.md: the epoch makes the app refuse an agent that has lost it.
"""

from __future__ import annotations

from dataclasses import replace

from ...core.clock import Millis
from ..rows import FleetEvents, MonitorsRow, NodeRow
from .domain_guard import is_live


def is_threatened(node: NodeRow, view: FleetEvents) -> bool:
    """Return true if an event with an impact is open on the node."""
    return any(
        entry.phase not in ("FOREIGN", "DONE", "APPROVED")
        and (event := view.events.get(entry.event_id)) is not None
        and not event.rehearsal
        for entry in node.entries
    )


def elect(view: FleetEvents, now: Millis) -> MonitorsRow:
    """Return the monitors. Both stay as they are while they can."""
    before = view.monitors
    good = {name: node for name, node in view.nodes.items() if is_live(node, view, now)}
    if not good:
        return before

    def rank(name: str) -> tuple[bool, bool, bool, str]:
        return is_threatened(good[name], view), name != before.primary, name != before.secondary, name

    primary = min(good, key=rank)
    apart = [name for name in good if name != primary and good[name].domain != good[primary].domain]
    others = apart or [name for name in good if name != primary]
    secondary = min(others, key=rank) if others else ""
    if (primary, secondary) == (before.primary, before.secondary):
        return before
    if primary == before.primary:
        return replace(before, secondary=secondary)
    return replace(before, primary=primary, secondary=secondary, epoch=before.epoch + 1, since=now)


def monitor_alarm(view: FleetEvents) -> str | None:
    """Return the name of the alarm that the monitors raise; None for none."""
    first, second = (view.nodes.get(name) for name in (view.monitors.primary, view.monitors.secondary))
    if not view.nodes:
        return None
    if first is None or second is None:
        return "single-monitor"
    return "monitors-together" if first.domain == second.domain else None
