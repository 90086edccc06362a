"""Gauges of fleets for `/api/metrics`. Heartbeats and servers are read now; partitions are those of the last inspection that read them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from ...core.clock import Millis
from ...engine.async_runner import AsyncRunner
from ...engine.effects import load_rows
from ...engine.sweeps import OTHER_FLEETS, RowPace, named_fleets
from ...leases.rows import INDEX
from ...leases.service.snapshot import read_summary
from ...leases.service.sweep_memory import PLANNED, SweepMemory, idle_fleets, parse_last_plan
from ...storage.names import FLEETS
from ...storage.ports import RowQuery, Tables
from . import rules
from .rules import WatchState
from .state import WATCHED, parse_watch_state


class FleetFigures(NamedTuple):
    """Gauges of one fleet. oldest_beat: seconds. alarms: kinds that are raised now.

    Fleets that are not among `named_fleets` share one value, `OTHER_FLEETS`. It holds the results of their inspections, names a kind once
    for each fleet, and has no servers and heartbeats.
    """

    tenant: str
    fleet: str
    live: int
    needed: int
    unserved: int
    stale: int
    oldest_beat: float
    alarms: tuple[str, ...]


async def read_figures(
    tables: Tables, runner: AsyncRunner, memory: SweepMemory, now: Millis, pace: RowPace | None = None
) -> list[FleetFigures]:
    """Read the gauges of `named_fleets`, two requests each, and of the others together, three requests per thousand fleets.

    An idle fleet has no living server: its gauges are those of its last visit, without a request. Raises `StorageError`.
    """
    keys = [row.rk for row in await load_rows(tables, RowQuery(FLEETS, INDEX, "", "~", select=("created",)))]
    watched, plans = await asyncio.gather(memory.load(WATCHED, keys), memory.load(PLANNED, keys))
    known = {key: parse_watch_state(row).value for key, row in watched.items()}
    idle = {key: parse_last_plan(plans[key]).value for key in idle_fleets(plans)}
    slots = asyncio.Semaphore(8)

    async def read_one(key: str) -> FleetFigures | None:
        tenant, _, fleet = key.partition(":")
        state = known.get(key, WatchState())
        if key in idle:
            return FleetFigures(tenant, fleet, 0, idle[key].needed or 0, state.unserved, state.stale, 0.0, _raised_kinds(state))
        async with slots:
            if pace is not None:
                await pace.admit()
            summary = await runner.run(read_summary(key))
        if summary is None:
            return None
        found = rules.findings_of_summary(summary, now)
        return FleetFigures(tenant, fleet, found.live, found.needed, state.unserved, state.stale, found.oldest, _raised_kinds(state))

    named = dict.fromkeys(named_fleets(keys, {key for key, state in known.items() if state.stale or _raised_kinds(state)}))
    singly = [each for each in await asyncio.gather(*map(read_one, named)) if each is not None]
    others = [key for key in keys if key not in named]
    return [*singly, _sum_up([known[key] for key in others if key in known])] if others else singly


def _sum_up(states: Sequence[WatchState]) -> FleetFigures:
    unserved, stale = sum(each.unserved for each in states), sum(each.stale for each in states)
    return FleetFigures(
        OTHER_FLEETS, OTHER_FLEETS, 0, 0, unserved, stale, 0.0, tuple(kind for each in states for kind in _raised_kinds(each))
    )


def _raised_kinds(state: WatchState) -> tuple[str, ...]:
    return tuple(kind for kind, alarm in state.alarms.items() if not alarm.cleared)
