"""Gauges of fleets' maintenance for `/api/metrics`: the alarms that last, as each fleet's entry in the index has them.

The minute's inspection, which reads all fleets, puts them there: a look reads a page for each thousand fleets, and none of their rows.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

import orjson

from ...engine.fleet_cursor import MOST_FLEETS, REST
from ...engine.queries import load_rows
from ...storage.names import MAINTENANCE
from ...storage.ports import Props, Row, Tables
from ..rows import INDEX, FleetEvents

_NONE: Final = "{}"


class MaintenanceFigures(NamedTuple):
    """One fleet's, or (`REST`) those of all beyond the first together. alarms: how many events have each of them, a fleet's own watch
    counted as one."""

    tenant: str
    fleet: str
    alarms: Counter[str]


def noted(view: FleetEvents) -> Props:
    """What a fleet's entry is to say of its alarms. One may name a node behind its kind."""
    places = [*(event.alarms for event in view.events.values()), view.alarms.alarms]
    found = Counter(kind for alarms in places for kind in {alarm.partition(" ")[0] for alarm in alarms})
    return {"alarms": orjson.dumps(found, option=orjson.OPT_SORT_KEYS).decode()}


def says(entry: Row, props: Props) -> bool:
    """Whether a fleet's entry has these."""
    return entry.props.get("alarms", _NONE) == props["alarms"]


async def look(tables: Tables) -> list[MaintenanceFigures]:
    """Those of the fleets that have agents: the first by name each, the others together. Raises `StorageError`."""
    found: dict[str, MaintenanceFigures] = {}
    for row in await load_rows(tables, MAINTENANCE, INDEX, "", "~"):
        tenant, _, fleet = row.rk.partition(":") if len(found) < MOST_FLEETS else (REST, "", REST)
        each = found.setdefault(f"{tenant}:{fleet}", MaintenanceFigures(tenant, fleet, Counter()))
        each.alarms.update(orjson.loads(str(row.props.get("alarms", _NONE))))
    return list(found.values())
