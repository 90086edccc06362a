"""Merges the reports of many agents into one event. Pure.

An event is open as long as one live agent lists it, and started as soon as one agent reports it as started. It is over when no agent lists
it any more, and never just because an agent fell silent: another one that listed it must report twice that it is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ...core.clock import Millis
from ..azure_names import folded, same_name
from ..rows import REHEARSAL, REMOVES, AgentApproval, EventRow, FleetEvents, LedgerStatus, NodeEntry, NodeRow
from ..timings import ABANDON_EVENT, AGREEMENT_TIME, APPROVAL_AWAY, BUSY_SILENCE, FORGET_NODE, GONE_TWICE, LONG_IMPACT, REHEARSAL_GRACE
from .caller_probes import alarms_callers
from .domain_guard import is_live


def merge(event: EventRow | None, entry: NodeEntry, node: NodeRow, now: Millis) -> EventRow | None:
    """Return an event after one agent's entry about it. None: the event was unknown, and is not open."""
    if event is None:
        if not entry.listed or entry.event_id.startswith(REHEARSAL):
            return None
        status: LedgerStatus = "started" if entry.status == "Started" else "scheduled"
        event = EventRow(entry.event_id, node.scope, entry.type, status, now)
    if not same_name(event.scope, node.scope) and not event.rehearsal and event.open:
        # The same id in another scope. Ids are unique, so one of the scopes is wrong. The sweep raises an alarm.
        return event
    if entry.observed > event.observed.get(node.node, 0):
        event = replace(event, observed={**event.observed, node.node: entry.observed})
    if not entry.listed or (event.rehearsal and not event.open):
        return event
    if not event.open:
        event = _reopened(event, node.scope)
    begun = entry.status == "Started" or event.status == "started"
    made = replace(
        event,
        status="started" if begun else "scheduled",
        started=event.started or (now if begun else 0),
        ended=0,
        listed=True,
    )
    if not event.rehearsal:
        made = replace(
            made,
            type=entry.type,
            source=entry.source,
            duration=entry.duration,
            resources=entry.resources,
            # The document of a started event has no NotBefore.
            not_before=entry.not_before if entry.not_before is not None else event.not_before,
        )
    if entry.phase == "APPROVED" and made.by_agent is None and not event.rehearsal:
        made = replace(made, by_agent=AgentApproval(node.node, now))
    if begun:
        made = _without_approval(made)
    elif made.due is not None and made.not_before is not None and made.not_before != event.not_before:
        made = replace(made, grant=replace(made.due, expires=max(made.due.at, made.not_before)))
    return made


def _reopened(event: EventRow, scope: str) -> EventRow:
    """Return an event that was over and is listed again. Its first sighting stays, its end is dropped, and its notices are published
    again."""
    return replace(
        event,
        scope=scope,
        status="scheduled",
        started=0,
        azure="",
        cleared=0,
        agreed=0,
        gone={},
        by_agent=None,
        turn=None,
        phases={},
        told=(),
        alarms=(),
        returns=event.returns + 1,
    )


def _without_approval(event: EventRow) -> EventRow:
    """Return the event with its approval closed, because nothing is left to approve."""
    return event if event.approval is None else replace(event, grant=replace(event.approval, state="closed", node=""))


MOST_GONE: Final = 8
"""Nodes of which an event keeps that they stopped listing it. One that lives is enough."""


def with_gone(events: Mapping[str, EventRow], before: NodeRow | None, node: NodeRow, now: Millis) -> dict[str, EventRow]:
    """Return the open events that a node's agent listed in its last report and does not list in this one, or the other way about."""
    changed: dict[str, EventRow] = {}
    for event in events.values():
        if not event.open or event.rehearsal:
            continue
        if _lists(node, event):
            if node.node in event.gone:
                changed[event.event_id] = replace(event, gone={name: at for name, at in event.gone.items() if name != node.node})
        elif before is not None and _lists(before, event) and node.node not in event.gone and len(event.gone) < MOST_GONE:
            changed[event.event_id] = replace(event, gone={**event.gone, node.node: now})
    return changed


def settle_event(event: EventRow, view: FleetEvents, now: Millis) -> EventRow:
    """Return the event, ended if it is over, with its alarms; and once it has ended, with the latest phases of its nodes."""
    made = _ended(event, view, now) if event.open else event
    if not made.open:
        phases = dict(made.phases)
        for node in view.named(made):
            entry = node.entry(made.event_id)
            if entry is not None and phases.get(node.node, ("", 0))[0] != entry.phase:
                phases[node.node] = (entry.phase, node.at)
        if phases != made.phases:
            made = replace(made, phases=phases)
        made = _without_approval(made)
    elif made.due is not None and now >= made.due.expires:
        # Azure proceeds by itself.
        made = replace(made, grant=replace(made.due, state="expired", node=""))
    if _disputed(made, view, now) != bool(made.differs):
        made = replace(made, differs=0 if made.differs else now)
    alarms = tuple(sorted(event_alarms(made, view, now)))
    return made if alarms == made.alarms else replace(made, alarms=alarms)


def _ended(event: EventRow, view: FleetEvents, now: Millis) -> EventRow:
    if event.rehearsal:
        named = view.named(event)
        over = bool(named) and all((entry := node.entry(event.event_id)) is not None and entry.phase == "DONE" for node in named)
        late = now > (event.not_before or event.seen) + max(0, event.duration) * 1000 + REHEARSAL_GRACE
        return replace(event, status="completed" if over else "vanished", ended=now) if over or late else event
    listing = [node for node, entry in _reports_in_scope(event, view) if entry.listed and not _removed(node, event, view, now)]
    since = max(event.started, event.not_before or 0, event.seen, *(node.at for node in listing)) if listing else 0
    live = any(is_live(node, view, now) for node in listing)
    if live or (listing and now - since <= ABANDON_EVENT and not _is_seen_gone(event, view)):
        return event
    entries = [entry for _, entry in view.reports(event.event_id)]
    if not event.listed and not event.azure and not _asked_since(event, view, now):
        # So far only Event Grid has reported the event.
        return event
    if event.azure == "cancelled" or (not event.started and any(entry.outcome == "cancelled" for entry in entries)):
        status: LedgerStatus = "cancelled"
    elif event.started or event.azure == "completed" or _is_sent(event):
        status = "completed"
    else:
        status = "vanished"
    return replace(event, status=status, ended=now)


def _is_sent(event: EventRow) -> bool:
    """Return true if Azure got an approval, after which a short impact may come and go between two documents."""
    return event.by_agent is not None or (event.grant is not None and event.grant.state == "posted")


def _reports_in_scope(event: EventRow, view: FleetEvents) -> list[tuple[NodeRow, NodeEntry]]:
    return [(node, entry) for node, entry in view.reports(event.event_id) if same_name(node.scope, event.scope)]


def _lists(node: NodeRow, event: EventRow) -> bool:
    entry = node.entry(event.event_id)
    return entry is not None and entry.listed


def _removed(node: NodeRow, event: EventRow, view: FleetEvents, now: Millis) -> bool:
    """Return true if the event has removed the machine, so that its agent will never report the end.

    The agent is silent, and another agent of the scope, with the same document, has reported later that it no longer lists the event.
    """
    due = event.started or (event.not_before is not None and now >= event.not_before)
    if event.type not in REMOVES or not due or now - node.at <= BUSY_SILENCE:
        return False
    since = max(node.at, event.seen) + BUSY_SILENCE
    return any(other.at > since and not _lists(other, event) for other in view.of_scope(event.scope))


def _is_seen_gone(event: EventRow, view: FleetEvents) -> bool:
    """Return true if an agent of the scope that listed the event has reported twice that it does not any more."""
    return any(
        (node := view.nodes.get(name)) is not None and same_name(node.scope, event.scope) and node.at >= at + GONE_TWICE
        for name, at in event.gone.items()
    )


def _removed_machine(event: EventRow) -> bool:
    return event.type in REMOVES and not event.open and not event.rehearsal and event.status != "cancelled"


def has_departed(node: NodeRow, view: FleetEvents, catch_up: Millis, now: Millis) -> bool:
    """Return true if the node should be removed.

    Either its machine was removed, and the replacement has had its time to catch up; or its agent has been silent for long, with no open
    event.
    """
    if now - node.at <= BUSY_SILENCE:
        return False
    known = [(entry, view.events.get(entry.event_id)) for entry in node.entries if entry.listed and entry.phase != "FOREIGN"]
    if any(event and _removed_machine(event) and now - event.ended > catch_up for _, event in known):
        return True
    return now - node.at > FORGET_NODE and not any(event and event.open for _, event in known)


def _asked_since(event: EventRow, view: FleetEvents, now: Millis) -> bool:
    """Return true if an agent of the scope has reported long enough after the event's first notice to have seen the event."""
    return any(node.at > event.seen + BUSY_SILENCE for node in view.of_scope(event.scope)) or now - event.seen > ABANDON_EVENT


def event_alarms(event: EventRow, view: FleetEvents, now: Millis) -> set[str]:
    """Return the alarms of one event."""
    found: set[str] = set()
    named = view.named(event)
    reports = view.reports(event.event_id)
    phases = {entry.phase for _, entry in reports}
    if "RESTORE_FAILED" in phases:
        found.add("restore-failed")
    if alarms_callers(event, now):
        found.add("callers-affected")
    if not event.open:
        return found
    if "PREPARE_FAILED" in phases:
        found.add("prepare-failed")
    if event.rehearsal:
        return found
    if event.differs and now - event.differs > AGREEMENT_TIME:
        found.add("disagreement")
    if any(not same_name(node.scope, event.scope) for node, _ in reports):
        found.add("disagreement")
    if now - event.seen > BUSY_SILENCE and any(now - node.at > BUSY_SILENCE for node in named):
        found.add("silent")
    if event.status == "started" and now - event.started > LONG_IMPACT:
        found.add("prolonged")
    if event.due is not None and (event.due.tries or (event.due.failing and now - event.due.failing >= APPROVAL_AWAY)):
        found.add("approval-failed")
    return found


def _disputed(event: EventRow, view: FleetEvents, now: Millis) -> bool:
    """Return true if live agents report different details of an open event."""
    if not event.open or event.rehearsal:
        return False
    return _differ([entry for node, entry in _reports_in_scope(event, view) if entry.listed and is_live(node, view, now)])


def _differ(entries: list[NodeEntry]) -> bool:
    """Return true if entries about an event differ. NotBefore is compared among `Scheduled` entries only: a `Started` one has none, and
    agents see the start one after the other."""
    details = {(entry.type, entry.source, entry.duration, folded(entry.resources)) for entry in entries}
    return len(details) > 1 or len({entry.not_before for entry in entries if entry.status == "Scheduled"}) > 1


def silent_nodes(event: EventRow, view: FleetEvents, now: Millis) -> list[str]:
    """Return the named nodes with silent agents."""
    return sorted(node.node for node in view.named(event) if now - node.at > BUSY_SILENCE)
