"""Reads scheduled events that Event Grid delivers, a source in addition to the agents' documents.

Azure Resource Notifications emits `ScheduledEventEmitted` for maintenance resources, also with states that no document shows: Completed and
Canceled. Other services use the same type. Deliveries that are not about a VM's event are ignored.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, cast

from ...core.clock import Millis
from ..azure_names import distinct, folded
from ..not_before import read_time
from ..rows import EventRow, FleetEvents, LedgerSource

VALIDATION: Final = "Microsoft.EventGrid.SubscriptionValidationEvent"
EMITTED: Final = "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted"
MOST: Final = 500
"""Largest number of deliveries in one call."""

type AzureStatus = Literal["Scheduled", "Started", "Completed", "Canceled"]
_STATUS: Final = ("Scheduled", "Started", "Completed", "Canceled")
_ID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]{0,126}[A-Za-z0-9])?")
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,128}")


class Emitted(NamedTuple):
    """A delivery about a VM's event."""

    event_id: str
    type: str
    status: AzureStatus
    not_before: Millis | None
    source: LedgerSource
    duration: int
    resources: tuple[str, ...]


def validation_code(deliveries: list[Any]) -> str | None:
    """Return the validation code that Event Grid expects in the answer; None if it does not ask for one."""
    for each in deliveries:
        if isinstance(each, dict) and each.get("eventType") == VALIDATION:
            data = each.get("data")
            code = data.get("validationCode") if isinstance(data, dict) else None
            return code if isinstance(code, str) and len(code) <= 1000 else None
    return None


def parse_delivery(delivery: Any) -> Emitted | None:
    """Parse a delivery; None if it is not about a VM's scheduled event."""
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
        distinct(resources)[:1000],
    )


def merge_delivery(event: EventRow | None, delivery: Emitted, view: FleetEvents, now: Millis) -> EventRow | None:
    """Return the event after a delivery; None if it names no VM of this fleet, or a VM name that exists in several scopes."""
    if event is None:
        vms = folded(delivery.resources)
        scopes = distinct(node.scope for node in view.nodes.values() if node.vm.casefold() in vms)
        if len(scopes) != 1:
            return None
        event = EventRow(
            delivery.event_id,
            scopes[0],
            delivery.type,
            "scheduled",
            now,
            delivery.not_before,
            delivery.source,
            delivery.duration,
            delivery.resources,
        )
    if delivery.status == "Completed":
        return replace(event, azure="completed")
    if delivery.status == "Canceled":
        return replace(event, azure="cancelled")
    if not event.listed and event.status == "scheduled" and delivery.status == "Scheduled":
        # No document has the event yet, so this is the latest information.
        return replace(event, not_before=delivery.not_before, duration=delivery.duration)
    if delivery.status == "Started" and event.status == "scheduled":
        return replace(event, status="started", started=now)
    return event
