"""Gauges of fleets' maintenance for `/api/metrics`: the alarms that last."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final, NamedTuple

from ..storage.names import MAINTENANCE
from ..storage.ports import Tables
from .rows import INDEX, View
from .store import Store

MOST_FLEETS: Final = 100
"""Fleets told apart, the first by name: a bound on series and reads."""
IN_FLIGHT: Final = 8


class Figures(NamedTuple):
    """One fleet's. alarms: how many events have each of them, the fleet's own watch counted as one."""

    tenant: str
    fleet: str
    alarms: Counter[str]


def figures_of(key: str, view: View) -> Figures:
    """Those of a fleet. An alarm may name a node behind its kind."""
    tenant, _, fleet = key.partition(":")
    places = [*(event.alarms for event in view.events.values()), view.alarms.alarms]
    return Figures(tenant, fleet, Counter(kind for alarms in places for kind in {alarm.partition(" ")[0] for alarm in alarms}))


async def look(tables: Tables, store: Store) -> list[Figures]:
    """Those of the first fleets by name that have agents: one query each, and one for all. Raises `StorageError`."""
    index = await tables.query(MAINTENANCE, INDEX, limit=MOST_FLEETS)
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def one(key: str) -> Figures:
        async with slots:
            return figures_of(key, (await store.read(key)).view)

    return list(await asyncio.gather(*(one(row.rk) for row in index.rows)))
