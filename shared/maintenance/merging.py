"""What the reports of many agents come to. Pure.

An event is open as long as one agent that is heard of lists it, and started as soon as one says so. It is over when nobody lists it any
more: never because an agent fell silent.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.clock import Millis
from .domain_guard import live
from .rows import REHEARSAL, REMOVES, EventRow, FleetEvents, LedgerStatus, NodeEntry, NodeRow
from .terms import AWAY, FORGOTTEN, LEARNING, NEAR_SILENCE, PROLONGED, REHEARSED


def merge(event: EventRow | None, entry: NodeEntry, node: NodeRow, now: Millis) -> EventRow | None:
    """An event after one agent's word of it. None: it was not known, and there is nothing to know any more."""
    if event is None:
        if not entry.listed or entry.event_id.startswith(REHEARSAL):
            return None
        status: LedgerStatus = "started" if entry.status == "Started" else "scheduled"
        event = EventRow(entry.event_id, node.scope, entry.type, status, now)
    if event.scope != node.scope and not event.rehearsal and event.open:
        # The same id elsewhere: ids are one event's alone, so one of the two scopes is wrong. The sweep says so.
        return event
    if entry.observed > event.observed.get(node.node, 0):
        event = replace(event, observed={**event.observed, node.node: entry.observed})
    if not entry.listed or (event.rehearsal and not event.open):
        return event
    if not event.open:
        event = _back(event, node.scope)
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
            # Once it has started a document says nothing of it.
            not_before=entry.not_before if entry.not_before is not None else event.not_before,
        )
    if begun:
        made = _closed(made)
    elif made.due is not None and made.not_before is not None and made.not_before != event.not_before:
        made = replace(made, grant=replace(made.due, expires=max(made.due.at, made.not_before)))
    return made


def _back(event: EventRow, scope: str) -> EventRow:
    """An event that was over and is listed again: what was first seen of it stands, how it ended does not, and it is told of anew."""
    return replace(
        event, scope=scope, status="scheduled", started=0, azure="", cleared=0, phases={}, told=(), alarms=(), returns=event.returns + 1
    )


def _closed(event: EventRow) -> EventRow:
    """The event without an approval that stands: there is nothing left to approve."""
    return event if event.approval is None else replace(event, grant=replace(event.approval, state="closed", node=""))


def settled(event: EventRow, view: FleetEvents, now: Millis) -> EventRow:
    """The event, ended if it is over; with what is wrong with it, and where its nodes stand once it has ended."""
    made = _ended(event, view, now) if event.open else event
    if not made.open:
        phases = dict(made.phases)
        for node in view.named(made):
            entry = node.entry(made.event_id)
            if entry is not None and phases.get(node.node, ("", 0))[0] != entry.phase:
                phases[node.node] = (entry.phase, node.at)
        if phases != made.phases:
            made = replace(made, phases=phases)
        made = _closed(made)
    elif made.due is not None and now >= made.due.expires:
        # Azure goes on by itself.
        made = replace(made, grant=replace(made.due, state="expired", node=""))
    if _disputed(made, view, now) != bool(made.differs):
        made = replace(made, differs=0 if made.differs else now)
    alarms = tuple(sorted(wrong(made, view, now)))
    return made if alarms == made.alarms else replace(made, alarms=alarms)


def _ended(event: EventRow, view: FleetEvents, now: Millis) -> EventRow:
    if event.rehearsal:
        named = view.named(event)
        over = bool(named) and all((entry := node.entry(event.event_id)) is not None and entry.phase == "DONE" for node in named)
        late = now > (event.not_before or event.seen) + max(0, event.duration) * 1000 + REHEARSED
        return replace(event, status="completed" if over else "vanished", ended=now) if over or late else event
    listing = [node for node in view.of_scope(event.scope) if _lists(node, event) and not _removed(node, event, view, now)]
    since = max(event.started, event.not_before or 0, event.seen, *(node.at for node in listing)) if listing else 0
    if listing and (now - since <= FORGOTTEN or any(live(node, view, now) for node in listing)):
        return event
    said = [entry for node in view.nodes.values() if (entry := node.entry(event.event_id)) is not None]
    if not event.listed and not event.azure and not _asked_since(event, view, now):
        # Only Event Grid has told of it yet.
        return event
    if event.azure == "cancelled" or (not event.started and any(entry.outcome == "cancelled" for entry in said)):
        status: LedgerStatus = "cancelled"
    elif event.started or event.azure == "completed":
        status = "completed"
    else:
        status = "vanished"
    return replace(event, status=status, ended=now)


def _lists(node: NodeRow, event: EventRow) -> bool:
    entry = node.entry(event.event_id)
    return entry is not None and entry.listed


def _removed(node: NodeRow, event: EventRow, view: FleetEvents, now: Millis) -> bool:
    """Whether the event has taken the machine away, so that its agent will never say that it is over: it is silent, and another of the
    scope, whose document is the same, has said later that it does not list the event any more."""
    due = event.started or (event.not_before is not None and now >= event.not_before)
    if event.type not in REMOVES or not due or now - node.at <= NEAR_SILENCE:
        return False
    since = max(node.at, event.seen) + NEAR_SILENCE
    return any(other.at > since and not _lists(other, event) for other in view.of_scope(event.scope))


def _took(event: EventRow) -> bool:
    return event.type in REMOVES and not event.open and not event.rehearsal and event.status != "cancelled"


def departed(node: NodeRow, view: FleetEvents, catch_up: Millis, now: Millis) -> bool:
    """Whether a node is to be forgotten: its machine was taken away, and what replaces it has had its time to catch up; or its agent has
    been silent for long, with nothing open on it."""
    if now - node.at <= NEAR_SILENCE:
        return False
    known = [(entry, view.events.get(entry.event_id)) for entry in node.entries if entry.listed and entry.phase != "FOREIGN"]
    if any(event and _took(event) and now - event.ended > catch_up for _, event in known):
        return True
    return now - node.at > AWAY and not any(event and event.open for _, event in known)


def _asked_since(event: EventRow, view: FleetEvents, now: Millis) -> bool:
    """Whether an agent of the scope has reported long enough after the event was first told of to have seen it."""
    return any(node.at > event.seen + NEAR_SILENCE for node in view.of_scope(event.scope)) or now - event.seen > FORGOTTEN


def wrong(event: EventRow, view: FleetEvents, now: Millis) -> set[str]:
    """Alarms of one event."""
    found: set[str] = set()
    named = view.named(event)
    entries = {node.node: entry for node in view.nodes.values() if (entry := node.entry(event.event_id)) is not None}
    phases = {entry.phase for entry in entries.values()}
    if "RESTORE_FAILED" in phases:
        found.add("restore-failed")
    if not event.open:
        return found
    if "PREPARE_FAILED" in phases:
        found.add("prepare-failed")
    if event.rehearsal:
        return found
    if event.differs and now - event.differs > LEARNING:
        found.add("disagreement")
    if any(node.scope != event.scope for node in view.nodes.values() if node.node in entries):
        found.add("disagreement")
    if now - event.seen > NEAR_SILENCE and any(now - node.at > NEAR_SILENCE for node in named):
        found.add("silent")
    if event.status == "started" and now - event.started > PROLONGED:
        found.add("prolonged")
    if event.due is not None and event.due.tries:
        found.add("approval-failed")
    return found


def _disputed(event: EventRow, view: FleetEvents, now: Millis) -> bool:
    """Whether agents that are heard of tell different things of an open event."""
    if not event.open or event.rehearsal:
        return False
    heard = [entry for node in view.of_scope(event.scope) if (entry := node.entry(event.event_id)) and live(node, view, now)]
    return _differ([entry for entry in heard if entry.listed])


def _differ(entries: list[NodeEntry]) -> bool:
    """Whether agents tell different things of an event. A poller may be a look behind with Started, and that has no NotBefore."""
    told = {(entry.type, entry.source, entry.duration, frozenset(entry.resources)) for entry in entries}
    return len(told) > 1 or len({entry.not_before for entry in entries if entry.status == "Scheduled"}) > 1


def quiet(event: EventRow, view: FleetEvents, now: Millis) -> list[str]:
    """Named nodes whose agents are silent."""
    return sorted(node.node for node in view.named(event) if now - node.at > NEAR_SILENCE)
