"""What the timers remember of fleets, in `TocsinSweeps`: one row per fleet and duty, written only when something changed.

Written on the ETag that was read: of two instances at once one wins, and the other leaves it at that.
"""

from __future__ import annotations

from typing import Any, Final, cast

import orjson

from ...leases.service.sweep_memory import Remembered
from ...storage.ports import Props, Row
from .rules import KINDS, Alarm, Kind, WatchState

WATCHED: Final = "lease-watch"



def parse_watch_state(row: Row | None) -> Remembered[WatchState]:
    """What a row remembers; what a former release wrote otherwise counts as nothing."""
    if row is None:
        return Remembered(WatchState(), "")
    stored: dict[str, Any] = orjson.loads(str(row.props["state"]))
    kinds = set(KINDS)
    first = {cast(Kind, kind): int(at) for kind, at in stored["first"].items() if kind in kinds}
    alarms = {
        cast(Kind, kind): Alarm(cast(Kind, kind), since, tuple(subjects), count, cleared, told)
        for kind, (since, subjects, count, cleared, told) in stored["alarms"].items()
        if kind in kinds
    }
    unserved, stale = int(row.props["unserved"]), int(row.props["stale"])
    return Remembered(WatchState(str(row.props["seen"]), int(row.props["looked"]), first, alarms, unserved, stale), row.etag)


def watch_state_props(watched: WatchState) -> Props:
    """As stored."""
    alarms = {kind: (a.since, a.subjects, a.count, a.cleared, a.told) for kind, a in watched.alarms.items()}
    state = orjson.dumps({"first": dict(watched.first), "alarms": alarms}).decode()
    return {"seen": watched.seen, "looked": watched.looked, "unserved": watched.unserved, "stale": watched.stale, "state": state}

