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
from ...leases.service.snapshot import read_summary
from ...leases.service.sweep_memory import SweepMemory
from ...storage.names import FLEETS
from ...storage.ports import Tables
from . import rules
from .rules import WatchState
from .state import WATCHED, parse_watch_state


class FleetFigures(NamedTuple):
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


async def read_figures(tables: Tables, carrier: Carrier, memory: SweepMemory, now: Millis) -> list[FleetFigures]:
    """Those of the first fleets by name, two reads each, and of the others together; two reads for each thousand. Raises `StorageError`."""
    keys = [row.rk for row in await load(tables, FLEETS, INDEX, "", "~", ("created",))]
    known = {key: parse_watch_state(row).value for key, row in (await memory.load(WATCHED, keys)).items()}
    slots = asyncio.Semaphore(8)

    async def one(key: str) -> FleetFigures | None:
        async with slots:
            seen = await carrier.drive(read_summary(key))
        if seen is None:
            return None
        tenant, _, fleet = key.partition(":")
        found, watched = rules.findings_of_summary(seen, now), known.get(key, WatchState())
        return FleetFigures(tenant, fleet, found.live, found.needed, watched.unserved, watched.stale, found.oldest, _lasting(watched))

    shown = [each for each in await asyncio.gather(*map(one, keys[:MOST_FLEETS])) if each is not None]
    others = keys[MOST_FLEETS:]
    return [*shown, _together([known[key] for key in others if key in known])] if others else shown


def _together(fleets: Sequence[WatchState]) -> FleetFigures:
    unserved, stale = sum(each.unserved for each in fleets), sum(each.stale for each in fleets)
    return FleetFigures(REST, REST, 0, 0, unserved, stale, 0.0, tuple(kind for each in fleets for kind in _lasting(each)))


def _lasting(watched: WatchState) -> tuple[str, ...]:
    return tuple(kind for kind, alarm in watched.alarms.items() if not alarm.cleared)
