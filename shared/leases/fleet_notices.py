"""Events on the channel on which a fleet's tenant wants to be told of alarms and maintenance. The id of a notice follows from what it
tells, so one that is sent twice is one event."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson

from ..core.errors import Problem
from ..scheduler.ingest.queue_consumer import EventPublisher

log = logging.getLogger(__name__)


def channel_for(definition: str, kind: str) -> str | None:
    """Return the channel for notices of this kind; None if the fleet wants none. definition: `Fleet.rest`, JSON."""
    notify = orjson.loads(definition).get("notify") or {}
    channel = notify.get("channel")
    return str(channel) if channel and kind in notify.get("kinds", ()) else None


def name_in_id(fleet: str) -> str:
    """Return a fleet's name for an id, which may not contain '.'. No name contains '~'."""
    return fleet.replace(".", "~")


async def send_notice(publisher: EventPublisher, key: str, notice: Mapping[str, Any], about: Mapping[str, str]) -> bool:
    """Store a notice as an event of the fleet's tenant. Return False to try again later. Raises `StorageError`.

    key: `tenant:fleet`. about: further fields of the log line if the channel refuses it; it is not tried again then.
    """
    try:
        await publisher(key.partition(":")[0], notice)
    except Problem as refused:
        if refused.status in (429, 503):
            return False
        if refused.code != "id-conflict":
            extra = {"action": "fleet_notice_refused", "fleet": key, **about}
            log.warning("The channel %s of fleet %s refuses a notice: %s", notice["channel"], key, refused.detail, extra=extra)
        # With another content under its id it was stored before, and that was not recorded.
    return True
