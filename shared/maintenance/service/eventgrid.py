"""What Event Grid delivers of scheduled events: an additional source beside the agents' documents.

Azure Resource Notifications emits `ScheduledEventEmitted` for maintenance resources, also with the states that no document shows: Completed
and Canceled. Services share the type for things of their own; whatever is not a VM's event is left alone.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, cast

from ...core.clock import Millis
from ..not_before import read_time
from ..rows import EventRow, FleetEvents, LedgerSource

VALIDATION: Final = "Microsoft.EventGrid.SubscriptionValidationEvent"
EMITTED: Final = "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted"
MOST: Final = 500
"""Deliveries in one call."""

type AzureStatus = Literal["Scheduled", "Started", "Completed", "Canceled"]
_STATUS: Final = ("Scheduled", "Started", "Completed", "Canceled")
_ID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]{0,126}[A-Za-z0-9])?")
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,128}")


class Emitted(NamedTuple):
    """One delivery that tells of a VM's event."""

    event_id: str
    type: str
    status: AzureStatus
    not_before: Millis | None
    source: LedgerSource
    duration: int
    resources: tuple[str, ...]


def validation_code(deliveries: list[Any]) -> str | None:
    """The code that Event Grid wants back before it delivers anything; None when it does not ask."""
    for each in deliveries:
        if isinstance(each, dict) and each.get("eventType") == VALIDATION:
            data = each.get("data")
            code = data.get("validationCode") if isinstance(data, dict) else None
            return code if isinstance(code, str) and len(code) <= 1000 else None
    return None


def emitted(delivery: Any) -> Emitted | None:
    """What a delivery tells; None for what is no VM's scheduled event."""
    found: Any = delivery
    for name in ("data", "resourceInfo", "properties"):
        kind = found.get("eventType", EMITTED) if isinstance(found, dict) and name == "data" else EMITTED
        found = found.get(name) if isinstance(found, dict) and kind == EMITTED else None
    if not isinstance(found, dict) or found.get("ResourceType") != "VirtualMachine":
        return None
    event_id, status, resources = found.get("EventId"), found.get("EventStatus"), found.get("Resources")
    kind, duration = found.get("EventType"), found.get("DurationInSeconds", -1)
    if not isinstance(event_id, str) or not _ID.fullmatch(event_id) or status not in _STATUS or not isinstance(kind, str):
        return None
    if not isinstance(resources, list) or not all(isinstance(each, str) and _NAME.fullmatch(each) for each in resources):
        return None
    return Emitted(
        event_id.lower(),
        kind[:64],
        cast(AzureStatus, status),
        read_time(found.get("NotBefore")),
        "User" if found.get("EventSource") == "User" else "Platform",
        duration if isinstance(duration, int) and not isinstance(duration, bool) and -1 <= duration <= 31_536_000 else -1,
        tuple(resources[:1000]),
    )


def noted(event: EventRow | None, told: Emitted, view: FleetEvents, now: Millis) -> EventRow | None:
    """The event after a delivery; None when it names no VM of this fleet, or VMs of a name in several scopes."""
    if event is None:
        scopes = {node.scope for node in view.nodes.values() if node.vm in told.resources}
        if len(scopes) != 1:
            return None
        event = EventRow(
            told.event_id, scopes.pop(), told.type, "scheduled", now, told.not_before, told.source, told.duration, told.resources
        )
    if told.status == "Completed":
        return replace(event, azure="completed")
    if told.status == "Canceled":
        return replace(event, azure="cancelled")
    if not event.listed and event.status == "scheduled" and told.status == "Scheduled":
        # No document has it yet, so this is the latest word.
        return replace(event, not_before=told.not_before, duration=told.duration)
    if told.status == "Started" and event.status == "scheduled":
        return replace(event, status="started", started=now)
    return event
