"""Gauges of fleets' maintenance for `/api/metrics`: the raised alarms, from each fleet's index row.

The inspection of every minute, which reads all fleets, writes them there. Metrics then read one page per thousand fleets, and none of their
rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

import orjson

from ...core.clock import Millis
from ...engine.effects import load_rows
from ...engine.sweeps import OTHER_FLEETS, named_fleets
from ...storage.names import MAINTENANCE
from ...storage.ports import Props, Row, RowQuery, Tables
from ..decisions.domain_guard import is_live
from ..rows import INDEX, FleetEvents
from .alarms import kind_of

_NONE: Final = "{}"
MAX_SILENT_NAMED: Final = 5
"""Silent agents that a fleet's index row names."""


class MaintenanceFigures(NamedTuple):
    """The gauges of one fleet, or (`OTHER_FLEETS`) the sums over all fleets that are not among `named_fleets`.

    alarms: number of events with each alarm; the fleet itself counts as one event.
    """

    tenant: str
    fleet: str
    alarms: Counter[str]


def alarm_props(view: FleetEvents) -> Props:
    """Return the alarms for a fleet's index row."""
    places = [*(event.alarms for event in view.events.values()), view.alarms.alarms]
    found = Counter(kind for alarms in places for kind in {kind_of(alarm) for alarm in alarms})
    return {"alarms": orjson.dumps(found, option=orjson.OPT_SORT_KEYS).decode()}


class MaintenanceCare(NamedTuple):
    """A fleet's maintenance at a glance, as the last inspection has found it.

    alarms: number of events with each alarm. waiting: scheduled events that only a person lets continue before NotBefore. silent: number
    of agents that do not report as often as they should; silent_nodes: the first of them. agents: nodes with an agent. open: open events,
    rehearsals aside.
    """

    alarms: Mapping[str, int] = {}
    waiting: int = 0
    silent: int = 0
    silent_nodes: tuple[str, ...] = ()
    agents: int = 0
    open: int = 0


def care_props(view: FleetEvents, now: Millis) -> Props:
    """Return what the overview of fleets shows, for a fleet's index row. Former releases leave it as it is."""
    events = [event for event in view.events.values() if event.open and not event.rehearsal]
    silent = sorted(name for name, node in view.nodes.items() if not is_live(node, view, now))
    waiting = sum(
        event.status == "scheduled"
        and (event.hold is not None or (event.grant is None and (event.not_before is None or "too-wide" in event.alarms)))
        for event in events
    )
    found = {"waiting": waiting, "silent": len(silent), "names": silent[:MAX_SILENT_NAMED], "agents": len(view.nodes), "open": len(events)}
    return {"care": orjson.dumps(found).decode()}


def parse_care(row: Row | None) -> MaintenanceCare:
    """Return the overview's part of a fleet's index row. A fleet without agents has none."""
    if row is None:
        return MaintenanceCare()
    alarms: dict[str, int] = orjson.loads(str(row.props.get("alarms", _NONE)))
    found = orjson.loads(str(row.props.get("care", _NONE)))
    return MaintenanceCare(
        alarms,
        int(found.get("waiting", 0)),
        int(found.get("silent", 0)),
        tuple(found.get("names", ())),
        int(found.get("agents", 0)),
        int(found.get("open", 0)),
    )


def had_open_events(entry: Row) -> bool:
    """Return true if the last inspection found open events, rehearsals aside. It may be a minute old: nothing is decided from it."""
    try:
        return parse_care(entry).open > 0
    except (AttributeError, TypeError, ValueError):
        return False


def has_props(entry: Row, props: Props) -> bool:
    """Return true if a fleet's index row has these properties."""
    return all(entry.props.get(name, _NONE) == value for name, value in props.items())


async def read_figures(tables: Tables) -> list[MaintenanceFigures]:
    """Return the gauges of the fleets with agents: of `named_fleets` singly, of the others together. Raises `StorageError`."""
    rows = await load_rows(tables, RowQuery(MAINTENANCE, INDEX, "", "~"))
    alarms: dict[str, Counter[str]] = {row.rk: Counter(orjson.loads(str(row.props.get("alarms", _NONE)))) for row in rows}
    named = dict.fromkeys(named_fleets(list(alarms), {key for key, counts in alarms.items() if counts.total()}))
    found = [MaintenanceFigures(*_split(key), alarms[key]) for key in named]
    others = [counts for key, counts in alarms.items() if key not in named]
    if others:
        whole: Counter[str] = Counter()
        for counts in others:
            whole.update(counts)
        found.append(MaintenanceFigures(OTHER_FLEETS, OTHER_FLEETS, whole))
    return found


def _split(key: str) -> tuple[str, str]:
    tenant, _, fleet = key.partition(":")
    return tenant, fleet
