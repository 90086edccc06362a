"""Gauges of fleets for `/api/metrics`: beats and servers as they are now, partitions as of the last inspection that read them."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from ...clock import Millis
from ...fleets.store import INDEX
from ...storage.names import FLEETS
from ...storage.ports import Tables
from ..carrier import Carrier
from ..survey import glance
from . import rules
from .state import WATCHED, Memory, watched_of

MOST_FLEETS: Final = 100
"""Fleets told apart, the first by name: a bound on series and reads."""


class Figures(NamedTuple):
    """One fleet's. oldest_beat: seconds. alarms: kinds that last."""

    tenant: str
    fleet: str
    live: int
    needed: int
    unserved: int
    stale: int
    oldest_beat: float
    alarms: tuple[str, ...]


async def look(tables: Tables, carrier: Carrier, memory: Memory, now: Millis) -> list[Figures]:
    """Those of the first fleets by name: two reads each, and two for all. Raises `StorageError`."""
    index = await tables.query(FLEETS, INDEX, limit=MOST_FLEETS)
    keys = [row.rk for row in index.rows]
    watched = await memory.load(WATCHED, keys)
    slots = asyncio.Semaphore(8)

    async def one(key: str) -> Figures | None:
        async with slots:
            seen = await carrier.drive(glance(key))
        if seen is None:
            return None
        tenant, _, fleet = key.partition(":")
        found, known = rules.looked_over(seen, now), watched_of(watched.get(key)).value
        alarms = tuple(kind for kind, alarm in known.alarms.items() if not alarm.cleared)
        return Figures(tenant, fleet, found.live, found.needed, known.unserved, known.stale, found.oldest, alarms)

    return [each for each in await asyncio.gather(*map(one, keys)) if each is not None]
