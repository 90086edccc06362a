"""Events that the service itself makes, such as alarms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import orjson
from pydantic import TypeAdapter

from ...web.parsing import parse_with
from ..model import EventIn
from .admission import Ingest


class EventPublisher(Protocol):
    """Accepts events that the service makes."""

    async def __call__(self, tenant: str, content: Mapping[str, Any]) -> None:
        """Store the event; a repetition changes nothing. Raises `Problem`, `StorageError`."""


_EVENT: TypeAdapter[EventIn] = TypeAdapter(EventIn)


class InternalEvents:
    """Stores alarms as events of their tenant."""

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest

    async def __call__(self, tenant: str, content: Mapping[str, Any]) -> None:
        """Store the event by the same rules as any other, but for its tenant's `expires`. Raises `Problem`, `StorageError`."""
        raw = orjson.dumps({"expires": None, **content})
        await self._ingest.one(tenant, *parse_with(_EVENT, raw, "payload"))
