"""Alarms as events on a channel of the tenant's own. The id follows from the alarm, so one that is told twice is one event."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import orjson

from ...core.clock import to_text
from ...core.errors import Problem
from ...scheduler.ingest.internal_events import Publisher
from .rules import Alarm, Kind

log = logging.getLogger(__name__)

SENTENCES: Final[Mapping[Kind, str]] = {
    "silent": "servers have been silent for long and are not fenced",
    "unserved": "nobody serves partitions that somebody should",
    "missing": "rows of partitions are missing",
    "servers": "fewer servers are there than the fleet needs (minimum + spare)",
    "forgotten": "operators' words have stood for a day and never expire",
    "late": "half of the servers' beats are late: storage may be throttled",
    "turns": "no checkpoint is taken any more",
    "unreadable": "rows cannot be read, and what they are about stays as it is",
}
NOTIFIED: Final[Mapping[Kind, str]] = {
    "silent": "stale",
    "unserved": "stale",
    "missing": "stale",
    "servers": "dead",
    "forgotten": "stale",
    "late": "stale",
    "turns": "stale",
    "unreadable": "stale",
}
"""Under which of the kinds in a fleet's `notify` an alarm falls."""



def wanted(rest: str, kind: Kind) -> str | None:
    """The channel that an alarm goes to, by the fleet's definition; None for nowhere."""
    notify = orjson.loads(rest).get("notify") or {}
    channel = notify.get("channel")
    return str(channel) if channel and NOTIFIED[kind] in notify.get("kinds", ()) else None


def event_of(key: str, alarm: Alarm, channel: str) -> dict[str, Any]:
    """The event that tells of an alarm, or of its end. The same for the same alarm, whenever it is made."""
    tenant, _, fleet = key.partition(":")
    state = "cleared" if alarm.cleared else "raised"
    payload = {
        "type": "lease-alarm",
        "tenant": tenant,
        "fleet": fleet,
        "alarm": alarm.kind,
        "kind": NOTIFIED[alarm.kind],
        "state": state,
        "since": to_text(alarm.since),
        "cleared": to_text(alarm.cleared) if alarm.cleared else None,
        "count": alarm.count,
        "subjects": list(alarm.subjects),
        "text": f"{fleet}: {SENTENCES[alarm.kind]}",
    }
    # Names of fleets may hold what ids may not; and '~' is in none of them.
    name = fleet.replace(".", "~")
    due = to_text(alarm.cleared or alarm.since)
    return {"id": f"lease:{name}:{alarm.kind}:{alarm.since}:{state}", "due": due, "channel": channel, "payload": payload}


async def publish(publisher: Publisher, key: str, rest: str, alarm: Alarm) -> bool:
    """Tell the tenant's channel, if it wants to know. False: try again later. Raises `StorageError`."""
    channel = wanted(rest, alarm.kind)
    if channel is None:
        return True
    try:
        await publisher(key.partition(":")[0], event_of(key, alarm, channel))
    except Problem as refused:
        if refused.status in (429, 503):
            return False
        extra = {"action": "lease_notify_refused", "fleet": key, "alarm": alarm.kind}
        log.warning("The channel %s of %s does not take its alarms: %s", channel, key, refused.detail, extra=extra)
    return True
