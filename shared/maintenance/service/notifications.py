"""Notices to a fleet's channel about maintenance: status changes and alarms. Ids depend on the content, so a repeated notice is one
event."""

from __future__ import annotations

import logging
import re
from hashlib import sha256
from typing import Any, Final

from ...core.clock import Millis, to_text
from ...leases.fleet_notices import name_in_id, send_notice
from ...scheduler.ingest.queue_consumer import EventPublisher
from ..rows import AlarmsRow, EventRow
from ..rule_settings import MaintenanceSettings
from ..rules import unpublished
from .alarms import ALARMS, kind_of

log = logging.getLogger(__name__)

KIND: Final = "maintenance"
"""The kind of these notices in a fleet's `notify`."""
_PREPARE: Final = "prepare@"
_LONGEST: Final = 200
"""Longest id, in characters."""
_EARLY: Final[Millis] = 60_000
"""An event that is further away than its lead by this time also gets a notice at the time at which nodes prepare."""


def of_event(key: str, event: EventRow, what: str, channel: str, now: Millis) -> dict[str, Any]:
    """Return the notice of a status, `+alarm` or `-alarm` of an event."""
    named = {
        "event_id": event.event_id,
        "event_type": event.type,
        "status": event.status,
        "scope": event.scope,
        "not_before": to_text(event.not_before) if event.not_before is not None else None,
        "resources": list(event.resources[:100]),
        "rehearsal": event.rehearsal,
    }
    again = f":{event.returns}" if event.returns else ""
    return _notice(key, f"{event.event_id}:{event.seen}{again}", what, channel, now, named)


def of_fleet(key: str, what: str, channel: str, now: Millis) -> dict[str, Any]:
    """Return the notice of an alarm of the fleet itself."""
    # An alarm may be raised and cleared repeatedly, so each notice has the minute in its id.
    return _notice(key, f"fleet:{now // 60_000}", what, channel, now, {})


def due_notices(
    key: str, kept: EventRow | AlarmsRow, settings: MaintenanceSettings, channel: str | None, now: Millis
) -> list[tuple[str, dict[str, Any] | None]]:
    """Return what is not published yet, each with its notice; None for the notice if the fleet has no channel."""
    if channel is None:
        return [(what, None) for what in unpublished(kept)]
    if not isinstance(kept, EventRow):
        return [(what, of_fleet(key, what, channel, now)) for what in unpublished(kept)]
    found: list[tuple[str, dict[str, Any] | None]] = [(what, of_event(key, kept, what, channel, now)) for what in unpublished(kept)]
    prepare = to_prepare(key, kept, settings, channel, now)
    return [*found, prepare] if prepare is not None and prepare[0] not in kept.told else found


def to_prepare(key: str, event: EventRow, settings: MaintenanceSettings, channel: str, now: Millis) -> tuple[str, dict[str, Any]] | None:
    """Return the mark and the notice for the time at which nodes prepare, if that is far enough away; one for each NotBefore."""
    if event.status != "scheduled" or event.not_before is None:
        return None
    at = event.not_before - settings.lead_of(event.type)
    if at <= now + _EARLY:
        return None
    what = f"{_PREPARE}{event.not_before}"
    return what, of_event(key, event, what, channel, now) | {"due": to_text(at)}


def _notice(key: str, about: str, what: str, channel: str, now: Millis, more: dict[str, Any]) -> dict[str, Any]:
    tenant, _, fleet = key.partition(":")
    alarm = kind_of(what[1:]) if what[0] in "+-" else None
    payload = {
        "type": "maintenance",
        "tenant": tenant,
        "fleet": fleet,
        "what": what.partition("@")[0] if alarm is None else "alarm",
        "kind": KIND,
        **more,
    }
    if alarm is not None:
        payload |= {"alarm": what[1:], "state": "raised" if what[0] == "+" else "cleared", "text": f"{fleet}: {ALARMS[alarm].sentence}"}
    marks = {"+": "raised~", "-": "cleared~"}
    mark = marks.get(what[0], "") + what.lstrip("+-")
    ident = re.sub(r"[^A-Za-z0-9:~_-]", "~", f"maintenance:{name_in_id(fleet)}:{about}:{mark}")
    if len(ident) > _LONGEST:
        ident = f"{ident[: _LONGEST - 33]}~{sha256(ident.encode()).hexdigest()[:32]}"
    return {"id": ident, "due": to_text(now), "channel": channel, "payload": payload}


async def publish(publisher: EventPublisher, key: str, notice: dict[str, Any]) -> bool:
    """Publish a notice to the tenant's channel. Return False to try again later. Raises `StorageError`."""
    named = {"event_id": event_id} if (event_id := notice["payload"].get("event_id")) else {}
    return await send_notice(publisher, key, notice, named)


def log_of(key: str, kept: EventRow | AlarmsRow, what: str) -> None:
    """Log a published notice, except that of the time to prepare."""
    if what.startswith(_PREPARE):
        return
    about = f"event {kept.event_id}" if isinstance(kept, EventRow) else "the fleet"
    alarm = kind_of(what[1:]) if what[0] in "+-" else None
    named: dict[str, Any] = {"fleet": key} | ({"event_id": kept.event_id} if isinstance(kept, EventRow) else {})
    if alarm is None:
        log.info("%s: %s is %s", key, about, what, extra={"action": "maintenance_status", **named})
    elif what[0] == "+":
        log.warning("%s: %s: %s", key, about, ALARMS[alarm].sentence, extra={"action": "maintenance_alarm", "alarm": what[1:], **named})
    else:
        extra = {"action": "maintenance_alarm_cleared", "alarm": what[1:], **named}
        log.info("%s: %s: alarm cleared: %s", key, about, ALARMS[alarm].sentence, extra=extra)
