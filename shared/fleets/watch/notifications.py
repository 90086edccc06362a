"""Alarms as events on a channel of the tenant. The id follows from the alarm, so an alarm that is sent twice is one event."""

from __future__ import annotations

import logging
from typing import Any

import orjson

from ...core.clock import to_text
from ...core.errors import Problem
from ...scheduler.ingest.internal_events import EventPublisher
from .alarms import ALARMS, Alarm, Kind, alarm_text

log = logging.getLogger(__name__)


def channel_for(definition: str, kind: Kind) -> str | None:
    """Return the channel for alarms of this kind; None if the fleet wants none. definition: `Fleet.rest`, JSON."""
    notify = orjson.loads(definition).get("notify") or {}
    channel = notify.get("channel")
    return str(channel) if channel and ALARMS[kind].notification in notify.get("kinds", ()) else None


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
    # A fleet's name may contain '.', which an id may not. No name contains '~'.
    name = fleet.replace(".", "~")
    due = to_text(alarm.cleared or alarm.since)
    return {"id": f"lease:{name}:{alarm.kind}:{alarm.since}:{state}", "due": due, "channel": channel, "payload": payload}


async def publish_alarm(publisher: EventPublisher, key: str, definition: str, alarm: Alarm) -> bool:
    """Send an alarm to the fleet's channel, if it has one. Return False to try again later. Raises `StorageError`."""
    channel = channel_for(definition, alarm.kind)
    if channel is None:
        return True
    try:
        await publisher(key.partition(":")[0], alarm_event(key, alarm, channel))
    except Problem as refused:
        if refused.status in (429, 503):
            return False
        extra = {"action": "lease_notify_refused", "fleet": key, "alarm": alarm.kind}
        log.warning("The channel %s of fleet %s refuses its alarms: %s", channel, key, refused.detail, extra=extra)
    return True
