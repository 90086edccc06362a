"""Gauges of fleets for `/api/metrics`: beats and servers as they are now, partitions as of the last inspection that read them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from ...core.clock import Millis
from ...engine.async_runner import Carrier
from ...engine.effects import load
from ...engine.fleet_cursor import MOST_FLEETS, REST
from ...leases.rows import INDEX
from ...leases.service.snapshot import glance
from ...leases.service.sweep_memory import Memory
from ...storage.names import FLEETS
from ...storage.ports import Tables
from . import rules
from .rules import Watched
from .state import WATCHED, watched_of


class Figures(NamedTuple):
    """One fleet's. oldest_beat: seconds. alarms: kinds that last.

    Of the others together (`REST`) what inspections left: a kind is there once for each fleet, and of servers and beats there is nothing.
    """

    tenant: str
    fleet: str
    live: int
    needed: int
    unserved: int
    stale: int
    oldest_beat: float
    alarms: tuple[str, ...]


async def look(tables: Tables, carrier: Carrier, memory: Memory, now: Millis) -> list[Figures]:
    """Those of the first fleets by name, two reads each, and of the others together; two reads for each thousand. Raises `StorageError`."""
    keys = [row.rk for row in await load(tables, FLEETS, INDEX, "", "~", ("created",))]
    known = {key: watched_of(row).value for key, row in (await memory.load(WATCHED, keys)).items()}
    slots = asyncio.Semaphore(8)

    async def one(key: str) -> Figures | None:
        async with slots:
            seen = await carrier.drive(glance(key))
        if seen is None:
            return None
        tenant, _, fleet = key.partition(":")
        found, watched = rules.looked_over(seen, now), known.get(key, Watched())
        return Figures(tenant, fleet, found.live, found.needed, watched.unserved, watched.stale, found.oldest, _lasting(watched))

    shown = [each for each in await asyncio.gather(*map(one, keys[:MOST_FLEETS])) if each is not None]
    others = keys[MOST_FLEETS:]
    return [*shown, _together([known[key] for key in others if key in known])] if others else shown


def _together(fleets: Sequence[Watched]) -> Figures:
    unserved, stale = sum(each.unserved for each in fleets), sum(each.stale for each in fleets)
    return Figures(REST, REST, 0, 0, unserved, stale, 0.0, tuple(kind for each in fleets for kind in _lasting(each)))


def _lasting(watched: Watched) -> tuple[str, ...]:
    return tuple(kind for kind, alarm in watched.alarms.items() if not alarm.cleared)
