"""Reservations: with the guard `prepare`, a node prepares for an event only when its event has one. Pure.

A node asks by reporting an event as WAITING. One event has one reservation for all nodes that it names. A reservation is kept until these
nodes are done with the event: an agent that has its permission may use it without asking again. It ends sooner only if the event is far
away and nobody prepares for it any more, or if an event with an earlier NotBefore needs its domain and there is time: until `YIELD_AHEAD`
before its nodes may begin. Their agents hear by then that they must wait, or else have no app and go by their own time. Nodes that are
being restored or are catching up count as down by `domain_guard`.

A Preempt or a Terminate has permission in any case, because waiting delays neither; other events wait for their nodes.

The guarantee is the app's part only. An agent prepares without permission when it cannot wait any longer, or when the app is silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ...core.clock import Millis
from ..rows import REMOVES, EventRow, FleetEvents, GuardRow, NodeEntry, NodeRow
from ..rule_settings import MaintenanceSettings
from ..timings import BUSY_INTERVAL, BUSY_SILENCE, RESERVE_AHEAD, YIELD_AHEAD
from .approvals import BY_FLEET, all_live, strangers_reason
from .domain_guard import block_reason, domains, is_live, is_unaffected, too_wide_reason

_BEGUN: Final = frozenset({"PREPARING", "PREPARED", "PREPARE_FAILED"})

type Domains = dict[str, set[str]]
"""Fault domains by quorum unit."""


def reserve(view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> GuardRow:
    """Return the reservations: those that are still needed, and new ones where fault domains are free.

    Events whose nodes go down already, or prepare now in any case, come first, then the others by NotBefore. No event overtakes one that
    waits in the same unit.
    """
    before = view.guard
    if settings.guard != "prepare":
        return GuardRow() if before.reserved else before
    events = [event for event in view.events.values() if event.open and not event.rehearsal and not too_wide_reason(event, view, settings)]
    reserved = {
        event.event_id: before.reserved[event.event_id]
        for event in events
        if event.event_id in before.reserved and _is_needed(event, view, settings, now)
    }
    others = [event for event in events if event.event_id not in reserved]
    asking = [event for event in others if _goes_down(event, view) or _asks(event, view, settings, now)]
    for event in _yielding(reserved, asking, view, settings, now):
        del reserved[event.event_id]
        asking.append(event)
    taken: Domains = {}
    for event in events:
        if event.event_id in reserved:
            _add(taken, domains(event, view, settings))
    waiting = set[str]()
    for event in sorted(asking, key=lambda event: (not (_goes_down(event, view) or _cannot_wait(event, settings, now)), _order(event))):
        wanted = [(unit, mine) for unit, mine in domains(event, view, settings) if not mine <= taken.get(unit, set())]
        if any(unit in waiting or len(taken.get(unit, set()) | mine) > settings.domains_down for unit, mine in wanted):
            waiting.update(unit for unit, _ in wanted)
        else:
            reserved[event.event_id] = now
            _add(taken, wanted)
    return before if reserved == before.reserved else GuardRow(reserved)


def _yielding(
    reserved: Mapping[str, Millis], asking: Iterable[EventRow], view: FleetEvents, settings: MaintenanceSettings, now: Millis
) -> list[EventRow]:
    """Return the events with reservations that wait behind an asking event of the same unit, because its NotBefore is earlier."""
    soonest: dict[str, Millis] = {}
    for event in asking:
        for unit, _ in domains(event, view, settings) if event.not_before is not None else ():
            soonest[unit] = min(event.not_before or 0, soonest.get(unit, event.not_before or 0))
    return [
        event
        for event in (view.events[event_id] for event_id in reserved)
        if event.not_before is not None
        and event.grant is None
        and not _goes_down(event, view)
        and now <= event.not_before - _longest_lead(event, view, settings) - YIELD_AHEAD
        and any(soonest.get(unit, event.not_before) < event.not_before for unit, _ in domains(event, view, settings))
    ]


def _longest_lead(event: EventRow, view: FleetEvents, settings: MaintenanceSettings) -> Millis:
    """Return the longest time before NotBefore at which a node may begin to prepare: files of nodes may set longer leads."""
    return max([settings.lead_of(event.type), *(node.lead for node in view.named(event))])


def refusal(event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> str | None:
    """Return why the nodes of an event may not prepare yet; None when they may.

    A reservation alone is not enough: a node of another fault domain may be down for another reason, such as a failure of its hardware.
    """
    if too_wide_reason(event, view, settings) is not None:
        # Waiting does not help it. It is not approved before its time.
        return None
    if event.type in REMOVES:
        # Waiting does not delay it: the machine would only be removed unprepared.
        return None
    reserved = view.guard.reserved
    if event.event_id in reserved:
        return _earlier_reason(event, view, settings) or block_reason(event, view, settings, now, begin=True)
    if not _is_near(event, view, settings, now):
        return "its NotBefore is still far away"
    blocked = block_reason(event, view, settings, now, begin=True)
    first = next((view.events[other] for other in sorted(reserved, key=lambda id: (reserved[id], id)) if other in view.events), None)
    return blocked or (f"{first.event_id} goes first" if first is not None else "another event goes first")


def permissions(node: NodeRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> dict[str, str]:
    """Return the events for which a node asks permission to prepare, each with the reason of a refusal; '' for permission."""
    if settings.guard != "prepare":
        return {}
    asked = [view.events[entry.event_id] for entry in node.entries if _is_waiting(entry) and entry.event_id in view.events]
    return {event.event_id: refusal(event, view, settings, now) or "" for event in asked if event.open and not event.rehearsal}


def is_urgent(refused: Iterable[EventRow], settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true if the nodes of a refused event would prepare now, or before the next usual report."""
    return any(now + BUSY_INTERVAL >= (event.not_before or 0) - settings.lead_of(event.type) for event in refused)


def alarms(event: EventRow, view: FleetEvents, settings: MaintenanceSettings) -> set[str]:
    """Return the alarms of the guard about an open event.

    forced: a node prepares for it without a reservation. too-wide: it takes more fault domains than may be down, so that it waits for none.
    """
    if settings.guard != "prepare" or event.rehearsal or not event.open or event.type in REMOVES:
        return set()
    if too_wide_reason(event, view, settings) is not None:
        return {"too-wide"}
    begun = any((entry := node.entry(event.event_id)) is not None and entry.phase in _BEGUN for node in view.named(event))
    return {"forced"} if begun and event.event_id not in view.guard.reserved else set()


def _asks(event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true if a node waits for the event, is reported, and the event is near enough. A silent agent delays no other."""
    return _is_near(event, view, settings, now) and any(
        (entry := node.entry(event.event_id)) is not None and _is_waiting(entry) and is_live(node, view, now) for node in view.named(event)
    )


def _is_waiting(entry: NodeEntry) -> bool:
    return entry.phase == "WAITING" and entry.status == "Scheduled" and not entry.asks_turn


def _is_near(event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true if the event may get a reservation now."""
    if event.not_before is None or _may_be_early(event, view, settings, now):
        return True
    # A silent agent prepares by the last NotBefore that it knew.
    entries = [entry for node in view.named(event) if (entry := node.entry(event.event_id)) is not None and _is_waiting(entry)]
    soonest = min([event.not_before, *(entry.not_before for entry in entries if entry.not_before is not None)])
    return now >= soonest - settings.lead_of(event.type) - RESERVE_AHEAD


def _may_be_early(event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true if the fleet may approve the event before its time: no operator holds it, and all its agents report."""
    early = settings.approves_early(event.type, event.source, event.duration) and not strangers_reason(event, view, settings)
    return early and event.hold is None and (event.grant is None or event.due is not None) and all_live(event, view, now)


def _goes_down(event: EventRow, view: FleetEvents) -> bool:
    """Return true if a named node has begun to prepare, or was asked to by a person."""
    by_hand = event.approval is not None and event.approval.by != BY_FLEET
    return by_hand or any((entry := node.entry(event.event_id)) is not None and entry.phase in _BEGUN for node in view.named(event))


def _cannot_wait(event: EventRow, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true if the nodes of an event prepare now, whoever else is down: it removes them, and their time has come."""
    at_once = event.type == "Preempt" or event.not_before is None
    return event.type in REMOVES and (at_once or now >= (event.not_before or 0) - settings.lead_of(event.type))


def _is_needed(event: EventRow, view: FleetEvents, settings: MaintenanceSettings, now: Millis) -> bool:
    """Return true until all named nodes are done with the event, or have decided that it needs no preparation.

    An event that is far away needs none while nobody prepares for it, such as one that is held.
    """
    entries = [(node, node.entry(event.event_id)) for node in view.named(event)]
    if all(entry is not None and (entry.phase == "DONE" or is_unaffected(node, entry, event)) for node, entry in entries):
        return False
    waiting = all(entry is None or _is_waiting(entry) for _, entry in entries)
    return not waiting or _is_near(event, view, settings, now) or _may_begin(event, view)


def _may_begin(event: EventRow, view: FleetEvents) -> bool:
    """Return true if a node may prepare, or have begun, because it was asked to: an approval stands, or stood until a moment ago."""
    if event.grant is None:
        return False
    since = event.hold.at if event.hold is not None else None
    return (
        event.approval is not None
        or since is None
        or any(node.at <= since + BUSY_SILENCE for node in view.named(event) if node.entry(event.event_id) is not None)
    )


def _earlier_reason(event: EventRow, view: FleetEvents, settings: MaintenanceSettings) -> str | None:
    """Return which earlier reservations leave no room; None for room. Usually none does, unless an event names more nodes than before."""
    reserved = view.guard.reserved
    mine = (reserved[event.event_id], event.event_id)
    earlier = [view.events[id] for id, at in reserved.items() if (at, id) < mine and id in view.events]
    taken: Domains = {}
    for other in earlier:
        _add(taken, domains(other, view, settings))
    for unit, wanted in domains(event, view, settings):
        if len(taken.get(unit, set()) | wanted) > settings.domains_down and taken.get(unit):
            return f"{min(other.event_id for other in earlier)} goes first"
    return None


def _add(taken: Domains, more: Iterable[tuple[str, set[str]]]) -> None:
    for unit, found in more:
        taken[unit] = taken.get(unit, set()) | found


def _order(event: EventRow) -> tuple[Millis, str]:
    return (event.not_before if event.not_before is not None else event.seen, event.event_id)
