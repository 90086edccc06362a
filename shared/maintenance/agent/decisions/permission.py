"""Permission to prepare: with the fleet's guard `prepare`, a node waits for the app's permission, and never too long.

    permitted                    from NotBefore minus the lead
    refused, or no answer yet    until NotBefore minus the time that the prepare hook needs
    the app is silent            from NotBefore minus the lead

A Preempt and a Terminate need no permission: Azure removes the machine at NotBefore, whoever else is down.

A report that shows an event as WAITING asks; each answer replaces the one before. The app is silent if it has been away for `patience`
seconds, or has not answered about the event for as long. Until then its last answer counts: one lost call must not bypass the guard.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ..config.settings import AgentSettings
from ..model import EventRecord, NodeState, Now, ScheduledEvent
from .event_rules import LASTING, prepare_at

if TYPE_CHECKING:
    from ....core.clock import Millis


def start_at(record: EventRecord, node: NodeState, now: Now, settings: AgentSettings) -> Millis:
    """Return the wall time at which preparing begins as things stand; it may have passed."""
    event = record.event
    soon = prepare_at(event, settings)
    if not _is_guarded(event, settings) or event.event_id in node.app.permitted:
        return soon
    silent = _silent_at(record, node, now, settings)
    return round(max(soon, min(latest_start(event, settings), silent)))


def latest_start(event: ScheduledEvent, settings: AgentSettings) -> Millis:
    """Return the wall time until which preparing can wait for permission; 0 if NotBefore cannot be read.

    The prepare hook needs its deadline. A deadline that does not fit into the lead says nothing, since the node would prepare too late even
    with permission. Half the lead is assumed then.
    """
    if event.not_before is None:
        return 0
    lead, deadline = settings.lead_of(event.type), settings.hooks.get("prepare", 0.0)
    return event.not_before - round(1000 * (deadline if deadline < lead else lead / 2))


def refusal(record: EventRecord, node: NodeState, settings: AgentSettings) -> str:
    """Return why the app's last answer refuses permission, as a text for people; '' if it does not."""
    event = record.event
    if not _is_guarded(event, settings) or event.event_id not in node.app.refused:
        return ""
    return f"the fleet refuses to prepare yet: {node.app.refused[event.event_id]}"


def _is_guarded(event: ScheduledEvent, settings: AgentSettings) -> bool:
    waits = event.type not in LASTING and not event.rehearsal
    return waits and settings.central and settings.policy.guard == "prepare"


def _silent_at(record: EventRecord, node: NodeState, now: Now, settings: AgentSettings) -> float:
    """Return the wall time from which the app counts as silent about an event; infinite while it answers."""
    app, patience = node.app, settings.patience

    def wall(steady: float) -> float:
        return now.wall + 1000 * (steady - now.steady)

    if app.away:
        return wall(app.away_since + patience)
    if record.event.event_id in app.refused:
        return inf
    return max(record.seen_at + 1000 * patience, wall(node.since + patience))
