"""Asks the other fleets of a tenant about the VMs that an event names and that have no agent of the asking fleet.

Agents of all fleets of one scope report the same events. A fleet that knows some of the named VMs stores in its own row of the event which
these are, and since when it agrees that others approve the event for them. No tenant learns of another tenant's VMs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import batched
from typing import Final

from ...core.clock import Clock
from ...tenants.cache import Cached
from ..decisions.approvals import known_elsewhere
from ..rows import EventRow, OtherNode
from .store import MaintenanceStore, StoredEvents

SEARCH_AGE: Final = 5.0
"""Seconds for which a process remembers which fleets of a tenant have an event. What they say about it is read anew each time."""
MOST_SEARCHES: Final = 1000
READS_AT_ONCE: Final = 16


class OtherFleets:
    """Asks other fleets of the same tenant. One per process; remembers only which fleets have an event."""

    def __init__(self, store: MaintenanceStore, clock: Clock) -> None:
        self._store = store
        self._found = Cached(self._search, clock, ttl=SEARCH_AGE, missing_ttl=SEARCH_AGE, size=MOST_SEARCHES)

    async def seen(self, key: str, read: StoredEvents, asked: Mapping[str, str]) -> StoredEvents:
        """Return what was read with the answers of other fleets. asked: the scopes of the events. Raises `StorageError`."""
        if not asked:
            return read
        others = {event_id: await self._ask(key, event_id, scope) for event_id, scope in asked.items()}
        return replace(read, view=replace(read.view, others=others))

    async def _ask(self, key: str, event_id: str, scope: str) -> dict[str, OtherNode]:
        tenant, _, own = key.partition(":")
        others = [fleet for fleet in await self._found.get((tenant, event_id)) or () if fleet != own]
        return known_elsewhere({fleet: await self._store.event(f"{tenant}:{fleet}", event_id) for fleet in others}, scope)

    async def _search(self, asked: tuple[str, str]) -> tuple[str, ...] | None:
        """Return the names of the tenant's fleets that have an event; None for none."""
        tenant, event_id = asked
        found: list[str] = []
        for some in batched(await self._store.index(tenant), READS_AT_ONCE):
            events: list[EventRow | None] = await asyncio.gather(*(self._store.event(key, event_id) for key in some))
            found += [key.partition(":")[2] for key, event in zip(some, events, strict=True) if event is not None]
        return tuple(found) or None
