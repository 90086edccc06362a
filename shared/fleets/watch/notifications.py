"""Alarms as events on a channel of the tenant. The id follows from the alarm, so an alarm that is sent twice is one event."""

from __future__ import annotations

from typing import Any

from ...core.clock import to_text
from ...leases.fleet_notices import channel_for, name_in_id, send_notice
from ...scheduler.ingest.internal_events import EventPublisher
from .alarms import ALARMS, Alarm, alarm_text


def alarm_event(key: str, alarm: Alarm, channel: str) -> dict[str, Any]:
    """Return the event that reports an alarm or its end. Equal alarms give equal events."""
    tenant, _, fleet = key.partition(":")
    state = "cleared" if alarm.cleared else "raised"
    payload = {
        "type": "lease-alarm",
        "tenant": tenant,
        "fleet": fleet,
        "alarm": alarm.kind,
        "kind": ALARMS[alarm.kind].notification,
        "state": state,
        "since": to_text(alarm.since),
        "cleared": to_text(alarm.cleared) if alarm.cleared else None,
        "count": alarm.count,
        "subjects": list(alarm.subjects),
        "text": f"{fleet}: {alarm_text(fleet, alarm)}",
    }
    due = to_text(alarm.cleared or alarm.since)
    return {"id": f"lease:{name_in_id(fleet)}:{alarm.kind}:{alarm.since}:{state}", "due": due, "channel": channel, "payload": payload}


async def publish_alarm(publisher: EventPublisher, key: str, definition: str, alarm: Alarm) -> bool:
    """Send an alarm to the fleet's channel, if it has one. Return False to try again later. Raises `StorageError`."""
    channel = channel_for(definition, ALARMS[alarm.kind].notification)
    if channel is None:
        return True
    return await send_notice(publisher, key, alarm_event(key, alarm, channel), {"alarm": alarm.kind})
