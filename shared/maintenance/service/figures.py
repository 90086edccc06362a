"""Gauges of fleets' maintenance for `/api/metrics`: the raised alarms, from each fleet's index row.

The inspection of every minute, which reads all fleets, writes them there. Metrics then read one page per thousand fleets, and none of their
rows.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

import orjson

from ...engine.fleet_cursor import MAX_NAMED_FLEETS, OTHER_FLEETS
from ...engine.queries import load_rows
from ...storage.names import MAINTENANCE
from ...storage.ports import Props, Row, Tables
from ..rows import INDEX, FleetEvents

_NONE: Final = "{}"


class MaintenanceFigures(NamedTuple):
    """The gauges of one fleet, or (`OTHER_FLEETS`) the sums over all fleets beyond the first `MAX_NAMED_FLEETS`.

    alarms: number of events with each alarm; the fleet itself counts as one event.
    """

    tenant: str
    fleet: str
    alarms: Counter[str]


def alarm_props(view: FleetEvents) -> Props:
    """Return the alarms for a fleet's index row. An alarm may have a place after its kind."""
    places = [*(event.alarms for event in view.events.values()), view.alarms.alarms]
    found = Counter(kind for alarms in places for kind in {alarm.partition(" ")[0] for alarm in alarms})
    return {"alarms": orjson.dumps(found, option=orjson.OPT_SORT_KEYS).decode()}


def has_alarms(entry: Row, props: Props) -> bool:
    """Return true if a fleet's index row has these alarms."""
    return entry.props.get("alarms", _NONE) == props["alarms"]


async def read_figures(tables: Tables) -> list[MaintenanceFigures]:
    """Return the gauges of the fleets with agents: the first by name singly, the others together. Raises `StorageError`."""
    found: dict[str, MaintenanceFigures] = {}
    for row in await load_rows(tables, MAINTENANCE, INDEX, "", "~"):
        tenant, _, fleet = row.rk.partition(":") if len(found) < MAX_NAMED_FLEETS else (OTHER_FLEETS, "", OTHER_FLEETS)
        each = found.setdefault(f"{tenant}:{fleet}", MaintenanceFigures(tenant, fleet, Counter()))
        each.alarms.update(orjson.loads(str(row.props.get("alarms", _NONE))))
    return list(found.values())
