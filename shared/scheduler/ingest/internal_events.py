"""shared.scheduler.ingest.internal_events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import orjson
from pydantic import TypeAdapter

from ...web.parsing import parse_json
from ..model import EventIn
from .admission import Ingest


class Publisher(Protocol):
    """Takes events in."""

    async def __call__(self, tenant: str, content: Mapping[str, Any]) -> None:
        """Store the event; the same again changes nothing. Raises `Problem`, `StorageError`."""


_EVENT: TypeAdapter[EventIn] = TypeAdapter(EventIn)


class Events:
    """Takes alarms in as events of the tenant's."""

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest

    async def __call__(self, tenant: str, content: Mapping[str, Any]) -> None:
        """Store the event, by the rules for anybody's. Raises `Problem`, `StorageError`."""
        raw = orjson.dumps(content)
        await self._ingest.one(tenant, parse_json(_EVENT, raw), raw)
